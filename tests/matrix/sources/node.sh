# node: files, streams, a child, a worker thread.
cat > main.js <<'X'
const fs = require('fs'), { execSync } = require('child_process'), { Worker } = require('worker_threads');
fs.mkdirSync('a/b', { recursive: true });
for (let i = 0; i < 200; i++) fs.writeFileSync(`a/b/${i}`, 'x'.repeat(i));
console.log(fs.readdirSync('a/b').length, fs.statSync('a/b/77').size);
console.log(execSync('cat a/b/10 | wc -c').toString().trim());
const reader = fs.createReadStream('a/b/199');
let bytes = 0;
reader.on('data', piece => bytes += piece.length);
reader.on('end', () => {
  console.log(bytes);
  const worker = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
  worker.on('message', value => { console.log('worker', value); fs.rmSync('a', { recursive: true }); });
});
X
node main.js
