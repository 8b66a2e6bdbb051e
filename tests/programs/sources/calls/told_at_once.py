# One read of an inotify instance gives all that FIONREAD has counted, if there is room.
import fcntl, struct
FIONREAD = 0x541b
fd = call(294, os.O_NONBLOCK)
call(254, fd, ctypes.c_char_p(b"."), 0xfff)

def waiting():
    return struct.unpack("i", fcntl.ioctl(fd, FIONREAD, b"\0" * 4))[0]

for count in [1, 100, 400, 2000]:
    for n in range(count):
        make(f"a-file-with-a-name-{n}")
        os.unlink(f"a-file-with-a-name-{n}")
    there = waiting()
    say(count, there > 0, len(os.read(fd, 1 << 20)) == there, waiting(), attempt(os.read, fd, 1 << 20))
# Room for some of them only: whole events, and the rest next time.
for n in range(300):
    make(f"another-file-{n}")
there, got = waiting(), 0
while isinstance(data := attempt(os.read, fd, 10_000), bytes):
    say(len(data) <= 10_000, len(data) > 9_900 or got + len(data) == there)
    got += len(data)
say(got == there, data)
make("last")
say(attempt(os.read, fd, 16), len(os.read(fd, 1000)) > 0)
