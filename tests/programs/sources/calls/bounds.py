# What lies at the bounds: the longest names of sockets, long lists of attributes, removed
# directories, odd flags, and files copied onto themselves.
import hashlib, socket, struct
# Paths of every length about the bound; one of 108 bytes has no NUL.
BIND, CONNECT, GETSOCKNAME, GETPEERNAME = 49, 42, 51, 52
def address(name, length=None):
    return ctypes.create_string_buffer(b"\1\0" + name, 111), 2 + len(name) if length is None else length
def named(number, fd):
    room, length = ctypes.create_string_buffer(120), ctypes.c_int(120)
    return call(number, fd, room, ctypes.byref(length)), length.value, room.raw[2:max(length.value, 2)]
GETDENTS, GETDENTS64, LSEEK, OPENAT, FCNTL, LISTXATTR, SENDFILE, COPY = 78, 217, 8, 257, 72, 194, 40, 326
os.mkdir("s")
for size in [50, 60, 105, 106, 107, 108]:
    name = b"s/" + b"n" * (size - 2)
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
        with socket.socket(socket.AF_UNIX, kind) as server, socket.socket(socket.AF_UNIX, kind) as client:
            say(size, call(BIND, server.fileno(), *address(name)), os.listdir("s") == [name[2:].decode()])
            kind == socket.SOCK_STREAM and server.listen()
            say(call(CONNECT, client.fileno(), *address(name)), named(GETSOCKNAME, server.fileno()), named(GETPEERNAME, client.fileno()))
            say(attempt(client.send, b"text"))
            os.unlink(name)

# Names of extended attributes: 64 KiB and more of them.
make("many")
room = ctypes.create_string_buffer(70000)
def names(size):
    got = call(LISTXATTR, b"many", room, size)
    return got, hashlib.md5(room.raw[:got]).hexdigest() if isinstance(got, int) and size else ""
for n in range(1, 4001):
    os.setxattr("many", "user.%013d" % (n * 37 % 4001), b"")
    if n in [861, 862, 863, 1723, 1724, 1725, 3448, 3449, 3450, 4000]:
        say(n, [names(size) for size in [0, 16384, 16385, 32755, 65535, 65536, 70000]])

# A removed directory lists nothing, wherever the listing was.
os.mkdir("gone")
fd = os.open("gone", os.O_RDONLY)
os.rmdir("gone")
say(call(GETDENTS64, fd, room, 4096), call(GETDENTS, fd, room, 4096), call(GETDENTS64, fd, room, 0), call(GETDENTS64, fd, 1, 4096))
say(call(LSEEK, fd, 0, 0), call(GETDENTS64, fd, room, 1), os.fstat(fd).st_nlink)
# Nothing is made in it, and what lies above it is still there.
AT = {"open": lambda name: os.close(os.open(name, 0, dir_fd=fd)), "stat": lambda name: os.stat(name, dir_fd=fd).st_nlink, "access": lambda name: os.access(name, 0, dir_fd=fd),
      "make": lambda name: os.close(os.open(name, os.O_CREAT | 2, dir_fd=fd)), "mkdir": lambda name: os.mkdir(name, dir_fd=fd), "unlink": lambda name: os.unlink(name, dir_fd=fd),
      "link": lambda name: os.link("many", name, dst_dir_fd=fd), "symlink": lambda name: os.symlink("x", name, dir_fd=fd), "rmdir": lambda name: os.rmdir(name, dir_fd=fd),
      "rename": lambda name: os.rename("many", name, dst_dir_fd=fd), "readlink": lambda name: os.readlink(name, dir_fd=fd), "nameless": lambda name: os.close(os.open(name, os.O_TMPFILE | 2, dir_fd=fd)),
      "chmod": lambda name: os.chmod(name, 0o700, dir_fd=fd), "utime": lambda name: os.utime(name, dir_fd=fd)}
for name in [".", "..", "x", "./.", "", "../file", "../s"]:
    say(name, {word: attempt(make_at, name) for word, make_at in AT.items()})
    os.path.lexists("file") and os.unlink("file")
os.chmod(base, 0o755)
os.fchdir(fd)
say(attempt(os.getcwd), os.stat(".").st_nlink, os.stat("..").st_nlink, attempt(os.stat, "x"), attempt(os.listdir, "."), attempt(os.chdir, "."), os.listdir("..") == os.listdir(base))
say(attempt(os.chdir, ".."), os.getcwd() == base)
os.mkdir("half")
make("half/x")
fd = os.open("half", os.O_RDONLY)
say(call(GETDENTS64, fd, room, 24), call(LSEEK, fd, 0, 1))
os.unlink("half/x")
os.rmdir("half")
say(call(GETDENTS64, fd, room, 4096), call(LSEEK, fd, 0, 1))
os.mkdir("cwd")
os.chdir("cwd")
os.rmdir("../cwd")
say(attempt(os.listdir, "."))
os.chdir(base)
# Those above it may be gone, too, and others may be there.
os.makedirs("one/two/three")
deep = [os.open("one/two/three", 0), os.open("one/two", 0)]
os.rmdir("one/two/three"); os.rename("one/two", "one/moved")
say(os.path.samestat(os.stat("..", dir_fd=deep[0]), os.stat("one/moved")))
os.rmdir("one/moved"); os.mkdir("one/two"); os.mkdir("one/moved")
say(os.path.samestat(os.stat("..", dir_fd=deep[0]), os.fstat(deep[1])), os.path.samestat(os.stat("../..", dir_fd=deep[0]), os.stat("one")))
os.mkdir("over"); held = os.open("over", 0); os.rename("one/two", "over")
say(os.path.samestat(os.stat("..", dir_fd=held), os.stat(".")), attempt(os.stat, "x", dir_fd=held))

