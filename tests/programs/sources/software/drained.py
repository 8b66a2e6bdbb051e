"""Who reads less than there is room for has read all there was, as epoll(7) says: with edges, the
next bytes are told of. Bytes lie in shared memory and behind it at the host, by any kind of read."""
import os
import select
import socket
import sys

ROOM = [4096] * 9
AMOUNTS = [60000, 66000, 74443, 130000]


def pair(way):
    if way == "pair":
        return socket.socketpair()
    family = socket.AF_INET if way == "tcp" else socket.AF_UNIX
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1", 0) if way == "tcp" else "name")
        listener.listen()
        one = socket.socket(family)
        one.connect(listener.getsockname())
        other, _ = listener.accept()
    if way == "path":
        os.unlink("name")
    return one, other


def read(sock, kind):
    buffers = [bytearray(n) for n in ROOM]
    if kind == "read":
        return len(os.read(sock.fileno(), sum(ROOM)))
    if kind == "readv":
        return os.readv(sock.fileno(), buffers)
    control = 128 if kind == "control" else 0
    return sock.recvmsg_into(buffers, control)[0]


def drain(sock, waits, kind, wanted):
    got, empty = 0, True
    while got < wanted:
        if empty and not waits.poll(3):
            return f"{got} of {wanted} bytes, and no word of the rest"
        try:
            count = read(sock, kind)
        except BlockingIOError:
            empty = True
            continue
        got += count
        empty = count < sum(ROOM)
    return "all"


def send(sock, amount):
    view = memoryview(bytes(amount))
    while view:
        try:
            view = view[sock.send(view):]
        except BlockingIOError:
            return amount - len(view)
    return amount


for way in "pair", "path", "tcp":
    for kind in "read", "readv", "recvmsg", "control":
        one, other = pair(way)
        one.setblocking(False)
        other.setblocking(False)
        waits = select.epoll()
        waits.register(other, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        answers = set()
        for _ in range(20):
            send(one, 100)
            answers.add(drain(other, waits, kind if kind != "control" else "readv", 100))
            send(other, 100)
            select.select([one], [], [], 5)
            one.recv(100)
        for amount in AMOUNTS:
            sent = send(one, amount)
            answers.add(drain(other, waits, kind, sent))
        print(way, kind, *sorted(answers))
        sys.stdout.flush()
