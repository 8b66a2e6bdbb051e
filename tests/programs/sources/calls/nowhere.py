# No path at all (NULL): an empty one to stat of a descriptor, nowhere to all others, and never that
# of the call before.
AT_EMPTY_PATH, NOFOLLOW = 0x1000, 0x100
make("file", b"content"); os.symlink("file", "link")
ours, link = os.open("file", os.O_RDWR), os.open("link", os.O_PATH | os.O_NOFOLLOW)
hosts, root = os.open("/etc/passwd", os.O_RDONLY), os.open("/usr", os.O_RDONLY)
room = ctypes.create_string_buffer(4096)
def before():
    """Leaves the name of the link of a descriptor of the image behind."""
    os.lstat(f"/proc/self/fd/{ours}"), os.readlink(f"/proc/self/fd/{ours}")
def mode(answer, at, size):
    return answer or oct(int.from_bytes(room[at:at + size], "little"))
# Of what is ours the answer does not depend on the host's age, as it does on Linux: before 6.11
# it was EFAULT.
for at in (hosts, root):
    for path in (None, b""):
        for flags in (AT_EMPTY_PATH, AT_EMPTY_PATH | NOFOLLOW, NOFOLLOW, 0):
            before(); say("statx", path, hex(flags), mode(call(332, at, path, flags, 0x7ff, room), 28, 2))
            before(); say("fstatat", path, hex(flags), mode(call(262, at, path, room, flags), 24, 4))
# Each with the flag, if it takes one.
for name, at in {"ours": ours, "link": link, "hosts": hosts, "root": root, "here": AT_FDCWD}.items():
    calls = {"readlinkat": (267, at, None, room, 4096), "linkat": (265, at, None, AT_FDCWD, b"made", AT_EMPTY_PATH), "fchownat": (260, at, None, -1, -1, AT_EMPTY_PATH),
        "faccessat2": (439, at, None, 0, AT_EMPTY_PATH), "openat": (257, at, None, 0), "unlinkat": (263, at, None, 0), "execveat": (322, at, None, None, None, AT_EMPTY_PATH)}
    for what, asked in calls.items():
        before(); say(what, name, call(*asked), os.path.lexists("made"))
# Of two names, one in a number that is no open directory, or in one of another file system.
make("moved", b"x")
file, proc = os.open("moved", os.O_RDONLY), os.open("/proc", os.O_RDONLY)
for act in [os.rename, os.link]:
    for fd in [999, file, proc]:
        say(act.__name__, attempt(act, "moved", "to", src_dir_fd=fd), attempt(act, "moved", "to", dst_dir_fd=fd))
        say(attempt(act, base + "/moved", "to", src_dir_fd=fd), os.listdir(".").count("to"))
        attempt(os.rename, "to", "moved")
