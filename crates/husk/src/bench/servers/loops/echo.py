"""An echo server on asyncio streams, and who asks it: 64 bytes there and back."""
import asyncio
import sys
import time


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    await server.serve_forever()


async def ask(port, connections):
    answered, counts, ends = 0, False, False

    async def one():
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        message = b"m" * 64
        while not ends:
            writer.write(message)
            if await reader.readexactly(64) != message:
                raise ValueError("a wrong answer")
            answered += counts
        writer.close()

    all_of_them = [asyncio.create_task(one()) for _ in range(connections)]
    await asyncio.sleep(1)
    begun, counts = time.monotonic(), True
    await asyncio.sleep(2)
    print("Requests/sec:", answered / (time.monotonic() - begun), "all")
    ends = True
    await asyncio.gather(*all_of_them)


if sys.argv[1] == "serve":
    asyncio.run(serve(int(sys.argv[2])))
else:
    asyncio.run(ask(int(sys.argv[2]), int(sys.argv[3])))
