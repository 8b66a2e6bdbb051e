# Descriptors as /proc shows them, and files without a name.
import fcntl, resource, signal
LINKAT, EXECVEAT = 265, 322
AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = 0x400, 0x1000

def link_of(fd):
    return os.readlink("/proc/self/fd/%d" % fd).replace(base, "BASE")

# Where a descriptor leads.
make("file", b"content"); os.mkdir("sub"); os.symlink("file", "link")
plain = os.open("file", os.O_RDWR)
say(link_of(plain), os.path.basename(os.readlink("/dev/fd/%d" % plain)))
folder = os.open("sub", os.O_RDONLY)
say(link_of(folder), link_of(os.open("link", os.O_PATH | os.O_NOFOLLOW)))
os.rename("file", "sub/moved"); say(link_of(plain))
os.link("sub/moved", "other"); say(link_of(plain))
os.rename("sub", "renamed"); say(link_of(plain), link_of(folder))
os.rename("other", "renamed/swap"); say(link_of(plain).startswith("BASE/renamed/"))
deleted = os.open("gone", os.O_RDWR | os.O_CREAT); os.unlink("gone")
say(link_of(deleted).endswith(" (deleted)"))

# Opened again by that name: another description, its own offset, other flags.
os.lseek(plain, 3, 0)
for name in ["/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d", "/proc/%d/fd/%%d" % os.getpid()]:
    again = os.open(name % plain, os.O_RDONLY); say(os.read(again, 3), os.lseek(plain, 0, 1)); os.close(again)
os.write(os.open("/proc/self/fd/%d" % deleted, os.O_WRONLY | os.O_APPEND), b"still here")
say(os.pread(deleted, 99, 0), os.stat("/proc/self/fd/%d" % deleted).st_nlink)
say(attempt(os.open, "/proc/self/fd/%d" % plain, os.O_CREAT | os.O_EXCL), attempt(os.open, "/proc/self/fd/%d" % plain, os.O_NOFOLLOW))
say(attempt(os.open, "/proc/self/fd/%d/x" % plain, 0), attempt(os.readlink, "/proc/self/fd/%d/x" % plain))
looks = [(os.open, 0), (os.open, os.O_PATH), (os.stat,), (os.lstat,), (os.chmod, 0o644), (os.truncate, 0), (os.utime,)]
say([attempt(look, f"/proc/self/fd/{plain}{end}", *more) for end in ["/", "//", "/."] for look, *more in looks])
# The name itself, with and without slashes: made, removed, moved, opened to be made.
for fd, end in [(fd, end) for fd in (plain, folder) for end in ("", "/", "//", "/.")]:
    name = f"/proc/self/fd/{fd}{end}"
    say(end, [attempt(change, name, *more) for change, *more in [(os.unlink,), (os.rmdir,), (os.mkdir,), (os.mknod,), (os.link, "new"), (os.rename, "new")]])
    say([attempt(change, "renamed/swap", name) for change in (os.link, os.symlink, os.rename)])
    say([attempt(os.open, name, flags) for flags in (os.O_CREAT, os.O_CREAT | os.O_EXCL | os.O_RDWR) if end])
# The link itself, also of a number under which the host has nothing.
far = fcntl.fcntl(plain, fcntl.F_DUPFD, 700)
def mode_of(name):
    room = ctypes.create_string_buffer(256)
    answer = call(332, AT_FDCWD, name.encode(), 0x100, 0x7ff, room)
    return answer or (oct(int.from_bytes(room[28:30], "little")), int.from_bytes(room[40:48], "little"))
def found(name, flags):
    answer = attempt(os.open, name, flags)
    if isinstance(answer, str): return answer
    kind = stat.S_IFMT(os.fstat(answer).st_mode); os.close(answer); return kind
