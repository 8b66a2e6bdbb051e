# Runs a command on a terminal of its own. The first argument is JSON: what it is expected to say,
# and what is typed then, in turn; "HANGUP" takes the terminal away, "DO x" has a shell do x. Prints
# what was said.
import json, os, pty, sys, time

answers = json.loads(sys.argv[1])
pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])

said, seen, open_still = b"", 0, True

def more():
    global said
    try:
        got = os.read(master, 65536)
    except OSError:
        got = b""
    said += got
    return got

for expected, typed in answers:
    expected = expected.encode()
    while expected not in said[seen:]:
        if not more():
            sys.exit("waited for %r: %s" % (expected, said.decode()))
    seen = said.index(expected, seen) + len(expected)
    if typed.startswith("DO "):
        os.system(typed[3:])
    elif typed == "HANGUP":
        os.close(master)
        open_still = False
    else:
        os.write(master, typed.encode())
while open_still and more():
    pass
_, status = os.waitpid(pid, 0)
sys.stdout.write(said.decode().replace("\r", ""))
print("exit", os.waitstatus_to_exitcode(status))
