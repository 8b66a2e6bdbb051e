# The links of /proc and /dev to what is open and where one is, in all spellings: slashes and dots
# between the names, `..` and links of others on the way.
import random
make("file", b"content"); os.mkdir("sub"); make("sub/x", b"inner")
plain, folder = os.open("file", os.O_RDWR), os.open("sub", os.O_RDONLY)
os.symlink("/proc/self/fd", "mine"); os.symlink("/proc/self/", "me")
outside = tempfile.mkdtemp(); os.symlink("/proc/self/fd", f"{outside}/his"); os.symlink("/dev//fd/.", f"{outside}/hers")
def kind(look, *args):
    answer = attempt(look, *args)
    return answer if isinstance(answer, str) else (oct(answer.st_mode), stat.S_ISREG(answer.st_mode) and answer.st_size)
def statx(name, flags):
    room = ctypes.create_string_buffer(256)
    return call(332, AT_FDCWD, name.encode(), flags, 0x7ff, room) or oct(int.from_bytes(room[28:30], "little"))
def opened(name, flags):
    fd = attempt(os.open, name, flags)
    if isinstance(fd, str): return fd
    shown = stat.S_IFMT(os.fstat(fd).st_mode), attempt(os.read, fd, 99); os.close(fd); return shown
def link(name):
    return attempt(os.readlink, name).replace(base, "BASE")
def look(name):
    say(name.replace(outside, "OUTSIDE").replace(os.path.basename(outside), "IT").replace(str(os.getpid()), "PID"), kind(os.stat, name), kind(os.lstat, name), statx(name, 0), statx(name, 0x100), link(name),
        [opened(name, flags) for flags in (0, os.O_NOFOLLOW, os.O_PATH | os.O_NOFOLLOW, os.O_DIRECTORY, os.O_CREAT | os.O_RDWR, os.O_CREAT | os.O_EXCL)],
        [attempt(os.access, name, os.W_OK), attempt(os.access, name, os.F_OK, follow_symlinks=False), attempt(os.chmod, name, 0o755), attempt(os.lchown, name, -1, -1)],
        os.path.basename(name.rstrip("/")).isdigit() and [attempt(change, name) for change in (os.unlink, os.rmdir, os.mkdir)], [attempt(os.link, *names) for names in ((name, "new"), ("file", name))])
os.chdir("sub")
for fd in (plain, folder, 999):
    for end in ("", "/", "/.", "//x", "/x/", "/../file"):
        for name in ("//proc/self/fd/%d", "/proc//self/fd/%d", "/proc/self//fd//%d", "/proc/self/fd/./%d", "/proc/./self/fd/%d", "/./proc/self/fd/%d", "//./proc/././self/./fd/.//%d", "/proc/self/task/../fd/%d", "/proc/self/./task//PID/./fd//%d", "/proc/thread-self//fd/%d", "/proc//PID/fd/%d",
            "/dev//fd/%d", "//dev/fd/%d", "/dev/./fd/%d", "/dev/fd//%d", "/dev/../dev/fd/%d", "/proc/../proc/self/fd/%d", "/proc/1/../self/fd/%d", "/proc/self/fd/../fd/%d", "/proc/none/../self/fd/%d", "../mine/%d", "../me/fd/%d", "..//me//fd/.//%d", outside + "/his/%d", outside + "/hers/%d", outside + "/../" + os.path.basename(outside) + "/his/%d"):
            look(name.replace("PID", str(os.getpid())) % fd + end)
for name in ("//proc//self//cwd", "//proc//self//cwd//x", "/proc/./self/cwd/x", "/proc/self/cwd/./x", "/proc/self/./cwd/../file", "//proc/self/cwd/none", "/proc//PID/cwd/x", "/proc/self//task//PID//cwd//x"):
    look(name.replace("PID", str(os.getpid())))
say([os.path.basename(os.readlink(n)) == os.path.basename(os.readlink("/proc/self/exe")) for n in ("//proc/self/exe", "/proc//self/./exe")])
def standard():
    os.dup2(plain, 0)
    for name in ("//dev/stdin", "/dev//stdin", "/dev/./stdin", "/dev//stdin/", "/dev//stdin/x", "/dev//fd/0", "/dev/../dev/stdin"):
        say(name, kind(os.stat, name), kind(os.lstat, name), link(name), opened(name, 0), attempt(os.mkdir, name))
say(child(standard))
# Names that only look like those.
for name in ("/procs//self/fd/%d" % plain, "/proc/self/fdx/%d" % plain, "/proc/self/fd//0%d" % plain, "/proc//self/fd/%dx" % plain, "proc/self/fd/%d" % plain, "/dev//fds/%d" % plain, "//device/fd/%d" % plain, "/.proc/self/fd/%d" % plain, "/..//proc/self/fd/%d" % plain, "/proc/.../self/fd/%d" % plain):
    look(name)
os.chdir("/")
for name in ("proc//self/fd/%d" % plain, "./dev//fd/%d" % plain, "proc/self/../self/fd/%d" % plain):
    look(name)
shutil.rmtree(outside)
