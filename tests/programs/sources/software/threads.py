# Threads that write files, start programs and use temporary files at the same time.
import concurrent.futures, hashlib, os, shutil, subprocess, sys, tempfile, threading

def work(n):
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, "data")
        with open(source, "w") as f:
            f.write("line %d\n" % n * 500)
        out = subprocess.run(["sort", "-u", source], stdout=subprocess.PIPE, check=True).stdout
        with open("out-%02d" % n, "wb") as f:
            f.write(out * 100)
        shutil.copy(source, "copy-%02d" % n)
    assert not os.path.exists(scratch)
    return hashlib.sha256(out).hexdigest()[:16]

with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for n, digest in enumerate(pool.map(work, range(24))):
        print(n, digest)

# A pipeline of three, fed from a thread.
a = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
b = subprocess.Popen(["tr", "a-z", "A-Z"], stdin=a.stdout, stdout=subprocess.PIPE)
a.stdout.close()
def feed():
    for n in range(20000):
        a.stdin.write(b"some words %d\n" % n)
    a.stdin.close()
feeder = threading.Thread(target=feed); feeder.start()
text = b.communicate()[0]; feeder.join()
print(len(text), hashlib.sha256(text).hexdigest()[:16], a.wait(), b.returncode)

# One file, many appenders: every line whole.
def append(n):
    fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for i in range(200):
        os.write(fd, b"%02d %04d %s\n" % (n, i, b"x" * 40))
    os.close(fd)
writers = [threading.Thread(target=append, args=(n,)) for n in range(6)]
[w.start() for w in writers]; [w.join() for w in writers]
lines = sorted(open("log").read().splitlines())
print(len(lines), len(set(lines)), {len(line) for line in lines})
open("log", "w").write("\n".join(lines))

# Exit statuses of children.
print([subprocess.call(["sh", "-c", c]) for c in ("exit 3", "kill -9 $$", "true")])
try:
    subprocess.run(["./absent"])
except FileNotFoundError as e:
    print(e.errno, e.filename)
with tempfile.NamedTemporaryFile(dir=".", suffix=".t") as f:
    f.write(b"x"); f.flush(); print(os.path.getsize(f.name))
print(sorted(n for n in os.listdir(".") if n.endswith(".t")))
