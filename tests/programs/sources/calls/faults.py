# Pointers that lead nowhere, to read-only memory, and across the end of memory.
import struct
libc.mmap.restype = ctypes.c_void_p; libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
P = 4096
whole = libc.mmap(None, 4 * P, 3, 0x22, -1, 0)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
ro = libc.mmap(None, P, 3, 0x22, -1, 0)
ctypes.memmove(ro, b"f\0" + struct.pack("<Q", 0) * 100, 802)
libc.mprotect(ro, P, 1); libc.mprotect(whole + 2 * P, P, 0)
end = whole + 2 * P
make("f", b"x" * 10000); os.mkdir("d"); make("d/a"); os.symlink("f", "l"); os.setxattr("f", "user.one", b"value")
fd = os.open("f", os.O_RDWR); dd = os.open("d", 0); one = os.open("f", os.O_RDONLY)
pr, pw = os.pipe2(os.O_NONBLOCK)
good = ctypes.create_string_buffer(65536)
skip = ["ro", "edge", "edge1"]
def L(n): return ctypes.c_long(n)
def at(data):
    a = end - len(data); ctypes.memmove(a, data, len(data)); return L(a)
bad = {"null": L(0), "one": L(1), "none": L(end), "kernel": L(-4096), "high": L(0x7ffffffff000), "noncanonical": L(1 << 62), "ro": L(ro), "edge": L(end - 4), "edge1": L(end - 1)}
for word, p in bad.items():
    os.lseek(fd, 0, 0); os.lseek(dd, 0, 0)
    vec = ctypes.create_string_buffer(struct.pack("<QQqQ", ctypes.addressof(good), 3, p.value, 8))
    def answers():
        yield "read", call(0, fd, p, 100)
        yield "at", os.lseek(fd, 0, 1)
        yield "read 0", call(0, fd, p, 0)
        yield "read end", (os.lseek(fd, 10000, 0), call(0, fd, p, 100))
        os.lseek(fd, 0, 0)
        yield "write", word != "ro" and call(1, fd, p, 100)
        yield "at", os.lseek(fd, 0, 1); os.lseek(fd, 0, 0)
        yield "readv", call(19, fd, vec, 2), os.lseek(fd, 0, 1)
        yield "writev", word != "ro" and call(20, fd, vec, 2), os.lseek(fd, 0, 1)
        yield "readv vec", word != "ro" and call(19, fd, p, 1)
        yield "pread", call(17, fd, p, 100, 0), call(17, fd, p, 100, 20000), call(17, one, p, 100, 0)
        yield "pwrite", word != "ro" and call(18, fd, p, 100, 0), word != "ro" and call(18, one, p, 100, 0)
        yield "size", os.fstat(fd).st_size
        yield "write past", word != "ro" and call(18, fd, p, 100, 20000)
        os.ftruncate(fd, 10000)
        yield "big write", word != "ro" and call(18, fd, p, 70000, 0), os.fstat(fd).st_size
        os.ftruncate(fd, 10000)
        yield "stat", call(4, b"f", p), call(4, b"none", p), call(6, b"l", p), call(5, fd, p), call(5, 900, p), call(262, AT_FDCWD, b"f", p, 0), call(332, AT_FDCWD, b"f", 0, 0xfff, p), call(332, AT_FDCWD, b"f", 0x8000, 0xfff, p)
        yield "path", word not in skip and [call(n, p, *r) for n, *r in [(2, 0), (2, os.O_CREAT, 0o644), (4, good), (6, good), (21, 0), (83, 0o755), (84,), (87,), (90, 0o644), (94, -1, -1), (76, 5), (80,), (89, good, 10), (132, 0), (137, good), (133, 0o644, 0), (191, b"user.one", good, 10), (194, good, 100), (188, b"user.x", good, 1, 0), (197, b"user.x"), (161,)]]
        yield "paths", word not in skip and [call(n, p, b"q") for n in (82, 86, 88)], [call(n, b"f", p) for n in (82, 86, 88)] if word not in skip else 0
        yield "readlink", call(89, b"l", p, 10), call(89, b"l", p, 0), call(89, b"l", p, -1), call(89, b"f", p, 10), call(267, AT_FDCWD, b"l", p, 1)
        yield "getdents", call(217, dd, p, 4096), call(217, dd, p, 10), call(78, dd, p, 4096)
        yield "getcwd", call(79, p, 4096), call(79, p, 0), call(79, p, 1)
        yield "statfs", call(137, b"f", p), call(138, fd, p)
        yield "xattr", call(191, b"f", b"user.one", p, 100), call(191, b"f", b"user.one", p, 0), call(191, b"f", b"user.one", p, 2), call(194, b"f", p, 100), call(194, b"f", p, 1), word != "ro" and call(191, b"f", p, good, 10), word != "ro" and call(188, b"f", b"user.y", p, 100, 0), call(188, b"f", b"user.y", p, 0, 0), call(188, b"f", b"user.y", p, 70000, 0), call(188, b"f", b"user.y", p, 1, 7)
        yield "utime", word != "ro" and [call(280, AT_FDCWD, b"f", p, 0), call(280, fd, 0, p, 0), call(235, b"f", p), call(132, b"f", p), call(261, AT_FDCWD, b"f", p)]
        yield "fcntl", word != "ro" and [call(72, fd, c, p) for c in (5, 6, 7, 36, 37)]
        yield "sendfile", call(40, pw, fd, p, 10), call(40, fd, one, p, 10) if word != "null" else 0
        yield "copy", call(326, fd, p, fd, struct.pack("<q", 50000), 10, 0) if word != "null" else 0, call(326, one, struct.pack("<q", 0), fd, p, 10, 0)
        yield "splice", call(275, fd, p, pw, 0, 10, 2) if word != "null" else 0, call(275, pr, 0, fd, p, 10, 2) if word != "null" else 0, call(275, pr, p, fd, 0, 10, 2) 
        yield "openat2", word not in skip and [call(437, AT_FDCWD, b"f", p, 24), call(437, AT_FDCWD, p, struct.pack("<QQQ", 0, 0, 8), 24)]
        yield "poll", call(7, p, 1, 0), call(23, 5, p, 0, 0, 0) if word != "null" else 0
        yield "ioctl", call(16, fd, 0x541b, p), call(16, fd, 0x5421, p)
        yield "rename2", word not in skip and [call(316, AT_FDCWD, p, AT_FDCWD, b"x", 8), call(316, AT_FDCWD, p, AT_FDCWD, b"x", 0)]
        yield "select", call(270, 5, p, 0, 0, 0, 0) if word != "null" else 0
        yield "inotify", word != "ro" and call(254, 900, p, 1), call(254, fd, b"f", 1)
        yield "preadv2", word != "ro" and call(327, fd, p, 1, 0, 0, 0)
        yield "pipe", call(22, p), call(293, p, 0)
        yield "getgroups", call(98, 0, p)
    for item in answers(): say(word, *item)
# content that ends at the end of memory
for n in [1, 7, 100, 4096, 5000, 8192]:
    a = L(end - n)
    say(n, call(17, fd, a, n, 0), call(17, fd, a, n + 1, 0), call(18, fd, a, n, 0), call(18, fd, a, n + 1, 0), call(18, fd, a, n + 5000, 30000), os.fstat(fd).st_size)
    os.lseek(fd, 0, 0); say(call(0, fd, a, n + 10), os.lseek(fd, 0, 1), call(1, fd, a, n + 10), os.lseek(fd, 0, 1)); os.ftruncate(fd, 10000)
    say(call(217, dd, a, n) if n < 30 else call(217, dd, a, n + 1000), os.lseek(dd, 0, 1) * 0, os.lseek(dd, 0, 0))
