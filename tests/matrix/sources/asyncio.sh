# asyncio: 60 connections over IPv4, IPv6 and a unix socket, and prefork workers with one listener.
cat > streams.py <<'X'
import asyncio, hashlib

async def serve(reader, writer):
    while head := await reader.read(4):
        while len(head) < 4: head += await reader.readexactly(4 - len(head))
        data = await reader.readexactly(int.from_bytes(head, 'big'))
        writer.write(hashlib.sha1(data).digest() + data[::-1])
        await writer.drain()
    writer.close()

async def ask(number, opening):
    reader, writer = await opening
    for i in range(100):
        data = bytes((number * i + j) & 255 for j in range(i * 13 % 900)) * (41 if i % 20 == 0 else 1)
        writer.write(len(data).to_bytes(4, 'big') + data)
        got = await reader.readexactly(20 + len(data))
        assert got == hashlib.sha1(data).digest() + data[::-1]
    writer.close()
    await writer.wait_closed()

async def main():
    server = await asyncio.start_server(serve, ['127.0.0.1', '::1'], 0)
    unix = await asyncio.start_unix_server(serve, 'sock')
    at = [socket.getsockname() for socket in server.sockets]
    openings = [asyncio.open_unix_connection('sock') if n % 3 == 2
                else asyncio.open_connection(*at[n % 3][:2]) for n in range(60)]
    await asyncio.wait_for(asyncio.gather(*(ask(n, o) for n, o in enumerate(openings))), 60)
    server.close(); unix.close()
    print('streams')
asyncio.run(main())
X
cat > prefork.py <<'X'
import os, socket, threading
listener = socket.create_server(('127.0.0.1', 0), backlog=100)
address = listener.getsockname()
def echo():
    while True:
        peer, _ = listener.accept()
        while data := peer.recv(65536): peer.sendall(data)
        peer.close()
workers = []
for _ in range(4):
    child = os.fork()
    if child == 0: echo()
    workers.append(child)
good = []
def ask():
    for turn in range(30):
        with socket.create_connection(address, timeout=20) as peer:
            for i in range(20):
                data = os.urandom(1 + i * 97)
                peer.sendall(data)
                got = b''
                while len(got) < len(data): got += peer.recv(65536)
                assert got == data
    good.append(1)
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for child in workers: os.kill(child, 9); os.waitpid(child, 0)
print('prefork', len(good))
X
timeout 100 python3 streams.py
timeout 60 python3 prefork.py
rm -f streams.py prefork.py sock
