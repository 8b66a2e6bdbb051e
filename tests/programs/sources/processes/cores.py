# On which cores a process and those it starts may run, and what becomes of its own choice.
import os, subprocess, sys, threading

def say(*words):
    print(*words, flush=True)

def own():
    return sorted(os.sched_getaffinity(0))

ASK = "import os; print(sorted(os.sched_getaffinity(0)))"

def all_ways(what):
    say(what, "itself", own())
    pid = os.fork()
    if pid == 0:
        say(what, "fork", own())
        os._exit(0)
    os.waitpid(pid, 0)
    def in_thread():
        say(what, "thread", own())
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    # One that uses vfork, one that forks, one of the C library's own making.
    say(what, "vfork", subprocess.check_output([sys.executable, "-c", ASK], text=True).strip())
    out = subprocess.check_output([sys.executable, "-c", ASK], text=True, preexec_fn=int)
    say(what, "fork, exec", out.strip())
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    argv = [sys.executable, "-c", ASK]
    pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions)
    os.close(writer)
    os.waitpid(pid, 0)
    say(what, "posix_spawn", os.read(reader, 100).decode().strip())
    os.close(reader)
    say(what, "nproc", subprocess.check_output(["nproc"], text=True).strip())
    pid = os.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", f"exec {sys.executable} -c '{ASK}'"])
    os.waitpid(pid, 0)

everything = own()
all_ways("as started")
for core in everything[:2]:
    os.sched_setaffinity(0, {core})
    all_ways(f"on {core}")
    say("taskset", subprocess.check_output(["taskset", "-c", str(core), "nproc"], text=True).strip())
os.sched_setaffinity(0, everything)
all_ways("on all again")
# What a parent sets of its child is the child's.
pid = os.fork()
if pid == 0:
    import time
    while own() != everything[:1]:
        time.sleep(0.001)
    say("set by the parent", own())
    os.execvp("sh", ["sh", "-c", f"nproc; {sys.executable} -c '{ASK}'"])
import time
time.sleep(0.2)
os.sched_setaffinity(pid, everything[:1])
os.waitpid(pid, 0)
