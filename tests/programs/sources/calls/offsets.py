# Offsets and lengths at the bounds, and descriptors of the wrong kind.
import fcntl, struct
MAX = (1 << 63) - 1
edges = [0, 1, -1, 4095, 4096, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 32) + 5, 1 << 40, 1 << 44, (1 << 44) - 4096, MAX >> 1, MAX - 4096, MAX - 4095, MAX - 1, MAX, -(1 << 63), -(1 << 63) + 1, -4096]
room = ctypes.create_string_buffer(b"r" * 8192, 8192)
make("f", b"x" * 5000)
fd = os.open("f", os.O_RDWR)
def size():
    n = os.fstat(fd).st_size
    os.ftruncate(fd, 5000); return n
for at in edges:
    # Files of an image end at 8 TiB.
    grows = at < 1 << 43
    for n in [0, 1, 10, 8192, 1 << 31, MAX, -1]:
        if n <= 8192 and n >= 0:
            say("pread", at, n, call(17, fd, room, n, at)); say("pwrite", at, n, grows and call(18, fd, room, n, at), size())
        else:
            say("pread", at, n, call(17, fd, 0, n, at)); say("pwrite", at, n, grows and call(18, fd, 0, n, at)); size()
        say("preadv2", call(327, fd, struct.pack("<Qq", ctypes.addressof(room), min(n, 8192) if n > 0 else n), 1, at, 0, 0)), say("pwritev2", grows and call(328, fd, struct.pack("<Qq", ctypes.addressof(room), n if n <= 8192 else 10), 1, at, 0, 0), size())
        for mode in [0, 1, 3]:
            if mode == 3 or grows and n < 1 << 30:
                say("fallocate", mode, at, n, call(285, fd, mode, at, n), size())
        say("copy", at, n, call(326, fd, struct.pack("<q", at), fd, struct.pack("<q", 100000), n, 0), size())
        say("copy to", at, n, grows and call(326, fd, struct.pack("<q", 0), fd, struct.pack("<q", at), n, 0), size()) if 0 <= n <= 8192 else None
        say("sendfile", at, n, call(40, os.open("f", os.O_RDWR), fd, struct.pack("<q", at), n), size()) if n < 9000 else None
        say("fadvise", call(221, fd, at, n, 0), call(221, fd, at, n, 4), "readahead", call(187, fd, at, n), "sync_range", call(277, fd, at, n, 7), call(277, fd, at, n, 8))
        for t in [0, 1, 2]:
            for w in [0, 1, 2]:
                for cmd in [5, 6, 36, 37]:
                    answer = call(72, fd, cmd, ctypes.create_string_buffer(struct.pack("<hhxxxxqqi", t, w, at, n, 0) + b"\0" * 8))
                    (cmd in [5, 6] or w == 0) and (cmd, t) != (36, 2) and say("lock", cmd, t, w, at, n, answer)
    for how in [0, 1, 2, 3, 4, 5, -1]:
        os.lseek(fd, 100, 0); say("lseek", at, how, call(8, fd, at, how), call(8, fd, 0, 1))
    os.lseek(fd, 0, 0)
    say("ftruncate", at, grows and call(77, fd, at), size(), "truncate", grows and call(76, b"f", at), size())
    # from there on
    if grows and isinstance(call(8, fd, at, 0), int):
        say("read", call(0, fd, room, 10), call(8, fd, 0, 1), "write", call(1, fd, room, 10), call(8, fd, 0, 1), size(), "writev", call(20, fd, struct.pack("<QQ", ctypes.addressof(room), 4096), 1), call(8, fd, 0, 1), size())
        say("0", call(1, fd, room, 0), call(0, fd, room, 0), call(8, fd, 0, 1))
    os.lseek(fd, 0, 0)
# vectors
for count in [0, 1, 2, 1024, 1025, -1, 1 << 31, 1 << 32]:
    vec = ctypes.create_string_buffer(struct.pack("<QQ", ctypes.addressof(room), 1) * 1025)
    say("vector", count, [call(n, fd, vec, count) for n in (19, 20)], [call(n, fd, vec, count, 0, 0) for n in (295, 296)], [call(n, fd, vec, count, 0, 0, 0) for n in (327, 328)]); os.lseek(fd, 0, 0)
