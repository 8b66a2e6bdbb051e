// An HTTP server of node, and its keep-alive clients: `serve PORT`, `ask PORT`.
const http = require('http');
const [how, port] = process.argv.slice(2);
if (how === 'serve') {
  http.createServer((request, response) => {
    let bytes = 0;
    request.on('data', piece => { bytes += piece.length; });
    request.on('end', () =>
      response.end(request.url === '/big' ? Buffer.alloc(1e6, 'z') : `got ${bytes}`));
  }).listen(port, '127.0.0.1');
} else {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
  let begun = 0, left = 800, all = 0;
  function next() {
    if (begun >= 800) return;
    const i = begun++, body = Buffer.alloc((i * 37) % 5000, 'a');
    const path = i % 100 === 0 ? '/big' : '/';
    const headers = { 'content-length': body.length };
    const asked = { port, host: '127.0.0.1', agent, method: 'POST', path, headers };
    const request = http.request(asked, response => {
      response.on('data', piece => { all += piece.length; });
      response.on('end', () => {
        if (--left === 0) { console.log('bytes', all); agent.destroy(); } else next();
      });
    });
    request.on('error', error => { console.log(error.code); process.exit(1); });
    request.end(body);
  }
  for (let k = 0; k < 20; k++) next();
}
