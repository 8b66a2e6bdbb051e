# The name of a process and AT_EXECFN: what exec was given, whatever links and scripts lead to.
EXECVEAT = 322
import subprocess, threading
for name in ["cat", "sh", "python3"]:
    os.symlink(shutil.which(name), "my-" + name)
os.symlink("my-cat", "a-name-longer-than-fifteen")
shutil.copy(shutil.which("cat"), "copy")
os.link("copy", "other")
os.symlink("copy", "to-copy")
os.mkdir("d")
for name, line in [("plain", "/bin/sh"), ("linked", base + "/my-sh"), ("d/nested", base + "/plain"), ("env", "/usr/bin/env sh")]:
    make(name, f"#!{line}\ncat /proc/$$/comm; echo ${{0#{base}/}} $@\n".encode(), 0o755)
os.symlink("plain", "to-plain")
show = f"""import ctypes; l = ctypes.CDLL(None); l.getauxval.restype = ctypes.c_ulong
print(open("/proc/self/comm").read().strip(), ctypes.string_at(l.getauxval(31)))"""
make("show.py", f"#!/usr/bin/python3\n{show}\n".encode(), 0o755)
def run(path, argv, how=os.execv):
    def body():
        try:
            how(path, argv)
        except OSError as error:
            say(errno.errorcode[error.errno])
    return child(body)
def array(*words):
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
def execat(fd, path, flags=0, *argv):
    def body():
        variables = array(*[f"{k}={v}".encode() for k, v in os.environ.items()])
        say(call(EXECVEAT, fd, path, array(*argv), variables, flags))
    return child(body)
status = ["/proc/self/comm"]
for path in ["my-cat", "./my-cat", base + "/my-cat", "a-name-longer-than-fifteen", "copy", "other", "to-copy", "d/../to-copy", shutil.which("cat")]:
    say(path.replace(base, "BASE"), run(path, ["argv0"] + status))
for path in ["my-sh", "plain", "./linked", "d/nested", "env", "to-plain", "show.py"]:
    say(path, run(path, [path, "-c", "cat /proc/$$/comm"] if path == "my-sh" else [path, "more"]))
say(run("./my-python3", ["x", "-c", show]), run("/usr/bin/python3", ["x", "-c", show]))
say(run("my-sh", ["x", "-c", "read n < /proc/self/comm; echo $n; exec ./to-copy /proc/self/comm"]))
say(os.waitpid(os.posix_spawn("./to-copy", ["x"] + status, os.environ), 0)[1])
say(subprocess.run(["my-cat"] + status, executable="./my-cat", capture_output=True).stdout)
one = threading.Thread(target=lambda: say(open("/proc/thread-self/comm").read()))
one.start(); one.join()
# By descriptor; of one alone, Linux from 6.14 on shows the file's name.
new = tuple(int(n) for n in os.uname().release.split(".")[:2]) >= (6, 14)
comm = b"/proc/self/comm" if new else b"/dev/null"
for name in ["plain", "d/nested"] * (not new):
    make(name + ".silent", b"#!/bin/sh\necho $0 $@\n", 0o755)
    os.rename(name + ".silent", name)
for name in ["to-copy", "plain", "d/nested"]:
    for flags in [0, os.O_CLOEXEC]:
        fd = os.open(name, os.O_PATH | flags)
        os.set_inheritable(fd, not flags)
        say(name, bool(flags), execat(fd, b"", 0x1000, b"argv0", *([comm] if name == "to-copy" else [])))
folder = os.open(".", os.O_RDONLY)
for inherit in [True, False]:
    os.set_inheritable(folder, inherit)
    for name in [b"to-copy", b"plain", b"d/nested"]:
        say(name, inherit, execat(folder, name, 0, b"argv0", *([b"/proc/self/comm"] if name == b"to-copy" else [])))
    say(execat(folder, base.encode() + b"/to-copy", 0, b"argv0", b"/proc/self/comm"), execat(AT_FDCWD, b"to-copy", 0, b"argv0", b"/proc/self/comm"))
    say(execat(folder, b"to-copy", 0x100, b"x"), execat(folder, b"none", 0, b"x"), execat(folder, b"", 0, b"x"), execat(folder, b"", 0x1000, b"x"))
