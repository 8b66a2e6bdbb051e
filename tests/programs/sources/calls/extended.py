# Extended attributes: names, values, limits, who may, and the order of errors.
SETXATTR, LSETXATTR, FSETXATTR, GETXATTR, LISTXATTR, FLISTXATTR, REMOVEXATTR = 188, 189, 190, 191, 194, 196, 197
make("file"); os.symlink("file", "link"); os.mkdir("dir"); os.mkfifo("fifo")
open_file = os.open("file", os.O_RDWR); root = os.geteuid() == 0

# Which names are served on which kinds, by whom.
NAMES = ["user.a", "trusted.a", "security.a", "security.capability", "security.selinux", "system.a", "system.posix_acl_access",
         "foo.a", "user", "user.", "trusted.", "security.", "", "x" * 256, "user." + "x" * 250, "user." + "x" * 251]
def table():
    for name in NAMES:
        row = []
        for path in ["file", "dir", "link", "fifo"]:
            set_too = "posix_acl" not in name
            row.append((attempt(os.setxattr, path, name, b"v", follow_symlinks=False) if set_too else None,
                attempt(os.getxattr, path, name, follow_symlinks=False) if set_too or path != "link" else None,
                attempt(os.listxattr, path, follow_symlinks=False),
                attempt(os.removexattr, path, name, follow_symlinks=False) if set_too else None))
        say(name[:12], len(name), row)
table()
os.setxattr("file", "user.seen", b"by all"); os.setxattr("dir", "user.seen", b"by all")
root and os.setxattr("file", "trusted.seen", b"by root"); root and os.setxattr("file", "security.seen", b"by all")
os.chmod(base, 0o755)
def unprivileged():
    if root:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    table()
    say([attempt(os.getxattr, "file", n) for n in ["user.seen", "trusted.seen", "security.seen", "user.none"]], os.listxattr("file"))
say(child(unprivileged))
os.chmod("file", 0o600); say(child(unprivileged)); os.chmod("file", 0o666); os.chmod("dir", 0o1777); say(child(unprivileged))

# Setting: flags, replacing, sizes; what it does to times.
for flags in [os.XATTR_CREATE, os.XATTR_CREATE, os.XATTR_REPLACE, 0, 3, 4, 8]:
    say(flags, attempt(os.setxattr, "file", "user.flags", b"%d" % flags, flags), attempt(os.getxattr, "file", "user.flags"))
say(attempt(os.setxattr, "file", "user.none", b"", os.XATTR_REPLACE), attempt(os.setxattr, "file", "user.empty", b""), os.getxattr("file", "user.empty"))
for size in [1, 47, 48, 49, 568, 569, 1136, 1137, 4000, 4096, 4097, 65535, 65536, 100, 30000, 0, 5000]:
    value = os.urandom(size); os.setxattr("file", "user.size", value); say(size, os.getxattr("file", "user.size") == value)
say(call(SETXATTR, b"file", b"user.big", b"", 65537, 0), call(SETXATTR, b"file", b"user.big", 1, 5, 0), call(SETXATTR, b"file", 1, b"", 0, 0))
say(call(SETXATTR, b"absent", b"user.big", 1, 5, 0), call(SETXATTR, b"absent", b"", 1, 5, 9), call(SETXATTR, b"absent", b"", b"", 65537, 0))
before = os.stat("file"); os.utime("file", ns=(5, 5)); middle = os.stat("file").st_ctime_ns
while os.stat("file").st_ctime_ns == middle: os.setxattr("file", "user.time", b"")
say(os.stat("file").st_mtime_ns, os.stat("file").st_atime_ns, before.st_size)
link = os.stat("link"); os.setxattr("link", "user.through", b"link"); say(os.getxattr("file", "user.through"), attempt(os.getxattr, "link", "user.through", follow_symlinks=False))

# Reading into too little room.
room = ctypes.create_string_buffer(100)
say([call(GETXATTR, b"file", b"user.through", room, size) for size in [0, 1, 3, 4, 5, 100]], room.raw[:4])
say([call(LISTXATTR, b"dir", room, size) for size in [0, 1, 9, 10, 11]], room.raw[:10], call(GETXATTR, b"file", b"user.through", 1, 100))
say(call(LISTXATTR, b"absent", room, 10), call(LISTXATTR, b"file/x", room, 10), call(FLISTXATTR, 999, room, 10), call(LISTXATTR, 1, room, 10))
say(os.getxattr(open_file, "user.through"), attempt(os.setxattr, open_file, "user.fd", b"1"), attempt(os.removexattr, open_file, "user.fd"))
handle = os.open("file", os.O_PATH); say(call(FLISTXATTR, handle, room, 10), call(FSETXATTR, handle, b"user.p", b"", 0, 0))
say(attempt(os.getxattr, "/proc/self/fd/%d" % handle, "user.through"))

