# How touching a mapping ends: within the last page, right behind it, and far behind it.
import ctypes, mmap, os, signal
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
fd = os.open('short', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 100)
def ending(shared, write, offset):
    view = libc.mmap(None, ctypes.c_size_t(16384), 3, shared, fd, ctypes.c_long(0))
    child = os.fork()
    if child == 0:
        if write:
            ctypes.memset(view + offset, 1, 1)
        else:
            ctypes.string_at(view + offset, 1)
        os._exit(0)
    return os.waitpid(child, 0)[1] & 0x7f
print([ending(s, w, o) for s in (1, 2) for w in (0, 1) for o in (4000, 4096, 12288)])
