# Mappings: holes, pages that come later, growth, protection, addresses handed to the host.
import mmap, signal, threading, time
MMAP, MPROTECT, MUNMAP, MREMAP, MADVISE, MLOCK, READ, WRITE, READV = 9, 10, 11, 25, 28, 149, 0, 1, 19
PREAD, GETRANDOM, SHARED, PRIVATE, FIXED, ANON, POPULATE, R, W = 17, 318, 1, 2, 0x10, 0x20, 0x8000, 1, 2
PAGE, GIB = 4096, 1 << 30
libc.syscall.restype = ctypes.c_long
def raw(*words): return libc.syscall(*[ctypes.c_long(word) for word in words])
def room(fd, length, prot=R | W, flags=SHARED, offset=0, at=0): return raw(MMAP, at, length, prot, flags, fd, offset)
def get(at, length=4): return ctypes.string_at(at, length)
def put(at, data): ctypes.memmove(at, data, len(data))
def blocks(fd): return os.fstat(fd).st_blocks
def told(step):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        step()
        os._exit(0)
    return os.waitpid(child, 0)[1]

# A hole costs nothing until it is touched, and then the page; all see the same.
fd = os.open("sparse", os.O_RDWR | os.O_CREAT); os.ftruncate(fd, GIB)
reader = room(os.open("sparse", os.O_RDONLY), GIB, R); writer = room(fd, GIB); own = room(fd, GIB, R | W, PRIVATE)
say("holes", blocks(fd), get(reader + 99 * PAGE), blocks(fd))
put(writer + 7 * PAGE + 5, b"store"); os.pwrite(fd, b"write", 9 * PAGE); say(blocks(fd))
for view in [reader, writer, own]: say(get(view + 7 * PAGE + 5, 5), get(view + 9 * PAGE, 5))
put(own + 9 * PAGE, b"alone"); put(own + 11 * PAGE, b"alone"); os.pwrite(fd, b"later", 11 * PAGE)
say([get(view + at * PAGE, 5) for view in [reader, own] for at in [9, 11]], blocks(fd))
say(told(lambda: put(writer + 13 * PAGE, b"child")), get(reader + 13 * PAGE, 5), get(own + 13 * PAGE, 5), os.pread(fd, 5, 13 * PAGE))
say(told(lambda: put(reader, b"x")), told(lambda: get(own + 9 * PAGE)), told(lambda: get(writer - 1 + GIB, 1)))
os.pwrite(fd, b"under", 14 * PAGE); say(call(285, fd, 3, 14 * PAGE, PAGE), get(writer + 14 * PAGE, 5))

# What the file gains comes into mappings that are there; what lies past it is SIGBUS.
grows = os.open("grows", os.O_RDWR | os.O_CREAT); os.write(grows, b"x" * 100)
view = room(grows, 64 * PAGE); alone = room(grows, 64 * PAGE, R | W, PRIVATE)
say("grows", told(lambda: get(view + PAGE)), told(lambda: put(view + PAGE, b"x")), told(lambda: get(alone + PAGE)), get(view + 98))
os.pwrite(grows, b"more", PAGE); say(get(view + PAGE), get(alone + PAGE), told(lambda: get(view + 2 * PAGE)))
os.ftruncate(grows, 32 * PAGE); put(view + 20 * PAGE, b"mine"); say(os.pread(grows, 4, 20 * PAGE), blocks(grows), told(lambda: get(view + 32 * PAGE)))
os.pwrite(grows, b"end", 40 * PAGE); say(get(view + 40 * PAGE, 3), get(view + 39 * PAGE, 1), told(lambda: get(view + 41 * PAGE)))

