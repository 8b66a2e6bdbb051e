# Changes the owner, mode, times and attributes of FIFOs, sockets and devices, by each call that can:
# one letter for each, tried on all three kinds. Prints what it sees before and after.
import ctypes, os, stat

KINDS = ['fifo', 'socket', 'null']
libc = ctypes.CDLL(None, use_errno=True)
ACL = bytes.fromhex('02000000' '01000700ffffffff' '0200050001000000' '04000500ffffffff'
                    '10000500ffffffff' '20000100ffffffff')

def call(number, *args):
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), 'syscall %d' % number)

def show(name):
    s = os.lstat(name)
    attributes = {}
    for key in sorted(os.listxattr(name)):
        attributes[key] = os.getxattr(name, key)
    print(name, oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns < 10**9, attributes)

def by_path_descriptor(name, act):
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW)
    try: act(fd)
    finally: os.close(fd)

def opened(name, act):
    fd = os.open(name, os.O_RDWR | os.O_NONBLOCK)
    try: act(fd)
    finally: os.close(fd)

def beside(name, act):
    directory = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
    try: act(directory)
    finally: os.close(directory)

def through(name, act):
    by_path_descriptor(name, lambda fd: act('/proc/self/fd/%d' % fd))

def named(name):
    return ctypes.c_char_p(os.fsencode(name))

AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 0x100, 0x1000
CHOWN, LCHOWN, CHMOD, FCHMODAT2 = 92, 94, 90, 452
WAYS = {
    'a': lambda n: call(CHOWN, named(n), 11, 12),
    'b': lambda n: call(LCHOWN, named(n), 13, 14),
    'c': lambda n: beside(n, lambda d: os.chown(n, 15, 16, dir_fd=d, follow_symlinks=False)),
    'd': lambda n: beside(n, lambda d: os.chown('to.' + n, 17, -1, dir_fd=d)),
    'e': lambda n: by_path_descriptor(n, lambda fd: call(260, fd, named(''), 18, 19, AT_EMPTY_PATH)),
    'f': lambda n: opened(n, lambda fd: os.fchown(fd, 20, 21)),
    'g': lambda n: call(CHMOD, named(n), 0o600),
    'h': lambda n: opened(n, lambda fd: os.fchmod(fd, 0o640)),
    'i': lambda n: beside(n, lambda d: os.chmod('to.' + n, 0o604, dir_fd=d)),
    'j': lambda n: beside(n, lambda d: call(FCHMODAT2, d, named(n), 0o601, AT_SYMLINK_NOFOLLOW)),
    'k': lambda n: through(n, lambda link: os.chmod(link, 0o611)),
    'l': lambda n: through(n, lambda link: os.chown(link, 22, 23)),
    'm': lambda n: os.utime(n, ns=(5, 7)),
    'n': lambda n: opened(n, lambda fd: os.utime(fd, ns=(5, 7))),
    'o': lambda n: os.utime(n, ns=(5, 7), follow_symlinks=False),
    'p': lambda n: os.setxattr('to.' + n, 'trusted.a', b'set'),
    'q': lambda n: os.setxattr(n, 'trusted.a', b'lset', follow_symlinks=False),
    'r': lambda n: opened(n, lambda fd: os.setxattr(fd, 'trusted.a', b'fset')),
    's': lambda n: os.removexattr(n, 'trusted.kept'),
    't': lambda n: os.setxattr(n, 'system.posix_acl_access', ACL),
    'u': lambda n: os.setxattr(n, 'user.a', b'b'),
    'v': lambda n: (os.chown(n, 24, 25), os.chmod(n, 0o6755), os.chown(n, 26, -1)),
}
for way, change in WAYS.items():
    for name in [kind + '.' + way for kind in KINDS]:
        try:
            change(name)
        except OSError as error:
            print(name, 'fails:', error.errno)
        show(name)
