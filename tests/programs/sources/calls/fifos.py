# FIFOs opened by name: who waits for whom, what flows, what is told.
root = os.geteuid() == 0
import fcntl, select, signal, threading, time
signal.alarm(60)
MOMENT = 0.05

def began(action):
    """Starts action in a thread; what it answered stands in the list once it has ended."""
    answer = []
    def run():
        answer.append(attempt(action))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answer

def ends(started):
    started[0].join(20)
    return started[1]

def flags_of(fd):
    return oct(fcntl.fcntl(fd, fcntl.F_GETFL))

def close(*fds):
    for fd in fds:
        os.close(fd)

os.mkfifo("f", 0o640)

# Without waiting.
say("nobody", attempt(os.open, "f", os.O_WRONLY | os.O_NONBLOCK))
reader = os.open("f", os.O_RDONLY | os.O_NONBLOCK)
say("reader alone", flags_of(reader), os.read(reader, 9))
writer = os.open("f", os.O_WRONLY | os.O_NONBLOCK)
say("both", flags_of(writer), attempt(os.read, reader, 9), os.write(writer, b"abc"), os.read(reader, 9))
both = os.open("f", os.O_RDWR)
say("own both", flags_of(both), os.write(both, b"xy"), os.read(reader, 1), os.read(both, 9))
close(writer, both)
say("end", os.read(reader, 9))
close(reader)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
reader = os.open("f", os.O_RDONLY | os.O_NONBLOCK)
writer = os.open("f", os.O_WRONLY)
close(reader)
say("gone", attempt(os.write, writer, b"x"), attempt(os.open, "f", os.O_WRONLY | os.O_NONBLOCK))
close(writer)

# Each side waits for the other.
for first, second in [(os.O_RDONLY, os.O_WRONLY), (os.O_WRONLY, os.O_RDONLY)]:
    waits = began(lambda: os.open("f", first))
    time.sleep(MOMENT)
    say("waits", waits[1])
    other = os.open("f", second)
    [one] = ends(waits)
    say("met", flags_of(one), flags_of(other))
    close(one, other)

# What it shows is the node.
both = os.open("f", os.O_RDWR | os.O_CLOEXEC)
say("same", os.path.samestat(os.fstat(both), os.stat("f")), oct(os.fstat(both).st_mode))
os.fchmod(both, 0o600)
say("changed", oct(os.stat("f").st_mode), fcntl.fcntl(both, fcntl.F_GETFD), os.path.basename(os.readlink(f"/proc/self/fd/{both}")))
copy = os.dup(both)
say("copy", os.path.samestat(os.fstat(copy), os.stat("f")), os.write(copy, b"1234"), os.read(both, 9))
say("seek", attempt(os.lseek, both, 0, 0), attempt(os.ftruncate, both, 0), attempt(os.fsync, both),
    attempt(os.pread, both, 1, 0), attempt(os.fchdir, both), attempt(os.listdir, both))
say("locks", attempt(fcntl.flock, both, fcntl.LOCK_EX), attempt(fcntl.lockf, both, fcntl.LOCK_EX))
say("no map", call(9, 0, 4096, 1, 1, both, 0), attempt(os.posix_fallocate, both, 0, 9))
say("size", fcntl.fcntl(both, 1032))
close(copy)
again = os.open(f"/proc/self/fd/{both}", os.O_RDWR)
os.write(again, b"again")
say("reopened", os.read(both, 9))
close(again)

# Readiness.
poll = select.poll()
poll.register(both, select.POLLIN | select.POLLOUT)
say("poll", [event for _, event in poll.poll(0)], select.select([both], [both], [], 0) == ([], [both], []))
os.write(both, b"z")
say("poll", [event for _, event in poll.poll(0)])
epoll = select.epoll()
epoll.register(both, select.EPOLLIN)
say("epoll", [event for _, event in epoll.poll(1)])
os.read(both, 1)
epoll.close()
reader, writer = os.open("f", os.O_RDONLY), os.open("f", os.O_WRONLY)
close(both)
poll = select.poll()
poll.register(reader, select.POLLIN)
waits = began(lambda: [event for _, event in poll.poll(20000)])
time.sleep(MOMENT)
close(writer)
say("hung up", ends(waits))
close(reader)

# Signals.
signal.signal(signal.SIGALRM, lambda *_: None)
def interrupted(restart):
    signal.siginterrupt(signal.SIGALRM, not restart)
    signal.setitimer(signal.ITIMER_REAL, MOMENT)
    # Python itself would try again.
    return call(2, b"f", os.O_WRONLY)
say("interrupted", interrupted(False))
def comes():
    time.sleep(4 * MOMENT)
    close(os.open("f", os.O_RDONLY))
if (pid := os.fork()) == 0:
    comes()
    os._exit(0)
