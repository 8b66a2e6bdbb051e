# inotify: what is told of which operation, in which order, and what calls say.
import signal, struct, time
signal.alarm(100)
NAMES = {1: "ACCESS", 2: "MODIFY", 4: "ATTRIB", 8: "CLOSE_WRITE", 16: "CLOSE_NOWRITE", 32: "OPEN",
         64: "FROM", 128: "TO", 256: "CREATE", 512: "DELETE", 1024: "DELETE_SELF", 2048: "MOVE_SELF",
         0x4000: "OVERFLOW", 0x8000: "IGNORED", 0x40000000: "ISDIR"}
ALL, ONLYDIR, STAY, EXCL, CREATE, ADD, ONCE = 0xfff, 1 << 24, 1 << 25, 1 << 26, 1 << 28, 1 << 29, 1 << 31
INIT, ADD_WATCH, RM_WATCH, RENAMEAT2, UTIMENSAT, OMIT = 294, 254, 255, 316, 280, 0x3ffffffe

def watch(path, mask=ALL):
    return call(ADD_WATCH, fd, ctypes.c_char_p(path.encode()), mask)

def unwatch(wd):
    return call(RM_WATCH, fd, wd)

def events(data):
    at, cookies = 0, {}
    while at < len(data):
        wd, mask, cookie, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16:at + 16 + length]
        at += 16 + length
        what = "|".join(text for bit, text in NAMES.items() if mask & bit)
        joined = cookies.setdefault(cookie, len(cookies) + 1) if cookie else ""
        yield wd, what, joined, name.rstrip(b"\0").decode(), length

def told(title, act=lambda: None):
    say(title, attempt(act) if not isinstance(act, list) else None)
    data = b""
    while isinstance(more := attempt(os.read, fd, 8192), bytes):
        data += more
    for event in events(data):
        say("   ", *event)

def write(path, data=b"xx", flags=os.O_WRONLY):
    file = os.open(path, flags)
    os.write(file, data)
    os.close(file)

def read(path):
    file = os.open(path, os.O_RDONLY)
    os.read(file, 10)
    os.read(file, 10)
    os.close(file)

def changes():
    file = os.open("w/a", os.O_RDWR)
    os.ftruncate(file, 50)
    os.pread(file, 1, 0)
    os.pwrite(file, b"z", 1)
    os.write(file, b"")
    os.posix_fallocate(file, 0, 5000)
    os.fchmod(file, 0o600)
    os.close(file)

def times(accessed, modified):
    four = (ctypes.c_long * 4)(*accessed, *modified)
    return call(UTIMENSAT, AT_FDCWD, ctypes.c_char_p(b"w/a"), four, 0)

# A user has few instances, and the kernel gives those that were closed back late.
while (fd := call(INIT, os.O_NONBLOCK | os.O_CLOEXEC)) == "EMFILE":
    time.sleep(0.05)
os.mkdir("w")
os.mkdir("o")
say("watches", watch("w"), watch("w"), watch("o"), attempt(os.read, fd, 100))
told("create", lambda: os.close(os.open("w/a", os.O_CREAT | os.O_WRONLY, 0o644)))
say("a file", watch("w/a"))
told("write", lambda: write("w/a"))
told("append", lambda: write("w/a", b"yy", os.O_WRONLY | os.O_APPEND))
told("read", lambda: read("w/a"))
told("truncate", lambda: os.truncate("w/a", 100))
told("by descriptor", changes)
told("mode", lambda: os.chmod("w/a", 0o755))
told("owner", lambda: os.chown("w/a", os.getuid(), os.getgid()))
told("no owner", lambda: os.chown("w/a", -1, -1))
told("times now", lambda: os.utime("w/a"))
told("times", lambda: os.utime("w/a", (1, 2)))
told("one time", lambda: times((5, 5), (0, OMIT)))
told("the other", lambda: times((0, OMIT), (5, 5)))
told("none", lambda: times((0, OMIT), (0, OMIT)))
if attempt(os.setxattr, "o", "user.probe", b"1") is None:
    told("probe")
    told("attribute", lambda: os.setxattr("w/a", "user.x", b"1"))
    told("no attribute", lambda: os.removexattr("w/a", "user.x"))
told("probed")
told("link", lambda: os.link("w/a", "w/b"))
told("unlink one of two", lambda: os.unlink("w/b"))
told("symlink", lambda: os.symlink("a", "w/s"))
told("readlink", lambda: os.readlink("w/s"))
told("fifo", lambda: os.mkfifo("w/f"))
told("mkdir", lambda: os.mkdir("w/d"))
say("a directory", watch("w/d"))
told("list", lambda: os.listdir("w/d"))
told("directory's mode", lambda: os.chmod("w/d", 0o700))
told("rename", lambda: os.rename("w/a", "w/c"))
told("rename out", lambda: os.rename("w/c", "o/a name of more than thirty-two bytes, the longest in a line"))
told("write there", lambda: write("o/a name of more than thirty-two bytes, the longest in a line"))
told("rename back", lambda: os.rename("o/a name of more than thirty-two bytes, the longest in a line", "w/a"))
told("rename to the same", lambda: os.rename("w/a", "w/a"))
told("rename directory", lambda: os.rename("w/d", "w/e"))
told("rename directory out", lambda: os.rename("w/e", "o/e"))
make("w/x")
say("x", watch("w/x"))
told("before")
told("rename over", lambda: os.rename("w/a", "w/x"))
os.mkdir("w/p")
os.mkdir("w/q")
say("p q", watch("w/p"), watch("w/q"))
told("before")
told("directory over directory", lambda: os.rename("w/p", "w/q"))
told("exchange", lambda: call(RENAMEAT2, AT_FDCWD, ctypes.c_char_p(b"w/q"), AT_FDCWD, ctypes.c_char_p(b"w/x"), 2))
told("rmdir", lambda: os.rmdir("o/e"))
told("unlink", lambda: os.unlink("w/q"))
told("none there", lambda: os.unlink("w/q"))
make("w/u")
say("u", watch("w/u"))
told("before")
file = os.open("w/u", os.O_RDWR)
told("open")
told("unlink what is open", lambda: os.unlink("w/u"))
watch("w", ALL | EXCL)
told("write", lambda: os.write(file, b"1"))
told("close", lambda: os.close(file))
for name in ("w/f", "w/s"):
    told(name, lambda: os.unlink(name))
