# Flags and masks of the calls that have many: what each takes, refuses, and in which order.
root = os.geteuid() == 0
import fcntl, select, struct, time
NEWFSTATAT, FACCESSAT2, FCHMODAT2, FCHOWNAT, UTIMENSAT, STATX, OPENAT2 = 262, 439, 452, 260, 280, 332, 437
make("f", b"x" * 100)
os.mkdir("d")
make("d/in")
os.mkfifo("p")
for name, target in [("l", "f"), ("dangling", "none"), ("dl", "d"), ("abs", "/dev/shm"), ("etc", "/etc/passwd"),
                     ("up", ".."), ("magic", "/proc/self/fd/0")]:
    os.symlink(target, name)
handles = {"cwd": AT_FDCWD, "file": os.open("f", os.O_RDWR), "directory": os.open("d", os.O_RDONLY), "fifo": os.open("p", os.O_RDWR),
           "place": os.open("f", os.O_PATH), "link": os.open("l", os.O_PATH | os.O_NOFOLLOW), "there": os.open("d", os.O_PATH), "none": 999}

def modes():
    return [oct(os.lstat(name).st_mode) for name in ["f", "d", "p", "l"]]

def owners():
    return [os.lstat(name).st_uid for name in ["f", "d", "l"]]

def statx(handle, path, flags, mask):
    room = ctypes.create_string_buffer(256)
    answer = call(STATX, handles[handle], path, flags, mask, room)
    if answer != 0:
        return answer
    filled, _, _, links, _, _, mode = struct.unpack_from("<IIQIIIH", room)
    return hex(filled & mask & 0xfff), links, oct(mode), 0 if stat.S_ISDIR(mode) else struct.unpack_from("<Q", room, 40)[0]

for mask in [0, 1, 2, 0x7ff, 0x800, 0xfff, 0x20000, 0x80000000, 0x7fffffff]:
    say("statx", hex(mask), statx("cwd", b"f", 0, mask), statx("cwd", b"p", 0, mask), statx("cwd", b"l", 0x100, mask))
for flags in [0, 0x100, 0x800, 0x1000, 0x1100, 0x2000, 0x4000, 0x6000, 0x400, 0x200, 1, 0x8000]:
    for handle in ["cwd", "file", "directory", "place", "link", "none"]:
        for path in [b"f", b"l", b"", b"dangling", b"none", b"d/"]:
            room = ctypes.create_string_buffer(256)
            answers = statx(handle, path, flags, 0x7ff), call(NEWFSTATAT, handles[handle], path, room, flags)
            say("stat", hex(flags), handle, path, answers)

places = [("cwd", b"f"), ("cwd", b"dangling"), ("cwd", b"l"), ("file", b""), ("place", b""), ("link", b""), ("fifo", b""), ("cwd", b""),
          ("none", b"f"), ("none", b""), ("cwd", b"none"), ("file", b"x"), ("cwd", b"f/"), ("there", b"")]
for flags in [0, 0x100, 0x200, 0x1000, 0x1100, 0x1300, 0x400, 0x800, 1, 0x2000]:
    for handle, path in places:
        fd = handles[handle]
        say("access", hex(flags), handle, path, [call(FACCESSAT2, fd, path, mode, flags) for mode in [0, 1, 2, 4, 7, 8, -1]])
        for mode in [0o640, 0o7777, 0o170644, -1]:
            say("chmod", call(FCHMODAT2, fd, path, mode, flags), modes())
        say("chown", call(FCHOWNAT, fd, path, -1, -1, flags), call(FCHOWNAT, fd, path, 1, -1, flags) if root else "", owners())
        for name in ["f", "d", "l"]:
            root and os.lchown(name, 0, 0)
        os.chmod("f", 0o644), os.chmod("d", 0o755), os.chmod("p", 0o644), os.chmod(".", 0o755)

NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2
times = [None, (1, 2, 3, 4), (1, NOW, 3, 4), (1, OMIT, 3, 4), (1, 2, 3, OMIT), (1, 2, 3, NOW), (0, NOW, 0, NOW), (0, OMIT, 0, OMIT),
         (1, 10**9, 3, 4), (1, -1, 0, 0), (-5, 1, -5, 2), (1, 2, 3, 10**9), (0, OMIT, 0, 10**9)]
def shown(path, age):
    found = os.lstat(path)
    return [x if x < 1e18 else "now" for x in (found.st_atime_ns, found.st_mtime_ns)[age:]]
def changed():
    return [os.lstat(name).st_ctime_ns for name in ["f", "l", "d", "p"]]
for both in times:
    packed = struct.pack("<4q", *both) if both else 0
    for handle, path, flags in [
        ("cwd", b"f", 0), ("cwd", b"l", 0x100), ("cwd", b"l", 0), ("file", b"", 0x1000), ("place", b"", 0x1000), ("link", b"", 0x1000),
        ("file", 0, 0), ("place", 0, 0), ("link", 0, 0), ("fifo", 0, 0), ("file", 0, 0x100), ("file", 0, 0x1000), ("cwd", 0, 0), ("none", 0, 0),
        ("cwd", b"none", 0), ("cwd", b"", 0), ("file", b"", 0), ("cwd", b"f", 0x200), ("cwd", b"f", 1), ("cwd", b"none", 0x200)]:
        os.utime("f", ns=(100, 200)), os.utime("l", ns=(300, 400), follow_symlinks=False)
        before, _ = changed(), time.sleep(2 * time.clock_getres(6))
        answer = call(UTIMENSAT, handles[handle], path, packed, flags)
        # A link that is followed is read, which only Linux takes note of.
        say("utimensat", both, handle, path, hex(flags), answer, shown("f", 0), shown("l", 1), changed() != before)

