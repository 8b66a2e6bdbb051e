# Programs that run are not written to, files open for writing are not run.
import signal, subprocess
shutil.copy("/bin/sleep", "program"); shutil.copy("/bin/true", "other")
EXECVEAT = 322

def wait_for(process):
    """Until the process runs the program."""
    for _ in range(2000):
        if (answer := call(2, b"program", os.O_WRONLY)) == "ETXTBSY":
            return True
        os.close(answer)
running = subprocess.Popen(["./program", "60"])
say(wait_for(running))
for flags in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_CREAT, os.O_PATH, os.O_WRONLY | os.O_APPEND]:
    answer = attempt(os.open, "program", flags); say(oct(flags), answer if isinstance(answer, str) else "opened")
    isinstance(answer, int) and os.close(answer)
say(attempt(os.truncate, "program", 10), attempt(os.chmod, "program", 0o711), attempt(os.utime, "program"))
say(attempt(os.rename, "program", "moved"), attempt(os.open, "moved", os.O_WRONLY), attempt(os.link, "moved", "linked"))
shutil.copy("other", "program"); os.replace("program", "moved"); fd = os.open("moved", os.O_WRONLY); os.close(fd)
say(attempt(os.open, "linked", os.O_WRONLY))
running.kill(); running.wait()
say(attempt(os.close, os.open("linked", os.O_WRONLY)))

# The other way round.
def run(*argv):
    return attempt(subprocess.run, argv)
fd = os.open("linked", os.O_WRONLY)
say(run("./linked", "0")); twin = os.dup(fd); os.close(fd); say(run("./linked", "0"))
os.close(twin); say(run("./linked", "0").returncode)
make("script", b"#!/bin/sh\nexit 3\n", 0o755); fd = os.open("script", os.O_RDWR)
say(run("./script")); os.close(fd); say(run("./script").returncode)
make("read", b"#!/bin/sh\nexit 4\n", 0o755); fd = os.open("read", os.O_RDONLY); say(run("./read").returncode)
fd = os.open("read", os.O_WRONLY); os.chmod("read", 0o644); say(run("./read")); os.close(fd)
# A fork runs what its parent runs; exec of something else ends that.
shutil.copy("/bin/bash", "shell")
both = subprocess.Popen(["./shell", "-c", "read line; sleep 60 & echo $!; exec sleep 60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for _ in range(2000):
    if (answer := call(2, b"shell", os.O_WRONLY)) == "ETXTBSY": break
    os.close(answer)
say(call(2, b"shell", os.O_WRONLY)); both.stdin.write(b"go\n"); both.stdin.flush(); other = int(both.stdout.readline())
for _ in range(2000):
    if (answer := call(2, b"shell", os.O_WRONLY)) != "ETXTBSY": break
    subprocess.run(["/bin/sleep", "0.005"])
say(isinstance(answer, int)); both.kill(); os.kill(other, 9); both.wait()
# What is mapped to share by who may write to it does not run, be it closed, until the last mapping
# is gone, which may be a child's.
def mapped(flags, prot):
    fd = os.open("other", flags)
    at = libc.mmap(None, ctypes.c_size_t(4096), prot, 1, fd, ctypes.c_long(0))
    os.close(fd)
    return ctypes.c_void_p(at)
libc.mmap.restype = ctypes.c_void_p
def unmap(at): return libc.munmap(at, ctypes.c_size_t(4096))
plain = mapped(os.O_RDONLY, 1); say(run("./other").returncode)
one, two = mapped(os.O_RDWR, 3), mapped(os.O_RDWR, 1)
say(run("./other"), unmap(one), run("./other"))
reader, writer = os.pipe()
runs, run_by_child = os.pipe()
if (holder := os.fork()) == 0:
    os.write(run_by_child, b"x")
    os.read(reader, 1)
    os._exit(0)
os.read(runs, 1)
say(unmap(two), unmap(plain), run("./other"))
os.write(writer, b"x"); os.waitpid(holder, 0)
say(run("./other").returncode)
if (holder := os.fork()) == 0:
    mapped(os.O_RDWR, 3)
    os.write(writer, b"x")
    signal.pause()
os.read(reader, 1)
say(run("./other")); os.kill(holder, 9); os.waitpid(holder, 0)
say(run("./other").returncode)
