# openat2 over the borders of trees: a few thousand paths, by a seed, that go from a tree to what lies
# beside it and back, by `..`, links, absolute texts and what a process has open. All answers are
# printed. Arguments: the tree (or nothing: the tmpfs), seed, paths, resolve flags that are used.
import random, struct
OPENAT2 = 437
os.chdir(owned)
tree = owned + "/" + sys.argv[1] if sys.argv[1] else base
seed, count, usable = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4], 0)
side = owned + "/side"
MINE = {"file", "dir", "in", "deep", "out", "outabs", "outfile", "up", "new", "made", "into", "intoabs", "intofile", "intonew", "fifo", "loop",
        "side", "tree", "here", "opened", "none", "shm", "proc", "etc"}

def build(top, other):
    os.makedirs(top + "/dir/deep", exist_ok=True)
    for name in ["file", "dir/in"]:
        with open(f"{top}/{name}", "w") as file: file.write(name + (" of the tree" if top == tree else " beside"))
    os.path.lexists(top + "/fifo") or os.mkfifo(top + "/fifo")
    for name, target in [
        ("out", os.path.relpath(other, top)), ("outabs", other), ("outfile", os.path.relpath(other, top) + "/dir/in"), ("up", ".."),
        ("loop", "loop"), ("here", "/proc/self/cwd"), ("opened", "/proc/self/fd"), ("dir/up", "../.."), ("dir/deep/in", "../in"),
        ("dir/out", os.path.relpath(other, top + "/dir") + "/dir"), ("dir/made", other + "/new"), ("dir/root", "/"), ("dir/abs", "/dir/in")]:
        os.path.lexists(f"{top}/{name}") or os.symlink(target, f"{top}/{name}")

build(tree, side), build(side, tree)
# What only the tree has, once it is a tree of an image, and links of the host to it.
os.makedirs(tree + "/new", exist_ok=True)
with open(tree + "/new/file", "w") as file: file.write("only here")
for name, target in [("into", os.path.relpath(tree, side)), ("intonew", tree + "/new"), ("intofile", os.path.relpath(tree, side) + "/new/file")]:
    os.symlink(target, f"{side}/{name}")

handles = {"cwd": AT_FDCWD, "side": os.open(side, os.O_RDONLY), "tree": os.open(tree, os.O_RDONLY), "in tree": os.open(tree + "/dir", os.O_PATH),
           "above": os.open(owned, os.O_PATH), "root": os.open("/", os.O_PATH), "file": os.open(tree + "/file", os.O_RDONLY),
           "beside": os.open(side + "/file", os.O_RDWR), "none": 999, "new": os.open(tree + "/new", os.O_PATH)}
opened = ["opened/%d" % handles[name] for name in ["tree", "side", "file", "in tree"]]
strange = ["none", "n" * 256, "abs", "loop", "file/x", os.path.basename(tree), "root" + side, *opened]
starts = ["", "", "", "", "/", side + "/", tree + "/", owned + "/", "/proc/self/cwd/", "/proc/self/fd/%d/" % handles["tree"], "/proc/thread-self/root/"]
kinds = [0, 0, 0, os.O_PATH, os.O_PATH | os.O_NOFOLLOW, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_WRONLY, os.O_CREAT | os.O_RDWR, os.O_CREAT | os.O_EXCL | os.O_RDWR,
         os.O_TMPFILE | os.O_RDWR]
flags = [f for f in [0, 0, 2, 4, 8, 16, 1, *range(1, 32)] if f & ~usable == 0 and f & 24 != 24]

def shown(fd):
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        try:
            with os.scandir(f"/proc/self/fd/{fd}") as listed: return "directory", sorted(entry.name for entry in listed if entry.name in MINE)
        except OSError as error:
            return "directory", errno.errorcode[error.errno]
    # What a link in /proc may be used for, it says by its mode: what stands for a descriptor, too.
    if stat.S_ISLNK(found.st_mode): return "link"
    return oct(found.st_mode), attempt(os.pread, fd, 40, 0) if stat.S_ISREG(found.st_mode) else ""

def everything():
    return {os.path.join(directory, name) for top in {owned, tree} for directory, below, files in os.walk(top) for name in below + files}

def made():
    """What is new is told, and removed."""
    new = sorted(everything() - there)
    for path in new: os.unlink(path)
    return [path.replace(tree, "TREE").replace(os.path.basename(tree), "TREE") for path in new]

def may_make(handle, path, resolve):
    """Whether nothing can be made but in our own directories."""
    # The tmpfs has a name of random letters, which may be one of those words.
    path = path.replace(os.path.basename(tree), "TREE")
    inside = handle in ["in tree", "new", "tree", "side", "above"]
    near = handle in ["in tree", "new"] and path.count("..") <= 1 and not any(word in path for word in ["root", "here", "opened", "up", "proc"])
    return inside and (resolve & 24 or near and not path.startswith("/"))

def listed(directory, path):
    """The names of ours in a directory."""
    # Links of others to /proc/self/fd are for openat2 here.
    if "opened" in path: return ["none", ".."]
    try:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=None if directory == AT_FDCWD else directory)
    except OSError:
        return ["none"]
    with os.scandir(fd) as entries: found = sorted(entry.name for entry in entries if entry.name in MINE)
    os.close(fd)
    return found or ["."]

def drawn(directory):
    """A path whose names are mostly there."""
    path = draw.choice(starts)
    for _ in range(draw.choice([1, 2, 2, 3, 3, 4, 6])):
        if path and not path.endswith("/"): path += "/"
        kind = draw.randrange(20)
        path += draw.choice(strange) if kind == 0 else ".." if kind < 5 else draw.choice(listed(directory, path))
    return path + draw.choice(["", "", "", "", "/", "//", "/."])

draw, there = random.Random(seed), everything()
for _ in range(count):
    handle, kind, resolve = draw.choice(list(handles)), draw.choice(kinds), draw.choice(flags)
    path = drawn(handles[handle])
    if "fifo" in path and not kind & os.O_PATH: kind |= os.O_NONBLOCK
    if not may_make(handle, path, resolve): kind &= ~(os.O_CREAT | os.O_EXCL)
    creates = kind & (os.O_CREAT | os.O_TMPFILE & ~os.O_DIRECTORY)
    answer = patient(OPENAT2, handles[handle], path.encode(), struct.pack("<QQQ", kind, 0o640 if creates else 0, resolve), 24)
    before = path.replace(tree, "TREE").replace(os.path.basename(tree) if not sys.argv[1] else "\0", "TREE")
    if isinstance(answer, str):
        say(handle, before, oct(kind), resolve, answer)
        continue
    say(handle, before, oct(kind), resolve, answer, shown(answer))
    os.close(answer)
    if kind & os.O_CREAT and (new := made()): say("made", new)
held = [os.path.basename(os.readlink(f"/proc/self/fd/{n}")) for n in range(3, 30) if os.path.lexists(f"/proc/self/fd/{n}")]
say("left open", [name.replace(os.path.basename(tree), "TREE") for name in held])
# Links say where the tree was.
shutil.rmtree(side)