def openat2(handle, path, flags, mode=0, resolve=0, size=24, more=b""):
    how = ctypes.create_string_buffer(struct.pack("<QQQ", flags, mode, resolve) + more)
    fd = patient(OPENAT2, handles[handle], path, how, size)
    if not isinstance(fd, int):
        return fd
    answer = oct(fcntl.fcntl(fd, fcntl.F_GETFL)), fcntl.fcntl(fd, fcntl.F_GETFD), oct(os.fstat(fd).st_mode)
    os.close(fd)
    return answer

for size, more in [(0, b""), (23, b""), (24, b""), (25, b"\0" * 8), (32, b"\0" * 8), (32, b"\1" + b"\0" * 7), (4096, b"\0" * 4096), (4097, b"\0" * 4100)]:
    say("openat2", size, openat2("cwd", b"f", 0, 0, 0, size, more), openat2("cwd", b"f", 0, 0, 8, size, more))
kinds = [0, 1, 2, 3, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_PATH, os.O_PATH | os.O_NOFOLLOW,
         os.O_PATH | os.O_WRONLY, os.O_PATH | os.O_CREAT, os.O_TMPFILE | 2, os.O_TMPFILE, os.O_DIRECTORY | os.O_CREAT, os.O_TRUNC,
         os.O_APPEND | 1, os.O_CLOEXEC, 1 << 24, 1 << 31, 1 << 32, 1 << 40, os.O_NONBLOCK, os.O_DIRECT, os.O_SYNC, os.O_NOATIME,
         os.O_PATH | os.O_TRUNC, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY]
for flags in kinds:
    for mode in [0, 0o644, 0o10000, 0o7777]:
        path = b"d" if flags & os.O_DIRECTORY else b"f"
        say("openat2", oct(flags), oct(mode), [openat2("cwd", path, flags, mode, resolve) for resolve in [0, 8, 16, 1, 2, 4, 32, 64, 24, 6]])
paths = [b"f", b"l", b"dl/in", b"in", b"../f", b".", b"/dev/shm", b"/", b"abs", b"abs/", b"etc", b"magic", b"none", b"", b"d/../f", b"d/in/", b"f/x",
         b"/etc/passwd", b"/f", b"/in", b"dangling", base.encode() + b"/f", base.encode() + b"/l", base.encode() + b"/none"]
for resolve in [0, 1, 2, 4, 8, 16, 24, 9, 10, 12, 20, 64, 1 << 33]:
    for handle in ["cwd", "directory", "there", "file"]:
        for path in paths:
            say("resolve", resolve, handle, path.replace(base.encode(), b"BASE"), openat2(handle, path, 0, 0, resolve))
    for path in [b"none", b"dangling", b"f", base.encode() + b"/none"]:
        say("resolve", resolve, path[-4:], openat2("cwd", path, os.O_CREAT | os.O_RDWR, 0o600, resolve), os.path.lexists("none"))
        os.path.lexists("none") and os.unlink("none")
say("cached", openat2("cwd", b"f", 0, 0, 32), openat2("cwd", b"f", os.O_TRUNC | 2, 0, 32), openat2("cwd", b"none", os.O_CREAT, 0, 32))

# Descriptors that stand for a place only.
room = ctypes.create_string_buffer(4096)
for name in ["f", "d", "l", "p"]:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW)
    answers = {number: call(number, fd, *rest) for number, *rest in [
        (0, room, 1), (1, room, 1), (17, room, 1, 0), (18, room, 1, 0), (8, 0, 0), (77, 0), (91, 0o644), (93, -1, -1), (74,), (75,), (306,),
        (78, room, 4096), (217, room, 4096), (285, 0, 0, 10), (73, 2), (138, room), (193, b"user.x", room, 9), (190, b"user.x", room, 1, 0),
        (196, room, 9), (199, b"user.x"), (221, 0, 0, 0), (277, 0, 0, 0), (187, 0, 1), (40, fd, 0, 1), (326, 0, fd, 0, 1, 0), (275, 0, fd, 0, 1, 0),
        (19, room, 0), (20, room, 0), (295, room, 0, 0), (327, room, 0, 0, 0)]}
    say("place", name, answers, [call(16, fd, request, room) for request in [0x541b, 0x5450, 0x5451, 0x5421]], call(9, 0, 4096, 1, 2, fd, 0))
    say([call(72, fd, command, argument) for command, argument in [
        (1, 0), (2, 1), (3, 0), (4, 0x800), (5, room), (8, 0), (9, 0), (1024, 0), (1025, 0), (1026, 0), (1031, 0), (1034, 0)]])
    poll, epoll = select.poll(), select.epoll()
    poll.register(fd, select.POLLIN | select.POLLOUT)
    say([event for _, event in poll.poll(0)], attempt(epoll.register, fd, 1), call(257, fd, b"in", 0) if name != "d" else "")
    copy, again = os.dup(fd), attempt(os.open, f"/proc/self/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
    say(oct(fcntl.fcntl(copy, fcntl.F_GETFL)), again if isinstance(again, str) else "open", call(267, fd, b"", room, 99))
    if call(72, 0, 1027, 0) != "EINVAL":
        say([call(72, fd, 1027, other) for other in [fd, copy, handles["file"], 999]])

# Leases are for others; handles, too. Without a notice to give there is none to refuse.
file, directory = handles["file"], handles["directory"]
say("lease", [call(72, fd, 1025, 0) for fd in [file, directory]], call(72, directory, 1024, 9), call(72, file, 1024, 9))
say("notice", call(72, file, 1026, 0), call(72, file, 1026, 1), call(72, directory, 1026, 0))
handle, mount = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 136), ctypes.c_int()
say("handle", call(303, AT_FDCWD, b"none", handle, ctypes.byref(mount), 0), call(303, file, b"", handle, ctypes.byref(mount), 0))