for lengths in [[MAX, 1], [MAX, MAX], [1 << 31, 1 << 31], [0x7ffff000, 1], [-1], [0, 0], [1, -1], [10, 1 << 62]]:
    vec = b"".join(struct.pack("<Qq", ctypes.addressof(room), n) for n in lengths)
    say("lengths", lengths, [call(n, fd, ctypes.create_string_buffer(vec), len(lengths)) for n in (20,) if max(lengths) > 1 << 62 or max(lengths) < 100 or min(lengths) < 0]); os.lseek(fd, 0, 0)
# flags of preadv2
vec = struct.pack("<QQ", ctypes.addressof(room), 5)
for flags in [0, 1, 2, 4, 8, 16, 1 << 31, 6, 24, 20]:
    for at in [0, 100, -1, -2]:
        for opened in [os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDONLY, os.O_WRONLY]:
            one = os.open("f", opened); os.lseek(one, 7, 0)
            a = call(327, one, vec, 1, at, 0, flags), os.lseek(one, 0, 1), call(328, one, vec, 1, at, 0, flags), os.lseek(one, 0, 1), size(); os.close(one)
            say("RWF", flags, at, oct(opened), a)
# the wrong kinds
os.mkdir("d"); os.mkfifo("p"); os.symlink("f", "l")
kinds = {"read": os.open("f", os.O_RDONLY), "write": os.open("f", os.O_WRONLY), "dir": os.open("d", os.O_RDONLY), "path": os.open("f", os.O_PATH), "link": os.open("l", os.O_PATH | os.O_NOFOLLOW),
    "fifo": os.open("p", os.O_RDWR | os.O_NONBLOCK), "pipe r": os.pipe2(os.O_NONBLOCK)[0], "none": 900, "-1": -1, "-100": -100, "big": 1 << 31, "wrap": (1 << 32) + 3, "file": fd}
