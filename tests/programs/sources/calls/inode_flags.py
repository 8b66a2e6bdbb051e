# file_getattr and file_setattr (Linux 6.17): which objects have flags, what calls say.
import struct
GET, SET, STAY, EMPTY = 468, 469, 0x100, 0x1000
NONE = bytes(24)

def get(at, path, size=24, flags=0):
    out = ctypes.create_string_buffer(b"\xff" * 4200, 4200)
    answer = call(GET, at, ctypes.c_char_p(path), out, size, flags)
    return answer, out.raw[:min(size, 40)].strip(b"\0") if answer == 0 else None

def put(at, path, data=NONE, size=None, flags=0):
    return call(SET, at, ctypes.c_char_p(path), ctypes.c_char_p(data), len(data) if size is None else size, flags)

if get(AT_FDCWD, b"/")[0] != "ENOSYS":
    os.mkdir("d"), make("f"), os.symlink("f", "s"), os.mkfifo("p")
    for name in [b"d", b"f", b"s", b"p", b"none", b"f/", b"f/x", b""]:
        say(name, [get(AT_FDCWD, name, 24, f) for f in (0, STAY)], [put(AT_FDCWD, name, flags=f) for f in (0, STAY)])
    for size in [0, 8, 23, 24, 32, 4096, 4097]:
        say(size, get(AT_FDCWD, b"f", size), put(AT_FDCWD, b"f", bytes(size)))
    say(get(AT_FDCWD, b"f", 24, 1), put(AT_FDCWD, b"f", NONE, 24, 1), put(AT_FDCWD, b"f", NONE + b"\1" * 8))
    fd, d = os.open("f", os.O_RDONLY), os.open("d", os.O_RDONLY)
    say(get(fd, b"", 24, EMPTY), put(fd, b"", NONE, 24, EMPTY), get(fd, b"f"), get(d, b"../f"), get(99, b"f"))
    say(put(AT_FDCWD, b"f", struct.pack("<QIIII", 1 << 40, 0, 0, 0, 0)))
