# Listings in small pieces: offsets to come back to, while names come, go and are renamed; leases.
import fcntl
GETDENTS64, LSEEK, DIRECTORY = 217, 8, os.O_RDONLY | os.O_DIRECTORY
buffer = ctypes.create_string_buffer(4096)

def piece(fd, room=120):
    """The names of one call, each with the offset behind it; an error as its name."""
    got, found, at = call(GETDENTS64, fd, ctypes.addressof(buffer), room), [], 0
    while not isinstance(got, str) and at < got:
        length = int.from_bytes(buffer.raw[at + 16:at + 18], "little")
        offset = int.from_bytes(buffer.raw[at + 8:at + 16], "little")
        found.append((buffer.raw[at + 19:at + length].split(b"\0")[0].decode(), offset)); at += length
    return got if isinstance(got, str) else found

def rest(fd, room=120):
    found = []
    while more := piece(fd, room): found += more
    return found

stays = {"stays-%d" % n for n in range(300)}
os.mkdir("d")
for name in sorted(stays): make("d/" + name)

# From every offset the listing goes on behind it; at most so many names as fit are given.
fd = os.open("d", DIRECTORY); all_of = rest(fd); names = [name for name, _ in all_of]
say(sorted(names) == sorted(stays | {".", ".."}), len(set(offset for _, offset in all_of)) == len(all_of))
for n in (0, 1, 2, 7, 150, 300, 301):
    offset = all_of[n][1]
    say(n, os.lseek(fd, offset, os.SEEK_SET) == offset, [name for name, _ in rest(fd)] == names[n + 1:], rest(fd))
say(os.lseek(fd, 0, os.SEEK_SET), [name for name, _ in rest(fd, 4096)] == names)
os.lseek(fd, 0, os.SEEK_SET); say(piece(fd, 8), piece(fd, 23), len(piece(fd, 24)), len(piece(fd, 48)))

# What stays is seen once, whatever comes and goes between two pieces; what was removed is not.
for step in range(4):
    os.lseek(fd, 0, os.SEEK_SET)
    seen, comes = [], 0
    while more := piece(fd, 200):
        seen += [name for name, _ in more]
        for _ in range(9): make("d/comes-%d-%d" % (step, comes)); comes += 1
        if step > 1:
            for n in range(comes - 9, comes - 4): os.unlink("d/comes-%d-%d" % (step, n))
        if step > 2: os.rename("d/comes-%d-%d" % (step, comes - 1), "d/renamed-%d-%d" % (step, comes))
        if comes > 900: break
    seen += [name for name, _ in rest(fd, 4096)]
    say(step, sorted(name for name in seen if name in stays) == sorted(stays), seen.count("."), seen.count(".."))
    for name in os.listdir("d"): name in stays or os.unlink("d/" + name)

# An offset that was given stays good when all before it, or the name before it, is removed.
os.lseek(fd, 0, os.SEEK_SET); order = rest(fd); half = len(order) // 2
for name, _ in order[:half + 1]: name[0] == "." or os.unlink("d/" + name)
os.lseek(fd, order[half][1], os.SEEK_SET); say([name for name, _ in rest(fd)] == [name for name, _ in order[half + 1:]])
for name, _ in order[half + 1:]: name[0] == "." or os.unlink("d/" + name)
os.lseek(fd, order[half][1], os.SEEK_SET); say(rest(fd), rest(os.dup(fd)))
os.lseek(fd, 0, os.SEEK_SET); say(sorted(name for name, _ in rest(fd))); os.rmdir("d"); os.lseek(fd, 0, os.SEEK_SET); say(piece(fd))

# Two descriptions of a directory go their own ways, two numbers of one go together.
os.mkdir("e"); [make("e/%d" % n) for n in range(20)]; one, other = os.open("e", DIRECTORY), os.open("e", DIRECTORY); two = os.dup(one)
a, b, c = piece(one), piece(two), piece(other); say(a == c, a != b, [name for name, _ in a + b + rest(one)] == [name for name, _ in c + rest(other)])

# A lease is refused: on a file that somebody writes, as natively.
writer = os.open("leased", os.O_RDWR | os.O_CREAT); reader = os.open("leased", os.O_RDONLY)
say([attempt(fcntl.fcntl, reader, fcntl.F_SETLEASE, kind) in ("EAGAIN", "EINVAL") for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK)], fcntl.fcntl(reader, fcntl.F_GETLEASE) == fcntl.F_UNLCK, attempt(fcntl.fcntl, 99, fcntl.F_SETLEASE, 0))