told("rmdir", lambda: os.rmdir("w/x"))
told("the watched one", lambda: os.rmdir("w"))
say("gone", unwatch(1), unwatch(2), unwatch(2), unwatch(0), unwatch(-1), unwatch(77))
told("removed")
told("no more", lambda: make("o/new"))

# What calls refuse.
os.mkdir("m")
make("m/f")
os.symlink("f", "m/l")
file = os.open("m/f", os.O_RDONLY)
say("masks", watch("m", 0), watch("m/f", ONLYDIR | 2), watch("m", ADD | CREATE | 2), watch("absent"), watch("m/f/x"))
say("descriptors", call(ADD_WATCH, 99, ctypes.c_char_p(b"m"), 2), call(ADD_WATCH, file, ctypes.c_char_p(b"m"), 2),
    call(ADD_WATCH, 0, ctypes.c_char_p(b"m"), 2), call(RM_WATCH, 99, 1), call(RM_WATCH, file, 1))
say("paths", call(ADD_WATCH, fd, 0, 2), call(ADD_WATCH, fd, ctypes.c_char_p(b""), 2))
os.close(file)
say("flags", call(INIT, 1), call(INIT, 0x100000))
say("once made", watch("m", CREATE | 256), watch("m", CREATE | 256), watch("m", ADD | 512))
told("both", lambda: (make("m/g"), os.unlink("m/g")))
say("replaced", watch("m", 512))
told("one", lambda: (make("m/g"), os.unlink("m/g")))
say("links", watch("m/l", STAY | ALL), watch("m/l"), watch("m/f"), watch("m/l/"))
told("through the link", lambda: os.chmod("m/l", 0o600))
say("once", watch("m/f", ONCE | 2))
told("once", lambda: (write("m/f"), write("m/f")))
say("again", watch("m/f", 2))
told("the same is told once", lambda: (write("m/f"), write("m/f"), write("m/f")))
if os.geteuid() == 0:
    os.mkdir("m/secret", 0o711)
    def stranger():
        os.setresuid(1234, 1234, 1234)
        say("unreadable", watch("m/secret"), watch("m"))
    os.chmod(".", 0o755)
    say(child(stranger))
    told("another process's")

# Reading.
import fcntl, termios
watch("m", 256)
def pending():
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, struct.pack("i", 0)))[0]
write("m/f")
say("pending", pending())
for size in (0, 8, 15, 16, 16):
    say(size, len(answer) if isinstance(answer := attempt(os.read, fd, size), bytes) else answer)
make("m/named")
say("named", pending())
for size in (16, 31, 32, 4096):
    say(size, len(answer) if isinstance(answer := attempt(os.read, fd, size), bytes) else answer)
for n in range(5):
    make(f"m/n{n}")
say("five", pending(), [n[3] for n in events(os.read(fd, 70))], pending(), [n[3] for n in events(os.read(fd, 4096))], pending())
write("m/f")
say("at a place", attempt(os.pread, fd, 100, 0), attempt(os.lseek, fd, 0, 0), attempt(os.write, fd, b"1"))
say("pieces", attempt(os.readv, fd, [bytearray(100), bytearray(100)]), attempt(os.read, fd, 100))
write("m/f")
say("bad memory", call(0, fd, 16, 100), attempt(os.read, fd, 100))

# What a mapping writes is not told; what a file is sent is.
import mmap
make("m/t", bytes(4096))
say("t", watch("m/t"), watch("m"))
told("before")
file = os.open("m/t", os.O_RDWR)
with mmap.mmap(file, 4096) as memory:
    memory[0] = 1
told("mapping")
made = os.open("m/t2", os.O_CREAT | os.O_RDWR)
told("made")
told("sent", lambda: (os.sendfile(made, file, 0, 10), os.copy_file_range(file, made, 10)))
os.close(file)
os.close(made)
told("closed")
# Many watches, and those of an instance that is gone.
os.mkdir("many")
for n in range(300):
    make(f"many/{n}")
numbers = [watch(f"many/{n}", 4) for n in range(300)]
say("in order", numbers == list(range(numbers[0], numbers[0] + 300)))
say("away", [unwatch(n) for n in numbers[:150]] == [0] * 150, watch("many/0", 4) - numbers[-1])
told_all = b""
for n in range(300):
    os.chmod(f"many/{n}", 0o600)
while isinstance(more := attempt(os.read, fd, 4096), bytes):
    told_all += more
say("told", [(wd - numbers[0], what) for wd, what, *_ in events(told_all)])
# One watch that came and went as often is not in the way of the end.
say("came and went", {unwatch(watch("many/0")) for _ in range(200)})
os.close(fd)
os.chmod("many/200", 0o644)
fd = call(INIT, os.O_NONBLOCK)
say("anew", watch("many"), attempt(os.read, fd, 100))
