# With no number free, a call that needs one says so and has done nothing.
import array, ctypes, errno, os, resource, socket

LIMIT = 60
libc = ctypes.CDLL(None, use_errno=True)


def attempt(what, act):
    try:
        result = act()
    except OSError as problem:
        result = errno.errorcode[problem.errno]
    print(what, result)


def made(call):
    """Closes what a call has made."""
    numbers = call()
    for number in numbers if isinstance(numbers, tuple) else (numbers,):
        number.close() if hasattr(number, 'close') else os.close(number)
    return 'made'


def child_with_pidfd():
    number = ctypes.c_int(-7)
    words = (ctypes.c_uint64 * 8)(0x1000, ctypes.addressof(number), 0, 0, 17, 0, 0, 0)
    child = libc.syscall(435, ctypes.byref(words), 64)
    if child == 0:
        os._exit(0)
    if child < 0:
        return errno.errorcode[ctypes.get_errno()], number.value
    os.waitpid(child, 0)
    os.close(number.value)
    return 'a child'


def received(there):
    message, controls, flags, _ = there.recvmsg(10, socket.CMSG_SPACE(12))
    numbers = array.array('i')
    for _, _, data in controls:
        numbers.frombytes(data)
    for number in numbers:
        os.close(number)
    return message, len(controls), len(numbers), bool(flags & socket.MSG_CTRUNC)


def fill():
    files = []
    try:
        while True:
            files.append(os.open('file', os.O_RDWR | os.O_CREAT))
    except OSError as problem:
        print('filled', errno.errorcode[problem.errno], len(files) > 30)
    return files


# A file of the host.
host = os.memfd_create('host')
os.write(host, b'precious')
name = f'/proc/self/fd/{host}'
server = socket.socket()
server.bind(('127.0.0.1', 0))
server.listen(5)
server.settimeout(10)
client = socket.socket()
client.settimeout(10)
client.connect(server.getsockname())
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
there.settimeout(10)
for _ in range(2):
    socket.send_fds(here, [b'three'], [0, 1, 2])
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = fill()

attempt('empty it', lambda: os.open(name, os.O_WRONLY | os.O_TRUNC))
print(os.pread(host, 20, 0))
attempt('accept', server.accept)
attempt('accept from nothing', lambda: libc.accept(999, None, None) + ctypes.get_errno())
attempt('clone3', child_with_pidfd)
attempt('pipe', lambda: made(os.pipe))
attempt('socketpair', lambda: made(socket.socketpair))
attempt('dup', lambda: made(lambda: os.dup(host)))
attempt('receive', lambda: received(there))

# One: enough for one of each, not for a pair.
os.close(files.pop())
attempt('pipe', lambda: made(os.pipe))
attempt('socketpair', lambda: made(socket.socketpair))
attempt('clone3', child_with_pidfd)
attempt('receive', lambda: received(there))
connection = server.accept()[0]
client.sendall(b'still there')
print(connection.recv(20))
connection.close()
attempt('empty it', lambda: made(lambda: os.open(name, os.O_WRONLY | os.O_TRUNC)))
print(os.pread(host, 20, 0))

os.close(files.pop())
attempt('pipe', lambda: made(os.pipe))
attempt('socketpair', lambda: made(socket.socketpair))
