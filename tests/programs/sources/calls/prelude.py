# What the scripts beside this file share: raw calls, their answers printed, and an empty tmpfs to
# work in (natively the host's /dev/shm, in an image a tree laid over it).
import atexit, ctypes, errno, os, shutil, stat, sys, tempfile

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
AT_FDCWD = -100

def call(number, *args):
    """The result of a system call, or the name of its error."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *words)
    return result if result != -1 or not ctypes.get_errno() else errno.errorcode[ctypes.get_errno()]

def patient(number, *args):
    """The same of openat2, which is EAGAIN beside any mount or rename of anybody (RESOLVE_CACHED; `..`
    with RESOLVE_BENEATH or RESOLVE_IN_ROOT)."""
    for _ in range(100):
        answer = call(number, *args)
        if answer != "EAGAIN":
            break
    return answer

def attempt(make, *args, **named):
    """The result of a function, or the name of its error."""
    try:
        return make(*args, **named)
    except OSError as error:
        return errno.errorcode[error.errno]

def say(*words):
    print(*words, flush=True)

def child(body):
    """Runs body in a process of its own and says how that ended."""
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        try:
            body()
        finally:
            sys.stdout.flush()
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return status if status == 0 else ("signal", status & 0x7f) if status & 0x7f else ("exit", status >> 8)

def make(path, content=b"", mode=0o644):
    """A new file."""
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    os.write(fd, content)
    os.close(fd)

base = tempfile.mkdtemp(dir="/dev/shm")
owner = os.getpid()
atexit.register(lambda: os.getpid() == owner and shutil.rmtree(base, ignore_errors=True))
os.chdir(base)
os.umask(0o022)
