# splice, tee, vmsplice, sendfile and copy_file_range with files of a tmpfs and pipes.
import fcntl, resource, select, signal, socket, struct, threading, time
signal.alarm(60)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
SPLICE, TEE, VMSPLICE, SENDFILE, COPY = 275, 276, 278, 40, 326
MOMENT, NONBLOCK = 0.05, 2

def offset(at):
    return ctypes.create_string_buffer(struct.pack("<q", at), 8)

def at(word):
    return struct.unpack("<q", word.raw)[0]

def place(fd):
    return os.lseek(fd, 0, os.SEEK_CUR)

content = bytes(range(256)) * 1024
make("file", content)
file = os.open("file", os.O_RDWR)
r, w = os.pipe()

# A file into a pipe.
say("out", call(SPLICE, file, 0, w, 0, 10, 0), place(file), os.read(r, 99))
word = offset(1000)
say("out", call(SPLICE, file, word, w, 0, 10, 0), at(word), place(file), os.read(r, 99) == content[1000:1010])
word = offset(len(content) - 5)
say("end", call(SPLICE, file, word, w, 0, 100, 0), at(word), len(os.read(r, 99)))
say("end", call(SPLICE, file, word, w, 0, 100, 0), at(word), call(SPLICE, file, offset(1 << 40), w, 0, 9, 0))
word = offset(0)
say("full", call(SPLICE, file, word, w, 0, 1 << 20, NONBLOCK), at(word), call(SPLICE, file, word, w, 0, 9, NONBLOCK))
say("full at the end", call(SPLICE, file, offset(len(content)), w, 0, 9, NONBLOCK))
say(os.read(r, 1 << 20) == content[:65536])

# A pipe into a file.
target = os.open("target", os.O_RDWR | os.O_CREAT)
os.write(w, b"0123456789")
say("in", call(SPLICE, r, 0, target, 0, 4, 0), place(target), os.pread(target, 99, 0))
word = offset(8)
say("in", call(SPLICE, r, 0, target, word, 100, 0), at(word), place(target), os.pread(target, 99, 0))
say("empty", call(SPLICE, r, 0, target, 0, 9, NONBLOCK))
os.set_blocking(r, False)
say("empty", call(SPLICE, r, 0, target, 0, 9, 0))
os.set_blocking(r, True)
os.write(w, content[:50000])
say("more", call(SPLICE, r, 0, target, offset(4090), 1 << 20, 0), os.pread(target, 60000, 4090) == content[:50000])
os.write(w, b"held")
say("readonly", call(SPLICE, r, 0, os.open("file", os.O_RDONLY), 0, 9, 0),
    call(SPLICE, r, 0, os.open("target", os.O_RDWR | os.O_APPEND), 0, 9, 0))
say("backwards", call(SPLICE, w, 0, target, 0, 9, 0), call(SPLICE, file, 0, r, 0, 9, 0))
say("negative", call(SPLICE, r, 0, target, offset(-1), 9, 0), call(SPLICE, file, offset(-1), w, 0, 9, 0))
say("of a pipe", call(SPLICE, r, offset(0), target, 0, 9, 0), call(SPLICE, file, 0, w, offset(0), 9, 0))
say("unmapped", call(SPLICE, r, 0, target, 1, 9, 0), call(SPLICE, file, 1, w, 0, 9, 0))
say("flags", [call(SPLICE, file, 0, target, 0, n, flags) for n in [0, 9, -1] for flags in [0, 16, 4]])
say("flags", [call(SPLICE, r, 0, target, 0, n, flags) for n in [0, -1] for flags in [0, 16, 4]])
one, two = socket.socketpair()
directory, handle, null = os.open(".", os.O_RDONLY), os.open("file", os.O_PATH), os.open("/dev/null", os.O_RDWR)
say("no pipe", call(SPLICE, file, 0, target, 0, 9, 0), call(SPLICE, file, 0, one.fileno(), 0, 9, 0),
    call(SPLICE, one.fileno(), 0, target, 0, 9, 0), call(SPLICE, null, 0, target, 0, 9, 0))
