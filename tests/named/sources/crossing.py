# An asyncio server, and its clients: `serve PORT`, `ask PORT`.
import asyncio, hashlib, sys

async def serve(reader, writer):
    while head := await reader.read(4):
        while len(head) < 4: head += await reader.readexactly(4 - len(head))
        data = await reader.readexactly(int.from_bytes(head, 'big'))
        writer.write(hashlib.sha1(data).digest() + data[::-1])
        await writer.drain()
    writer.close()

async def ask(number, port):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    for i in range(60):
        data = bytes((number * i + j) & 255 for j in range(i * 13 % 900)) * (41 if i % 20 == 0 else 1)
        writer.write(len(data).to_bytes(4, 'big') + data)
        got = await reader.readexactly(20 + len(data))
        assert got == hashlib.sha1(data).digest() + data[::-1]
    writer.close()
    await writer.wait_closed()

async def main(how, port):
    if how == 'serve':
        server = await asyncio.start_server(serve, '127.0.0.1', port)
        await server.serve_forever()
    await asyncio.wait_for(asyncio.gather(*(ask(n, port) for n in range(40))), 50)
    print('streams')
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
