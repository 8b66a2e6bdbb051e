# Signals while calls run: handlers, timers, EINTR, masks, children.
import os, signal, subprocess, sys, threading, time

ticks = 0
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
total = 0
end = time.monotonic() + 0.5
while time.monotonic() < end:
    with open("t", "wb") as f:
        f.write(b"x" * 5000)
    total = max(total, os.stat("t").st_size)
    os.rename("t", "u")
    with open("u", "rb") as f:
        assert len(f.read()) == 5000
signal.setitimer(signal.ITIMER_REAL, 0)
print(total, ticks > 5)

signal.setitimer(signal.ITIMER_REAL, 0.05)
r, w = os.pipe()
late = threading.Timer(0.2, os.write, (w, b"late"))
late.start()
print(os.read(r, 10))
# What is blocked below would go to the other thread as long as it is there: a moment after `join`.
late.join()
while len(os.listdir("/proc/self/task")) > 1: time.sleep(0.001)

got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
print(got, signal.sigpending() == {signal.SIGUSR1})
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
print(got)

signal.signal(signal.SIGCHLD, lambda *_: got.append(2))
child = subprocess.Popen(["sleep", "60"])
child.terminate()
print(child.wait(), 2 in got)
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pause()
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.stdout.flush()
os.unlink("u")
