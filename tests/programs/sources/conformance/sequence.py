# sequence.py SEED COUNT: random file calls, one after the other; every answer is printed.
# Linux's answers are the expectation, so only calls whose answer Linux specifies are drawn.
import errno, fcntl, os, random, stat, sys

seed, count = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
os.umask(0o022)
os.makedirs("tree/top")
os.chdir("tree/top")
top = os.getcwd()
fds = {}  # our number -> descriptor

NAMES = ["a", "b", "c", "dir", "dir/a", "dir/b", "dir/sub", "dir/sub/c", "link", "dir/link", "./a", "dir/../b", "dir//a", "a/", "dir/", "dir/.", "dir/sub/..", "absent/x", "link/a", ""]
# No target leads out of the tree: everything drawn here happens to whoever runs this.
TARGETS = ["a", "dir", "dir/sub", "nowhere", "link", "dir/..", "b", "dir/link", "/absent/place"]
FLAGS = [os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_CLOEXEC]

def name():
    return rng.choice(NAMES)

def shown(s):
    size = s.st_size if stat.S_ISREG(s.st_mode) or stat.S_ISLNK(s.st_mode) else "-"
    return "%o n%d s%s u%d" % (s.st_mode, s.st_nlink, size, s.st_uid)

def opened(fd):
    # Numbers must be the same too: lowest free first.
    fds[fd] = fd
    return fd

def a_fd():
    return rng.choice(sorted(fds)) if fds and rng.random() < 0.95 else rng.choice([200, 57])

def do_open():
    flags = rng.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
    for flag in FLAGS:
        if rng.random() < (0.5 if flag == os.O_CREAT else 0.12): flags |= flag
    path, mode = name(), rng.choice([0o644, 0o600, 0o777, 0o400, 0])
    if flags & os.O_CREAT and flags & os.O_DIRECTORY: flags &= ~os.O_DIRECTORY  # changed between releases
    return ("open", path, oct(flags), oct(mode)), lambda: opened(os.open(path, flags, mode))

def do_close():
    fd = a_fd()
    def call():
        fds.pop(fd, None)
        os.close(fd)
    return ("close", fd), call

def do_dup():
    fd, low = a_fd(), rng.choice([0, 3, 9, 20])
    return ("dup from", fd, low), lambda: opened(fcntl.fcntl(fd, rng.choice([fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC]), low))

def do_dup2():
    fd, to = a_fd(), rng.choice([5, 8, 13, 21])
    return ("dup2", fd, to), lambda: opened(os.dup2(fd, to, inheritable=rng.random() < 0.5))

def do_write():
    fd, data = a_fd(), bytes([rng.randrange(65, 91)]) * rng.choice([0, 1, 7, 100, 4095, 4096, 4097, 9000])
    return ("write", fd, len(data)), lambda: os.write(fd, data)

def do_read():
    fd, n = a_fd(), rng.choice([0, 1, 50, 4096, 10000])
    return ("read", fd, n), lambda: digest(os.read(fd, n))

def do_pwrite():
    fd, data, at = a_fd(), b"p" * rng.choice([1, 100, 5000]), rng.choice([0, 1, 4095, 8192, 70000])
    return ("pwrite", fd, len(data), at), lambda: os.pwrite(fd, data, at)

def do_pread():
    fd, n, at = a_fd(), rng.choice([1, 100, 9000]), rng.choice([0, 1, 4095, 70000])
    return ("pread", fd, n, at), lambda: digest(os.pread(fd, n, at))

def do_lseek():
    fd, at, how = a_fd(), rng.choice([0, 1, -1, 4096, 100000]), rng.choice([0, 1, 2])
    if stat_is_dir(fd): how, at = 0, 0
    return ("lseek", fd, at, how), lambda: os.lseek(fd, at, how)

def stat_is_dir(fd):
    try: return stat.S_ISDIR(os.fstat(fd).st_mode)
    except OSError: return False

def do_ftruncate():
    fd, n = a_fd(), rng.choice([0, 1, 4096, 5000, 200000])
    return ("ftruncate", fd, n), lambda: os.ftruncate(fd, n)

def do_truncate():
    path, n = name(), rng.choice([0, 3, 4097, 100000])
    return ("truncate", path, n), lambda: os.truncate(path, n)

def digest(data):
    return "%d:%s" % (len(data), hex(hash_bytes(data)))

def hash_bytes(data):
    import zlib
    return zlib.crc32(data)

