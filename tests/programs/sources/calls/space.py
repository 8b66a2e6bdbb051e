# Space, positions and flags: fallocate, holes, large offsets, vectors with flags, copies, renames with flags.
import fcntl, struct
FALLOCATE, PREADV2, PWRITEV2, COPY, SENDFILE, RENAMEAT2, STATX, LSEEK, FADVISE, SYNC_RANGE = 285, 327, 328, 326, 40, 316, 332, 8, 221, 277
make("file", b"x" * 10000); fd = os.open("file", os.O_RDWR); reader = os.open("file", os.O_RDONLY)
handle = os.open("file", os.O_PATH); folder = os.open(".", os.O_RDONLY)
K, P = 1, 2

# fallocate: modes, edges, what it does to size, blocks and bytes.
for mode in [0, K, K | P, P, 4, 8, 8 | K, 0x10, 0x10 | K, 0x20, 0x40, 0x200, K | P | 8]:
    row = [call(FALLOCATE, fd, mode, offset, length) for offset, length in [(0, 4096), (-1, 10), (0, 0), (0, -1), ((1 << 63) - 1, 1), ((1 << 62), (1 << 62))]]
    say("fallocate", hex(mode), row, os.fstat(fd).st_size)
say([call(FALLOCATE, n, 0, 0, 10) for n in [reader, handle, folder, 999]], [call(FALLOCATE, n, 8, 0, 10) for n in [reader, handle, folder, 999]])
os.ftruncate(fd, 0); os.ftruncate(fd, 40960)
say(os.fstat(fd).st_blocks, call(FALLOCATE, fd, 0, 4096, 8192), os.fstat(fd).st_blocks, os.pread(fd, 4, 4096))
say(call(FALLOCATE, fd, K, 40960, 8192), os.fstat(fd).st_size, os.fstat(fd).st_blocks); os.ftruncate(fd, 40960)
os.pwrite(fd, b"A" * 20000, 0); say(call(FALLOCATE, fd, K | P, 1000, 10000), os.pread(fd, 2, 999), os.pread(fd, 2, 10999), os.fstat(fd).st_blocks, os.fstat(fd).st_size)
say(call(FALLOCATE, fd, K | P, 30000, 1 << 40), os.fstat(fd).st_size, os.fstat(fd).st_blocks)

# Data and holes.
holes = os.open("holes", os.O_RDWR | os.O_CREAT); os.pwrite(holes, b"1", 8192); os.pwrite(holes, b"2", 65536); os.ftruncate(holes, 200000)
for whence in [3, 4]:
    say("seek", whence, [call(LSEEK, holes, at, whence) for at in [0, 1, 8191, 8192, 8193, 12288, 65535, 65537, 69632, 199999, 200000, 200001, -1]])
say([call(LSEEK, holes, at, whence) for at, whence in [(0, 5), (-1, 0), (1 << 62, 1), ((1 << 63) - 1, 0), ((1 << 63) - 1, 2), (-200001, 2), (-200000, 2)]])
say([call(LSEEK, n, 0, 3) for n in [handle, 999, reader]])

# Far away: over 4 GiB, and at the end of what an offset can say.
far = os.open("far", os.O_RDWR | os.O_CREAT)
for at in [(1 << 32) - 2, (1 << 32), (5 << 30) + 1, 1 << 40]:
    say(at, os.pwrite(far, b"far", at), os.pread(far, 3, at), os.fstat(far).st_size)
say(call(LSEEK, far, 5 << 30, 3), call(LSEEK, far, (5 << 30) + 5000, 3), os.fstat(far).st_blocks, attempt(os.truncate, "far", (4 << 30) + 1), os.fstat(far).st_blocks)
say(attempt(os.pread, far, 10, (1 << 63) - 10), attempt(os.pread, far, 10, (1 << 63) - 1), attempt(os.pwrite, far, b"", (1 << 63) - 1))
say(attempt(os.ftruncate, far, -1), attempt(os.truncate, "far", -1), attempt(os.ftruncate, reader, 5), attempt(os.ftruncate, handle, 5), attempt(os.ftruncate, folder, 5))
os.unlink("far")

# Vectors with flags.
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
room = ctypes.create_string_buffer(b"0123456789"); vector = (Vector * 1)(Vector(ctypes.addressof(room), 10))
os.ftruncate(fd, 0)
for flags in [0, 1, 2, 4, 8, 0x10, 0x20, 0x1000, 0x30]:
    say("flags", hex(flags), call(PWRITEV2, fd, vector, 1, 0, 0, flags), call(PREADV2, fd, vector, 1, 0, 0, flags), os.fstat(fd).st_size)