for fd in (plain, folder, far, 999, "-1", "abc", "007", 1 << 32):
    for name in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}", f"/proc/{os.getpid()}/fd/{fd}", f"/proc/thread-self/fd/{fd}"):
        say(mode_of(name), os.path.lexists(name))
        say(fd, [found(name, os.O_NOFOLLOW | more) for more in (0, os.O_PATH, os.O_DIRECTORY, os.O_PATH | os.O_DIRECTORY, os.O_CREAT | os.O_EXCL)])
        say(attempt(os.lchown, name, -1, -1), attempt(os.lchown, name, 0, 0), [attempt(os.utime, name, times, follow_symlinks=False) for times in (None, (5, 6))])
        say([call(439, AT_FDCWD, name.encode(), mode, 0x100) for mode in (0, 4)], call(192, name.encode(), b"user.x", 0, 0), call(195, name.encode(), 0, 0))
        say([call(LINKAT, AT_FDCWD, name.encode(), AT_FDCWD, new, AT_SYMLINK_FOLLOW) for new in (b"linked", b"renamed", b"absent/new")], attempt(os.unlink, "linked"))
os.close(far)
say(sorted(os.listdir("/proc/self/fd/%d" % folder)), attempt(os.open, "/proc/self/fd/999", 0), attempt(os.readlink, "/proc/self/fd/999"))
def from_stdin():
    os.dup2(plain, 0); say(open("/dev/stdin").read(), os.readlink("/dev/stdin").replace(base, "BASE"))
say(child(from_stdin))

# The listing, and what lstat shows.
mine = {plain, folder, deleted}
listed = {int(n) for n in os.listdir("/proc/self/fd")}
say(mine <= listed, {0, 1, 2} <= listed, max(listed) < 40, all(attempt(os.fstat, n) != "EBADF" for n in listed - {max(listed)}))
say(sorted(int(n) for n in os.listdir("/dev/fd")) == sorted(listed))
kinds = {e.name: e.is_symlink() for e in os.scandir("/proc/self/fd")}
say(all(kinds.values()))
for fd in [plain, os.open("renamed/moved", os.O_RDONLY), os.open("renamed/moved", os.O_WRONLY)]:
    found = os.lstat("/proc/self/fd/%d" % fd); say(oct(found.st_mode), found.st_size, found.st_nlink)
at = os.open("/proc/self/fd", os.O_RDONLY)
say(stat.S_ISLNK(os.lstat(str(plain), dir_fd=at).st_mode), os.readlink(str(plain), dir_fd=at).replace(base, "BASE"))
say(os.read(os.open(str(plain), 0, dir_fd=at), 7))

# Files without a name, and how they get one.
for flags in [os.O_RDWR, os.O_WRONLY, os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_EXCL]:
    answer = attempt(os.open, "renamed", os.O_TMPFILE | flags, 0o640)
    say("O_TMPFILE", oct(flags), answer if isinstance(answer, str) else (os.fstat(answer).st_nlink, oct(os.fstat(answer).st_mode)))
say(attempt(os.open, "renamed/moved", os.O_TMPFILE | os.O_RDWR), attempt(os.open, "absent", os.O_TMPFILE | os.O_RDWR))
for n, how in enumerate([AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, 0, AT_EMPTY_PATH | AT_SYMLINK_FOLLOW]):
    fd = os.open("renamed", os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"nameless")
    path = b"" if how & AT_EMPTY_PATH else b"/proc/self/fd/%d" % fd
    answer = call(LINKAT, fd if how & AT_EMPTY_PATH else AT_FDCWD, path, AT_FDCWD, b"named%d" % n, how)
    say("linked", hex(how), answer, os.fstat(fd).st_nlink, open("named%d" % n).read() if answer == 0 else "")
    answer == 0 and os.unlink("named%d" % n)
    say("again", call(LINKAT, fd, b"", AT_FDCWD, b"again", AT_EMPTY_PATH))
closed = os.open("renamed", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
say(call(LINKAT, closed, b"", AT_FDCWD, b"closed", AT_EMPTY_PATH))
say(call(LINKAT, deleted, b"", AT_FDCWD, b"deleted", AT_EMPTY_PATH))
say(call(LINKAT, plain, b"", AT_FDCWD, b"alive", AT_EMPTY_PATH), call(LINKAT, folder, b"", AT_FDCWD, b"x", AT_EMPTY_PATH))
say(call(LINKAT, 999, b"", AT_FDCWD, b"x", AT_EMPTY_PATH), call(LINKAT, plain, b"", AT_FDCWD, b"alive", AT_EMPTY_PATH))