out = struct.pack("<q", 0)
stx = ctypes.create_string_buffer(4096)
for k, n in kinds.items():
    say(k, {w: call(*c) for w, c in {
        "read": (0, n, room, 1), "read0": (0, n, room, 0), "read bad": (0, n, 1, 1), "write": (1, n, room, 1), "write0": (1, n, room, 0), "write bad": (1, n, 1, 1), "pread": (17, n, room, 1, 0), "pread -": (17, n, room, 1, -1), "pread bad": (17, n, 1, 1, 0), "pwrite": (18, n, room, 1, 0), "pwrite -": (18, n, room, 1, -1),
        "readv": (19, n, vec, 1), "readv 0": (19, n, vec, 0), "readv bad": (19, n, 1, 1), "readv many": (19, n, vec, 2000), "writev": (20, n, vec, 1), "writev bad": (20, n, 1, 1), "preadv": (295, n, vec, 1, 0, 0), "preadv -": (295, n, vec, 1, -5, 0), "pwritev": (296, n, vec, 1, 0, 0),
        "lseek": (8, n, 0, 0), "lseek 9": (8, n, 0, 9), "lseek data": (8, n, 0, 3), "lseek hole": (8, n, 0, 4), "lseek cur": (8, n, 0, 1), "lseek end": (8, n, 0, 2), "ftruncate": (77, n, 5000), "ftruncate -": (77, n, -1), "fallocate": (285, n, 0, 0, 10), "fallocate -": (285, n, 0, -1, 10), "fallocate 0": (285, n, 0, 0, 0), "fallocate mode": (285, n, 64, 0, 10), "fallocate 2": (285, n, 2, 0, 10), "fallocate 8": (285, n, 8, 0, 4096), "fallocate 16": (285, n, 16, 0, 4096), "fallocate 32": (285, n, 32, 0, 4096),
        "fsync": (74, n), "fdatasync": (75, n), "syncfs": (306, n), "sync range": (277, n, 0, 0, 0), "fadvise": (221, n, 0, 0, 0), "fadvise 9": (221, n, 0, 0, 9), "readahead": (187, n, 0, 1), "getdents": (217, n, stx, 4096), "getdents 1": (217, n, stx, 1), "getdents bad": (217, n, 1, 4096), "getdents old": (78, n, stx, 4096),
        "fchdir": (81, n), "flock 9": (73, n, 9), "flock 0": (73, n, 0), "flock": (73, n, 6), "unflock": (73, n, 8), "sendfile to": (40, n, fd, out, 1), "sendfile from": (40, fd, n, out, 1), "sendfile from bad": (40, fd, n, 1, 1), "copy to": (326, fd, out, n, out, 1, 0), "copy from": (326, n, out, fd, out, 1, 0), "copy flags": (326, n, out, fd, out, 1, 1), "copy from off": (326, n, 0, fd, out, 0, 0),
        "splice": (275, n, 0, n, 0, 1, 2), "tee": (276, n, n, 1, 2), "vmsplice": (278, n, vec, 1, 2), "dup": (33, n, n), "dup3": (292, n, n, 0), "dup3 flags": (292, n, 50, 1), "dup2 -": (33, n, -1), "dup2 big": (33, n, 1 << 20),
        "fstat bad": (5, n, 1), "fchmod": (91, n, 0o644), "fchown": (93, n, -1, -1), "futimens": (280, n, 0, 0, 0), "fstatfs": (138, n, stx), "fstatfs bad": (138, n, 1), "fgetxattr": (193, n, b"user.z", stx, 10), "flistxattr": (196, n, stx, 1000), "fremovexattr": (199, n, b"user.none"),
        "ioctl": (16, n, 0x5401, stx), "FIONREAD": (16, n, 0x541b, stx), "FIONBIO": (16, n, 0x5421, struct.pack("<i", k in ("fifo", "pipe r"))), "FIGETBSZ": (16, n, 2, stx), "FIEMAP": (16, n, 0xc020660b, stx),
        "GETLK": (72, n, 5, struct.pack("<hhxxxxqqi", 1, 0, 0, 0, 0) + b"\0" * 4), "GETLK 9": (72, n, 5, struct.pack("<hhxxxxqqi", 9, 0, 0, 0, 0) + b"\0" * 4), "GETLK bad": (72, n, 5, 1), "GETPIPE": (72, n, 1032), "SETPIPE": (72, n, 1031, 1 << 12), "ADD_SEALS": (72, n, 1033, 0), "GET_SEALS": (72, n, 1034), "fcntl 77": (72, n, 77, 0), "SETFL": (72, n, 4, 0o4000 if k in ("fifo", "pipe r") else 0), "GETFD": (72, n, 1), "DUPFD -": (72, n, 0, -1), "DUPFD big": (72, n, 0, 1 << 20),
        "openat": (257, n, b"x", 0), "openat abs": (257, n, b"/dev/null", os.O_PATH | 0), "newfstatat": (262, n, b"x", stx, 0), "linkat": (265, n, b"", AT_FDCWD, b"zz", 0x1000), }.items()})
    os.lseek(fd, 0, 0)
    os.path.exists("zz") and os.unlink("zz")
    os.chdir(base)
# what is wrong with which end of sendfile comes first
make("e", b"")
ends = {"none": -1, "write": os.open("f", os.O_WRONLY), "read": os.open("f", os.O_RDONLY), "both": os.open("f", os.O_RDWR), "append": os.open("f", os.O_WRONLY | os.O_APPEND), "dir": os.open("d", os.O_RDONLY),
    "path": os.open("f", os.O_PATH), "empty": os.open("e", os.O_RDWR), "null": os.open("/dev/null", os.O_WRONLY), "hosts": os.open("/etc/passwd", os.O_RDONLY), "pipe w": os.pipe()[1]}
for target in ends:
    for source in ends:
        say("sendfile", target, source, [call(40, ends[target], ends[source], at, n) for at in (0, struct.pack("<q", 0), struct.pack("<q", -5), 1) for n in (0, 5, -1)], os.lseek(ends["both"], 0, 0), size())
