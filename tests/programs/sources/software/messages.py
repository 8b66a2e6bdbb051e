# Descriptors of files made here, sent to others and to ourselves.
import array, ctypes, fcntl, os, socket, threading, time

RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)


def send(sock, fds):
    socket.send_fds(sock, [b"x"], fds)


def receive(sock, most=1):
    return socket.recv_fds(sock, 1, most)[1]


def is_locked(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False
    except BlockingIOError:
        return True


here, there = socket.socketpair()
os.mkdir("d")

# One description, wherever it is.
fd = os.open("file", os.O_RDWR | os.O_CREAT)
os.write(fd, b"hello world")
send(here, [fd])
(came,) = receive(there)
print(came, os.lseek(came, 0, os.SEEK_CUR), os.get_inheritable(came))
os.lseek(fd, 6, os.SEEK_SET)
print(os.read(came, 5), os.lseek(fd, 0, os.SEEK_CUR))
fcntl.flock(fd, fcntl.LOCK_EX)
send(here, [fd])
os.close(fd)
os.close(came)
other = os.open("file", os.O_RDONLY)
print("on its way, locked:", is_locked(other))
(came,) = receive(there)
print("arrived, locked:", is_locked(other), os.pread(came, 5, 0))
os.close(came)
for _ in range(100):
    if not is_locked(other):
        break
    time.sleep(0.05)
print("closed, locked:", is_locked(other))

# Many at once, of all kinds, from a process that ends before they are read.
child = os.fork()
if child == 0:
    directory = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
    files = [os.open(f"d/{n}", os.O_RDWR | os.O_CREAT) for n in range(200)]
    for n, file in enumerate(files):
        os.write(file, b"%d" % n)
    reads, writes = os.pipe()
    os.write(writes, b"through a pipe")
    send(here, [directory, *files, reads])
    os._exit(0)
os.waitpid(child, 0)
came = receive(there, 253)
print(len(came), came == sorted(came), os.read(came[-1], 99), len(os.listdir(came[0])))
print(all(os.pread(fd, 9, 0) == b"%d" % n for n, fd in enumerate(came[1:-1])))
for fd in came:
    os.close(fd)

# Of both kinds, in every order, kept open in between: what comes later has the higher number, and
# each is the lowest that is free.
kinds = [os.open("/etc/passwd", os.O_RDONLY), other, os.open("/dev", os.O_RDONLY), os.open("d", os.O_RDONLY)]
kept = []
for first in range(4):
    for second in range(4):
        for third in range(4):
            order = [first, second, third]
            send(here, [kinds[kind] for kind in order])
            came = receive(there, 3)
            same = [os.path.sameopenfile(fd, kinds[kind]) for fd, kind in zip(came, order)]
            print(order, came, same, [os.get_inheritable(fd) for fd in came])
            kept += came
            os.close(kept.pop(first * second % len(kept)))
for fd in kept + kinds[:1] + kinds[2:]:
    os.close(fd)

# Fewer than came, and looked at twice.
send(here, [other, other, other])
data, control, flags, _ = there.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_PEEK)
print(len(control), bool(flags & socket.MSG_CTRUNC))
print(len(receive(there, 8)))

# From one thread to another.
right = 0


def sender():
    for _ in range(200):
        fd = os.open("file", os.O_RDONLY)
        send(here, [fd, fd])
        os.close(fd)


thread = threading.Thread(target=sender)
thread.start()
for _ in range(200):
    for fd in receive(there, 2):
        right += os.pread(fd, 5, 0) == b"hello"
        os.close(fd)
thread.join()
print(right)

# One after the other, more than may be on their way at once.
for _ in range(1100):
    send(here, [other])
    os.close(receive(there)[0])

# To a name in the tree, several messages at once, and to nobody.
named = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
named.bind("d/socket")
plain = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
plain.sendmsg([b"m"], [(*RIGHTS, array.array("i", [other]))], 0, "d/socket")
print(os.pread(receive(named)[0], 5, 0))
libc = ctypes.CDLL(None, use_errno=True)
one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
text = ctypes.create_string_buffer(b"ab")
iov = (ctypes.c_size_t * 2)(ctypes.addressof(text), 2)
rights = array.array("I", [20, 0, 1, 1, other, 0])
control = rights.buffer_info()[0]
with_rights = [0, 0, ctypes.addressof(iov), 1, control, 24, 0, 0]
without = [0, 0, ctypes.addressof(iov), 1, 0, 0, 0, 0]
for messages in [[without, with_rights, without], [with_rights, without]]:
    block = (ctypes.c_size_t * (8 * len(messages)))(*sum(messages, []))
    sent = 0
    while sent < len(messages):
        place = ctypes.byref(block, 64 * sent)
        sent += libc.sendmmsg(one.fileno(), place, len(messages) - sent, 0)
    print([block[8 * n + 7] for n in range(len(messages))])
    for _ in messages:
        data, fds, _, _ = socket.recv_fds(two, 9, 1)
        print(data, [os.pread(fd, 5, 0) for fd in fds])
try:
    send(plain, [other])
except OSError as error:
    print(error.strerror)
try:
    socket.send_fds(here, [b"x"], [other] * 254)
except OSError as error:
    print(error.strerror)

# An end of a pipe that travels behind a file, and one before it: what is written later is read.
for order in ["file first", "pipe first"]:
    read, write = os.pipe()
    for _ in range(100):
        os.write(write, b"x")
        os.read(read, 1)
    file = os.open("file", os.O_RDWR)
    send(here, [file, read] if order == "file first" else [read, file])
    came = receive(there, 2)
    os.write(write, b"A")
    end = came[1] if order == "file first" else came[0]
    os.set_blocking(end, False)
    print(order, os.read(end, 1))
    for fd in [read, write, file, *came]:
        os.close(fd)