fd = interrupted(True)
say("restarted", isinstance(fd, int) and fd >= 0)
os.close(fd)
os.waitpid(pid, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.alarm(60)

# A process that waits is killed; nobody notices.
for flags in [os.O_RDONLY, os.O_WRONLY]:
    if (pid := os.fork()) == 0:
        os.open("f", flags)
    time.sleep(MOMENT)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
say("killed", attempt(os.open, "f", os.O_WRONLY | os.O_NONBLOCK))
# One that has it open ends: the other side is told.
if (pid := os.fork()) == 0:
    fd = os.open("f", os.O_WRONLY)
    os.write(fd, b"last")
    signal.pause()
reader = os.open("f", os.O_RDONLY)
say(os.read(reader, 4))
os.kill(pid, signal.SIGKILL)
say("end", os.read(reader, 4))
os.waitpid(pid, 0)
close(reader)

# Many writers, one reader: whole records.
COUNT, RECORD = 200, 256
if (reading := os.fork()) == 0:
    fd, seen, rest = os.open("f", os.O_RDONLY), {}, b""
    while piece := os.read(fd, 5000):
        rest += piece
        while len(rest) >= RECORD:
            record, rest = rest[:RECORD], rest[RECORD:]
            who = record[0]
            assert record == bytes([who]) * RECORD
            seen[who] = seen.get(who, 0) + 1
    say(sorted(seen.items()), rest)
    os._exit(0)
hold = os.open("f", os.O_WRONLY)
pids = []
for who in range(4):
    if (pid := os.fork()) == 0:
        fd = os.open("f", os.O_WRONLY)
        for _ in range(COUNT):
            os.write(fd, bytes([who]) * RECORD)
        os._exit(0)
    pids.append(pid)
[os.waitpid(pid, 0) for pid in pids]
close(hold)
os.waitpid(reading, 0)

# Names: a second one leads to the same; a new one of the same name does not.
os.link("f", "second")
both = os.open("f", os.O_RDWR)
reader = os.open("second", os.O_RDONLY | os.O_NONBLOCK)
os.write(both, b"linked")
say(os.read(reader, 9))
close(reader)
os.unlink("f"), os.unlink("second")
say("removed", os.fstat(both).st_nlink, os.write(both, b"still"), os.read(both, 9))
os.mkfifo("f")
say("another", attempt(os.open, "f", os.O_WRONLY | os.O_NONBLOCK))
again = os.open(f"/proc/self/fd/{both}", os.O_RDWR)
os.write(again, b"nameless")
say(os.read(both, 9))
close(again, both)
os.mkfifo("g")
both = os.open("g", os.O_RDWR)
os.rename("f", "g")
say("replaced", os.fstat(both).st_nlink, attempt(os.open, "g", os.O_WRONLY | os.O_NONBLOCK))
close(both)

# By the names of an open one, however they are spelled.
both = os.open("g", os.O_RDWR)
own = os.stat("g").st_ino
for name in ["/proc/self/fd/", "/proc/self/fd/../fd/", "/proc/self/fd//", "/dev/fd/", "/dev/../dev/fd/", "/proc/thread-self/../../fd/",
             "/proc/self/task/../fd/", "/proc/self/./fd/"]:
    os.write(both, b"x")
    again = os.open(f"{name}{both}", os.O_RDWR | os.O_NONBLOCK)
    os.chmod(f"{name}{both}", 0o620)
    say(name, attempt(os.read, again, 9), os.stat(f"{name}{both}").st_ino == own, oct(os.stat("g").st_mode))
    os.chmod("g", 0o600)
    close(again)
close(both)

# How it may be opened.
odd = [os.O_CREAT | os.O_EXCL, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_DIRECT,
       os.O_NOATIME, os.O_SYNC, os.O_ASYNC, os.O_CLOEXEC]
for flags in odd:
    fd = attempt(os.open, "g", os.O_RDWR | flags)
    shows = isinstance(fd, int) and flags != os.O_NOATIME
    say(oct(flags), flags_of(fd) if shows else fd)
    isinstance(fd, int) and os.close(fd)
fd = call(2, b"g", 3)
say("neither", fd)
say("slash", attempt(os.open, "g/", os.O_RDWR), attempt(os.open, "g/x", os.O_RDWR))
handle = os.open("g", os.O_PATH)
say("handle", attempt(os.read, handle, 1), stat.S_ISFIFO(os.fstat(handle).st_mode))
close(handle)
os.umask(0o777)
os.mkfifo("closed")
os.umask(0o022)
os.mkfifo("mine", 0o600), os.mkfifo("read", 0o644), os.mkfifo("all"), os.chmod("all", 0o666)
fd = os.open("all", os.O_RDWR)
def without_privilege():
    if root:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    for name in ["closed", "mine", "read", "all"]:
        for flags in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_RDONLY | os.O_NOATIME]:
            opened = attempt(os.open, name, flags | os.O_NONBLOCK)
            say(name, oct(flags), "open" if isinstance(opened, int) else opened)
            isinstance(opened, int) and os.close(opened)
os.chmod(base, 0o755)
say(child(without_privilege))

# Inherited and handed on.
both = os.open("g", os.O_RDWR)
os.set_inheritable(both, True)
sys.stdout.flush()
if (pid := os.fork()) == 0:
    os.execvp("sh", ["sh", "-c", f"echo from a shell >&{both}; test -p /dev/fd/{both} && echo a fifo >&{both}"])
os.waitpid(pid, 0)
say(os.read(both, 99))
import array, socket
one, two = socket.socketpair()
one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [both]))])
_, [(_, _, data)], _, _ = two.recvmsg(9, 99)
[received] = array.array("i", data)
os.write(received, b"passed")
say(os.read(both, 99))
