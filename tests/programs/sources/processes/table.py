# What a process can learn of others, and do to them, without a number that differs from run to run.
import ctypes, errno, os, resource, signal, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
names = {os.getpid(): "main", os.getppid(): "parent"}

def say(*words):
    print(*words, flush=True)

def stat(pid):
    text = open(f"/proc/{pid}/stat").read()
    rest = text[text.rindex(")") + 2:].split()
    return rest[0], int(rest[1]), int(rest[2]), int(rest[3])

def until(what):
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)

def child(body):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(body() or 0)
        except BaseException as problem:
            print(problem, flush=True)
            os._exit(99)
    return pid

def sleeper():
    time.sleep(60)

def refused(call, *arguments):
    try:
        return call(*arguments)
    except OSError as problem:
        return errno.errorcode[problem.errno]

# Numbers, parents, groups, sessions: what a process says of itself is what the table says.
state, parent, group, session = stat(os.getpid())
say("own", os.path.basename(os.readlink("/proc/self")) == str(os.getpid()))
say("own", parent == os.getppid(), group == os.getpgrp(), session == os.getsid(0))
r, w = os.pipe()
def leader():
    os.setsid()
    os.write(w, b"x")
    sleeper()
pid = child(leader)
os.read(r, 1)
say("leader", stat(pid)[1:] == (os.getpid(), pid, pid), os.getsid(pid) == pid, os.getpgid(pid) == pid)
say("in another session", refused(os.setpgid, pid, os.getpgrp()))
os.kill(pid, signal.SIGKILL)
_, status, usage = os.wait4(pid, 0)
say("killed", os.WTERMSIG(status), usage.ru_utime >= 0)

# States, stop and go on, as a waiter hears of them.
pid = child(sleeper)
until(lambda: stat(pid)[0] == "S")
say("nobody yet", os.waitpid(pid, os.WNOHANG))
os.kill(pid, signal.SIGSTOP)
found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
say("stops", found.si_status, found.si_code == os.CLD_STOPPED, stat(pid)[0])
say("again", os.WSTOPSIG(os.waitpid(pid, os.WUNTRACED)[1]))
os.kill(pid, signal.SIGCONT)
say("goes on", os.WIFCONTINUED(os.waitpid(pid, os.WCONTINUED)[1]))
os.kill(pid, signal.SIGTERM)
found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
say("ended", found.si_code == os.CLD_KILLED, found.si_status, stat(pid)[0])
say("still there", refused(os.kill, pid, 0))
os.waitpid(pid, 0)
say("gone", refused(os.kill, pid, 0), os.path.exists(f"/proc/{pid}"), refused(os.waitpid, pid, 0))

# Exit statuses, any child, children of a group, a child by its descriptor.
for status in (0, 1, 42, 255):
    pid = child(lambda: status)
    say("exits", os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
def grouped():
    os.setpgid(0, 0)
    os.write(w, b"x")
    sleeper()
one = child(grouped)
os.read(r, 1)
def joins():
    os.setpgid(0, one)
    os.write(w, b"x")
    sleeper()
two = child(joins)
os.read(r, 1)
outside = child(sleeper)
say("in one group", os.getpgid(two) == one, refused(os.waitpid, -one, os.WNOHANG))
os.killpg(one, signal.SIGUSR1)
ended = sorted([os.waitpid(-one, 0), os.waitpid(-one, 0)])
say("killpg", [pid for pid, _ in ended] == sorted([one, two]), [os.WTERMSIG(s) for _, s in ended])
say("outside lives", os.waitpid(outside, os.WNOHANG))
pidfd = os.pidfd_open(outside)
signal.pidfd_send_signal(pidfd, signal.SIGTERM)
found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
say("by descriptor", found.si_pid == outside, found.si_status)
say("no child", refused(os.waitpid, -1, 0))

# Every option of a wait, and what is none.
WALL, WNOTHREAD, WCLONE = 1 << 30, 1 << 29, -(1 << 31)
pid, group = child(lambda: 7), os.getpgrp()
said = lambda found: found and (found.si_pid == pid, found.si_status, found.si_code == os.CLD_EXITED)
looks = os.WEXITED | os.WNOWAIT
for kind, number in [(os.P_PID, pid), (os.P_PGID, group), (os.P_PGID, 0), (os.P_ALL, 0)]:
    say("left there", said(os.waitid(kind, number, looks)), said(os.waitid(kind, number, looks)))
say("alone", refused(os.waitpid, pid, WCLONE), refused(os.waitpid, pid, WCLONE | os.WNOHANG))
say("of both kinds", refused(os.waitid, os.P_PID, pid, looks | os.WNOHANG | WALL).si_status)
say("no option", refused(os.waitpid, pid, 1 << 27), refused(os.waitid, os.P_PID, pid, 0))
say("no kind", refused(os.waitid, 77, pid, looks), refused(os.waitid, os.P_PID, -1, looks))
say("nobody", refused(os.waitid, os.P_PGID, 1, looks), refused(os.waitpid, 1, os.WNOHANG))
say("of a thread", os.WEXITSTATUS(os.waitpid(0, WALL | WNOTHREAD)[1]), refused(os.waitpid, -1, WALL))
def cloned():
    # A child that says nothing at its end: of the other kind.
    twin = libc.syscall(56, 0, 0, 0, 0, 0)
    if twin == 0:
        os._exit(9)
    say("not of this kind", refused(os.waitpid, twin, 0), refused(os.waitpid, -1, os.WNOHANG))
    say("of the other", os.WEXITSTATUS(os.waitpid(twin, WCLONE)[1]))
os.waitpid(child(cloned), 0)

# sigqueue: the value arrives, and who sent it; several of one signal do, in their order.
class Info(ctypes.Structure):
    _fields_ = [("signo", ctypes.c_int), ("errno", ctypes.c_int), ("code", ctypes.c_int),
                ("pad", ctypes.c_int), ("pid", ctypes.c_int), ("uid", ctypes.c_int),
                ("value", ctypes.c_long), ("rest", ctypes.c_char * 96)]
def receiver():
    wanted = (ctypes.c_ulong * 16)()
    wanted[0] = 1 << (signal.SIGRTMIN + 1 - 1)
    main = os.getppid()
    os.write(w, b"x")
    for _ in range(3):
        info = Info()
        libc.sigwaitinfo(ctypes.byref(wanted), ctypes.byref(info))
        say("queued", info.signo - signal.SIGRTMIN, info.code, info.pid == main, info.value)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
pid = child(receiver)
os.read(r, 1)
libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long]
for value in (7, -1, 1 << 40):
    assert libc.sigqueue(pid, signal.SIGRTMIN + 1, value) == 0
