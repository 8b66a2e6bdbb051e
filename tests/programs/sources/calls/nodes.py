# FIFOs, sockets and devices as names.
MKNODAT = 259
root = os.geteuid() == 0

def shown(path):
    found = os.lstat(path)
    return oct(found.st_mode), found.st_nlink, found.st_size, found.st_blocks, hex(found.st_rdev)

for name, kind in [("fifo", stat.S_IFIFO), ("socket", stat.S_IFSOCK), ("whiteout", stat.S_IFCHR)]:
    say(name, call(MKNODAT, AT_FDCWD, name.encode(), kind | 0o666, 0), shown(name))
    say(call(MKNODAT, AT_FDCWD, name.encode(), kind | 0o666, 0))
for kind in [stat.S_IFCHR, stat.S_IFBLK]:
    answer = call(MKNODAT, AT_FDCWD, b"device", kind | 0o600, 0x12345678)
    say("device", answer, shown("device") if answer == 0 else "")
    answer == 0 and os.unlink("device")
say("number of a fifo", call(MKNODAT, AT_FDCWD, b"f2", stat.S_IFIFO | 0o6777, 77), shown("f2"))

# The kind is judged before the path, the path before the permission, EEXIST before both.
os.mkdir("locked", 0o555)
make("plain")
for kind in [0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, 0o030000, stat.S_IFIFO, stat.S_IFBLK]:
    answers = [call(MKNODAT, AT_FDCWD, path, kind | 0o600, 9)
               for path in [b"fifo", b"absent/x", b"fifo/x", b"slash/", b"fifo/", b"", b"."]]
    say(oct(kind), answers, call(MKNODAT, AT_FDCWD, 1, kind | 0o600, 9))

def without_privilege():
    os.chmod(base, 0o755)
    if root:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    for kind in [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFBLK, stat.S_IFCHR]:
        say("unprivileged", oct(kind), [call(MKNODAT, AT_FDCWD, path, kind | 0o600, 9)
            for path in [b"fifo", b"locked/x"]])
    os.chdir("open")
    for kind in [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFBLK, stat.S_IFCHR]:
        say("unprivileged", oct(kind), call(MKNODAT, AT_FDCWD, b"x%x" % kind, kind | 0o600, 9))
os.mkdir("open"); os.chmod("open", 0o777)
say(child(without_privilege))

# Names like any other: listed with their kind, moved, linked, changed, removed.
kinds = {e.name: (e.is_file(follow_symlinks=False), e.is_dir(follow_symlinks=False), e.is_symlink())
         for e in os.scandir(".")}
say(sorted(kinds.items()))
os.link("fifo", "second"); os.rename("socket", "moved"); os.chmod("second", 0o600)
os.utime("second", ns=(1, 2))
say(shown("fifo"), shown("moved"), os.lstat("fifo").st_mtime_ns)
say(attempt(os.rename, "fifo", "open"), attempt(os.rename, "open", "fifo"), attempt(os.rmdir, "fifo"))
say(attempt(os.chdir, "fifo"), attempt(os.listdir, "fifo"), attempt(os.stat, "fifo/"), attempt(os.stat, "fifo/x"))
say(attempt(os.truncate, "fifo", 0), attempt(os.truncate, "moved", 0), attempt(os.readlink, "fifo"))
say(attempt(os.execv, "fifo", ["x"]), attempt(os.execv, "moved", ["x"]))
for flags in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC, os.O_CREAT | os.O_RDWR]:
    say("socket", attempt(os.open, "moved", flags))
say(attempt(os.open, "moved", os.O_DIRECTORY), attempt(os.open, "moved", os.O_CREAT | os.O_EXCL))
handle = os.open("moved", os.O_PATH)
say(stat.S_ISSOCK(os.fstat(handle).st_mode), attempt(os.read, handle, 1), attempt(os.ftruncate, handle, 0))
for name in ["fifo", "second", "moved", "f2", "whiteout"]:
    os.unlink(name)
say(stat.S_ISSOCK(os.fstat(handle).st_mode), os.fstat(handle).st_nlink)
