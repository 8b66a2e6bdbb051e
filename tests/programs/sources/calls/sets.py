# Which error epoll_ctl gives first: the event, the descriptors, what can be waited for, the set.
import select
make("f"), os.mkdir("d")
f, d, path = os.open("f", os.O_RDWR), os.open("d", os.O_RDONLY), os.open("f", os.O_PATH)
r, w = os.pipe()
host = os.open("/proc/self/stat", os.O_RDONLY)
kept = select.epoll()
s = kept.fileno()
event = ctypes.create_string_buffer(12)
names = {"f": f, "d": d, "path": path, "pipe": r, "set": s, "host": host, "none": 900, "-1": -1}
for first, one in names.items():
    for second, other in names.items():
        if first != "set" or second not in ("pipe", "set"):
            say(first, second, [call(233, one, op, other, event) for op in (1, 2, 3, 9)], call(233, one, 1, other, 0))
