# Access control lists: what is a list, what is made below a default one, who may.
import itertools, socket, struct
root = os.geteuid() == 0

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
OWNER, USER, GROUP_OF, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
ALL = 0xffffffff

def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)

def shown(path):
    lists = {}
    for name in [ACCESS, DEFAULT]:
        value = attempt(os.getxattr, path, name, follow_symlinks=False)
        lists[name[17:]] = value if isinstance(value, str) else list(struct.iter_unpack("<HHI", value[4:]))
    names = attempt(os.listxattr, path, follow_symlinks=False)
    return oct(os.lstat(path).st_mode), lists, sorted(names) if isinstance(names, list) else names

def basic(owner, group, other, mask=None, users=(), groups=()):
    entries = [(OWNER, owner, ALL)] + [(USER, rights, id) for id, rights in users]
    entries += [(GROUP_OF, group, ALL)] + [(GROUP, rights, id) for id, rights in groups]
    return acl(*entries, *([] if mask is None else [(MASK, mask, ALL)]), (OTHER, other, ALL))

# What is a list.
make("file"); os.mkdir("dir"); os.symlink("file", "link"); os.mkfifo("fifo")
wrong = [b"", b"abc", struct.pack("<I", 1), acl(), acl()[:4] + b"x", acl((OWNER, 7, ALL)),
    acl((GROUP_OF, 5, ALL), (OWNER, 7, ALL), (OTHER, 0, ALL)), basic(8, 5, 0), basic(7, 5, 0, users=[(5, 7)]),
    basic(7, 5, 0, 7, users=[(ALL, 7)]), acl((OWNER, 7, ALL), (GROUP_OF, 5, ALL), (OTHER, 0, ALL), (OTHER, 0, ALL)),
    basic(7, 5, 0, 7), basic(6, 4, 4), basic(7, 5, 1, 3, [(5, 7)], [(9, 1), (8, 2)])]
for path, name, value in itertools.product(["file", "dir", "link", "fifo"], [ACCESS, DEFAULT], wrong):
    say(path, name[17:], value[:12], attempt(os.setxattr, path, name, value, follow_symlinks=False), shown(path))
for path, name in itertools.product(["file", "dir", "link", "fifo"], [ACCESS, DEFAULT] * 2):
    say("removed", path, name[17:], attempt(os.removexattr, path, name, follow_symlinks=False), shown(path))
for flags in [os.XATTR_CREATE, os.XATTR_REPLACE, os.XATTR_REPLACE, 3]:
    say("flags", flags, attempt(os.setxattr, "file", ACCESS, basic(6, 4, 4, 6, [(5, 6)]), flags))

# chmod changes the mask, and a list the mode.
for mode in [0o640, 0o4777, 0o000, 0o2705]:
    os.chmod("file", mode)
    say("chmod", oct(mode), shown("file"))
fd = os.open("file", os.O_RDWR)
os.fchmod(fd, 0o615); say(shown("file")); os.close(fd)
os.setxattr("file", ACCESS, basic(7, 7, 7)); say(shown("file"))
os.setxattr("file", ACCESS, basic(7, 0, 1, 5, [(1, 1)])); os.truncate("file", 3); say(shown("file"))
os.link("file", "second"); os.rename("file", "moved"); say(shown("second"), shown("moved"))

# What is made below a default list.
defaults = [basic(7, 5, 0), basic(7, 7, 7), basic(6, 6, 4), basic(7, 5, 0, 7, [(5, 6)]), basic(5, 0, 0, 3, [(5, 7), (6, 1)], [(9, 7)]),
    basic(7, 7, 7, 7, [(n, 7) for n in range(100)])]
def made(within, name, how):
    at = within + "/" + name
    answer = attempt(how, at)
    say("made", name, answer if isinstance(answer, str) else "", shown(at) if os.path.lexists(at) else "absent")
def bound(at):
    with socket.socket(socket.AF_UNIX) as one:
        os.fchmod(one.fileno(), 0o755)
        one.bind(at)
def nameless(at):
    fd = os.open(os.path.dirname(at), os.O_TMPFILE | os.O_RDWR, 0o666)
    say(oct(os.fstat(fd).st_mode), attempt(os.getxattr, fd, ACCESS))
    os.link(f"/proc/self/fd/{fd}", at)
    os.close(fd)