os.lseek(fd, 3, 0); say(call(PREADV2, fd, vector, 1, -1, -1, 0), os.lseek(fd, 0, 1), call(PWRITEV2, fd, vector, 1, -1, -1, 0x10), os.lseek(fd, 0, 1))
say(call(PREADV2, fd, vector, 1, -2, -1, 0), call(PREADV2, handle, vector, 1, 0, 0, 0), call(PREADV2, folder, vector, 1, 0, 0, 0), call(PREADV2, fd, vector, -1, 0, 0, 0), call(PREADV2, fd, 1, 1, 0, 0, 0))

# Copies.
make("source", bytes(range(256)) * 40); source = os.open("source", os.O_RDWR); target = os.open("target", os.O_RDWR | os.O_CREAT)
pipe, write_end = os.pipe(); other = os.open("/bin/true", os.O_RDONLY)
say(call(COPY, source, 0, target, 0, 5000, 0), call(COPY, source, 0, target, 0, 50000, 0), os.fstat(target).st_size, call(COPY, source, 0, target, 0, 5, 0))
say([call(COPY, *pair, 5, 0) for pair in [(handle, 0, target, 0), (source, 0, reader, 0), (folder, 0, target, 0), (source, 0, folder, 0), (pipe, 0, target, 0), (999, 0, target, 0)]], call(COPY, source, 0, target, 0, 5, 1))
append = os.open("target", os.O_WRONLY | os.O_APPEND); os.lseek(source, 0, 0); say(call(COPY, source, 0, append, 0, 5, 0))
at = ctypes.c_int64(100); say(call(COPY, source, ctypes.byref(at), source, 0, 5000, 0), at.value, os.lseek(source, 0, 1)); at.value = -1; say(call(COPY, source, ctypes.byref(at), target, 0, 5, 0))
os.lseek(source, 0, 0); say(call(SENDFILE, target, source, 0, 300), call(SENDFILE, append, source, 0, 3), call(SENDFILE, reader, source, 0, 3), call(SENDFILE, target, folder, 0, 3), call(SENDFILE, handle, source, 0, 3))
say(call(SENDFILE, write_end, source, 0, 100), len(os.read(pipe, 1000)), call(SENDFILE, target, pipe, 0, 5), call(SENDFILE, target, other, 0, 100))

# renameat2.
make("one", b"1"); make("two", b"2"); os.mkdir("dir"); os.mkdir("dir/sub")
def rename(a, b, flags):
    return call(RENAMEAT2, AT_FDCWD, a, AT_FDCWD, b, flags)
say([rename(b"one", b"two", flags) for flags in [1, 3, 8, 6]], rename(b"one", b"two", 2), open("one").read(), rename(b"one", b"absent", 2), rename(b"one", b"dir", 2), os.path.isdir("one"))
say(rename(b"one", b"dir", 2), rename(b"dir", b"dir/sub", 2), rename(b"dir/sub", b"dir", 2), rename(b"dir", b"dir/sub/x", 0), rename(b"one", b"three", 1), rename(b"absent", b"three", 1), rename(b"absent", b"four", 1))

# What advice and flushes say; statx; O_DIRECT; notifications and leases.
say([call(FADVISE, fd, 0, 0, advice) for advice in range(8)], call(FADVISE, handle, 0, 0, 0), call(FADVISE, write_end, 0, 0, 0), [call(SYNC_RANGE, fd, 0, 10, flags) for flags in [0, 7, 8]], call(SYNC_RANGE, fd, -1, 10, 0))
out = ctypes.create_string_buffer(256)
say([call(STATX, AT_FDCWD, b"one" if os.path.exists("one") else b"three", flags, mask, out) for flags, mask in [(0, 0), (0, 0xfff), (0x6000, 0), (0x2000, 0), (1, 0), (0, 0x80000000)]])
say([type(attempt(os.open, "three", flag)) for flag in [os.O_DIRECT, os.O_SYNC, os.O_DSYNC, os.O_NOATIME, os.O_ASYNC, os.O_NONBLOCK]])
direct = os.open("three", os.O_RDWR | os.O_DIRECT); say(os.pwrite(direct, b"odd", 1), os.pread(direct, 3, 1), hex(fcntl.fcntl(direct, fcntl.F_GETFL) & ~0o100000))
for command, argument in [(1025, 0), (9, 0), (8, os.getpid()), (11, 0), (10, 10), (1031, 0), (1034, 0), (1033, 1), (99, 0)]:
    say("fcntl", command, attempt(fcntl.fcntl, fd, command, argument))
