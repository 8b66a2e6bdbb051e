# Writes files that lend rights, or gives them away, by each call that can. Prints what is left.
import ctypes, mmap, os

libc = ctypes.CDLL(None, use_errno=True)
CAPABILITY = bytes([0, 0, 0, 2, 1] + [0] * 15)
CAP = 'security.capability'

def call(number, *args):
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), 'syscall %d' % number)

def opened(flags, act):
    def how(name):
        fd = os.open(name, flags)
        try: act(fd)
        finally: os.close(fd)
    return how

def from_source(act):
    def how(fd):
        source = os.open('source', os.O_RDONLY)
        try: act(source, fd)
        finally: os.close(source)
    return opened(os.O_RDWR, how)

def spliced(source, fd):
    reader, writer = os.pipe()
    os.write(writer, b'through')
    os.splice(reader, fd, 7, offset_dst=0)
    os.close(reader), os.close(writer)

def shared(fd):
    with mmap.mmap(fd, 4096) as area: area[0:1] = b'y'
    os.utime(fd)

def second(name):
    os.link(name, name + '2')
    with open(name + '2', 'r+b') as file: file.write(b'y')

def through(name, act):
    fd = os.open(name, os.O_PATH)
    try: act('/proc/self/fd/%d' % fd)
    finally: os.close(fd)

def by_fork(name):
    fd = os.open(name, os.O_WRONLY)
    if os.fork() == 0:
        os.write(fd, b'y')
        os._exit(0)
    os.wait()
    os.close(fd)

def as_other(act):
    def how(name):
        # Who is not the owner may write: mode and capabilities go all the same.
        os.chmod(name, os.stat(name).st_mode & 0o7777 | 0o6)
        if os.fork() == 0:
            os.setgroups([]); os.setgid(7); os.setuid(7)
            act(name)
            os._exit(0)
        os.wait()
    return how

WO, RW = os.O_WRONLY, os.O_RDWR
WAYS = {
    'write': opened(WO, lambda fd: os.write(fd, b'y')),
    'append': opened(WO | os.O_APPEND, lambda fd: os.write(fd, b'y')),
    'writev': opened(WO, lambda fd: os.writev(fd, [b'y', b'z'])),
    'pwrite': opened(WO, lambda fd: os.pwrite(fd, b'y', 4000)),
    'pwritev': opened(WO, lambda fd: os.pwritev(fd, [b'y', b'z'], 10)),
    'nothing': opened(WO, lambda fd: os.write(fd, b'')),
    'sendfile': from_source(lambda source, fd: os.sendfile(fd, source, 0, 100)),
    'range': from_source(lambda source, fd: os.copy_file_range(source, fd, 100)),
    'splice': from_source(spliced),
    'shared': opened(RW, shared),
    'fork': by_fork,
    'other': as_other(opened(WO, lambda fd: os.write(fd, b'y'))),
    'othercut': as_other(lambda name: os.truncate(name, 3)),
    'cut': lambda name: os.truncate(name, 10),
    'same': lambda name: os.truncate(name, 5000),
    'fcut': opened(WO, lambda fd: os.ftruncate(fd, 10)),
    'trunc': opened(WO | os.O_TRUNC, lambda fd: None),
    'creat': opened(WO | os.O_TRUNC | os.O_CREAT, lambda fd: None),
    'room': opened(WO, lambda fd: os.posix_fallocate(fd, 0, 9000)),
    'punch': opened(WO, lambda fd: call(285, fd, 3, 0, 4096)),
    'second': second,
    'chown': lambda name: os.chown(name, 1, 1),
    'group': lambda name: os.chown(name, -1, 1),
    'lchown': lambda name: os.lchown(name, 1, -1),
    'none': lambda name: os.chown(name, -1, -1),
    'fchown': opened(os.O_RDONLY, lambda fd: os.fchown(fd, 1, 1)),
    'fchownat': opened(os.O_PATH, lambda fd: call(260, fd, b'', 1, 1, 0x1000)),
    'proc': lambda name: through(name, lambda link: os.chown(link, 1, 1)),
    'back': lambda name: (os.chown(name, 1, 1), os.chown(name, 0, 0), os.chmod(name, 0o6755)),
    'fset': opened(WO, lambda fd: (os.write(fd, b'y'), os.setxattr(fd, CAP, CAPABILITY))),
    'fsetwrite': opened(WO, lambda fd: (os.setxattr(fd, CAP, CAPABILITY), os.write(fd, b'y'))),
    'remove': lambda name: os.removexattr(name, CAP),
    'read': opened(os.O_RDONLY, lambda fd: os.read(fd, 10)),
    'sync': opened(RW, lambda fd: os.fsync(fd)),
    'times': lambda name: os.utime(name, ns=(1, 2)),
    'names': lambda name: (os.rename(name, name + '3'), os.rename(name + '3', name)),
}

def lent(name):
    try: kept = len(os.getxattr(name, CAP))
    except OSError as error: kept = error.errno
    return oct(os.stat(name).st_mode), kept

for way, change in WAYS.items():
    made = way + '.made'
    with open(made, 'wb') as file: file.write(b'x' * 5000)
    os.chmod(made, 0o6755)
    os.setxattr(made, CAP, CAPABILITY)
    for name in [way + '.host', made]:
        before = lent(name)
        try: change(name)
        except OSError as error: print(name, 'fails:', error.errno)
        print(name, before, lent(name))
