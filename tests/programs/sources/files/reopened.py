# Files that are opened again and again, then something is done to the descriptor, the file or the
# process: nobody can tell that the file was kept open. Arguments: a directory and a prefix; the
# files "PREFIX0" ... in it have been there for a while. Each is used once. "PREFIX-large0" and "1"
# have 60000 bytes.
import array, fcntl, mmap, os, resource, select, signal, socket, sys, threading, time

directory, prefix = os.path.abspath(sys.argv[1]), sys.argv[2]
number = 0
soft, hard = 1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
time.sleep(0.15)  # What has just changed is not kept.
SEEN = 12

def say(*words):
    print(*words, flush=True)

def attempt(step, *args):
    try:
        return step(*args)
    except OSError as error:
        return error.errno

def name():
    global number
    number += 1
    return f"{directory}/{prefix}{number - 1}"

def again(path, flags=os.O_RDONLY):
    """The path's descriptor, after it was opened and closed so often that it is kept open."""
    for _ in range(SEEN):
        fd = os.open(path, flags)
        os.fstat(fd), os.pread(fd, 5, 0)
        os.close(fd)
    return os.open(path, flags)

def fresh(flags=os.O_RDONLY):
    return again(name(), flags)

def child(body):
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        try:
            body()
        finally:
            sys.stdout.flush()
            os._exit(0)
    return os.waitpid(pid, 0)[1]

# What the descriptor itself answers.
fd = fresh()
say(fd, os.read(fd, 3), os.lseek(fd, 0, 1), os.pread(fd, 4, 2), os.lseek(fd, -1, 2), os.read(fd, 9), os.read(fd, 9))
say(os.fstat(fd).st_size, os.fstat(fd) == os.stat(f"{directory}/{prefix}0"), os.lseek(fd, 5, 0), attempt(os.lseek, fd, -1, 0), attempt(os.lseek, fd, 0, 7))
say(attempt(os.pread, fd, 3, 1 << 40), attempt(os.pread, fd, 3, -1), os.readv(fd, [bytearray(3), bytearray(99)]))
os.close(fd)
say(attempt(os.close, fd), attempt(os.read, fd, 1), attempt(os.fstat, fd))
for step in (lambda fd: os.write(fd, b"x"), lambda fd: os.ftruncate(fd, 0), lambda fd: fcntl.fcntl(fd, fcntl.F_GETFD),
             lambda fd: fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000, os.fsync, os.fchdir, os.listdir, os.isatty,
             lambda fd: fcntl.ioctl(fd, 0x541b, b"\0" * 4), lambda fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM),
             lambda fd: select.epoll().register(fd), lambda fd: os.fchmod(fd, 0o640), lambda fd: oct(os.fstat(fd).st_mode),
             lambda fd: os.getxattr(fd, "user.x"), lambda fd: os.set_inheritable(fd, True), lambda fd: os.utime(fd, (5, 6)),
             lambda fd: os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))[:len(prefix)], os.get_blocking):
    fd = fresh()
    os.read(fd, 2)
    say(attempt(step, fd), attempt(os.read, fd, 4), os.lseek(fd, 0, 1))
    os.close(fd)
for flags in (os.O_NONBLOCK, os.O_NOATIME, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_APPEND):
    path = name()
    fd = attempt(again, path, flags)
    flags = attempt(fcntl.fcntl, fd, fcntl.F_GETFL)
    say(fd, flags)
    attempt(os.close, fd)

# Numbers.
fd = fresh()
other, copy = os.open(directory, os.O_RDONLY), os.dup(fd)
say(other - fd, copy - fd, os.read(fd, 2), os.read(copy, 2), os.dup2(fd, 40), os.read(40, 2), os.read(fd, 2))
for n in (fd, other, copy, 40): os.close(n)
fd = fresh()
say(os.dup2(other := os.open(directory, os.O_RDONLY), fd) == fd, os.fstat(fd).st_ino == os.stat(directory).st_ino)
os.close(fd), os.close(other)
fd = fresh()
say([os.pipe()[n] - fd for n in (0, 1)], socket.socket().fileno() - fd, os.read(fd, 3))
say([n for n in range(1024) if attempt(fcntl.fcntl, n, fcntl.F_GETFD) != 9])
fd2 = fresh()
say(sorted(int(n) for n in os.listdir("/proc/self/fd")), fcntl.fcntl(fd2, fcntl.F_DUPFD, 900), fcntl.fcntl(fd2, fcntl.F_DUPFD, 960))
say(attempt(os.read, 961, 1), attempt(os.close, 970), attempt(os.close, 962), os.read(fd2, 3))
os.closerange(3, 1024)
fd = fresh()
say(fd, os.read(fd, 3))
os.closerange(3, 5)
say(attempt(os.read, fd, 3))
fd = fresh()
resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, hard))
say(attempt(os.open, directory, os.O_RDONLY), os.read(fd, 3), os.close(fd), os.open(directory, os.O_RDONLY) - fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
path = name()
fd = again(path)
resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, hard))
for _ in range(SEEN):
    say(attempt(os.open, path, os.O_RDONLY))
