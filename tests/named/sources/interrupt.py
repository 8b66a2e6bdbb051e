# Runs a command on a terminal of its own and types Ctrl-C once it writes to a directory, as often as
# it is told to, each time once the one before is answered. The supervisor, if it is another process,
# stands still until all is typed.
#
#     interrupt.py TIMES SUPERVISOR DIRECTORY COMMAND...
#
# Prints what was said, and how the command has ended.
import os, pty, select, signal, sys

signal.alarm(60)
times, supervisor, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[4], sys.argv[4:])

said, typed, at_work = b"", 0, False

def more(wait):
    global said
    if not select.select([master], [], [], wait)[0]:
        return True
    try:
        got = os.read(master, 65536)
    except OSError:
        got = b""
    said += got
    return bool(got)

while more(0 if not at_work else 0.05):
    if not at_work and any(name.startswith(".husk-tmp-") for name in os.listdir(directory)):
        at_work = True
        if supervisor:
            os.kill(supervisor, signal.SIGSTOP)
    answered = said.count(b"Ctrl-C stops it")
    if at_work and typed < times and typed == answered:
        os.write(master, b"\x03")
        typed += 1
    if supervisor and at_work and answered and typed == times:
        os.kill(supervisor, signal.SIGCONT)
        supervisor = 0

_, status = os.waitpid(pid, 0)
sys.stdout.write(said.decode().replace("\r", "\n"))
print("\nexit", os.waitstatus_to_exitcode(status), "typed", typed)
