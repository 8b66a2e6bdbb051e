// An HTTP server of one thread, and who asks it: keep-alive connections of node's own client.
const http = require('http');
const [what, port, connections] = process.argv.slice(1);

function serve() {
    const page = Buffer.alloc(600, 'p');
    http.createServer((request, response) => response.end(page)).listen(+port, '127.0.0.1');
}

function ask() {
    const agent = new http.Agent({ keepAlive: true, maxSockets: +connections });
    let answered = 0;
    let counts = false;
    const fail = (why) => {
        console.error(String(why));
        process.exit(1);
    };
    const one = () => {
        const request = http.get({ host: '127.0.0.1', port: +port, agent }, (response) => {
            let bytes = 0;
            response.on('data', (part) => { bytes += part.length; });
            response.on('end', () => {
                if (response.statusCode !== 200 || bytes !== 600) fail('a wrong answer');
                if (counts) answered += 1;
                one();
            });
        });
        request.on('error', fail);
    };
    for (let n = 0; n < +connections; n += 1) one();
    setTimeout(() => {
        const begun = process.hrtime.bigint();
        counts = true;
        setTimeout(() => {
            const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
            console.log(`Requests/sec: ${answered / seconds} all`);
            process.exit(0);
        }, 2000);
    }, 1000);
}

(what === 'serve' ? serve : ask)();