os.close(fd)
say([(n := attempt(os.open, path, os.O_RDONLY), attempt(os.close, n)) for _ in range(SEEN)])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

# Processes, programs and threads.
fd = fresh()
os.read(fd, 2)
say(child(lambda: say("child", os.read(fd, 2), fd)), os.read(fd, 2), os.lseek(fd, 0, 1))
fd = fresh()
os.set_inheritable(fd, True)
os.read(fd, 2)
say(child(lambda: os.execvp("head", ["head", "-c", "3", f"/dev/fd/{fd}"])))
fd = fresh()
os.read(fd, 2)
sys.stdout.flush()
os.posix_spawnp("sh", ["sh", "-c", f"cat <&{fd} || echo closed"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, fd)])
say(os.wait()[1], os.lseek(fd, 0, 1))
fd = fresh()
thread = threading.Thread(target=lambda: say("thread", os.read(fd, 2)))
thread.start(), thread.join()
say(os.read(fd, 2))
for _ in range(3):
    fd = fresh()
    signal.signal(signal.SIGALRM, lambda *_: os.close(os.open(directory, os.O_RDONLY)))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    time.sleep(0.1) if _ == 0 else select.select([], [], [], 0.1)
    say(os.read(fd, 3))

# Elsewhere: mapped, sent, locked, written to a pipe, a file and a socket.
fd = fresh()
say(bytes(mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:4]), attempt(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB), os.read(fd, 3))
fd = fresh()
say(attempt(fcntl.lockf, os.open(f"{directory}/{prefix}{number - 1}", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB), os.read(fd, 3))
a, b = socket.socketpair()
fd = fresh()
os.read(fd, 2)
a.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
os.close(fd)
got = array.array("i", b.recvmsg(1, 64)[1][0][2])[0]
say(os.read(got, 3))
r, w = os.pipe()
out = os.open("copied" + prefix, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
for target, source in ((a.fileno(), b.fileno()), (w, r), (out, None)):
    for offset in (1, None):
        fd = fresh()
        os.read(fd, 2)
        count = attempt(os.sendfile, target, fd, offset, 5)
        say(count, os.read(source, 9) if source is not None else os.pread(out, 20, 0), os.lseek(fd, 0, 1))
        os.close(fd)
fd = fresh()
say(attempt(os.sendfile, fd, fd, 0, 5), attempt(os.sendfile, r, fd, 0, 5), attempt(os.sendfile, 999, fd, 0, 5), attempt(os.sendfile, a.fileno(), fd, -1, 5), attempt(os.sendfile, a.fileno(), fd, 1 << 40, 5), attempt(os.sendfile, a.fileno(), fd, 0, 0))
fd = fresh()
say(attempt(os.splice, fd, w, 4), os.read(r, 9), attempt(os.copy_file_range, fd, out, 3), os.lseek(fd, 0, 1))
os.close(out)

# The file changes while it is open, and while it is not.
def rewrite(path, content, mode="wb"):
    with open(path, mode) as file:
        file.write(content)

path = name()
fd = again(path)
os.read(fd, 2)
rewrite(path, b"more", "ab")
say(os.read(fd, 99), os.fstat(fd).st_size)
rewrite(path, b"1")
say(os.read(fd, 99), os.pread(fd, 99, 0), os.fstat(fd).st_size)
os.close(fd)
say(os.read(again(path), 99))
path = name()
fd = again(path)
os.unlink(path)
say(os.read(fd, 3), os.fstat(fd).st_nlink, attempt(os.open, path, os.O_RDONLY))
rewrite(path, b"another")
say(os.read(fd, 3), os.read(again(path), 99), os.close(fd))
path = name()
os.close(again(path))
rewrite(path + ".new", b"renamed over")
os.rename(path + ".new", path)
say(os.read(os.open(path, os.O_RDONLY), 99))
path = name()
os.close(again(path))
os.rename(path, path + ".away")
say(attempt(os.open, path, os.O_RDONLY))
os.symlink(path + ".away", path)
say(os.read(again(path), 5), attempt(os.open, path, os.O_NOFOLLOW))
path = name()
os.close(again(path))
os.chmod(path, 0)
if os.getuid() == 0:
    def unprivileged():
        os.setresuid(12345, 12345, 12345)
        say(attempt(os.open, path, os.O_RDONLY))
    say(child(unprivileged))
    # The process itself gives up its rights, after it has opened what is its own.
    path = name()
    os.chmod(path, 0o600)
    time.sleep(0.2)
    os.close(again(path))
    os.setresuid(-1, 12345, -1)
    say(attempt(os.open, path, os.O_RDONLY))
    os.setresuid(-1, 0, -1)
    say(os.read(os.open(path, os.O_RDONLY), 3))
path = name()
os.close(again(path))
def other_process():
    rewrite(path, b"by another")
    os.rename(path, path + ".gone")
    rewrite(path, b"a third")
child(other_process)
say(os.read(again(path), 99), os.read(again(path + ".gone"), 99))
# Two at a time, the same and different ones, and many by turns.
path = name()
fds = [again(path), os.open(path, os.O_RDONLY), fresh()]
say([n - fds[0] for n in fds], [os.read(fd, 2) for fd in fds], [os.lseek(fd, 0, 1) for fd in fds])
for fd in fds: os.close(fd)
paths = [name() for _ in range(12)]
say([[(fd := os.open(path, os.O_RDONLY), os.read(fd, 99)[:12], os.close(fd))[1] for path in paths] for _ in range(SEEN)][-1])

# Record locks of a process go with any descriptor of the file that it closes, and with no other.
def is_locked(path):
    def look():
        with open(path, "r+") as file:
            say(attempt(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB) or "free")
    child(look)
path = name()
os.close(again(path))
with open(path, "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    is_locked(path)
    os.close(os.pipe()[0])
    is_locked(path)
    os.close(os.open(path, os.O_RDONLY))
    is_locked(path)

def others(body):
    """What another process does that has been there before."""
    ask, answer = os.pipe(), os.pipe()
    sys.stdout.flush()
    if os.fork() == 0:
        os.read(ask[0], 1)
        body()
        os.write(answer[1], b"!")
        os._exit(0)
    return lambda: (os.write(ask[1], b"?"), os.read(answer[0], 1))

# Another process changes and removes it meanwhile.
for change in (lambda path: rewrite(path, b"new"), os.unlink, lambda path: (rewrite(path, b"new"), os.unlink(path)), lambda path: os.chmod(path, 0o600)):
    path = name()
    go = others(lambda: change(path))
    fd = again(path)
    os.read(fd, 2)
    go()
    found = os.fstat(fd)
    say(os.read(fd, 3), found.st_nlink, oct(found.st_mode), found.st_size, attempt(os.fchmod, fd, 0o644), os.pread(fd, 3, 0))
    os.close(fd)

# What is no such file: a FIFO, whose opening waits and is noticed.
os.mkfifo(f"{directory}/fifo")
has_read, reads = os.pipe()
if os.fork() == 0:
    for _ in range(SEEN):
        with open(f"{directory}/fifo", "w") as file:
            file.write("x")
        # Its reader has seen the end, and takes the next one for another.
        os.read(has_read, 1)
    os._exit(0)
for _ in range(SEEN):
    with open(f"{directory}/fifo") as file:
        say(file.read())
    os.write(reads, b".")
os.wait()
os.close(has_read)
os.close(reads)
os.unlink(f"{directory}/fifo")

# Numbers that a call makes which nobody notes; offsets and memory that are not there.
a, b = socket.socketpair()
fd = fresh()
try:
    peer = a.getsockopt(socket.SOL_SOCKET, 77)
    say(peer - fd)
except OSError:
    peer = None
say(os.read(fd, 3), fcntl.fcntl(fd, fcntl.F_GETFD))
os.close(fd)
fd = fresh()
say(attempt(os.lseek, fd, 1 << 62, 0), os.lseek(fd, 0, 1), os.lseek(fd, 4, 0), os.read(fd, 3))
os.close(fd)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
room = mmap.mmap(-1, 8192)
start = ctypes.addressof(ctypes.c_char.from_buffer(room))
libc.mprotect(ctypes.c_void_p(start + 4096), 4096, 0)
for call in (lambda fd, at: libc.read(fd, ctypes.c_void_p(at), 12), lambda fd, at: libc.pread(fd, ctypes.c_void_p(at), 12, 0)):
    fd = fresh()
    say(call(fd, start + 4096 - 5), call(fd, start + 4096), os.lseek(fd, 0, 1))
    os.close(fd)

# Where all is not taken at once, or must be.
for large, target in enumerate((socket.socketpair(), socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))):
    path = f"{directory}/{prefix}-large{large}"
    target[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096 if target[0].type == socket.SOCK_STREAM else 1 << 18)
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        time.sleep(0.05)
        got, most = 0, 0
        while got < 60000:
            count = len(target[1].recv(1 << 17))
            got, most = got + count, max(most, count)
        # Bytes of a stream may come in pieces.
        say("got", got, large == 0 or most == 60000)
        os._exit(0)
    say(attempt(os.sendfile, target[0].fileno(), again(path), 0, 60000), os.waitpid(pid, 0)[1])
end = os.open("appended" + prefix, os.O_RDWR | os.O_CREAT | os.O_APPEND)
say(attempt(os.sendfile, end, fresh(), 0, 5), os.fstat(end).st_size)
# Few numbers are left.
os.closerange(3, 1024)
resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
fds = [fresh()]
while isinstance(fd := attempt(os.open, path, os.O_RDONLY), int) and fd > 24:
    fds.append(fd)
while len(fds) < 200 and (fd := attempt(os.open, directory, os.O_RDONLY)) != 24:
    fds.append(fd)
say(len(fds), fds == list(range(3, 3 + len(fds))))
sys.stdout.flush()
say("used", number)