def two(word, call):
    def draw():
        a, b = name(), name()
        return (word, a, b), lambda: call(a, b)
    return draw

def one(word, call):
    def draw():
        a = name()
        return (word, a), lambda: call(a)
    return draw

def do_symlink():
    target, path = rng.choice(TARGETS), name()
    return ("symlink", target, path), lambda: os.symlink(target, path)

def do_mkdir():
    path, mode = name(), rng.choice([0o777, 0o755, 0o700])
    return ("mkdir", path, oct(mode)), lambda: os.mkdir(path, mode)

def do_chmod():
    path, mode = name(), rng.choice([0o644, 0o755, 0o600, 0o4755, 0o1777, 0o2755])
    return ("chmod", path, oct(mode)), lambda: os.chmod(path, mode)

def do_utime():
    path, t = name(), rng.choice([1, 1_500_000_000_123_456_789, 999_999_999])
    follow = rng.random() < 0.5
    def call():
        os.utime(path, ns=(t, t + 5), follow_symlinks=follow)
        s = os.stat(path, follow_symlinks=follow)
        return s.st_atime_ns, s.st_mtime_ns
    return ("utime", path, t, follow), call

def do_chdir():
    path = rng.choice([top, top, "dir", "dir/sub", "..", "link"])
    def call():
        if path == ".." and os.getcwd() == top: return "stay"
        os.chdir(path)
        return os.path.relpath(os.getcwd(), top)
    return ("chdir", path), call

def do_access():
    path, mode = name(), rng.choice([os.F_OK, os.R_OK, os.W_OK, os.X_OK])
    return ("access", path, mode), lambda: os.access(path, mode)

def do_at():
    fd, path = a_fd(), rng.choice(["a", "sub", "x", "..", "."])
    def call():
        s = os.stat(path, dir_fd=fd, follow_symlinks=False)
        return oct(s.st_mode), s.st_nlink
    if not stat_is_dir(fd): return ("stat at", fd, path), lambda: os.stat(path, dir_fd=fd)
    if path == "..": path = "."
    return ("stat at", fd, path), call

def do_same():
    a, b = name(), name()
    return ("same", a, b), lambda: os.path.samefile(a, b)

def do_fork():
    fd = a_fd()
    def call():
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.lseek(fd, 5, 1)  # shared offset
                os.close(fd)
                os._exit(0)
            except OSError as e:
                os._exit(e.errno)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ("fork", fd), call

OPERATIONS = [(do_open, 12), (do_close, 7), (do_dup, 2), (do_dup2, 2), (do_write, 8), (do_read, 5), (do_pwrite, 3), (do_pread, 3), (do_lseek, 4),
    (do_ftruncate, 2), (do_truncate, 2), (two("rename", os.rename), 8), (two("link", lambda a, b: os.link(a, b, follow_symlinks=False)), 4), (one("unlink", os.unlink), 6), (do_mkdir, 5),
    (one("rmdir", os.rmdir), 3), (do_symlink, 4), (one("readlink", os.readlink), 2), (one("stat", lambda p: shown(os.stat(p))), 4), (one("lstat", lambda p: shown(os.lstat(p))), 4),
    (do_chmod, 3), (do_utime, 2), (one("list", lambda p: sorted(os.listdir(p or "."))), 4), (do_chdir, 3), (do_access, 2), (do_at, 2), (do_same, 2),
    (lambda: (lambda fd: (("fstat", fd), lambda: shown(os.fstat(fd))))(a_fd()), 4), (do_fork, 1),
    (lambda: (lambda fd: (("flags", fd), lambda: (fcntl.fcntl(fd, fcntl.F_GETFL) & 0o2003, fcntl.fcntl(fd, fcntl.F_GETFD))))(a_fd()), 2)]
draws = [op for op, weight in OPERATIONS for _ in range(weight)]

def restore():
    # Keep the tree interesting: the directories are there, most of the time.
    os.chdir(top)
    for path in ("dir", "dir/sub"):
        if not os.path.isdir(path) or os.path.islink(path):
            if os.path.lexists(path): os.unlink(path)
            os.mkdir(path)

for n in range(count):
    if n % 60 == 0: restore()
    words, call = rng.choice(draws)()
    try:
        answer = call()
    except OSError as e:
        answer = errno.errorcode.get(e.errno, e.errno)
    print(n, *words, "->", answer)
    if len(fds) > 20:
        for fd in sorted(fds)[:15]:
            fds.pop(fd); os.close(fd)