# What a file loses goes from its mappings, also what is private; what comes back is empty.
lost = os.open("lost", os.O_RDWR | os.O_CREAT); os.write(lost, b"full" * 1024 * 16); view = room(lost, 24 * PAGE); other = room(lost, 8 * PAGE, R | W, SHARED, 4 * PAGE); alone = room(lost, 16 * PAGE, R | W, PRIVATE)
for at in range(16): get(view + at * PAGE); put(alone + at * PAGE, b"mine")
put(other, b"seen"); say("lost", get(view + 4 * PAGE)); os.ftruncate(lost, 5 * PAGE + 100)
ends = [(view, 4), (view, 5), (view, 6), (view, 15), (other, 1), (other, 2), (alone, 5), (alone, 6), (alone, 15)]
say([told(lambda: get(at + page * PAGE)) for at, page in ends], [told(lambda: put(at + page * PAGE, b"x")) for at, page in ends], get(view + 5 * PAGE + 98), get(alone + 5 * PAGE), get(alone + 5 * PAGE + 98))
os.ftruncate(lost, 20 * PAGE); say([get(at + page * PAGE) for at, page in ends], get(view + 5 * PAGE + 200))
put(other + 2 * PAGE, b"here"); put(view + 15 * PAGE, b"here"); say(get(view + 6 * PAGE), get(alone + 6 * PAGE), os.pread(lost, 4, 15 * PAGE), told(lambda: get(view + 20 * PAGE)))
for at in range(20): put(view + at * PAGE, b"page")
zeros = os.open("/dev/zero", os.O_RDONLY); os.truncate("lost", 2 * PAGE); say(raw(READ, zeros, view + PAGE, 2 * PAGE), raw(READ, zeros, view + 2 * PAGE, PAGE), told(lambda: get(view + 2 * PAGE)))
os.pwrite(lost, b"back", 6 * PAGE); say(raw(READ, zeros, view + 4 * PAGE, 2 * PAGE), get(view + 6 * PAGE), get(other + 2 * PAGE), get(alone + 6 * PAGE))
os.close(os.open("lost", os.O_WRONLY | os.O_TRUNC)); say([told(lambda: get(at)) for at in [view, other, alone]]); os.write(lost, b"more"); say(os.fstat(lost).st_size, get(view + 5 * PAGE), told(lambda: get(view + 17 * PAGE)))
parts = room(lost, 8 * PAGE); say(raw(MPROTECT, parts + 2 * PAGE, PAGE, R), raw(MUNMAP, parts + 4 * PAGE, PAGE)); get(parts + 5 * PAGE); os.ftruncate(lost, PAGE); say([told(lambda: get(parts + at * PAGE)) for at in range(8)])

# Every page once, forwards, backwards and by many threads, under signals.
many = os.open("many", os.O_RDWR | os.O_CREAT); os.ftruncate(many, 4096 * PAGE); view = room(many, 4096 * PAGE)
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
ctypes.memset(view, 1, 1000 * PAGE)
for page in range(2000, 1000, -1): put(view + page * PAGE, b"back")
def fill(start):
    for page in range(2001 + start, 4096, 4): put(view + page * PAGE, b"%4d" % page)
