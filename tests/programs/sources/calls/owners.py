# What chown does to set-id bits and times, also when nothing is to change.
import struct, time
CHOWN, FCHOWN, FCHOWNAT, CAPSET = 92, 93, 260, 126
root = os.geteuid() == 0
def without_privilege(body):
    def inner():
        if root:
            os.setgroups([1]); os.setgid(1); os.setuid(1)
        body()
    return child(inner)
def with_only(*capabilities):
    """Drops all capabilities of root but these."""
    mask = sum(1 << c for c in capabilities)
    header, data = struct.pack("<II", 0x20080522, 0), struct.pack("<6I", mask & 0xffffffff, mask & 0xffffffff, 0, 0, 0, 0)
    assert call(CAPSET, ctypes.create_string_buffer(header), ctypes.create_string_buffer(data)) == 0
def show(kind, mode, who, uid, gid):
    name = f"{kind}-{mode:o}"
    if kind == "file":
        make(name)
    elif kind == "dir":
        os.mkdir(name)
    elif kind == "fifo":
        os.mkfifo(name)
    root and os.chown(name, 1, 1)
    os.chmod(name, mode)
    before = os.stat(name)
    time.sleep(2 * time.clock_getres(6))
    def body():
        who == "capless" and with_only()
        who == "chown" and with_only(0)
        who == "fsetid" and with_only(0, 4)
        who == "fowner" and with_only(3)
        say(kind, oct(mode), who, uid, gid, call(CHOWN, name.encode(), uid, gid))
    (without_privilege if who == "owner" else child)(body)
    after = os.stat(name)
    say(oct(after.st_mode), after.st_uid == before.st_uid, after.st_gid == before.st_gid, after.st_ctime_ns != before.st_ctime_ns)
    os.rmdir(name) if kind == "dir" else os.unlink(name)
os.chmod(base, 0o777)
for kind in ["file", "dir", "fifo"]:
    for mode in [0o6777] if kind != "file" else [0o6777, 0o4700, 0o2070, 0o2700, 0o6701, 0o2010, 0o2755, 0o755]:
        for who in ["root", "owner", "capless", "chown", "fsetid", "fowner"] if root else ["owner"]:
            for uid, gid in [(-1, -1), (1, -1), (-1, 1), (1, 1), (2, -1), (-1, 2)]:
                show(kind, mode, who, uid, gid)
for path, flags in [(b"", 0x1000), (b"f", 0), (b"l", 0x100), (b"l", 0), (b"none", 0)]:
    os.path.exists("f") or make("f"); os.path.lexists("l") or os.symlink("f", "l")
    os.chmod("f", 0o6755); fd = os.open("f", os.O_RDONLY)
    say(path, call(FCHOWNAT, fd if not path else AT_FDCWD, path, -1, -1, flags), oct(os.stat("f").st_mode))
    os.chmod("f", 0o6755); say(call(FCHOWN, fd, -1, -1), oct(os.stat("f").st_mode))
