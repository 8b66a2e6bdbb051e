# Runs the words given, and a shell behind them, on a terminal of its own; types keys, changes its
# size, takes it away; prints what the shell said.
import fcntl, os, pty, signal, struct, sys, termios, time

SHELL = """
trap 'echo INT' INT; trap 'echo WINCH; stty size' WINCH; trap 'echo HUP > hup; exit 5' HUP
stty -echo; stty size; test -t 0 && test -t 1 && echo terminal; ps -o tpgid= -p $$ > p
test $(cat p) = $$ && echo foreground; echo ready; while :; do sleep 0.05; done
"""

pid, master = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    words = sys.argv[1:] + ["bash", "-c", SHELL]
    os.execvp(words[0], words)

said = b""

def expect(word):
    global said
    end = time.monotonic() + 30
    while word not in said:
        assert time.monotonic() < end, said
        said += os.read(master, 4096)

# With its end: the key drops what the terminal has not shown yet.
expect(b"ready\r\n")
os.write(master, b"\x03")
expect(b"INT")
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 88, 0, 0))
expect(b"44 88\r\n")
os.close(master)
_, status = os.waitpid(pid, 0)
print(said.decode().replace("\r", ""), "exit", os.waitstatus_to_exitcode(status))
