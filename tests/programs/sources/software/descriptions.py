# Descriptors of a host file, shared and handed around, before and after the file is changed.
import array, ctypes, fcntl, os, socket, struct, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)


def in_child(step):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            step()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def append(name, text):
    with open(name, "a") as file:
        file.write(text)


def refused(step):
    try:
        step()
        return "granted"
    except OSError as error:
        return error.strerror


# One offset, whoever changes the file in between.
script = "{ read a; echo new >> f0; cat; echo --; cat; } < f0"
print(subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout)
fd = os.open("f1", os.O_RDONLY)
twin = os.dup(fd)
third = fcntl.fcntl(fd, fcntl.F_DUPFD, 40)
print(os.read(fd, 3))
append("f1", "more\n")
print(os.read(twin, 4), os.lseek(third, 0, os.SEEK_CUR))
print("child", in_child(lambda: print(os.read(third, 5))), os.lseek(fd, 0, os.SEEK_CUR))
os.dup2(fd, 41)
os.close(fd)
print(os.lseek(41, -4, os.SEEK_END), os.read(twin, 100), os.lseek(third, 0, os.SEEK_CUR))

# One holder of a lock, however many numbers it has.
fd = os.open("f2", os.O_RDONLY)
other = os.open("f2", os.O_RDONLY)
attempt = fcntl.LOCK_EX | fcntl.LOCK_NB
print("child locks", in_child(lambda: fcntl.flock(fd, attempt)))
print("same description:", refused(lambda: fcntl.flock(fd, attempt)))
print("another:", refused(lambda: fcntl.flock(other, attempt)))
print("child lets go", in_child(lambda: fcntl.flock(fd, fcntl.LOCK_UN)))
print("another:", refused(lambda: fcntl.flock(other, attempt)))
os.close(other)
fd, other = os.open("f3", os.O_RDONLY), os.open("f3", os.O_RDONLY)
shared = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
OFD_SETLK = 37
print("child", in_child(lambda: fcntl.fcntl(fd, OFD_SETLK, shared)))
with open("f3", "r+") as writer:
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    print("a writer:", refused(lambda: fcntl.fcntl(writer, OFD_SETLK, whole)))
    os.close(fd)
    print("a writer:", refused(lambda: fcntl.fcntl(writer, OFD_SETLK, whole)))
copy = os.dup(other)
fcntl.flock(other, attempt)
print("closed, not let go:", os.close(other), end=" ")
fresh = os.open("f3", os.O_RDONLY)
print(refused(lambda: fcntl.flock(fresh, attempt)), end=" ")
os.close(copy)
print(refused(lambda: fcntl.flock(fresh, attempt)))

# The flags are the description's, the one for exec is the number's.
fd = os.open("f4", os.O_RDONLY)
twin = os.dup(fd)
append("f4", "more\n")
print(os.read(twin, 2))
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
print(bool(fcntl.fcntl(twin, fcntl.F_GETFL) & os.O_NONBLOCK), os.get_inheritable(twin))
os.set_inheritable(twin, True)
print(subprocess.run(["cat"], stdin=twin, capture_output=True).stdout, os.read(fd, 10))
left = array.array("i", [0])
fd = os.open("f5", os.O_RDONLY)
append("f5", "more\n")
fcntl.ioctl(fd, 0x541B, left)
print("left", left[0])

# What comes back in a message is the file of here.
here, there = socket.socketpair()
for name in ["f6", "f7"]:
    fd = os.open(name, os.O_RDONLY)
    socket.send_fds(here, [b"x"], [fd])
    os.close(fd)
    came = socket.recv_fds(there, 1, 1)[1][0]
    if name == "f6":
        append(name, "more\n")
    os.fchmod(came, 0o640)
    os.utime(came, (1, 2))
    print(name, os.pread(came, 100, 0), oct(os.stat(name).st_mode), os.fstat(came).st_mtime)
    with open(f"/proc/self/fd/{came}", "w") as writer:
        writer.write("written anew\n")
    link = os.readlink(f"/proc/self/fd/{came}")
    print(name, os.pread(came, 100, 0), os.path.getsize(name), link.endswith(name))
    os.close(came)
fd = os.open("f8", os.O_RDONLY)
pidfd = os.pidfd_open(os.getpid())
taken = libc.syscall(438, pidfd, fd, 0)
append("f8", "more\n")
os.fchmod(taken, 0o604)
print(os.pread(taken, 100, 0), oct(os.stat("f8").st_mode))
