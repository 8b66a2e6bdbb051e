# Writers create, rename and remove a few names, readers share an instance of inotify, and all of
# them are killed at any moment. What the survivor is told must add up to what is there.
import ctypes, os, random, select, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
CREATE, DELETE, FROM, TO, LOST = 0x100, 0x200, 0x40, 0x80, 0x4000
WAIT_MAX = 5.0
seconds, seed = float(sys.argv[1]), int(sys.argv[2])
dice = random.Random(seed)
names = [f"n{n}" for n in range(8)] + ["a longer name, of which there is not room for all in a line"]

def instance(flags):
    fd = libc.inotify_init1(flags)
    assert fd >= 0 and libc.inotify_add_watch(fd, b"d", CREATE | DELETE | FROM | TO) == 1
    return fd

def events(data):
    at = 0
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        yield mask, data[at + 16:at + 16 + length].rstrip(b"\0").decode()
        at += 16 + length

def write(seed):
    dice = random.Random(seed)
    own, turn = instance(os.O_NONBLOCK), 0
    while True:
        turn += 1
        if turn % 16 == 0:
            # Else more is told than a queue holds.
            time.sleep(0.001)
        one, two = (os.path.join("d", dice.choice(names)) for _ in range(2))
        try:
            match dice.randrange(4):
                case 0 | 1: os.close(os.open(one, os.O_CREAT | os.O_WRONLY))
                case 2: os.unlink(one)
                case 3: os.rename(one, two)
        except FileNotFoundError:
            pass

def read():
    while True:
        os.read(shared, 100)

def child(act, *args):
    if (pid := os.fork()) == 0:
        try:
            act(*args)
        finally:
            os._exit(1)
    return pid

def end(pid):
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "one failed by itself"

def drain():
    global lost
    while True:
        try:
            data = os.read(mine, 65536)
        except BlockingIOError:
            return
        for mask, name in events(data):
            lost += mask == LOST
            (there.add if mask & (CREATE | TO) else there.discard)(name)

def settle(before):
    """Waits until what was told is what is there; how long that took."""
    since = time.monotonic()
    while True:
        drain()
        if lost != before:
            # Of what did not fit into the queue nothing is known.
            return 0.0
        if there == set(os.listdir("d")):
            return time.monotonic() - since
        left = since + WAIT_MAX - time.monotonic()
        assert left > 0, f"told {sorted(there)}, there is {sorted(os.listdir('d'))}"
        select.select([mine], [], [], min(left, 0.05))

def wake():
    """Whoever reads the shared instance is woken by what happens now."""
    since = time.monotonic()
    os.close(os.open("d/probe", os.O_CREAT | os.O_WRONLY))
    seen = set()
    while "probe" not in seen:
        left = since + WAIT_MAX - time.monotonic()
        assert left > 0 and select.select([shared], [], [], left)[0], "nobody was woken"
        seen |= {name for _, name in events(os.read(shared, 65536))}
    os.unlink("d/probe")
    return time.monotonic() - since

os.mkdir("d")
mine, shared = instance(os.O_NONBLOCK), instance(0)
there, lost, kills, rounds, slowest = set(), 0, 0, 0, 0.0
until = time.monotonic() + seconds
while time.monotonic() < until:
    before = lost
    workers = [child(write, dice.random()) for _ in range(2)] + [child(read) for _ in range(2)]
    for _ in range(10):
        time.sleep(dice.random() * 0.004)
        n = dice.randrange(len(workers))
        end(workers[n])
        kills += 1
        workers[n] = child(write, dice.random()) if n < 2 else child(read)
        drain()
    for worker in workers:
        end(worker)
        kills += 1
    settled = settle(before)
    drain()
    there = set(os.listdir("d"))
    slowest = max(slowest, settled, wake())
    rounds += 1
assert lost * 4 <= rounds, "more was lost than told"
print(f"kills={kills} rounds={rounds} lost={lost} slowest_ms={int(slowest * 1000)}")
