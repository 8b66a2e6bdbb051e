# Descriptors that are taken from a child by its number (pidfd_getfd), of each kind: what they are,
# and that they stay when the child has ended. Not here: whether both share an offset.
import fcntl, signal, socket
PIDFD_GETFD, PIDFD_OPEN = 438, 434
NUMBERS = 50

make("low", b"of before"); os.mkdir("dir"); make("dir/name")
ready, begun = os.pipe()
sys.stdout.flush()
if (pid := os.fork()) == 0:
    made = os.open("made", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(made, b"content"); os.lseek(made, 3, os.SEEK_SET)
    gone = os.open("gone", os.O_CREAT | os.O_RDWR, 0o600); os.write(gone, b"deleted"); os.unlink("gone")
    out, into = os.pipe(); os.write(into, b"piped")
    one, other = socket.socketpair(); one.send(b"sent")
    all_fds = [made, os.open("low", os.O_RDONLY), os.open("made", os.O_WRONLY | os.O_APPEND), gone,
               os.open("dir", os.O_RDONLY), os.open("low", os.O_PATH), out, other.fileno(), os.open("/dev/null", os.O_RDWR)]
    for n, fd in enumerate(all_fds):
        os.dup2(fd, NUMBERS + n)
    os.write(begun, b"x")
    signal.pause()
os.read(ready, 1)
child = call(PIDFD_OPEN, pid, 0)
taken = [call(PIDFD_GETFD, child, NUMBERS + n, 0) for n in range(9)]
say([isinstance(fd, int) and fd > 2 for fd in taken])
say([fcntl.fcntl(fd, fcntl.F_GETFD) for fd in taken], [oct(fcntl.fcntl(fd, fcntl.F_GETFL)) for fd in taken])
say([os.path.basename(os.readlink("/proc/self/fd/%d" % fd)) for fd in taken[:3] + taken[4:6]])
made, low, appends, gone, folder, place, out, other, null = taken
say(os.read(made, 2), os.read(made, 9))
say(os.read(low, 99), attempt(os.write, low, b"x"), os.write(appends, b"!"), os.pread(made, 99, 0), attempt(os.read, appends, 1))
say(os.pread(gone, 99, 0), os.listdir(folder), attempt(os.read, place, 1), os.fstat(place).st_size)
say(os.read(out, 99), os.read(other, 99), os.read(null, 1))
say(call(PIDFD_GETFD, child, 49, 0), call(PIDFD_GETFD, child, NUMBERS, 1), call(PIDFD_GETFD, made, NUMBERS, 0), call(PIDFD_GETFD, 999, 0, 0))
os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
say(call(PIDFD_GETFD, child, NUMBERS, 0))
say(os.pread(made, 99, 0), os.pread(gone, 99, 0), os.listdir(folder))
