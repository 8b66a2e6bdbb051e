# Record locks of processes and of descriptions, and circles of them.
import fcntl, signal, struct, time
GETLK, SETLK, SETLKW, OGET, OSET, OSETW = 5, 6, 7, 36, 37, 38
make("f", b"x" * 1000); make("g")
def lk(fd, cmd, kind, start, length, whence=0, pid=0):
    b = ctypes.create_string_buffer(struct.pack("<hhxxxxqqi", kind, whence, start, length, pid) + b"\0" * 4, 40)
    a = call(72, fd, cmd, b)
    if cmd in (GETLK, OGET) and a == 0:
        t, w, s, l, p = struct.unpack_from("<hhxxxxqqi", b.raw)
        return t, w, s, l, "other" if p > 0 else p
    return a
R, W, U = 0, 1, 2
def other(body):
    say("child:", child(body))
fd = os.open("f", os.O_RDWR); ro = os.open("f", os.O_RDONLY); wo = os.open("f", os.O_WRONLY)
say(lk(ro, SETLK, W, 0, 1), lk(wo, SETLK, R, 0, 1), lk(ro, SETLK, R, 0, 1), lk(wo, SETLK, W, 5, 1), lk(fd, SETLK, 3, 0, 0), lk(fd, SETLK, W, -1, 1), lk(fd, SETLK, W, 5, -5), lk(fd, SETLK, W, 5, -6), lk(fd, SETLK, W, 0, 0, 3))
say(lk(fd, SETLK, U, 0, 0))
# ranges split, join, change kind
for steps in [[(W, 0, 100), (U, 40, 20)], [(W, 0, 100), (R, 40, 20)], [(R, 0, 10), (R, 10, 10), (W, 5, 10)], [(W, 10, 10), (W, 30, 10), (W, 15, 20)], [(W, 100, 0), (U, 200, 50)], [(W, 0, 0), (R, 10, 5), (U, 0, 3)], [(R, 5, 5), (W, 0, 20), (U, 7, 1)]]:
    lk(fd, SETLK, U, 0, 0)
    say(steps, [lk(fd, SETLK, *s) for s in steps])
    def look():
        mine = os.open("f", os.O_RDWR)
        for kind in [R, W]:
            say([lk(mine, GETLK, kind, at, 1) for at in range(0, 50, 1)])
            say([lk(mine, GETLK, kind, at, n) for at in (0, 150, 5, 220) for n in (0, 300)], lk(mine, OGET, kind, 0, 0))
    other(look)
say(lk(fd, SETLK, U, 0, 0))
# SEEK_CUR and SEEK_END
os.lseek(fd, 100, 0)
say(lk(fd, SETLK, W, -10, 20, 1), lk(fd, SETLK, W, -100, 0, 2), lk(fd, SETLK, W, -101, 1, 1), lk(fd, SETLK, W, -1001, 1, 2))
other(lambda: say([lk(os.open("f", os.O_RDWR), GETLK, W, at, 1) for at in (89, 90, 109, 110, 899, 900, 5000)]))
# Not inherited; gone with any descriptor of the file; a fork's child has none
def inherited():
    say(lk(fd, SETLK, W, 90, 1), lk(fd, GETLK, W, 90, 1)); os.close(os.dup(fd))
other(inherited)
other(lambda: say(lk(fd, GETLK, W, 90, 1)))
os.close(os.open("f", os.O_RDONLY))
other(lambda: say(lk(fd, GETLK, W, 0, 0)))
# Descriptions' locks
a, b = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
say(lk(a, OSET, W, 0, 10), lk(b, OSET, W, 5, 1), lk(b, OSET, R, 5, 1), lk(b, OGET, W, 0, 0), lk(b, GETLK, W, 0, 0), lk(fd, SETLK, W, 0, 1), lk(fd, GETLK, R, 0, 1), lk(b, OSET, W, 10, 10))
say(lk(a, OSET, W, 0, 10, 0, 5), lk(a, OGET, W, 10, 1), lk(a, OSETW, R, 0, 5), lk(b, OSET, R, 0, 5), lk(b, OSET, R, 5, 5))
other(lambda: say(lk(a, OSET, U, 0, 0), lk(b, OSET, W, 0, 10)))
say(lk(a, OSET, W, 0, 1)); c = os.dup(b); os.close(b); say(lk(a, OSET, W, 0, 1)); os.close(c); say(lk(a, OSET, W, 0, 0), lk(a, OSET, U, 0, 0))
# flock
a, b = os.open("f", os.O_RDWR), os.open("f", os.O_RDONLY)
say(attempt(fcntl.flock, a, 6), attempt(fcntl.flock, b, 5), attempt(fcntl.flock, a, 5), attempt(fcntl.flock, b, 5), attempt(fcntl.flock, a, 6), attempt(fcntl.flock, b, 6), attempt(fcntl.flock, a, 8), attempt(fcntl.flock, b, 6), lk(a, SETLK, W, 0, 0), attempt(fcntl.flock, a, 0), attempt(fcntl.flock, a, 3), attempt(fcntl.flock, a, 4))
other(lambda: say(attempt(fcntl.flock, b, 8), attempt(fcntl.flock, a, 6)))
say(attempt(fcntl.flock, b, 5)); os.close(a), os.close(b)
d = os.open(".", os.O_RDONLY); d2 = os.open(".", os.O_RDONLY); say(attempt(fcntl.flock, d, 6), attempt(fcntl.flock, d2, 6), lk(d, SETLK, R, 0, 0), lk(d, SETLK, W, 0, 0), lk(d, GETLK, W, 0, 0))
lk(fd, SETLK, U, 0, 0)
# circles of waiting
def circle(n):
    pipes = [os.pipe() for _ in range(n)]; ready = os.pipe(); pids = []
    for k in range(n):
        pid = os.fork()
        if pid == 0:
            mine = os.open("f", os.O_RDWR)
            assert lk(mine, SETLK, W, k, 1) == 0
            os.write(ready[1], b"r"); os.read(pipes[k][0], 1)
            signal.alarm(20)
            answer = lk(mine, SETLKW, W, (k + 1) % n, 1)
            os._exit(35 if answer == "EDEADLK" else 0 if answer == 0 else 99)
        pids.append(pid)
    for _ in range(n): os.read(ready[0], 1)
    for k in range(n):
        os.write(pipes[k][1], b"g"); time.sleep(0.1)
    say("circle of", n, sorted(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids))
    for p in pipes + [ready]: os.close(p[0]), os.close(p[1])
for n in [2, 3, 5, 8]: circle(n)
# interrupted
signal.signal(signal.SIGALRM, lambda *a: None)
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    mine = os.open("f", os.O_RDWR); lk(mine, SETLK, W, 0, 0); m2 = os.open("g", os.O_RDWR); fcntl.flock(m2, 2); m3 = os.open("g", os.O_RDWR); lk(m3, OSET, W, 0, 0); os.write(w, b"r"); signal.pause()
os.read(r, 1)
g = os.open("g", os.O_RDWR)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05); say("EINTR", lk(fd, SETLKW, W, 0, 0)); say(call(73, g, 2)); say(lk(g, OSETW, W, 0, 0)); signal.setitimer(signal.ITIMER_REAL, 0)
os.kill(pid, 9); os.waitpid(pid, 0)
say(lk(fd, SETLKW, W, 0, 0), call(73, g, 2), lk(g, OSETW, W, 0, 0))