# Flags of open that F_GETFL shows.
os.mkdir("d"), make("f")
for flags in [0, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_NOFOLLOW | os.O_DIRECTORY, os.O_PATH | os.O_NOFOLLOW, os.O_CLOEXEC, os.O_NOCTTY, os.O_EXCL,
              os.O_CREAT, os.O_TRUNC | 2, os.O_SYNC, os.O_DSYNC, os.O_LARGEFILE, os.O_ASYNC, os.O_TMPFILE | 2, os.O_NOATIME, os.O_NONBLOCK,
              os.O_APPEND | 1, 1 << 30, 1 << 25 | 1, 3, os.O_DIRECT, os.O_DIRECT | os.O_DIRECTORY, os.O_DIRECT | os.O_PATH]:
    for path in [b"d", b"f"]:
        fd = call(OPENAT, AT_FDCWD, path, flags, 0o644)
        say("open", oct(flags), path, oct(call(FCNTL, fd, 3, 0)) if isinstance(fd, int) else fd)
for path in ["d", "f"]:
    fd = os.open(path, os.O_RDONLY)
    say([(oct(flags), call(FCNTL, fd, 4, flags), oct(call(FCNTL, fd, 3, 0))) for flags in [os.O_DIRECT, os.O_APPEND, os.O_NONBLOCK, os.O_NOATIME, 0]])

# A file copied and sent onto itself; nearer than a page the order of bytes is the processor's.
make("o", bytes(range(256)) * 400)
one, other = os.open("o", os.O_RDWR), os.open("o", os.O_RDWR)
def word(at):
    return ctypes.create_string_buffer(struct.pack("<q", at), 8)
def at(word):
    return struct.unpack("<q", word.raw)[0]
def content(fd):
    return os.fstat(fd).st_size, hashlib.md5(os.pread(fd, 1 << 20, 0)).hexdigest()
for source, target, length in [
    (0, 0, 10), (0, 5, 10), (5, 0, 10), (0, 10, 10), (102390, 102400, 10), (102390, 102395, 10), (0, 102395, 10), (102395, 102400, 10),
    (102390, 102395, 100), (0, 0, 0), (102400, 102400, 10), (102500, 102500, 10), (0, 50000, 200000), (90000, 0, 200000)]:
    for fd in [one, other]:
        p, q = word(source), word(target)
        say("range", source, target, length, call(COPY, one, p, fd, q, length, 0), at(p), at(q), content(one))
for source, target, length in [
    (0, 0, 10), (5, 0, 10), (0, 5000, 90000), (0, 70000, 102400), (0, 102400, 102400), (0, 4096, 102400), (0, 65536, 102400),
    (0, 20000, 102400), (50000, 0, 60000), (0, 0, 102400), (8192, 0, 102400)]:
    make("s0", bytes(range(251)) * 400)
    one, other, p = os.open("s0", os.O_RDWR), os.open("s0", os.O_RDWR), word(source)
    os.lseek(other, target, 0)
    say("send", source, target, length, call(SENDFILE, other, one, p, length), at(p), os.lseek(other, 0, 1), content(one))
    say(call(SENDFILE, other, other, 0, 5000), os.lseek(other, 0, 1), content(one))
    os.unlink("s0")
make("grow", b"0123456789")
fd = os.open("grow", os.O_RDWR)
os.lseek(fd, 10, 0)
say(call(SENDFILE, fd, fd, word(0), 100), os.pread(fd, 200, 0))

# A link to another file system: what is wrong with the new name is told first.
make("there"); os.mkdir("gone"); gone = os.open("gone", os.O_RDONLY | os.O_DIRECTORY); os.rmdir("gone")
for new in ["there", "absent", "absent/", "there/", "no/where", ".", "there/in", "/"]:
    say("apart", new, attempt(os.link, "/etc/passwd", new), attempt(os.link, "/etc/no-such-file", new), attempt(os.rename, "/etc/passwd", new))
say(attempt(os.link, "/etc/passwd", "new", dst_dir_fd=gone), attempt(os.rename, "/etc/passwd", "new", dst_dir_fd=gone))
say([attempt(os.link, "there", new) for new in ["/etc/passwd", "/etc/no-such-file", "/no/where", "/etc/passwd/in", "/etc/"]], sorted(os.listdir(".")))

# A file is no namespace, and no group of fanotify.
make("plain")
plain = os.open("plain", os.O_RDWR)
say(call(308, plain, 0), call(308, plain, 0x20000), call(301, plain, 1, 2, AT_FDCWD, b"."))
