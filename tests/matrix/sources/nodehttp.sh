# node: an HTTP server and its keep-alive clients in one process, then a cluster of two workers that
# share a listener.
cat > one.js <<'X'
const http = require('http');
const server = http.createServer((request, response) => {
  let bytes = 0;
  request.on('data', piece => { bytes += piece.length; });
  request.on('end', () => response.end(request.url === '/big' ? Buffer.alloc(1e6, 'z') : `got ${bytes}`));
});
server.listen(0, '127.0.0.1', () => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
  const port = server.address().port;
  let begun = 0, left = 1500, all = 0;
  function next() {
    if (begun >= 1500) return;
    const i = begun++, body = Buffer.alloc((i * 37) % 5000, 'a');
    const path = i % 100 === 0 ? '/big' : '/';
    const headers = { 'content-length': body.length };
    const asked = { port, host: '127.0.0.1', agent, method: 'POST', path, headers };
    const request = http.request(asked, response => {
      response.on('data', piece => { all += piece.length; });
      response.on('end', () => {
        if (--left === 0) { console.log('bytes', all); agent.destroy(); server.close(); } else next();
      });
    });
    request.on('error', error => { console.log(error.code); process.exit(1); });
    request.end(body);
  }
  for (let k = 0; k < 20; k++) next();
});
X
cat > many.js <<'X'
const cluster = require('cluster'), http = require('http');
if (cluster.isPrimary) {
  let up = 0, left = 400;
  const seen = new Set();
  for (let i = 0; i < 2; i++) cluster.fork();
  cluster.on('listening', (worker, at) => {
    if (++up < 2) return;
    const asked = { port: at.port, host: '127.0.0.1', agent: false };
    for (let i = 0; i < 400; i++) http.get(asked, response => {
      let text = '';
      response.on('data', piece => { text += piece; });
      response.on('end', () => {
        seen.add(text);
        if (--left === 0) { console.log('workers', seen.size); cluster.disconnect(); }
      });
    }).on('error', error => { console.log(error.code); process.exit(1); });
  });
} else {
  http.createServer((request, response) => response.end(`${process.pid}`)).listen(0, '127.0.0.1');
}
X
timeout 60 node one.js
timeout 60 node many.js
rm one.js many.js
