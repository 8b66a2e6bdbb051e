# Runs outside, with a helper inside: what each side does to a file, the other one must see at once.
#   both.py HUSK IMAGE THERE HERE      THERE: the directory as the image calls it; HERE: as the mount
import errno, fcntl, mmap, os, stat, subprocess, sys, threading

HUSK, IMAGE, THERE, HERE = sys.argv[1:]
HELPER = """
import errno, fcntl, mmap, os, stat, sys
kept = {}
os.chdir(sys.argv[1])
def put(name, data, at=0, flags=0):
    fd = os.open(name, os.O_CREAT | os.O_WRONLY | flags, 0o644)
    os.pwrite(fd, data, at) if not flags & os.O_APPEND else os.write(fd, data)
    os.close(fd)
def get(name):
    with open(name, "rb") as file: return file.read()
for line in sys.stdin:
    try: answer = ("ok", eval(line))
    except OSError as problem: answer = ("errno", problem.errno)
    print(repr(answer), flush=True)
"""
helper = subprocess.Popen(
    [HUSK, "exec", IMAGE, "--", "python3", "-c", HELPER, THERE],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
os.chdir(HERE)


def inside(expression):
    print(expression, file=helper.stdin, flush=True)
    how, value = eval(helper.stdout.readline())
    if how == "errno":
        raise OSError(value, os.strerror(value), expression)
    return value


def put(name, data, at=0):
    fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
    os.pwrite(fd, data, at)
    os.close(fd)


def get(name):
    with open(name, "rb") as file:
        return file.read()


def same(one, other):
    assert one == other, (one, other)


def fails(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as problem:
        same(errno.errorcode[problem.errno], errno.errorcode[number])
    else:
        raise AssertionError("it did not fail with " + errno.errorcode[number])


FIELDS = ["st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks",
          "st_mtime_ns", "st_ctime_ns", "st_rdev"]


def alike(name):
    there = inside(f"[getattr(os.lstat({name!r}), field) for field in {FIELDS}]")
    same([getattr(os.lstat(name), field) for field in FIELDS], there)


def bytes_and_sizes():
    put("f", b"")
    fd = os.open("f", os.O_RDWR)
    for round in range(200):
        inside(f"put('f', b'x', {2 * round})")
        same(os.fstat(fd).st_size, 2 * round + 1)
        same(os.pread(fd, 9, 2 * round), b"x")
        os.pwrite(fd, b"y", 2 * round + 1)
        same(inside(f"os.stat('f').st_size, get('f')[-2:]"), (2 * round + 2, b"xy"))
    # The same size, other bytes.
    for round in range(50):
        byte = bytes([65 + round])
        inside(f"put('f', {byte!r})")
        same((os.pread(fd, 1, 0), get("f")[:1]), (byte, byte))
    inside("os.truncate('f', 3)")
    same((os.fstat(fd).st_size, len(get("f"))), (3, 3))
    os.ftruncate(fd, 1)
    same(inside("get('f')"), bytes([65 + 49]))
    same(os.lseek(fd, 0, os.SEEK_END), 1)
    os.close(fd)
    large = os.urandom(5 << 20)
    put("large", large)
    same(inside("get('large')"), large)
    inside("put('larger', get('large') + b'end')")
    same(get("larger"), large + b"end")
    alike("larger")


def names():
    for round in range(50):
        name = f"n{round}"
        same(os.path.exists(name), False)
        inside(f"put({name!r}, b'1')")
        same(os.path.exists(name), True)
        inside(f"os.rename({name!r}, {name + 'b'!r})")
        same((os.path.exists(name), name + "b" in os.listdir(".")), (False, True))
        os.rename(name + "b", name + "c")
        same(inside(f"sorted(one for one in os.listdir('.') if one.startswith({name!r}))"),
             [name + "c"])
        os.unlink(name + "c")
        fails(errno.ENOENT, inside, f"os.stat({name + 'c'!r})")
    put("replaced", b"old")
    inside("put('new', b'new'), os.rename('new', 'replaced')")
    same(get("replaced"), b"new")
    put("other", b"other")
    subprocess.run(["python3", "-c", """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.renameat2(-100, b"replaced", -100, b"other", 2) == 0  # RENAME_EXCHANGE
assert libc.renameat2(-100, b"replaced", -100, b"other", 1) == -1  # RENAME_NOREPLACE
"""], check=True)
    same(inside("get('replaced'), get('other')"), (b"other", b"new"))
    fails(errno.EEXIST, os.mkdir, "other")
    os.mkdir("d"), put("d/in", b"")
    fails(errno.ENOTEMPTY, os.rmdir, "d")
    fails(errno.EISDIR, os.unlink, "d")
    fails(errno.ENOTDIR, os.listdir, "other")
    fails(errno.ENAMETOOLONG, os.stat, "n" * 300)
    fails(errno.EXDEV, os.rename, "other", ROOT + "/tmp/other")
    fails(errno.EROFS, os.mkdir, ROOT + "/new")
    same(sorted(os.listdir(ROOT)), sorted({"tmp", THERE.split("/")[1]}))


def a_directory_that_is_renamed():
    os.makedirs("old/deep")
    put("old/deep/f", b"here")
    fd = os.open("old/deep", os.O_RDONLY)
    inside("os.rename('old', 'renamed')")
    same(os.listdir(fd), ["f"])
    file = os.open("f", os.O_RDONLY, dir_fd=fd)
    same(os.read(file, 9), b"here")
    os.mkdir("more", dir_fd=fd)
    same(inside("sorted(os.listdir('renamed/deep'))"), ["f", "more"])
    os.close(file), os.close(fd)


def links():
    put("one", b"1")
    os.link("one", "two")
    inside("os.link('one', 'three')")
    same(os.stat("one").st_nlink, 3)
    for name in ["one", "two", "three"]:
        alike(name)
    inside("os.unlink('one')")
    same((get("two"), os.stat("three").st_nlink), (b"1", 2))
    os.symlink("two", "out"), inside("os.symlink('three', 'in')")
    same((os.readlink("in"), get("in"), inside("os.readlink('out'), get('out')")),
         ("three", b"1", ("two", b"1")))
    os.symlink("nowhere", "dangling")
    os.link("dangling", "dangling2", follow_symlinks=False)
    os.utime("dangling", ns=(1, 2_000_000_003), follow_symlinks=False)
    same(inside("os.lstat('dangling2').st_mtime_ns"), 2_000_000_003)
    for name in ["out", "in", "dangling"]:
        alike(name)


def attributes():
    put("a", b"")
    os.chmod("a", 0o751), os.utime("a", ns=(5, 1_234_567_890_123_456_789))
    alike("a")
    same(os.stat("a").st_mtime_ns, 1_234_567_890_123_456_789)
    os.utime("a", ns=(-1_500_000_000, -2_750_000_000))
    alike("a")
    inside("os.chmod('a', 0o600), os.utime('a')")
    alike("a")
    if os.getuid() == 0:
        os.chown("a", 12, 34), os.chown("a", -1, 35)
        same(inside("os.stat('a').st_uid, os.stat('a').st_gid"), (12, 35))
    old = os.umask(0o027)
    put("masked", b""), os.mkdir("masked.d"), os.mkfifo("masked.fifo")
    os.umask(old)
    for name in ["masked", "masked.d", "masked.fifo"]:
        alike(name)
    same(stat.S_IMODE(os.stat("masked.d").st_mode), 0o750)
    os.setxattr("a", "user.one", b"1"), inside("os.setxattr('a', 'user.two', b'22')")
    same((sorted(os.listxattr("a")), os.getxattr("a", "user.two")), (["user.one", "user.two"], b"22"))
    same(inside("sorted(os.listxattr('a')), os.getxattr('a', 'user.one')"),
         (["user.one", "user.two"], b"1"))
    fails(errno.EEXIST, os.setxattr, "a", "user.one", b"", os.XATTR_CREATE)
    os.removexattr("a", "user.two")
    fails(errno.ENODATA, inside, "os.getxattr('a', 'user.two')")
    os.mkdir("x"), os.setxattr("x", "user.d", b"v" * 1000)
    same(inside("os.getxattr('x', 'user.d')"), b"v" * 1000)
    same(os.access("a", os.W_OK), True)
    there = inside("os.statvfs('.').f_blocks, os.statvfs('.').f_files, os.statvfs('.').f_namemax")
    here = os.statvfs(".")
    same((here.f_blocks, here.f_files, here.f_namemax), there)


def holes():
    fd = os.open("sparse", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 40 << 20), os.pwrite(fd, b"end", 30 << 20)
    alike("sparse")
    assert os.fstat(fd).st_blocks < 1000
    ask = "(os.lseek(kept['s'], 0, os.SEEK_DATA), os.lseek(kept['s'], 30 << 20, os.SEEK_HOLE))"
    inside("kept.update(s=os.open('sparse', os.O_RDWR))")
    here = os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 30 << 20, os.SEEK_HOLE)
    same(here, inside(ask))
    same(here[0], 30 << 20)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_blocks >= 2048
    subprocess.run(["fallocate", "--punch-hole", "--offset", "0", "--length", "1M", "sparse"],
                   check=True)
    alike("sparse")
    assert os.fstat(fd).st_blocks < 1000
    fails(errno.ENXIO, os.lseek, fd, 41 << 20, os.SEEK_DATA)
    copied = os.copy_file_range(fd, os.open("copied", os.O_CREAT | os.O_WRONLY), 3, 30 << 20, 5)
    same((copied, inside("get('copied')")), (3, b"\0" * 5 + b"end"))
    os.close(fd), inside("os.close(kept.pop('s'))")
    # What is removed inside is free at once, though the mount has been asked for it.
    inside("put('big', bytes(8 << 20))")
    os.stat("big")
    before = inside("os.statvfs('.').f_bavail")
    inside("os.unlink('big')")
    assert inside("os.statvfs('.').f_bavail") >= before + (8 << 20) // 4096 - 64


def many():
    inside("os.mkdir('many'), [put(f'many/{n:04}', b'') for n in range(1000)]")
    same(sorted(os.listdir("many")), [f"{n:04}" for n in range(1000)])
    for entry in os.scandir("many"):
        assert entry.is_file(follow_symlinks=False)
        os.unlink(entry.path)
    same(inside("os.listdir('many')"), [])
    fd = os.open("many", os.O_RDONLY)
    inside("put('many/later', b'')")
    same(os.listdir(fd), ["later"])
    os.unlink("many/later"), os.close(fd), os.rmdir("many")


def removed_while_open():
    put("gone", b"before")
    fd = os.open("gone", os.O_RDWR)
    inside("os.unlink('gone')")
    same((os.fstat(fd).st_nlink, os.pread(fd, 9, 0)), (0, b"before"))
    os.pwrite(fd, b"after!", 0), os.ftruncate(fd, 5), os.fchmod(fd, 0o640)
    os.setxattr(fd, "user.x", b"1"), os.fsync(fd)
    same((os.pread(fd, 9, 0), stat.S_IMODE(os.fstat(fd).st_mode)), (b"after", 0o640))
    os.close(fd)
    inside("put('gone', b'inside'), kept.update(g=os.open('gone', os.O_RDWR))")
    os.unlink("gone")
    same(inside("os.pread(kept['g'], 9, 0), os.fstat(kept['g']).st_nlink"), (b"inside", 0))
    put("gone", b"another")
    same(inside("os.pread(kept['g'], 9, 0), get('gone')"), (b"inside", b"another"))
    inside("os.close(kept.pop('g'))")


def appended_by_two():
    def here():
        fd = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for number in range(500):
            os.write(fd, b"outside %03d\n" % number)
        os.close(fd)
    thread = threading.Thread(target=here)
    thread.start()
    inside("[put('log', b'inside %03d\\n' % number, flags=os.O_APPEND) for number in range(500)]")
    thread.join()
    lines = get("log").decode().splitlines()
    for side in ["inside", "outside"]:
        same([line for line in lines if line.startswith(side)],
             [f"{side} {number:03}" for number in range(500)])
    same(len(lines), 1000)


def mapped():
    put("m", b"0" * 8192)
    fd = os.open("m", os.O_RDWR)
    with mmap.mmap(fd, 8192, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as private:
        same(private[:2], b"00")
    inside("kept.update(f=os.open('m', os.O_RDWR)), "
           "kept.update(m=mmap.mmap(kept['f'], 8192)), kept['m'].__setitem__(0, 65)")
    same(os.pread(fd, 2, 0), b"A0")
    try:
        shared = mmap.mmap(fd, 8192)
    except OSError as problem:
        same(problem.errno, errno.ENODEV)  # before Linux 6.6
        print("no shared mappings here")
    else:
        same(shared[:2], b"A0")
        shared[1] = 66
        shared.flush()
        same(inside("kept['m'][:3], get('m')[:3]"), (b"AB0", b"AB0"))
        # What is mapped outside stays as it was looked at, until it is mapped anew.
        inside("put('m', b'X')")
        same(os.pread(fd, 2, 0), b"XB")
        shared.close()
        with mmap.mmap(fd, 8192) as again:
            same(again[:2], b"XB")
        # Also by a file that is opened to append.
        appends = os.open("m", os.O_RDWR | os.O_APPEND)
        with mmap.mmap(appends, 8192) as again:
            again[4096] = 67
            again.flush()
        same(inside("len(get('m')), get('m')[4096:4097]"), (8192, b"C"))
    inside("kept.pop('m').close(), os.close(kept.pop('f'))")


def executed():
    put("script", b"#!/bin/sh\necho ran \"$@\"\n")
    os.chmod("script", 0o755)
    same(subprocess.check_output(["./script", "a"]), b"ran a\n")
    inside("put('true', open('/bin/true', 'rb').read()), os.chmod('true', 0o755)")
    same(subprocess.run(["./true"]).returncode, 0)


def apart():
    # Locks are each side's own.
    put("lock", b"")
    fd = os.open("lock", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    inside("kept.update(l=os.open('lock', os.O_RDWR)), "
           "fcntl.lockf(kept['l'], fcntl.LOCK_EX | fcntl.LOCK_NB)")
    inside("os.close(kept.pop('l'))"), os.close(fd)
    # A FIFO has its name on both sides, and leads to nobody of the other.
    os.mkfifo("fifo")
    inside("kept.update(r=os.open('fifo', os.O_RDONLY | os.O_NONBLOCK))")
    fails(errno.ENXIO, os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK)
    inside("os.close(kept.pop('r'))")


ROOT = HERE[:-len(THERE)]
assert ROOT + THERE == HERE
PARTS = [bytes_and_sizes, names, a_directory_that_is_renamed, links, attributes, holes, many,
         removed_while_open, appended_by_two, mapped, executed, apart]
for part in PARTS:
    os.mkdir(part.__name__)
    os.chdir(part.__name__), inside(f"os.chdir({part.__name__!r})")
    part()
    os.chdir(HERE), inside(f"os.chdir({THERE!r})")
    print(part.__name__, "done", flush=True)
helper.stdin.close()
assert helper.wait() == 0
