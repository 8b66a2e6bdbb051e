# What F_GETFL shows of the flags that a file was opened with: an unchanged file of the host, the same
# once it is the image's, one made in the image, a FIFO, directories, and places.
import fcntl, itertools, os

def shown(path, flags, mode=0o600):
    try:
        fd = os.open(path, flags, mode)
    except OSError as error:
        return error.errno
    found = oct(fcntl.fcntl(fd, fcntl.F_GETFL)), fcntl.fcntl(fd, fcntl.F_GETFD)
    copy = os.dup(fd)
    found += oct(fcntl.fcntl(copy, fcntl.F_GETFL)),
    os.close(copy), os.close(fd)
    return found

O_ASYNC, O_LARGEFILE = 0o20000, 0o100000
plain = [os.O_NOFOLLOW, os.O_NOATIME, os.O_APPEND, os.O_NONBLOCK, os.O_SYNC, os.O_DSYNC, os.O_CLOEXEC, os.O_NOCTTY, O_LARGEFILE, O_ASYNC]
pairs = [0, *plain, *[one | other for one, other in itertools.combinations(plain, 2)]]
os.mkfifo("fifo"), os.mkdir("dir"), os.close(os.open("made", os.O_CREAT | os.O_WRONLY)), os.symlink("host", "link")

for path in ["host", "made"]:
    for flags in pairs:
        print(path, oct(flags), shown(path, flags))
for flags in pairs:
    print("written", oct(flags), shown("made", flags | os.O_RDWR), shown("made", flags | os.O_RDWR | os.O_TRUNC | os.O_CREAT))
    print("fifo", oct(flags), shown("fifo", flags & ~O_ASYNC | os.O_RDWR), shown("fifo", flags & ~O_ASYNC | os.O_NONBLOCK))
    print("dir", oct(flags), shown("dir", flags), shown("dir", flags | os.O_DIRECTORY), shown(".", flags | os.O_TMPFILE | os.O_RDWR))
    print("place", oct(flags), [shown(path, flags | os.O_PATH) for path in ["host", "made", "fifo", "dir", "link"]])
# A descriptor from before the first change shows what it showed.
kept = [(flags, os.open("host", flags)) for flags in plain]
before = [oct(fcntl.fcntl(fd, fcntl.F_GETFL)) for _, fd in kept]
with open("host", "a") as file: file.write(", and more")
print([os.read(fd, 30) for _, fd in kept], before == [oct(fcntl.fcntl(fd, fcntl.F_GETFL)) for _, fd in kept], before)
for flags in [os.O_APPEND, os.O_NONBLOCK, os.O_NOATIME, 0]:
    for _, fd in kept[:3]: fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    print(oct(flags), [oct(fcntl.fcntl(fd, fcntl.F_GETFL)) for _, fd in kept[:3]])
