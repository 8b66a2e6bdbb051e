# msync: what it takes and refuses, and that nothing has to be synced to be seen.
import mmap
MMAP, MPROTECT, MUNMAP, MSYNC, MLOCK, SHARED, PRIVATE, FIXED, ANON, R, W = 9, 10, 11, 26, 149, 1, 2, 0x10, 0x20, 1, 2
ASYNC, INVALIDATE, SYNC, PAGE = 1, 2, 4, 4096
libc.syscall.restype = ctypes.c_long
def raw(*words): return libc.syscall(*[ctypes.c_long(word) for word in words])
def room(fd, pages, prot=R | W, flags=SHARED, offset=0, at=0): return raw(MMAP, at, pages * PAGE, prot, flags, fd, offset)
def synced(at, length, flags): return call(MSYNC, ctypes.c_void_p(at), ctypes.c_size_t(length), flags)
def get(at, length=4): return ctypes.string_at(at, length)
def put(at, data): ctypes.memmove(at, data, len(data))

# All flags, of pages that were touched, of holes, and past the end of the file; partly and not aligned.
fd = os.open("synced", os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 20 * PAGE + 7); view = room(fd, 32)
put(view, b"one "); put(view + 9 * PAGE, b"nine")
say("flags", [synced(view, 32 * PAGE, flags) for flags in range(10)])
say([synced(view + at * PAGE, PAGE, SYNC) for at in (0, 5, 9, 20, 21, 31, 32)], synced(view + 1, PAGE, SYNC), synced(view, 1, SYNC), synced(view + PAGE, 0, ASYNC), synced(view, 2 ** 64 - 1, SYNC), synced(view, 2 ** 63, SYNC))
say(os.fstat(fd).st_size, os.fstat(fd).st_blocks, os.pread(fd, 4, 0), os.pread(fd, 4, 9 * PAGE))

# What is not mapped is told of, whatever lies around it.
say("gap", raw(MUNMAP, view + 4 * PAGE, PAGE), synced(view, 8 * PAGE, SYNC), synced(view, 8 * PAGE, ASYNC), synced(view, 4 * PAGE, SYNC), synced(view + 5 * PAGE, 3 * PAGE, SYNC), synced(view + 4 * PAGE, PAGE, SYNC), synced(view + 4 * PAGE, 0, SYNC))
say(raw(MPROTECT, view + 6 * PAGE, PAGE, 0), synced(view + 6 * PAGE, PAGE, SYNC), raw(MPROTECT, view + 7 * PAGE, PAGE, R), synced(view + 5 * PAGE, 3 * PAGE, SYNC | INVALIDATE))
say(raw(MLOCK, view + 10 * PAGE, PAGE), synced(view + 9 * PAGE, 3 * PAGE, SYNC | INVALIDATE), synced(view + 9 * PAGE, 3 * PAGE, SYNC), synced(view + 10 * PAGE, PAGE, INVALIDATE), synced(view + 9 * PAGE, PAGE, INVALIDATE))

# A private mapping, one to read, an anonymous one, one whose descriptor is closed and name removed.
own = room(fd, 4, R | W, PRIVATE); put(own, b"own "); only = room(os.open("synced", os.O_RDONLY), 4, R)
say("kinds", synced(own, 4 * PAGE, SYNC), get(own), os.pread(fd, 4, 0), synced(only, 4 * PAGE, SYNC | INVALIDATE), get(only), synced(room(-1, 2, R, PRIVATE | ANON), 2 * PAGE, SYNC))
os.close(fd); os.unlink("synced"); put(view, b"last"); say(synced(view, 4 * PAGE, SYNC), get(only), get(own))

# Stores are seen by read and by other processes at once, synced or not; writes in mappings, too.
fd = os.open("seen", os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 8 * PAGE); view = room(fd, 8); ask, asked = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    other = os.open("seen", os.O_RDWR); mine = room(other, 8)
    for step in range(4):
        os.read(ask[0], 1)
        found = get(view + step * PAGE) + get(mine + step * PAGE) + os.pread(other, 4, step * PAGE)
        put(mine + step * PAGE, b"back"); step % 2 and synced(mine, 8 * PAGE, SYNC)
        os.write(asked[1], found)
    os._exit(0)
for step in range(4):
    put(view + step * PAGE, b"%04d" % step) if step % 2 else os.pwrite(fd, b"%04d" % step, step * PAGE)
    step > 1 and synced(view, 8 * PAGE, ASYNC)
    os.write(ask[1], b"x"); say("seen", os.read(asked[0], 12), get(view + step * PAGE), os.pread(fd, 4, step * PAGE))
os.waitpid(child, 0)

# A file that another process makes shorter under a mapping, and longer again: empty pages, for all.
os.ftruncate(fd, PAGE); os.ftruncate(fd, 8 * PAGE); say("empty", [get(view + at * PAGE) for at in range(8)], synced(view, 8 * PAGE, SYNC))