say("odd", call(SPLICE, directory, 0, w, 0, 9, 0), call(SPLICE, r, 0, directory, 0, 9, 0), call(SPLICE, handle, 0, w, 0, 9, 0),
    call(SPLICE, r, 0, handle, 0, 9, 0), call(SPLICE, 999, 0, target, 0, 9, 0), call(SPLICE, file, 0, 999, 0, 9, 0))
say("held", os.read(r, 99))

# tee and vmsplice are for pipes.
for a, b in [(r, file), (file, w), (file, target), (r, target), (w, target), (file, r), (handle, w), (999, target), (file, 999)]:
    say("tee", call(TEE, a, b, 9, 0), call(TEE, a, b, 0, 0), call(TEE, a, b, 9, 64))
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]
vector = Vector(b"vector", 6)
say("vmsplice", call(VMSPLICE, w, ctypes.byref(vector), 1, 0), os.read(r, 99))
say("vmsplice", call(VMSPLICE, file, ctypes.byref(vector), 1, 0), call(VMSPLICE, file, ctypes.byref(vector), 1, 64))
r2, w2 = os.pipe()
os.write(w, b"twice")
say("tee", call(TEE, r, w2, 99, 0), os.read(r, 99), os.read(r2, 99))

# Who must wait waits, and is told of the end.
def later(action):
    def run():
        time.sleep(MOMENT)
        action()
    thread = threading.Thread(target=run)
    thread.start()
    return thread
writes = later(lambda: os.write(w, b"late"))
say("waits", call(SPLICE, r, 0, target, offset(0), 99, 0), os.pread(target, 4, 0))
writes.join()
while call(SPLICE, file, offset(0), w, 0, 65536, NONBLOCK) != "EAGAIN":
    pass
reads = later(lambda: os.read(r, 65536))
say("waits", call(SPLICE, file, offset(7), w, 0, 9, 0), os.read(r, 99) == content[7:16])
reads.join()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, MOMENT)
say("interrupted", call(SPLICE, r, 0, target, 0, 9, 0))
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, MOMENT)
if (pid := os.fork()) == 0:
    time.sleep(4 * MOMENT)
    os.write(w, b"restarted")
    os._exit(0)
