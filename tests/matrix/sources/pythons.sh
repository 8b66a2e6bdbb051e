# python: a virtual environment, worker processes of each kind, asyncio with children and sockets.
python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix.endswith("/v"))'
cat > work.py <<'X'
import asyncio, multiprocessing, os, sys
def square(x): return x * x
async def main():
    child = await asyncio.create_subprocess_exec('echo', 'child', stdout=asyncio.subprocess.PIPE)
    print(await child.communicate())
    async def answer(reader, writer):
        writer.write(await reader.readline()); writer.close()
    server = await asyncio.start_unix_server(answer, 'sock')
    reader, writer = await asyncio.open_unix_connection('sock')
    writer.write(b'line\n'); print(await reader.read()); server.close()
if __name__ == '__main__':
    for kind in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(kind).Pool(3) as pool: print(kind, sum(pool.map(square, range(300))))
    with multiprocessing.Manager() as manager:
        shared = manager.dict(); shared['key'] = 1; print(dict(shared))
    asyncio.run(main())
X
python3 work.py
rm -rf v sock
