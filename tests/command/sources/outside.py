import ctypes, errno, os, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
O = sys.argv[1].encode()
def sys_(n, *a):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(n), *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    return errno.errorcode[ctypes.get_errno()] if r == -1 else 'ok'
p = lambda n: O + b'/' + n
AT, E = -100, 0x1000
rfd = os.open(p(b'file'), os.O_RDONLY)
dfd = os.open(O, os.O_RDONLY | os.O_DIRECTORY)
pfd = os.open(p(b'file'), os.O_PATH)
os.symlink(p(b'file'), 'way')
os.symlink(p(b'new'), 'dangling')
open('mine', 'w').close()
how = lambda f, m=0, r=0: struct.pack('QQQ', f, m, r)
W, RW, C, X, T, A = 1, 2, 0o100, 0o200, 0o1000, 0o2000
TMP = 0o20200000
B = 8
ts = b'\0' * 32
def bind(path):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.bind(path); return 'ok'
    except OSError as e:
        return errno.errorcode[e.errno]
rows = [
 ('open O_RDONLY', sys_(2, p(b'file'), 0)),
 ('open O_WRONLY', sys_(2, p(b'file'), W)),
 ('open O_RDWR', sys_(2, p(b'file'), RW)),
 ('open O_APPEND', sys_(2, p(b'file'), W | A)),
 ('open O_TRUNC', sys_(2, p(b'file'), T)),
 ('open O_CREAT there', sys_(2, p(b'file'), C, 0o600)),
 ('open O_CREAT new', sys_(2, p(b'new'), C, 0o600)),
 ('open O_CREAT nowhere', sys_(2, p(b'none/new'), C, 0o600)),
 ('open O_CREAT below a file', sys_(2, p(b'file/new'), C, 0o600)),
 ('open O_CREAT O_EXCL there', sys_(2, p(b'file'), C | X, 0o600)),
 ('open O_CREAT O_EXCL new', sys_(2, p(b'new'), C | X | W, 0o600)),
 ('open O_TMPFILE', sys_(2, O, TMP | W, 0o600)),
 ('open a directory to write', sys_(2, p(b'dir'), W)),
 ('open a link O_NOFOLLOW', sys_(2, p(b'link'), W | 0o400000)),
 ('open a link to write', sys_(2, p(b'link'), W)),
 ('open missing to write', sys_(2, p(b'none'), W)),
 ('open by a link inside', sys_(2, b'way', W)),
 ('open by a dangling link inside', sys_(2, b'dangling', W | C, 0o600)),
 ('open by ..', sys_(2, p(b'dir/../file'), W)),
 ('open a FIFO', sys_(2, p(b'fifo'), RW)),
 ('open O_PATH', sys_(2, p(b'file'), 0o10000000)),
 ('creat there', sys_(85, p(b'file'), 0o600)),
 ('creat new', sys_(85, p(b'new'), 0o600)),
 ('openat new', sys_(257, dfd, b'new', C | W, 0o600)),
 ('openat to write', sys_(257, dfd, b'file', W)),
 ('openat2 to write', sys_(437, dfd, b'file', how(W), 24)),
 ('openat2 new', sys_(437, dfd, b'new', how(W | C, 0o600), 24)),
 ('openat2 beneath to write', sys_(437, dfd, b'file', how(W, 0, B), 24)),
 ('openat2 beneath new', sys_(437, dfd, b'new', how(W | C, 0o600, B), 24)),
 ('openat2 beneath new in dir', sys_(437, dfd, b'dir/new', how(W | C, 0o600, B), 24)),
 ('openat2 beneath to read', sys_(437, dfd, b'file', how(0, 0, B), 24)),
 ('reopen by /proc', sys_(2, b'/proc/self/fd/%d' % rfd, W)),
 ('reopen a place by /proc', sys_(2, b'/proc/self/fd/%d' % pfd, W)),
 ('reopen by /dev/fd', sys_(2, b'/dev/fd/%d' % rfd, RW)),
 ('by /proc/self/root', sys_(2, b'/proc/self/root' + p(b'file'), W)),
 ('by the root of /proc', sys_(2, b'/proc/%d/root' % os.getpid() + p(b'file'), W)),
 ('by a directory of /proc', sys_(2, b'/proc/self/fd/%d/file' % dfd, W)),
 ('new by a directory of /proc', sys_(2, b'/proc/self/fd/%d/new' % dfd, W | C, 0o600)),
 ('file_setattr', sys_(469, AT, p(b'file'), bytes(24), 24, 0)),
 ('file_setattr fd', sys_(469, rfd, b'', bytes(24), 24, E)),
 ('file_setattr inside', sys_(469, AT, b'mine', bytes(24), 24, 0)),
 ('mkdir', sys_(83, p(b'new'), 0o700)),
 ('mkdir there', sys_(83, p(b'dir'), 0o700)),
 ('mkdir nowhere', sys_(83, p(b'none/new'), 0o700)),
 ('mkdirat', sys_(258, dfd, b'new', 0o700)),
 ('mkdir by a link inside', sys_(83, b'way', 0o700)),
 ('mknod', sys_(133, p(b'new'), 0o100600, 0)),
 ('mknod FIFO', sys_(133, p(b'new'), 0o010600, 0)),
 ('mknodat there', sys_(259, dfd, b'file', 0o100600, 0)),
 ('symlink', sys_(88, b'x', p(b'new'))),
 ('symlink there', sys_(88, b'x', p(b'link'))),
 ('symlinkat', sys_(266, b'x', dfd, b'new')),
 ('link', sys_(86, p(b'file'), p(b'new'))),
 ('link there', sys_(86, p(b'file'), p(b'link'))),
 ('link missing', sys_(86, p(b'none'), p(b'new'))),
 ('linkat', sys_(265, dfd, b'file', dfd, b'new', 0)),
 ('linkat a place', sys_(265, pfd, b'', dfd, b'new', E)),
 ('unlink', sys_(87, p(b'file'))),
 ('unlink missing', sys_(87, p(b'none'))),
 ('unlink nowhere', sys_(87, p(b'none/x'))),
 ('unlink a link', sys_(87, p(b'link'))),
 ('unlink ..', sys_(87, p(b'dir/..'))),
 ('unlinkat', sys_(263, dfd, b'file', 0)),
 ('rmdir', sys_(84, p(b'dir'))),
 ('rmdir .', sys_(84, p(b'dir/.'))),
 ('rmdir missing', sys_(84, p(b'none'))),
 ('rename', sys_(82, p(b'file'), p(b'new'))),
 ('rename missing', sys_(82, p(b'none'), p(b'new'))),
 ('rename nowhere', sys_(82, p(b'file'), p(b'none/new'))),
 ('renameat', sys_(264, dfd, b'file', dfd, b'new')),
 ('renameat2 exchange', sys_(316, dfd, b'file', dfd, b'other', 2)),
 ('rename into', sys_(82, b'mine', p(b'new'))),
 ('rename out of', sys_(82, p(b'file'), b'new')),
 ('truncate', sys_(76, p(b'file'), 0)),
 ('truncate a directory', sys_(76, p(b'dir'), 0)),
 ('truncate missing', sys_(76, p(b'none'), 0)),
 ('ftruncate', sys_(77, rfd, 0)),
 ('fallocate', sys_(285, rfd, 0, 0, 10)),
 ('chmod', sys_(90, p(b'file'), 0o600)),
 ('chmod a directory', sys_(90, p(b'dir'), 0o700)),
 ('chmod a FIFO', sys_(90, p(b'fifo'), 0o600)),
 ('chmod by a link', sys_(90, b'way', 0o600)),
 ('chmod missing', sys_(90, p(b'none'), 0o600)),
 ('fchmod', sys_(91, rfd, 0o600)),
 ('fchmod a place', sys_(91, pfd, 0o600)),
 ('fchmod a directory', sys_(91, dfd, 0o700)),
 ('fchmodat', sys_(268, dfd, b'file', 0o600)),
 ('fchmodat2', sys_(452, dfd, b'file', 0o600, 0)),
 ('fchmodat2 a place', sys_(452, pfd, b'', 0o600, E)),
 ('chmod by /proc', sys_(90, b'/proc/self/fd/%d' % pfd, 0o600)),
 ('chown', sys_(92, p(b'file'), 1, 1)),
 ('lchown', sys_(94, p(b'link'), 1, 1)),
 ('fchown', sys_(93, rfd, 1, 1)),
 ('fchownat', sys_(260, dfd, b'file', 1, 1, 0)),
 ('fchownat itself', sys_(260, dfd, b'', 1, 1, E)),
 ('utime', sys_(132, p(b'file'), 0)),
 ('utimes', sys_(235, p(b'file'), 0)),
 ('futimesat', sys_(261, dfd, b'file', 0)),
 ('utimensat', sys_(280, AT, p(b'file'), 0, 0)),
 ('utimensat a link', sys_(280, AT, p(b'link'), 0, 0x100)),
 ('futimens', sys_(280, rfd, 0, 0, 0)),
 ('setxattr', sys_(188, p(b'file'), b'user.x', b'1', 1, 0)),
 ('lsetxattr', sys_(189, p(b'file'), b'user.x', b'1', 1, 0)),
 ('fsetxattr', sys_(190, rfd, b'user.x', b'1', 1, 0)),
 ('removexattr', sys_(197, p(b'file'), b'user.x')),
 ('lremovexattr', sys_(198, p(b'file'), b'user.x')),
 ('fremovexattr', sys_(199, rfd, b'user.x')),
 ('ioctl FS_IOC_SETFLAGS', sys_(16, rfd, 0x40086602, struct.pack('q', 0))),
 ('ioctl FS_IOC_GETFLAGS', sys_(16, rfd, 0x80086601, ctypes.create_string_buffer(8))),
 ('bind', bind(p(b'new'))),
 ('bind there', bind(p(b'file'))),
 ('access W_OK', sys_(21, p(b'file'), 2)),
 ('access W_OK directory', sys_(21, p(b'dir'), 2)),
 ('access W_OK FIFO', sys_(21, p(b'fifo'), 2)),
 ('access R_OK', sys_(21, p(b'file'), 4)),
 ('access W_OK missing', sys_(21, p(b'none'), 2)),
 ('faccessat2 W_OK', sys_(439, dfd, b'file', 2, 0)),
 ('open /dev/null', sys_(2, b'/dev/null', W)),
 ('open oom_score_adj', sys_(2, b'/proc/self/oom_score_adj', W)),
 ('open comm', sys_(2, b'/proc/self/comm', W)),
 ('memfd', sys_(2, b'/proc/self/fd/%d' % os.memfd_create('m'), RW)),
]
os.chdir(O)
rows += [
 ('relative open', sys_(2, b'file', W)),
 ('relative new', sys_(2, b'new', W | C, 0o600)),
 ('relative new below', sys_(2, b'dir/new', W | C, 0o600)),
 ('relative mkdir', sys_(83, b'new', 0o700)),
 ('relative mkdir below', sys_(83, b'dir/new', 0o700)),
 ('relative unlink', sys_(87, b'file')),
 ('relative chmod', sys_(90, b'file', 0o600)),
 ('relative rename', sys_(82, b'file', b'new')),
 ('relative bind', bind(b'new')),
 ('chmod .', sys_(90, b'.', 0o700)),
 ('fchownat here', sys_(260, AT, b'', 1, 1, E)),
]
for name, got in rows:
    print(name + ':', got)