say("restarted", call(SPLICE, r, 0, target, 0, 9, 0))
os.waitpid(pid, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.alarm(60)
os.write(w, b"last")
os.close(w)
say("end", call(SPLICE, r, 0, target, offset(0), 99, 0), call(SPLICE, r, 0, target, offset(0), 99, 0),
    call(SPLICE, r, 0, target, offset(0), 99, NONBLOCK))
os.close(r)
r, w = os.pipe()
os.close(r)
say("nobody", call(SPLICE, file, offset(0), w, 0, 9, 0), call(SPLICE, file, offset(1 << 20), w, 0, 9, 0))
os.close(w)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def breaks():
    r, w = os.pipe()
    os.close(r)
    call(SPLICE, file, offset(0), w, 0, 9, 0)
say("killed", child(breaks))
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

# FIFOs are pipes.
os.mkfifo("fifo")
fifo = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
say("fifo without writer", call(SPLICE, fifo, 0, target, offset(0), 9, 0))
writer = os.open("fifo", os.O_WRONLY)
say("fifo", call(SPLICE, fifo, 0, target, offset(0), 9, 0), call(SPLICE, file, offset(65), writer, 0, 5, 0))
say("fifo", call(SPLICE, fifo, 0, target, offset(0), 9, 0), os.pread(target, 5, 0))

ROUNDS = 2000
# Writers of a full FIFO wait for room, and signals reach them meanwhile, however they race.
telling, told = os.pipe()
signal.signal(signal.SIGUSR1, lambda *_: None)
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
pouring = []
for _ in range(4):
    if (pid := os.fork()) == 0:
        while True:
            call(SENDFILE, writer, file, offset(0), 8192)
    pouring.append(pid)
os.set_blocking(fifo, True)
unheard = 0
for _ in range(ROUNDS):
    os.read(fifo, 4096)
    for pid in pouring:
        os.kill(pid, signal.SIGUSR1)
    for pid in pouring:
        ready, _, _ = select.select([telling], [], [], 5 if not unheard else 0)
        unheard += not (ready and os.read(telling, 1))
for pid in pouring:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
signal.set_wakeup_fd(-1)
say("unheard", unheard)

# A limit on the size of files.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def limited():
    r, w = os.pipe()
    os.write(w, b"x" * 100)
    resource.setrlimit(resource.RLIMIT_FSIZE, (70000, resource.RLIM_INFINITY))
    say("limit", call(SPLICE, r, 0, target, offset(69990), 100, 0), call(SPLICE, r, 0, target, offset(70000), 100, 0), len(os.read(r, 999)))
say(child(limited))

# Through a pipe, whole files, in parts of all sizes.
for size in [1, 4095, 4096, 5000, 70000]:
    r, w = os.pipe()
    copy = os.open("copy", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.lseek(file, 0, 0)
    left = 20 * size if size < 4000 else len(content)
    while left > 0:
        left -= (moved := call(SPLICE, file, 0, w, 0, min(size, left), 0))
        while moved > 0:
            moved -= call(SPLICE, r, 0, copy, 0, moved, 0)
    length = os.fstat(copy).st_size
    say("copied", size, length, os.pread(copy, 1 << 20, 0) == content[:length])

# sendfile and copy_file_range beside them.
r, w = os.pipe()
word = offset(3)
say("sendfile", call(SENDFILE, w, file, word, 9), at(word), os.read(r, 99) == content[3:12], call(SENDFILE, target, r, 0, 9), call(SENDFILE, target, r, word, 9))
a, b = offset(5), offset(50)
os.ftruncate(target, 0)
say("copy", call(COPY, file, a, target, b, 30, 0), at(a), at(b), os.fstat(target).st_size, os.pread(target, 99, 50) == content[5:35])
say("copy", call(COPY, file, a, file, offset(40), 30, 0), call(COPY, file, a, w, 0, 3, 0), call(COPY, r, 0, target, b, 3, 0), call(COPY, directory, 0, target, b, 3, 0), call(COPY, file, a, directory, 0, 3, 0))
say("copy", call(COPY, file, a, target, b, 3, 1), call(COPY, file, offset(-1), target, b, 3, 0), call(COPY, handle, a, target, b, 3, 0), call(COPY, file, a, 999, b, 3, 0))

# Within one file the length ends where the file does, and what overlaps then is refused.
for size, apart in [(50, 100), (20000, 30000), (5000, 5000), (5000, 4999)]:
    for at in [size, size - 7, 0]:
        own = os.open("own", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(own, content[:size])
        say("own", size, at, call(COPY, own, offset(at), own, offset(apart), 1 << 20, 0), os.fstat(own).st_size,
            os.pread(own, size, 0) == content[:size], os.pread(own, size, apart) == content[at:size])
    say("own", call(COPY, own, offset(5), own, offset(apart), -1, 0), call(COPY, own, offset(5), target, offset(0), -1, 0))
os.truncate("own", 6 << 20)
say("far", call(COPY, own, offset(0), own, offset(5 << 20), 6 << 20, 0), call(COPY, own, offset(5 << 20), own, offset(0), 6 << 20, 0),
    call(COPY, own, offset(0), own, offset(5 << 20), 5 << 10, 0), call(COPY, own, offset(0), own, offset((6 << 20) - 1), 1 << 40, 0))
say("far", call(SENDFILE, own, 999, 0, 9), call(SENDFILE, own, handle, 0, 9))