def opened(flags, mode):
    return lambda at: os.close(os.open(at, flags | os.O_CREAT, mode))
for number, (default, umask) in enumerate(itertools.product(defaults, [0o022, 0o000, 0o777])):
    within = f"d{number}"
    os.mkdir(within, 0o777)
    os.setxattr(within, DEFAULT, default)
    os.umask(umask)
    for n, mode in enumerate([0o666, 0o600, 0o4755, 0o040, 0o777]):
        made(within, f"file{n}", opened(os.O_RDWR, mode))
    made(within, "dir", lambda at: os.mkdir(at, 0o777))
    made(within, "sticky", lambda at: os.mkdir(at, 0o1750))
    made(within, "link", lambda at: os.symlink("x", at))
    made(within, "fifo", lambda at: os.mkfifo(at, 0o666))
    made(within, "node", lambda at: os.mknod(at, 0o664 | stat.S_IFREG))
    made(within, "socket", bound)
    made(within, "nameless", nameless)
    made(within, "linked", lambda at: os.link("moved", at))
    if root:
        made(within, "dir/below", lambda at: os.mkdir(at, 0o777))
        made(within, "dir/below/file", opened(os.O_WRONLY, 0o666))
    os.umask(0o022)
    make("beside"); os.rename("beside", within + "/beside"); say("beside", shown(within + "/beside"))
os.mkdir("groups"); os.chmod("groups", 0o2775); os.setxattr("groups", DEFAULT, defaults[3])
made("groups", "dir", lambda at: os.mkdir(at, 0o777)); made("groups", "file", opened(os.O_RDWR, 0o2777))
os.removexattr("groups", DEFAULT); made("groups", "plain", lambda at: os.mkdir(at, 0o777))

# Who may.
WHO = [(1000, 1000, []), (1001, 1000, []), (1001, 1001, [1000]), (1002, 1002, [9, 1003]), (1003, 1004, [])]
LISTS = [basic(7, 4, 0, 7, [(1001, 2)]), basic(7, 7, 7, 1, [(1001, 7)]), basic(0, 4, 7, 6, [(1003, 0)], [(9, 4), (1003, 2)]),
    basic(7, 0, 7, 7, [], [(9, 0), (1003, 3)]), basic(7, 4, 5, 0, [(1001, 7)])]
def attempts(number, who):
    uid, gid, groups = who
    os.setgroups(groups); os.setgid(gid); os.setuid(uid)
    f, d = f"own/file{number}", f"own/dir{number}"
    say("who", number, who, [int(os.access(f, bit)) for bit in [4, 2, 1]],
        [int(isinstance(attempt(os.open, f, how), int)) for how in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]],
        attempt(os.listdir, d), isinstance(attempt(os.stat, d + "/in"), str),
        attempt(make, f"{d}/new"), attempt(os.rename, f"{d}/new", f"{d}/newer"), attempt(os.unlink, f"{d}/newer"),
        attempt(os.mkdir, f"{d}/sub"), attempt(os.rmdir, f"{d}/sub"), attempt(os.link, f"{d}/in", f"{d}/again"),
        attempt(os.unlink, f"{d}/again"), attempt(os.chdir, d), attempt(os.truncate, base + "/" + f, 0),
        attempt(os.utime, base + "/" + f),
        attempt(os.setxattr, base + "/" + f, ACCESS, basic(6, 4, 4)), attempt(os.removexattr, base + "/" + d, DEFAULT))
if root:
    os.chmod(".", 0o755); os.mkdir("own")
    for number, value in enumerate(LISTS):
        make(f"own/file{number}", b"bytes"); os.mkdir(f"own/dir{number}"); make(f"own/dir{number}/in", mode=0o666)
        for path in [f"own/file{number}", f"own/dir{number}"]:
            os.chown(path, 1000, 1000)
            os.setxattr(path, ACCESS, value)
        for who in WHO[1:] + WHO[:1]:
            say(child(lambda: attempts(number, who)))
    # Whose list it is may be set; set-group goes with those who are not in the group.
    make("given"); os.chown("given", 1000, 7); os.chmod("given", 0o2755)
    def sets():
        os.setgroups([]); os.setgid(1000); os.setuid(1000)
        say("sets", attempt(os.setxattr, "given", ACCESS, basic(7, 5, 5, 5, [(3, 1)])), shown("given"))
    say(child(sets))