say("and ends", os.waitpid(pid, 0)[1])

# Orphans go to the nearest reaper, which hears of their end.
libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
def orphaning():
    pid = child(sleeper)
    os.write(w, pid.to_bytes(4, "little"))
middle = child(orphaning)
orphan = int.from_bytes(os.read(r, 4), "little")
os.waitpid(middle, 0)
until(lambda: stat(orphan)[1] == os.getpid())
os.kill(orphan, signal.SIGHUP)
say("orphan", os.WTERMSIG(os.waitpid(orphan, 0)[1]))
libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

# Children are waited for by nobody where their ends are ignored, and leave no zombie.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
pid = child(lambda: 3)
say("ignored", refused(os.waitpid, pid, 0))
# Who waits is woken a moment before the child is gone.
until(lambda: not os.path.exists(f"/proc/{pid}"))
signal.signal(signal.SIGCHLD, signal.SIG_DFL)

# Resource use: of oneself while one works, of children once they were waited for.
def works():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
pid = child(works)
_, _, usage = os.wait4(pid, 0)
after = resource.getrusage(resource.RUSAGE_CHILDREN)
say("usage", usage.ru_utime + usage.ru_stime >= 0.04, after.ru_utime + after.ru_stime > before)
say("usage", after.ru_maxrss > 0, usage.ru_maxrss > 0)

# What ps, top and kill say and do.
marked = subprocess.Popen(["sleep", "54.321"])
until(lambda: open(f"/proc/{marked.pid}/comm").read() == "sleep\n")
def shown(*words):
    output = subprocess.run(words, capture_output=True, text=True)
    return output.returncode, output.stdout.split()
until(lambda: stat(marked.pid)[0] == "S")
fields = shown("ps", "-o", "pid=,ppid=,pgid=,sid=,stat=,comm=,args=", "-p", str(marked.pid))
named = {marked.pid: "child", os.getpid(): "main", os.getpgrp(): "group", os.getsid(0): "session"}
say("ps", [named.get(int(word), "?") if word.isdigit() else word for word in fields[1]])
say("ps -C", str(marked.pid) in shown("ps", "-C", "sleep", "-o", "pid=")[1])
say("pgrep", shown("pgrep", "-f", "sleep 54.321", "-P", str(os.getpid()))[1] == [str(marked.pid)])
rows = subprocess.run(["top", "-b", "-n1", "-p", str(marked.pid)], capture_output=True, text=True)
say("top", rows.returncode, [row.split()[-1] for row in rows.stdout.splitlines()[-1:]])
say("cmdline", open(f"/proc/{marked.pid}/cmdline").read().split("\0"))
say("kill", shown("kill", "-TERM", str(marked.pid))[0], marked.wait())
say("zombies", shown("ps", "--ppid", str(os.getpid()), "-o", "stat=")[1].count("Z"))
