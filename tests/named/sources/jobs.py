# Runs the words given, and an interactive bash behind them, on a terminal of its own; stops a job
# with Ctrl-Z, takes it up again, ends it with Ctrl-C; prints what can be told of it.
import os, pty, re, signal, sys, time

pid, master = pty.fork()
if pid == 0:
    os.environ["PS1"] = "<prompt>"
    words = sys.argv[1:] + ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    os.execvp(words[0], words)

said = b""

def expect(word):
    global said
    end = time.monotonic() + 30
    while word not in said:
        assert time.monotonic() < end, said
        said += os.read(master, 4096)
    before, said = said.split(word, 1)
    return before.decode()

def kind(text):
    return re.sub(r"[0-9]{4,}", "N", text.replace("\r", "")).strip().splitlines()

def type_(text):
    os.write(master, text.encode())

def foreground(name):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        group = os.tcgetpgrp(master)
        try:
            if open(f"/proc/{group}/comm").read() == name + "\n":
                return
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    raise AssertionError(f"{name} is not in the foreground: {said}")

expect(b"<prompt>")
type_("sleep 71\n")
foreground("sleep")
type_("\x1a")
print(kind(expect(b"<prompt>")))
type_("jobs\n")
print(kind(expect(b"<prompt>")))
type_("bg %1\n")
print(kind(expect(b"<prompt>")))
type_("fg %1\n")
foreground("sleep")
type_("\x03")
expect(b"<prompt>")
type_("echo status $?\n")
print(kind(expect(b"<prompt>")))
type_("cat | cat\n")
foreground("cat")
type_("through\n")
expect(b"through\r\nthrough")
type_("\x04")
expect(b"<prompt>")
type_("exit 6\n")
_, status = os.waitpid(pid, 0)
print("exit", os.waitstatus_to_exitcode(status))