# Listed in order; kept over rename and link; gone with the file; very many.
for name in ["b", "aa", "c", "a", "bb"]: os.setxattr("dir", "user." + name, b"")
os.removexattr("dir", "user.c"); os.setxattr("dir", "user.a", b"again"); say(os.listxattr("dir"))
os.rename("dir", "moved"); os.link("file", "other"); os.rename("file", "there"); say(os.listxattr("moved"), os.getxattr("other", "user.through"))
say(attempt(os.listxattr, open_file) == os.listxattr("there")); shutil.copy2("there", "copied"); say(sorted(os.listxattr("copied")))
make("many")
for n in range(300): os.setxattr("many", "user.%04d" % (n * 7 % 300), b"v%d" % n)
say(len(os.listxattr("many")), os.listxattr("many") == sorted(os.listxattr("many"), reverse=True), os.getxattr("many", "user.0007"))
for n in range(0, 300, 2): os.removexattr("many", "user.%04d" % n)
say(len(os.listxattr("many")), attempt(os.removexattr, "many", "user.0000")); os.unlink("many")
for n in range(20):
    make("x%d" % n); [os.setxattr("x%d" % n, "user.%d" % k, b"y" * 3000) for k in range(5)]; os.unlink("x%d" % n)
fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.setxattr(fd, "user.nameless", b"yes"); say(os.listxattr(fd))
# By directory and structure.
import struct
def at(number, path, name, value=b"", flags=0, how=0, size=16):
    out = ctypes.create_string_buffer(value, max(len(value), 1)); words = struct.pack("<QII", ctypes.addressof(out), len(value), flags)
    return call(number, AT_FDCWD, path, how, name, words, size), out.raw
folder = os.open("moved", os.O_RDONLY)
say(at(463, b"link", b"user.at", b"value", 0), at(463, b"there", b"user.at", b"value", 1), at(464, b"there", b"user.at", b"12345"), at(464, b"there", b"user.at", b"1"))
say([at(464, b"there", b"user.at", b"12345", 0, how) [0] for how in [0x100, 0x1000, 0x200, 1]], [at(464, b"there", b"user.at", b"12345", 0, 0, size)[0] for size in [0, 15, 16, 24, 4097]])
say(call(465, AT_FDCWD, b"moved", 0, room, 100), call(465, folder, b"", 0x1000, room, 0), call(466, AT_FDCWD, b"there", 0, b"user.at"), call(466, AT_FDCWD, b"there", 0, b"user.at"))

# Long values: room for them, copies, replacing and removing, and files that go with them.
make("long"); os.setxattr("long", "user.one", b"1" * 65536); os.setxattr("long", "user.two", b"2" * 5000, os.XATTR_CREATE)
say(attempt(os.setxattr, "long", "user.one", b"x" * 9000, os.XATTR_CREATE), attempt(os.setxattr, "long", "user.none", b"x" * 9000, os.XATTR_REPLACE), attempt(os.setxattr, "long", "user.one", b"x" * 65537))
big = ctypes.create_string_buffer(70000); say([call(GETXATTR, b"long", b"user.one", big, size) for size in [0, 1, 65535, 65536, 70000]], big.raw[65535:65537])
shutil.copy2("long", "copied"); say(os.getxattr("copied", "user.one") == b"1" * 65536, os.listxattr("copied"))
os.setxattr("long", "user.one", b"3" * 40000, os.XATTR_REPLACE); os.removexattr("long", "user.two"); say(len(os.getxattr("long", "user.one")), os.listxattr("long"), os.stat("long").st_blocks, os.stat("long").st_nlink)
os.mkdir("folder"); os.setxattr("folder", "user.far", b"f" * 20000); kept = os.open("folder", os.O_RDONLY); os.rmdir("folder"); say(len(os.getxattr(kept, "user.far")), attempt(os.setxattr, kept, "user.far", b"g" * 7000)); os.close(kept)
for n in range(50): os.setxattr("long", "user.%02d" % n, bytes([n]) * (4090 + n)); os.unlink("copied") if n == 20 else None
say(all(os.getxattr("long", "user.%02d" % n) == bytes([n]) * (4090 + n) for n in range(50))); os.unlink("long")
