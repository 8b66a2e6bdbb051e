# openat2: where a walk may go.
import struct
OPENAT2 = 437
os.makedirs("top/in/deep"); make("top/in/file", b"inside"); make("outside", b"outside"); make("top/file", b"top")
for name, target in [("up", "../file"), ("out", "../../outside"), ("abs", "/in/file"), ("same", "file"), ("away", os.path.abspath("outside")), ("loop", "loop"), ("self", "/proc/self/fd/0"), ("folder", "deep")]:
    os.symlink(target, "top/in/" + name)
top, inside = os.open("top", os.O_RDONLY), os.open("top/in", os.O_PATH)

def opened(directory, path, resolve, flags=0, mode=0):
    answer = patient(OPENAT2, directory, path, struct.pack("<QQQ", flags, mode, resolve), 24)
    if isinstance(answer, str):
        return answer
    found = os.fstat(answer)
    shown = os.read(answer, 20) if stat.S_ISREG(found.st_mode) and not flags & os.O_PATH else oct(found.st_mode)
    os.close(answer)
    return shown

PATHS = [b"file", b"../file", b"..", b".", b"deep/..", b"deep/../..", b"up", b"out", b"abs", b"same", b"away", b"loop", b"folder/../file",
         b"/in/file", b"/../in/file", b"/", b"", b"absent", b"file/x", b"same/", b"folder/", b"deep/../../in/same", b"x" * 256]
for resolve in [8, 16, 8 | 4, 16 | 4, 16 | 2, 8 | 1]:
    for directory, label in [(top, "top"), (inside, "in")]:
        say(hex(resolve), label, [opened(directory, path, resolve) for path in PATHS])
    say(hex(resolve), [opened(inside, path, resolve, os.O_PATH | os.O_NOFOLLOW) for path in [b"up", b"same", b"away"]])
relative = [path for path in PATHS if not path.startswith(b"/") and path not in (b"abs", b"away")]
say([opened(inside, path, 4) for path in relative if b"../.." not in path])
say(opened(inside, b"file", 24), opened(inside, b"file", 64), opened(999, b"file", 8), opened(inside, b"file", 8, os.O_CREAT | os.O_EXCL, 0o600))
say(opened(inside, b"new", 8, os.O_CREAT | os.O_RDWR, 0o600), opened(inside, b"up2/new", 8, os.O_CREAT | os.O_RDWR, 0o600), os.listdir("top/in").count("new"))
say(opened(inside, b"../new", 8, os.O_CREAT | os.O_RDWR, 0o600), opened(inside, b"/rooted", 16, os.O_CREAT | os.O_RDWR, 0o640), oct(os.stat("top/in/rooted").st_mode))
