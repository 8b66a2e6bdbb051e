# Which times and link counts each call changes, of what it is made on and of the directories around.
import fcntl, time
names = ["f", "d", "d/in", "g", "l", "p", "."]
def times():
    out = {}
    for n in names:
        try:
            s = os.lstat(n); out[n] = (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns, s.st_nlink)
        except OSError:
            out[n] = None
    return out
def setup():
    for n in ["new", "new2", "d/new", "f", "g", "l", "p", "d/in"]:
        shutil.rmtree(n) if os.path.isdir(n) and not os.path.islink(n) else os.path.lexists(n) and os.unlink(n)
    for n in ["d", "newd"]:
        shutil.rmtree(n) if os.path.isdir(n) else os.path.lexists(n) and os.unlink(n)
    make("f", b"x" * 5000); make("g", b"y" * 100); os.mkdir("d"); make("d/in", b"z"); os.symlink("f", "l"); os.mkfifo("p")
    os.setxattr("f", "user.one", b"1")
def show(word, body):
    setup()
    keep = {}
    for n in names: os.utime(n, ns=(10**9, 2 * 10**9), follow_symlinks=False)
    pre = body.__code__.co_argcount
    fd = os.open("f", os.O_RDWR) if pre else None
    before = times(); time.sleep(2 * time.clock_getres(6))
    answer = attempt(body, fd) if pre else attempt(body)
    after = times()
    say(word, answer if isinstance(answer, (int, str, bytes, type(None))) and not isinstance(answer, int) or isinstance(answer, int) and answer < 2 else "-",
        {n: "gone" if after[n] is None else "".join(c for c, x, y in zip("amcn", before[n], after[n]) if x != y) for n in names if before[n] != after[n]})
    fd is None or os.close(fd)
cases = [
 ("read", lambda fd: os.read(fd, 10)), ("read 0", lambda fd: os.read(fd, 0)), ("read at end", lambda fd: os.pread(fd, 10, 9000)),
 ("write", lambda fd: os.write(fd, b"q")), ("write 0", lambda fd: os.write(fd, b"")), ("pwrite far", lambda fd: os.pwrite(fd, b"q", 90000)),
 ("truncate same", lambda: os.truncate("f", 5000)), ("truncate less", lambda: os.truncate("f", 10)), ("truncate more", lambda: os.truncate("f", 10000)),
 ("ftruncate same", lambda fd: os.ftruncate(fd, 5000)), ("ftruncate less", lambda fd: os.ftruncate(fd, 0)),
 ("open trunc", lambda: os.close(os.open("f", os.O_RDWR | os.O_TRUNC))), ("open trunc empty", lambda: (os.truncate("g", 0), os.utime("g", ns=(1, 1)), time.sleep(0.01), os.close(os.open("g", os.O_RDWR | os.O_TRUNC)))[3]),
 ("open creat there", lambda: os.close(os.open("f", os.O_RDWR | os.O_CREAT))),
 ("fallocate", lambda fd: call(285, fd, 0, 0, 100)), ("fallocate more", lambda fd: call(285, fd, 0, 0, 100000)), ("fallocate keep", lambda fd: call(285, fd, 1, 0, 100000)),
 ("punch", lambda fd: call(285, fd, 3, 0, 4096)), ("punch beyond", lambda fd: call(285, fd, 3, 100000, 4096)),
 ("chmod same", lambda: os.chmod("f", 0o644)), ("chmod", lambda: os.chmod("f", 0o600)), ("chown", lambda: os.chown("f", -1, -1)), ("chown own", lambda: os.chown("f", os.getuid(), os.getgid())),
 ("link", lambda: os.link("f", "new")), ("link l", lambda: os.link("l", "new", follow_symlinks=False)), ("unlink", lambda: os.unlink("f")), ("unlink in", lambda: os.unlink("d/in")),
 ("unlink linked", lambda: (os.link("f", "new"), time.sleep(0.01), os.unlink("f"))[2]),
 ("rename", lambda: os.rename("f", "new")), ("rename over", lambda: os.rename("f", "g")), ("rename into", lambda: os.rename("f", "d/new")), ("rename over in", lambda: os.rename("f", "d/in")),
 ("rename dir", lambda: (os.unlink("d/in"), os.rename("d", "newd"))[1]), ("rename self", lambda: os.rename("f", "f")), ("rename same inode", lambda: (os.link("f", "new"), time.sleep(0.01), os.rename("f", "new"))[2]),
 ("exchange", lambda: call(316, AT_FDCWD, b"f", AT_FDCWD, b"d/in", 2)), ("exchange dir", lambda: call(316, AT_FDCWD, b"f", AT_FDCWD, b"d", 2)), ("noreplace", lambda: call(316, AT_FDCWD, b"f", AT_FDCWD, b"g", 1)),
 ("exchange noreplace", lambda: call(316, AT_FDCWD, b"f", AT_FDCWD, b"g", 3)), ("flags 8", lambda: call(316, AT_FDCWD, b"f", AT_FDCWD, b"g", 8)),
 ("mkdir", lambda: os.mkdir("newd")), ("mkdir in", lambda: os.mkdir("d/sub")), ("rmdir", lambda: (os.mkdir("d/sub"), time.sleep(0.01), os.rmdir("d/sub"))[2]), ("symlink", lambda: os.symlink("f", "new")),
 ("mknod", lambda: os.mkfifo("new")), ("stat", lambda: os.stat("f") and None),
 ("open dir", lambda: os.close(os.open("d", os.O_RDONLY))), ("open l", lambda: os.close(os.open("f", os.O_RDONLY))),
 ("setxattr", lambda: os.setxattr("f", "user.two", b"2")), ("setxattr same", lambda: os.setxattr("f", "user.one", b"1")), ("getxattr", lambda: os.getxattr("f", "user.one")), ("removexattr", lambda: os.removexattr("f", "user.one")),
 ("removexattr none", lambda: os.removexattr("f", "user.none")),
 ("utime", lambda: os.utime("f", ns=(5, 6))), ("utime now", lambda: os.utime("f")),
 ("copy range", lambda fd: os.copy_file_range(os.open("g", os.O_RDONLY), fd, 50)), ("copy from", lambda fd: os.copy_file_range(fd, os.open("g", os.O_RDWR), 50)),
 ("sendfile", lambda fd: os.sendfile(fd, os.open("g", os.O_RDONLY), 0, 50)), ("copy 0", lambda fd: os.copy_file_range(os.open("g", os.O_RDONLY), fd, 0)),
 ("noatime", lambda: os.read(os.open("f", os.O_RDONLY | os.O_NOATIME), 10)), ("chdir", lambda: (os.chdir("d"), os.chdir(".."))[0]),
 ("tmpfile", lambda: os.open("d", os.O_TMPFILE | os.O_RDWR)), ("lock", lambda fd: fcntl.flock(fd, 2)), ("fsync", lambda fd: os.fsync(fd)),
 ("writev", lambda fd: os.writev(fd, [b"a", b"b"])), ("pwritev2 0", lambda fd: os.pwritev(fd, [b""], 0)),
 ("lookup", lambda: os.access("d/none", 0)), ("exec", lambda: os.system("true")),
]
for word, body in cases: show(word, body)
