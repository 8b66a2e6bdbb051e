# Every kind of file call a program makes, with the answers printed.
import errno, fcntl, mmap, os, select, stat, struct, sys

def fails(call, *args, **kw):
    try:
        return call(*args, **kw)
    except OSError as e:
        return errno.errorcode[e.errno]

os.umask(0o022)
os.mkdir("d", 0o777); os.makedirs("deep/a/b/c")
print(oct(os.stat("d").st_mode), os.stat("d").st_nlink, os.stat("deep").st_nlink)
fd = os.open("d/f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
print(oct(os.fstat(fd).st_mode), fails(os.open, "d/f", os.O_CREAT | os.O_EXCL))
print(os.write(fd, b"hello world"), os.lseek(fd, 0, 1), os.pread(fd, 5, 6), os.pwrite(fd, b"HUSK!", 6))
os.lseek(fd, 0, 0); print(os.readv(fd, [bytearray(4), bytearray(100)]), os.read(fd, 1))
print(os.writev(fd, [b"a", b"bc", b"def"]), os.fstat(fd).st_size)
os.ftruncate(fd, 3); print(os.pread(fd, 100, 0)); os.truncate("d/f", 10000); print(os.stat("d/f").st_size)
print(os.pread(fd, 5, 9000), os.lseek(fd, 1 << 20, 0), os.write(fd, b"end"), os.fstat(fd).st_size)
print(os.sendfile(os.open("copy", os.O_WRONLY | os.O_CREAT, 0o644), fd, 0, 1 << 19))
dup = os.dup(fd); os.lseek(fd, 7, 0); print(os.lseek(dup, 0, 1), fcntl.fcntl(dup, fcntl.F_GETFL) & 3)
fcntl.fcntl(fd, fcntl.F_SETFD, 0); print(fcntl.fcntl(fd, fcntl.F_GETFD)); os.close(dup)
print(fails(os.read, dup, 1), fails(os.lseek, fd, -1, 0), fails(os.write, os.open("d/f", os.O_RDONLY), b"x"))

os.link("d/f", "hard"); print(os.stat("hard").st_nlink, os.path.samefile("hard", "d/f"))
os.symlink("d/f", "soft"); os.symlink("nowhere", "dangling"); os.symlink("loop", "loop")
print(os.readlink("soft"), os.path.islink("soft"), fails(os.stat, "dangling"), fails(os.stat, "loop"))
print(fails(os.rmdir, "d"), fails(os.unlink, "d"), fails(os.rmdir, "hard"), fails(os.mkdir, "d"))
print(fails(os.rename, "d", "deep/a"), fails(os.rename, "deep", "deep/a/x"), fails(os.rename, "absent", "y"))
os.rename("deep/a/b", "deep/moved"); os.rename("hard", "deep/moved/hard"); print(sorted(os.listdir("deep/moved")))
print(fails(os.open, "d/f/x", os.O_RDONLY), fails(os.open, "x" * 256, os.O_CREAT), fails(os.listdir, "absent"))
os.chmod("copy", 0o4751); print(oct(os.stat("copy").st_mode))
os.utime("copy", ns=(1_000_000_001, 1_500_000_002_000_000_003)); print(os.stat("copy").st_mtime_ns, os.stat("copy").st_atime_ns)
print(os.access("copy", os.X_OK), os.access("absent", os.F_OK))

# Unlinked while open, renamed over while open.
g = os.open("gone", os.O_RDWR | os.O_CREAT); os.unlink("gone"); os.write(g, b"still"); print(os.pread(g, 9, 0), os.fstat(g).st_nlink)
open("x", "w").write("old"); old = open("x"); open("y", "w").write("new"); os.rename("y", "x"); print(old.read(), open("x").read())

# Mapped files, shared and private.
with open("map", "w+b") as f:
    f.truncate(3 * 4096 + 10)
    with mmap.mmap(f.fileno(), 0) as m:
        m[0:4] = b"page"; m[8192:8196] = b"more"; m.flush()
        print(os.pread(f.fileno(), 4, 8192)); os.pwrite(f.fileno(), b"WRIT", 4096); print(m[4096:4100], len(m))
        if os.fork() == 0:
            m[100:105] = b"child"; os._exit(0)
        os.wait(); print(m[100:105])
    with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE) as p:
        p[0:4] = b"priv"; print(p[0:4], os.pread(f.fileno(), 4, 0))

# Directories: by descriptor, listing while removing.
dfd = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
for n in range(300): os.close(os.open("n%d" % n, os.O_CREAT | os.O_WRONLY, dir_fd=dfd))
seen = 0
for entry in os.scandir("d"):
    seen += 1
    if entry.name != "f": os.unlink(entry.name, dir_fd=dfd)
print(seen, os.listdir(dfd)); os.fchdir(dfd); print(os.path.basename(os.getcwd())); os.chdir("..")
os.chdir("deep/a"); os.rename("../a", "../z"); print(os.path.basename(os.getcwd())); os.chdir("../..")
print(os.path.basename(os.path.realpath("/proc/self/cwd/soft")))

# Locks.
a, b = open("lock", "w"), open("lock", "r+")
fcntl.flock(a, fcntl.LOCK_EX); print(fails(fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)); fcntl.flock(a, fcntl.LOCK_UN)
fcntl.lockf(a, fcntl.LOCK_EX, 10); sys.stdout.flush()
if os.fork() == 0:
    print(fails(fcntl.lockf, b, fcntl.LOCK_EX | fcntl.LOCK_NB, 1), fails(fcntl.lockf, b, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 50)); sys.stdout.flush(); os._exit(0)
os.wait()

# Limits are errors.
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); opened = []
try:
    while True: opened.append(os.open("copy", os.O_RDONLY))
except OSError as e:
    print(errno.errorcode[e.errno])
free = opened[5]; [os.close(n) for n in (opened[9], free)]; print(os.open("copy", os.O_RDONLY) == free)
print(select.select([opened[0]], [opened[1]], [], 0) == ([opened[0]], [opened[1]], []))
st = os.statvfs("."); print(st.f_namemax, st.f_bavail > 0)
