# Ids of mounts: statx and fdinfo say the same, of a file and of its directory, and mountinfo has it.
import re
MNT_ID, MNT_ID_UNIQUE = 0x1000, 0x4000

def mount(path, mask=MNT_ID, at=AT_FDCWD, flags=0):
    out = ctypes.create_string_buffer(256)
    answer = call(332, at, ctypes.c_char_p(path), flags, mask, out)
    given = int.from_bytes(out.raw[:4], "little") & mask
    return given == mask, int.from_bytes(out.raw[144:152], "little") if answer == 0 else answer

make("f"), os.mkdir("d"), make("d/g")
fds = [os.open("f", os.O_RDONLY), os.open("d", os.O_RDONLY), os.open("d/g", os.O_RDWR)]
ids = {mount(name) for name in [b"f", b"d", b"d/g", b"."]}
ids |= {mount(b"", MNT_ID, fd, 0x1000) for fd in fds}
shown = {int(re.search(r"mnt_id:\s*(\d+)", open(f"/proc/self/fdinfo/{fd}").read())[1]) for fd in fds}
listed = {int(line.split()[0]) for line in open("/proc/self/mountinfo")}
say(len(ids), {given for given, _ in ids}, {number for _, number in ids} == shown, shown <= listed)
say({mount(name, MNT_ID_UNIQUE)[0] for name in [b"f", b"d"]}, len({mount(n, MNT_ID_UNIQUE) for n in [b"f", b"d"]}))
