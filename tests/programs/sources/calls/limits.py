# The limit on the size of files: EFBIG and SIGXFSZ.
import resource, signal
SENDFILE, COPY, FALLOCATE = 40, 326, 285
caught = []
signal.signal(signal.SIGXFSZ, lambda number, frame: caught.append(number))

def shown(label, answer):
    say(label, answer, len(caught)); caught.clear()

resource.setrlimit(resource.RLIMIT_FSIZE, (10000, resource.RLIM_INFINITY))
fd = os.open("file", os.O_RDWR | os.O_CREAT)
shown("write", os.write(fd, b"x" * 9000))
shown("over", os.write(fd, b"x" * 9000))
shown("at", attempt(os.write, fd, b"x"))
shown("nothing", attempt(os.write, fd, b""))
shown("pwrite in", attempt(os.pwrite, fd, b"y" * 100, 50))
shown("pwrite over", attempt(os.pwrite, fd, b"y" * 100, 9950))
shown("pwrite at", attempt(os.pwrite, fd, b"y" * 100, 10000))
shown("pwrite far", attempt(os.pwrite, fd, b"y" * 100, 1 << 40))
shown("writev", attempt(os.writev, fd, [b"a", b"b"]))
append = os.open("file", os.O_WRONLY | os.O_APPEND)
shown("append", attempt(os.write, append, b"z"))
for size in [10000, 10001, 5000, 1 << 40]:
    shown("ftruncate %d" % size, attempt(os.ftruncate, fd, size))
shown("append half", attempt(os.write, append, b"z" * 9000))
shown("truncate", attempt(os.truncate, "file", 10001))
for mode in [0, 1, 3]:
    shown("fallocate %d" % mode, [call(FALLOCATE, fd, mode, offset, length) for offset, length in [(0, 10000), (9000, 1001), (1 << 30, 5)]])
os.truncate("file", 8000); make("source", b"s" * 5000); source = os.open("source", 0); os.lseek(fd, 8000, 0)
say("sendfile", call(SENDFILE, fd, source, 0, 5000)); caught.clear(); shown("sendfile at", call(SENDFILE, fd, source, 0, 5000))
os.lseek(source, 0, 0); os.ftruncate(fd, 9999); os.lseek(fd, 9999, 0)
shown("copy", call(COPY, source, 0, fd, 0, 5000, 0)); shown("copy at", call(COPY, source, 0, fd, 0, 5000, 0))
# Larger already: the limit does not shrink it, what lies below it may be written.
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.truncate("file", 50000); resource.setrlimit(resource.RLIMIT_FSIZE, (10000, resource.RLIM_INFINITY))
shown("ftruncate down", attempt(os.ftruncate, fd, 40000)); shown("below", attempt(os.pwrite, fd, b"b" * 10, 0))
shown("behind", attempt(os.pwrite, fd, b"b" * 10, 20000)); shown("ftruncate up", attempt(os.ftruncate, fd, 40001))
def inherits():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL); os.pwrite(fd, b"b", 10000)
say(child(inherits))
def none_at_all():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); shown("zero", attempt(os.pwrite, fd, b"b", 0))
    shown("new", attempt(os.write, os.open("new", os.O_CREAT | os.O_WRONLY), b"b")); os.mkdir("d"); os.symlink("x" * 99, "l")
say(child(none_at_all))
