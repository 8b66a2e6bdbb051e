# On a terminal, an interactive bash starts what the words given run, and a bash in that; stops it
# with `suspend`, and a command of its own with Ctrl-Z; prints what the shell says of it.
import os, pty, sys, time

pid, master = pty.fork()
if pid == 0:
    os.environ["PS1"] = "<outer>"
    os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])

said = b""

def expect(word):
    global said
    end = time.monotonic() + 30
    while word not in said:
        assert time.monotonic() < end, said
        said += os.read(master, 4096)
    before, said = said.split(word, 1)
    return before.decode()

def typed(text, prompt):
    os.write(master, text.encode())
    return expect(prompt)

prefix = " ".join(sys.argv[1:])
expect(b"<outer>")
typed("stty -echo\n", b"<outer>")
inner = "bash --norc --noprofile --noediting -i"
typed(f"PS1='<in''ner>' {prefix} {inner}\n", b"<inner>")
assert "Stopped" in typed("suspend\n", b"<outer>"), said
typed("fg\n", b"<inner>")
print(typed("echo back $((1 + 1))\n", b"<inner>").split())
typed("exit 7\n", b"<outer>")
print(typed("echo status $?\n", b"<outer>").split())
os.write(master, f"{prefix} sh -c 'echo ready; read -r _; exit 3'\n".encode())
expect(b"ready\r\n")
assert "Stopped" in typed("\x1a", b"<outer>"), said
print(typed("echo status $?\n", b"<outer>").split())
typed("fg\n", b"\n")
typed("\n", b"<outer>")
print(typed("echo status $?\n", b"<outer>").split())