threads = [threading.Thread(target=fill, args=(n,)) for n in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
say(get(view + 999 * PAGE), get(view + 1500 * PAGE), all(os.pread(many, 4, page * PAGE) == b"%4d" % page for page in range(2001, 4096)), blocks(many) > 32000)

# Protection counts for pages that come later.
kept = os.open("kept", os.O_RDWR | os.O_CREAT); os.ftruncate(kept, 64 * PAGE); view = room(kept, 64 * PAGE)
say("protect", raw(MPROTECT, view + 8 * PAGE, 8 * PAGE, R), raw(MPROTECT, view + 32 * PAGE, 8 * PAGE, 0))
say([told(lambda: put(view + at * PAGE, b"x")) for at in [7, 8, 15, 16, 31, 32, 39, 40]], [told(lambda: get(view + at * PAGE)) for at in [8, 32]])
def read_and_write(at): get(at); put(at, b"x")
shut = room(os.open("kept", os.O_RDWR), 32 * PAGE, R)
say(told(lambda: read_and_write(view + 9 * PAGE)), told(lambda: read_and_write(shut + PAGE)), raw(MPROTECT, shut + 2 * PAGE, 2 * PAGE, R | W))
say(told(lambda: put(shut + 3 * PAGE, b"open")), told(lambda: read_and_write(shut + 2 * PAGE)), told(lambda: put(shut + 4 * PAGE, b"x")), os.pread(kept, 4, 3 * PAGE))
say(raw(MPROTECT, view + 8 * PAGE, 32 * PAGE, R | W)); put(view + 12 * PAGE, b"now"); put(view + 35 * PAGE, b"now"); say(os.pread(kept, 3, 12 * PAGE), os.pread(kept, 3, 35 * PAGE))
say(raw(MUNMAP, view + 4 * PAGE, 8 * PAGE), told(lambda: get(view + 5 * PAGE)), get(view + 3 * PAGE), get(view + 12 * PAGE, 3)); put(view + 13 * PAGE, b"here"); say(os.pread(kept, 4, 13 * PAGE))
other = room(-1, 2 * PAGE, R | W, PRIVATE | ANON | FIXED, 0, view + 20 * PAGE); put(other, b"over"); put(view + 22 * PAGE, b"file"); say(os.pread(kept, 4, 20 * PAGE), os.pread(kept, 4, 22 * PAGE), get(view + 20 * PAGE))
truth = os.open("/bin/true", os.O_RDONLY); say(room(truth, PAGE, R, PRIVATE | FIXED, 0, view + 24 * PAGE) == view + 24 * PAGE, get(view + 24 * PAGE))

# A mapping of a file that is open for reading only stays one to read, whatever becomes of it.
PKEY, NONE = 329, 0
seal = os.open("sealed", os.O_RDWR | os.O_CREAT); os.ftruncate(seal, 32 * PAGE); os.pwrite(seal, b"page", 4 * PAGE); only = os.open("sealed", os.O_RDONLY)
view = room(only, 16 * PAGE, R)
def opened(at, pages=1, prot=R | W): return call(MPROTECT, at, pages * PAGE, prot)
say("only", opened(view, 16), call(PKEY, view, PAGE, R | W, -1), opened(view, 16, NONE), opened(view, 16, W), opened(view, 16, R), get(view + 4 * PAGE), opened(view + 1), opened(view, 0))
say(raw(MUNMAP, view + 5 * PAGE, PAGE), [opened(view + at * PAGE) for at in [0, 4, 5, 6, 15]], opened(view + 4 * PAGE, 3), opened(view, 16))
moved = raw(MREMAP, view + 6 * PAGE, 10 * PAGE, 20 * PAGE, 1); twin = raw(MREMAP, moved, 0, 10 * PAGE, 1); say([opened(at) for at in [moved, moved + 9 * PAGE, moved + 19 * PAGE, twin]])
there = room(-1, 40 * PAGE, NONE, PRIVATE | ANON); say(raw(MREMAP, view, 5 * PAGE, 5 * PAGE, 3, there) == there, opened(there), opened(there, 6), get(there + 4 * PAGE))
say(child(lambda: (say(opened(there), opened(twin)), put(there, b"x"))))
both = room(-1, 9 * PAGE, R, PRIVATE | ANON); say([room(fd, 3 * PAGE, R, SHARED | FIXED, at * PAGE, both + at * PAGE) == both + at * PAGE for fd, at in [(seal, 0), (only, 3), (seal, 6)]])
say([opened(both + at * PAGE) for at in range(9)], opened(both, 9, R), opened(both, 9), told(lambda: put(both + PAGE, b"some")), told(lambda: put(both + 4 * PAGE, b"some")), told(lambda: put(both + 7 * PAGE, b"some")), os.pread(seal, 4, PAGE), os.pread(seal, 4, 7 * PAGE))
own = room(only, PAGE, R, PRIVATE); say(opened(own)); put(own, b"mine"); say(os.pread(seal, 4, 0))
log = os.open("sealed", os.O_RDWR | os.O_APPEND); say(call(MMAP, 0, PAGE, R | W, SHARED, log, 0) > 0, opened(room(log, PAGE, R)))

# Addresses of untouched pages in calls of the host and of the image.
pipe, write_end = os.pipe(); os.set_blocking(pipe, False); view = room(fd, GIB); os.write(write_end, b"through the pipe")
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
far = lambda page: view + page * PAGE
say("calls", raw(READ, pipe, far(1001) - 4, 16), get(far(1001) - 4, 16), raw(PREAD, truth, far(2000) + 9, 20000, 0), get(far(2000) + 9))
say(raw(WRITE, write_end, far(3000) + 100, 8192), raw(READ, pipe, far(4000) + 50, 8192), get(far(4000) + 50))
vectors = (Vector * 2)(Vector(far(5000) + 4090, 10), Vector(far(6001), 5000)); say(call(READV, truth, vectors, 2), get(far(5000) + 4090), get(far(6001) + 4996))
say(raw(READ, truth, far(7001), 3 * PAGE), raw(PREAD, fd, far(8000) + 5, 30, 7 * PAGE), get(far(8000) + 5, 10), raw(PREAD, fd, far(8100), 2 * PAGE, 8100 * PAGE), raw(GETRANDOM, far(9000) + 4000, 200, 0))
say(raw(4, ctypes.addressof(ctypes.create_string_buffer(b"sparse")), far(9100)), get(far(9100) + 48, 8), raw(MLOCK, far(9200), 4 * PAGE), raw(READ, truth, far(262144), 10))

# mremap: in place, elsewhere, shorter, without a place.
moves = os.open("moves", os.O_RDWR | os.O_CREAT); os.ftruncate(moves, 16 * PAGE)
gap = room(-1, 64 * PAGE, 0, PRIVATE | ANON); view = room(moves, 4 * PAGE, R | W, SHARED | FIXED, 0, gap); put(view, b"head"); put(view + 3 * PAGE, b"tail")
say("mremap", raw(MREMAP, view, 4 * PAGE, 8 * PAGE, 0), raw(MUNMAP, gap + 4 * PAGE, 28 * PAGE), raw(MREMAP, view, 4 * PAGE, 8 * PAGE, 0) == view)
put(view + 7 * PAGE, b"more"); say(os.pread(moves, 4, 7 * PAGE), raw(MREMAP, view, 8 * PAGE, 40 * PAGE, 0)); moved = raw(MREMAP, view, 8 * PAGE, 40 * PAGE, 1)
say(moved not in (view, -1), get(moved), get(moved + 3 * PAGE), get(moved + 7 * PAGE), get(moved + 8 * PAGE), told(lambda: get(moved + 16 * PAGE)), told(lambda: get(view)))
put(moved + 9 * PAGE, b"nine"); os.pwrite(moves, b"grew", 20 * PAGE); say(os.pread(moves, 4, 9 * PAGE), get(moved + 20 * PAGE))
place = room(-1, 64 * PAGE, 0, PRIVATE | ANON); say(raw(MREMAP, moved, 40 * PAGE, 50 * PAGE, 3, place) == place, get(place), get(place + 20 * PAGE), told(lambda: get(moved)))
say(raw(MREMAP, place, 50 * PAGE, 10 * PAGE, 0) == place, get(place + 9 * PAGE), told(lambda: get(place + 10 * PAGE)), call(MREMAP, ctypes.c_void_p(place), 50 * PAGE, 60 * PAGE, 1))
twin = raw(MREMAP, place, 0, 10 * PAGE, 1); put(twin, b"twin"); say(get(place), raw(MREMAP, place + 1, PAGE, 2 * PAGE, 1), raw(MREMAP, place, PAGE, 2 * PAGE, 8), raw(MREMAP, place, PAGE, 0, 1))
alone = room(moves, 4 * PAGE, R | W, PRIVATE); put(alone + PAGE, b"kept"); alone = raw(MREMAP, alone, 4 * PAGE, 12 * PAGE, 1); say(get(alone + PAGE), get(alone + 9 * PAGE), os.pread(moves, 4, PAGE))
view = mmap.mmap(moves, PAGE); view.resize(3 * PAGE); view[2 * PAGE:2 * PAGE + 3] = b"abc"; say(len(view), os.fstat(moves).st_size, os.pread(moves, 3, 2 * PAGE)); view.close()

# remap_file_pages shows other pages of the same file.
REMAP = 216
turn = os.open("turn", os.O_RDWR | os.O_CREAT); os.write(turn, b"".join(b"%04d" % at * 1024 for at in range(8))); view = room(turn, 8 * PAGE)
def turned(at, pages, page, prot=0): return call(REMAP, ctypes.c_void_p(at), pages * PAGE, prot, page, 0)
say("turn", turned(view + PAGE, 2, 5), turned(view + 5 * PAGE, 1, 0), [get(view + at * PAGE) for at in range(8)]); put(view + 2 * PAGE, b"turn"); say(os.pread(turn, 4, 6 * PAGE), get(view + 6 * PAGE))
say(turned(view + 3 * PAGE, 1, 4, R), turned(view, 0, 1), turned(view + 7 * PAGE, 2, 1), turned(view + 7 * PAGE + 9, 1, 100), told(lambda: get(view + 7 * PAGE)), turned(room(turn, PAGE, R | W, PRIVATE), 1, 1), turned(room(os.open("turn", os.O_RDONLY), PAGE, R), 1, 1))

# What mprotect has changed and changed back is one mapping again, and gets longer as one.
parts = os.open("parts", os.O_RDWR | os.O_CREAT); os.write(parts, b"".join(b"%04d" % at * 1024 for at in range(16)))
for flags in [SHARED, PRIVATE]:
    for touched in [False, True]:
        at = room(parts, 8 * PAGE, R | W, flags); touched and [get(at + page * PAGE) for page in range(8)]
        def turn_back(first, count): return [raw(MPROTECT, at + first * PAGE, count * PAGE, prot) for prot in (R, R | W)]
        say("parts", turn_back(2, 1), turn_back(0, 1), turn_back(5, 3), raw(MPROTECT, at + PAGE, PAGE, R), raw(MPROTECT, at, 8 * PAGE, R | W))
        longer = raw(MREMAP, at, 8 * PAGE, 12 * PAGE, 1); say(longer > 0, [get(longer + page * PAGE) for page in (0, 2, 7, 8, 11)])
        put(longer + 9 * PAGE, b"nine"); say(os.pread(parts, 4, 9 * PAGE)); os.pwrite(parts, b"0009", 9 * PAGE)
        at = longer; raw(MPROTECT, at + 4 * PAGE, PAGE, R); say(call(MREMAP, ctypes.c_void_p(at), 12 * PAGE, 14 * PAGE, 1), raw(MUNMAP, at, 12 * PAGE))

# A file without name and descriptor stays while its mapping gets shorter, moves, or does neither.
def lonely(length, step):
    last = os.open("lonely", os.O_RDWR | os.O_CREAT); os.write(last, b"".join(b"%04d" % at * 1024 for at in range(length)))
    at = room(last, length * PAGE); os.close(last); os.unlink("lonely")
    at = step(at)
    for name in ["first", "second", "third"]:
        with open(name, "wb") as other: other.write(b"else" * 1024 * 8)
    return [get(at), get(at + PAGE), get(at + 2 * PAGE - 4)]
say("lonely", lonely(8, lambda at: raw(MREMAP, at, 8 * PAGE, 2 * PAGE, 0)), lonely(8, lambda at: raw(MREMAP, at, 8 * PAGE, 8 * PAGE, 1)))
say(lonely(8, lambda at: raw(MREMAP, at, 8 * PAGE, 8 * PAGE, 3, room(-1, 8 * PAGE, 0, PRIVATE | ANON))), lonely(8, lambda at: raw(MREMAP, at, 8 * PAGE, 2 * PAGE, 3, room(-1, 8 * PAGE, 0, PRIVATE | ANON))))

# Long buffers over pages of which every other one, none but some, or the last is there; then all are.
wide = os.open("wide", os.O_RDWR | os.O_CREAT); os.ftruncate(wide, 2048 * PAGE); view = room(wide, 2048 * PAGE); alone = room(wide, 2048 * PAGE, R | W, PRIVATE)
for at in range(1, 1024, 2): put(alone + at * PAGE, b"mine")
for at in [3, 600, 1500, 2047]: put(view + at * PAGE, b"some")
null = os.open("/dev/null", os.O_WRONLY); zero = os.open("/dev/zero", os.O_RDONLY)
say("wide", raw(WRITE, null, alone + PAGE, 2046 * PAGE), raw(READ, zero, view + 5, 2000 * PAGE), raw(READ, zero, view, 2048 * PAGE), get(alone + PAGE), get(alone + 2 * PAGE), get(alone + 1500 * PAGE))
say(raw(READ, zero, alone + 700 * PAGE, 1348 * PAGE), get(alone + 699 * PAGE), get(alone + 701 * PAGE), get(alone + 2047 * PAGE), blocks(wide))
over = room(wide, 2052 * PAGE); pages, ends = os.pipe(); os.write(ends, bytes(8192)); os.set_blocking(pages, False)
say(raw(READ, pages, over + 2046 * PAGE, 2 * PAGE), get(over + 2047 * PAGE), told(lambda: get(over + 2048 * PAGE)), raw(READ, pages, over + 2050 * PAGE, PAGE))

# Unmapped and removed, it is all gone.
for name in ["sparse", "grows", "many", "kept", "moves", "wide", "first", "second", "third", "sealed", "lost", "turn", "parts"]: os.unlink(name)
