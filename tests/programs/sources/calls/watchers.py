# inotify: the descriptor. Waiting for it, sharing it, what else it watches.
import select, signal, socket, struct, subprocess, tempfile, threading, time
signal.alarm(100)
INIT, ADD_WATCH, RM_WATCH = 294, 254, 255
MOMENT = 0.05

def init(flags=os.O_NONBLOCK):
    return call(INIT, flags)

def watch(fd, path, mask=0x100):
    return call(ADD_WATCH, fd, ctypes.c_char_p(path.encode()), mask)

def names(data):
    if not isinstance(data, bytes):
        return data
    at, found = 0, []
    while at < len(data):
        wd, mask, cookie, length = struct.unpack_from("iIII", data, at)
        found.append((wd, hex(mask), data[at + 16:at + 16 + length].rstrip(b"\0").decode()))
        at += 16 + length
    return found

def get(fd, size=8192):
    return names(attempt(os.read, fd, size))

os.mkdir("d")
host = tempfile.mkdtemp(dir="/var/tmp")
atexit.register(lambda: os.getpid() == owner and shutil.rmtree(host, ignore_errors=True))

# Waiting: poll, select, epoll.
fd = init()
say("watch", watch(fd, "d", 0x300))
poll = select.poll()
poll.register(fd, select.POLLIN)
ready = lambda: (poll.poll(0) == [(fd, 1)], select.select([fd], [], [], 0)[0] == [fd])
say("quiet", ready(), get(fd))
make("d/a")
say("ready", ready(), get(fd), ready(), get(fd))
level, edge = select.epoll(), select.epoll()
level.register(fd, select.EPOLLIN)
edge.register(fd, select.EPOLLIN | select.EPOLLET)
for n in range(3):
    make(f"d/e{n}")
    say("epoll", level.poll(0) == [(fd, 1)], level.poll(0) == [(fd, 1)], edge.poll(0) == [(fd, 1)], edge.poll(0), get(fd))
    say("then", level.poll(0), edge.poll(0), get(fd))
for n in range(20):
    make(f"d/f{n}")
first, rest = get(fd, 100), []
say("part", first, ready(), level.poll(0) == [(fd, 1)])
while isinstance(more := get(fd, 64), list):
    rest += more
say("rest", len(rest), rest[-1], ready())

def later(act):
    def run():
        time.sleep(MOMENT)
        act()
    threading.Thread(target=run, daemon=True).start()

for how in (lambda: poll.poll(20000), lambda: select.select([fd], [], [], 20), lambda: level.poll(20), lambda: edge.poll(20)):
    later(lambda: make("d/later"))
    how()
    say("waited", get(fd))
    os.unlink("d/later")
    get(fd)

# Blocking reads: in this process, begun before there is a watch, ended by a signal.
blocking = init(0)
later(lambda: (watch(blocking, "d"), make("d/b1")))
say("blocking", get(blocking))
later(lambda: child(lambda: make("d/b2")))
say("a child's", get(blocking))
class Rang(Exception):
    pass
def ring(*_):
    raise Rang
signal.signal(signal.SIGUSR1, ring)
later(lambda: os.kill(os.getpid(), signal.SIGUSR1))
try:
    say("never", get(blocking))
except Rang:
    say("interrupted")
rung = []
signal.signal(signal.SIGUSR1, lambda *_: rung.append(1))
later(lambda: (os.kill(os.getpid(), signal.SIGUSR1), time.sleep(MOMENT), make("d/b3")))
say("goes on", get(blocking), rung)
get(fd)

# Two threads that read: each event comes once.
found, lock = [], threading.Lock()
def drain():
    while True:
        more = get(blocking, 64)
        with lock:
            found.extend(more)
        if any(name == "end" for _, _, name in more):
            return
threads = [threading.Thread(target=drain, daemon=True) for _ in range(2)]
[thread.start() for thread in threads]
for n in range(200):
    make(f"d/t{n}")
make("d/end")
deadline = time.time() + 20
while len(found) < 201 and time.time() < deadline:
    time.sleep(MOMENT / 10)
say("threads", len(found), sorted(found) == sorted([(1, "0x100", f"t{n}") for n in range(200)] + [(1, "0x100", "end")]))
while isinstance(get(fd), list):
    pass

# Shared: dup, fork, exec, a message.
def made(name):
    make("d/" + name)
    return name
copy, other = os.dup(fd), os.dup2(fd, 40)
made("s1")
say("dup", get(copy), get(other), get(fd))
os.close(copy)
made("s2")
say("one closed", get(other))
os.close(other)
made("s3")
say(child(lambda: say("child", get(fd))), get(fd))
say(child(lambda: (made("s4"), watch(fd, "d/s4", 4), os.chmod("d/s4", 0o600))))
say("parent", get(fd))
os.set_inheritable(fd, True)
made("s5")
script = f"import os; print(len(os.read({fd}, 4096)))"
say("exec", subprocess.run([sys.executable, "-c", script], close_fds=False, capture_output=True, text=True).stdout.strip(), get(fd))
one, two = socket.socketpair()
made("s6")
def receive():
    own = os.dup(fd)
    os.close(fd)
    os.close(own)
    _, [got], _, _ = socket.recv_fds(two, 1, 1)
    say("received", get(got), watch(got, "d/s6", 4))
    os.chmod("d/s6", 0o600)
    say("its own", get(got))
socket.send_fds(one, [b"x"], [fd])
say(child(receive))
os.chmod("d/s6", 0o644)
say("sender", get(fd))

# Files of the host and of the tree at one descriptor; in an image only those of each are in order.
both = init()
say("both", watch(both, host), watch(both, "d"), watch(both, host), watch(both, host + "/absent"))
make(host + "/h1")
made("i1")
make(host + "/h2")
made("i2")
seen = []
while isinstance(more := get(both), list):
    seen += more
say("mixed", sorted(seen))
os.mkdir(host + "/sub")
say("more", watch(both, host + "/sub", 0xfff), call(RM_WATCH, both, 1), call(RM_WATCH, both, 1), get(both))
os.rmdir(host + "/sub")
say("gone", get(both))
made("i3")
say("left", get(both), call(RM_WATCH, both, 2), get(both), watch(both, host), watch(both, "d"))
for n in range(5):
    make(f"{host}/x{n}")
    made(f"x{n}")
seen = []
while isinstance(more := get(both, 48), list):
    seen += more
say("small reads", sorted(seen))
os.close(both)

# Too many.
many = []
while isinstance(more := init(), int) and len(many) < 400:
    many.append(more)
say("too many", more if len(many) < 400 else None)
[os.close(each) for each in many]
again = init()
say("again", isinstance(again, int))
say("watch", watch(again, "d", 0x100))
limit = 16384
make("d/flip")
watch(again, "d/flip", 4)
watch(again, "d", 4)
for n in range(limit):
    os.chmod("d/flip", 0o600)
seen = []
while isinstance(more := get(again, 65536), list):
    seen += more
say("lost", seen[-1], sum(1 for one in seen if one[1] == "0x4000"), len(seen) > 5000)
os.chmod("d/flip", 0o600)
say("and on", get(again))
