# A process with 1,000 descriptors, 100 locks and a removed file of 8 MiB is killed: how long until
# nothing of it is left? Nobody else looks for the dead here: the space of the file comes back.
import fcntl, os, signal, time

def free():
    return os.statvfs(".").f_bfree

before = free()
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    big = os.open("big", os.O_CREAT | os.O_RDWR)
    os.unlink("big")
    for _ in range(8):
        os.write(big, b"x" * (1 << 20))
    held = [os.open("f%d" % n, os.O_CREAT | os.O_RDWR) for n in range(1000)]
    for fd in held[:100]:
        fcntl.lockf(fd, fcntl.LOCK_EX)
    os.write(tell, b"x")
    signal.pause()
    os._exit(0)
os.read(ready, 1)
held = free()
assert held <= before - 2048, (before, held)
time.sleep(0.1)
locked = [os.open("f%d" % n, os.O_RDWR) for n in range(100)]
start = time.monotonic()
os.kill(child, signal.SIGKILL)
while free() < held + 2048:
    assert time.monotonic() < start + 20, "never released"
    time.sleep(0.001)
# Who waits for a lock looks after its owner itself: here nobody waits.
while locked:
    try:
        fcntl.lockf(locked[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked.pop()
    except BlockingIOError:
        assert time.monotonic() < start + 20, "never unlocked"
        time.sleep(0.001)
took = (time.monotonic() - start) * 1000
os.waitpid(child, 0)
print("%.1f ms" % took)
