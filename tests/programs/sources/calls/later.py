# Names outside the trees that were looked at, and then become links into one, in all the ways.
import subprocess
outside = tempfile.mkdtemp(dir="/var/tmp")
atexit.register(shutil.rmtree, outside)
make("kept")

def leads_here(name):
    return os.path.samefile(outside + name, "kept")

def other(name):
    """A file there that is looked at."""
    make(outside + name)
    say(name, leads_here(name))

other("/linked")
os.unlink(outside + "/linked")
os.symlink(base + "/kept", outside + "/linked")
say("symlink", leads_here("/linked"))

other("/renamed")
os.symlink(base + "/kept", outside + "/link")
os.rename(outside + "/link", outside + "/renamed")
say("rename of a link", leads_here("/renamed"))

os.mkdir(outside + "/directory")
other("/directory/kept")
os.rename(outside + "/directory", outside + "/away")
os.symlink(base, outside + "/directory")
say("above it", leads_here("/directory/kept"))

os.makedirs(outside + "/plain/in")
os.mkdir(outside + "/deep")
os.symlink(base, outside + "/deep/in")
other("/plain/in/kept")
os.rename(outside + "/plain", outside + "/gone")
os.rename(outside + "/deep", outside + "/plain")
say("rename of a directory", leads_here("/plain/in/kept"))

other("/name")
os.unlink(outside + "/name")
os.link(outside + "/linked", outside + "/name", follow_symlinks=False)
say("link", leads_here("/name"))

RENAMEAT2, EXCHANGE = 316, 2
other("/changed")
say(call(RENAMEAT2, AT_FDCWD, (outside + "/changed").encode(), AT_FDCWD, (outside + "/name").encode(), EXCHANGE))
say("exchange", leads_here("/changed"), leads_here("/name"))

# Links that the host cannot follow: what they name is there in the tree alone, or not yet.
os.mkdir(outside + "/links")
for name, target in [("file", base + "/kept"), ("directory", base + "/deep"), ("new", base + "/made"), ("nothing", base + "/nothing"),
                     ("twice", "file"), ("around", "../links/twice"), ("away", outside + "/nowhere"), ("loop", "loop")]:
    os.symlink(target, outside + "/links/" + name)
os.mkdir("deep")
make("deep/inside", b"inside")
os.chdir(outside + "/links")
for prefix in [outside + "/links/", "", "./", "../links/"]:
    for name in ["file", "directory", "directory/", "directory/inside", "directory/none", "new", "new/x", "nothing", "twice", "around", "away", "loop", "file/x"]:
        found = attempt(os.stat, prefix + name)
        say(repr(prefix.replace(outside, "")), name, found if isinstance(found, str) else (oct(found.st_mode), os.path.samefile(prefix + name, base + "/kept")))
os.chdir(base)
for name, flags in [("file", os.O_EXCL), ("new", os.O_EXCL), ("new", os.O_NOFOLLOW), ("new", 0), ("away", 0)]:
    fd = attempt(os.open, outside + "/links/" + name, os.O_CREAT | os.O_WRONLY | flags, 0o600)
    say(name, flags, fd if isinstance(fd, str) else os.write(fd, b"through"))
say(sorted(os.listdir(".")), os.path.getsize("made"), os.path.getsize(outside + "/nowhere"))
say(attempt(os.rename, outside + "/links/file", outside + "/links/moved"), os.path.islink(outside + "/links/moved"), attempt(os.unlink, outside + "/links/directory"), os.listdir("deep"))

# Ways into a tree through what a process has open or where it is, and through a slash behind a link.
os.makedirs(outside + "/way/below")
os.symlink(base + "/deep", outside + "/way/ld")
os.symlink(base + "/kept", outside + "/way/lf")
make("deep/gone", b"gone")
os.chmod("deep", 0o711)
os.chdir(outside + "/way")
here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
prefixes = ["/proc/self/cwd/", f"/proc/self/fd/{here}/", f"/dev/fd/{here}/", f"/proc/{os.getpid()}/cwd/", f"/proc/self/fd/{here}/./", "/proc/thread-self/cwd/below/../"]
for at, prefix in enumerate(prefixes):
    say(at, attempt(os.listdir, prefix + "ld") == os.listdir(base + "/deep"), os.path.samefile(prefix + "lf", base + "/kept"), attempt(os.mkdir, f"{prefix}ld/made{at}"), attempt(os.stat, prefix + "ld/none"))
    fd = os.open(f"{prefix}ld/new{at}", os.O_CREAT | os.O_WRONLY, 0o600)
    say(os.write(fd, b"new"), os.path.getsize(f"{base}/deep/new{at}"), sorted(os.listdir(prefix)), oct(os.stat(prefix + "ld").st_mode))
