# fdinfo of an instance of inotify tells its watches, on files of a tree and of the host.
import re

os.mkdir("d")
make("f")
fd = libc.inotify_init1(0)
IN_MODIFY, IN_CREATE, IN_OPEN = 0x2, 0x100, 0x20
watched = {}
for path, mask in [("f", IN_MODIFY), ("d", IN_CREATE), ("/etc", IN_OPEN), (".", IN_CREATE | IN_OPEN)]:
    watched[libc.inotify_add_watch(fd, path.encode(), mask)] = path
libc.inotify_rm_watch(fd, [wd for wd, path in watched.items() if path == "d"][0])

def facts():
    rows = open(f"/proc/self/fdinfo/{fd}").read().splitlines()
    say([row.split(":")[0] for row in rows if not row.startswith("inotify")])
    found = []
    for row in rows:
        if match := re.match("inotify wd:([0-9a-f]+) ino:([0-9a-f]+) sdev:([0-9a-f]+) mask:([0-9a-f]+) ", row):
            wd, ino, device, mask = [int(digits, 16) for digits in match.groups()]
            is_it = os.stat(watched[wd])
            same = (ino, device) == (is_it.st_ino, os.major(is_it.st_dev) << 20 | os.minor(is_it.st_dev))
            found.append((wd, watched[wd], same, hex(mask)))
    say(sorted(found))

facts()
os.rename("f", "g")
watched[1] = "g"
os.unlink("g")
make("g")
os.mkdir("e")
watched[libc.inotify_add_watch(fd, b"e", IN_CREATE)] = "e"
watched.pop(1)
facts()
say(os.fstat(fd).st_size)