for name in ["ld/", "ld//", outside + "/way/ld/", "lf/", "ld/."]:
    found = attempt(os.lstat, name)
    say(name.replace(outside, ""), found if isinstance(found, str) else (oct(found.st_mode), os.path.samestat(found, os.stat(base + "/deep"))))
    opened = attempt(os.open, name, os.O_NOFOLLOW | os.O_RDONLY)
    say(opened if isinstance(opened, str) else sorted(os.listdir(opened)) == sorted(os.listdir(base + "/deep")))
    say(attempt(os.readlink, name), attempt(os.utime, name, (5, 5), follow_symlinks=False), attempt(os.rmdir, name), attempt(os.mkdir, name), attempt(os.unlink, name), attempt(os.rename, name, "elsewhere"))
say(os.stat(base + "/deep").st_mtime, sorted(os.listdir(".")))
os.chdir(base)

# Where another process is.
os.mkdir("standing")
other = subprocess.Popen(["sleep", "60"], cwd=base + "/standing")
there = f"/proc/{other.pid}/cwd"
say(os.readlink(there) == base + "/standing", os.path.samefile(there, "standing"), attempt(os.stat, there + "/none"))
make(there + "/made", b"made")
os.mkdir(there + "/below")
os.rename("kept", there + "/below/kept")
say(sorted(os.listdir("standing")), os.listdir("standing/below"), sorted(os.listdir(there + "/below/..")), attempt(os.rmdir, there))
os.rename(there + "/../standing/below/kept", there + "/../kept")
os.unlink(there + "/made")
say(os.listdir(there), os.path.exists("kept"))
other.kill()
other.wait()

# Where threads are that lead no process: another process's, and our own.
import fcntl, struct, threading
sleeper = "import threading, time; t = threading.Thread(target=time.sleep, args=(60,)); t.start(); print(t.native_id, flush=True); t.join()"
other = subprocess.Popen([sys.executable, "-c", sleeper], cwd=base + "/standing", stdout=subprocess.PIPE)
thread = int(other.stdout.readline())
say(thread != other.pid)
for there in [f"/proc/{thread}/cwd", f"/proc/{other.pid}/task/{thread}/cwd", f"/proc/{thread}/task/{other.pid}/cwd"]:
    make(there + "/made", b"made")
    say(os.readlink(there) == base + "/standing", os.path.samefile(there, "standing"), os.listdir("standing"))
    os.unlink(there + "/made")
other.kill()
other.wait()
ending = threading.Event()
one = threading.Thread(target=ending.wait)
one.start()
mine = f"/proc/{one.native_id}"
say(os.path.samefile(mine + "/cwd", base), os.path.samefile(f"{mine}/fd/{here}", outside + "/way"), os.path.samefile(mine + "/exe", "/proc/self/exe"))
ending.set()
one.join()
say(attempt(os.stat, "/proc/4194304/cwd/none"))

# A record lock on a file outside outlives that it is opened once more within what flags allow, by
# the lowest number.
NO_SYMLINKS = struct.pack("<QQQ", os.O_RDWR, 0, 4)
locked = os.open(outside + "/locked", os.O_CREAT | os.O_RDWR)
fcntl.lockf(locked, fcntl.LOCK_EX)
def held():
    return child(lambda: say(attempt(fcntl.lockf, os.open(outside + "/locked", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)))
held()
for directory, path in [(AT_FDCWD, outside + "/locked"), (os.open(outside, os.O_RDONLY), "locked"), (os.open(outside, os.O_PATH), "way/../locked")]:
    low, high = os.dup(here), os.dup(here)
    os.close(low)
    say(call(437, directory, path.encode(), NO_SYMLINKS, 24) == low)
    held()

# A link of the host to what the process has open leads each process elsewhere.
far = os.path.join(outside, "shown")
os.symlink("/dev/fd/1", far)
for target in ["/dev/null", "first", "/dev/null", "second"]:
    subprocess.run(["sh", "-c", f"echo to it > {far}"], stdout=open(target, "w"), check=True)
    say(target, open(target).read() if target[0] != "/" else "")
os.remove(far)
