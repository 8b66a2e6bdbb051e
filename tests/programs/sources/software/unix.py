# Unix sockets with names in the tree: every step prints what a program sees of it.
import errno, os, socket, stat, struct, subprocess, sys

TEXT = 'run/a-rather-long-directory-for-sockets/server.socket'


def attempt(what, act):
    try:
        print(what, act())
    except OSError as problem:
        print(what, errno.errorcode[problem.errno])


def stream(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    return server


def talk(server, path):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(path)
    server.settimeout(10)
    there, name = server.accept()
    there.settimeout(10)
    print('accepted', repr(name), there.getsockname(), repr(there.getpeername()))
    print('client', client.getpeername(), repr(client.getsockname()))
    client.sendall(b'ping')
    print(there.recv(4))
    mine = struct.unpack('3i', there.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    print('peer is me', mine == (os.getpid(), os.getuid(), os.getgid()))
    client.close()
    print('end', there.recv(4))


os.makedirs(os.path.dirname(TEXT))
os.umask(0o027)
server = stream(TEXT)
found = os.lstat(TEXT)
print(stat.S_ISSOCK(found.st_mode), oct(found.st_mode), found.st_size, found.st_rdev)
print('listening', server.getsockname())
talk(server, TEXT)

attempt('again', lambda: stream(TEXT))
attempt('twice', lambda: server.bind('other'))
print('left', os.path.exists('other'))
attempt('to a file', lambda: (open('file', 'w').close(), socket.socket(socket.AF_UNIX).connect('file')))
attempt('to nothing', lambda: socket.socket(socket.AF_UNIX).connect('nothing'))
attempt('through a file', lambda: socket.socket(socket.AF_UNIX).connect('file/x'))
attempt('in nothing', lambda: stream('nothing/x'))
attempt('with a slash', lambda: stream('slash/'))
attempt('a directory', lambda: stream('run'))
attempt('open it', lambda: os.open(TEXT, os.O_RDONLY))
attempt('wrong kind', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect(TEXT))

# The socket belongs to the node: moved, linked, and gone.
os.rename(TEXT, 'moved')
talk(server, 'moved')
os.link('moved', 'linked')
talk(server, 'linked')
os.symlink('linked', 'pointed')
talk(server, 'pointed')
attempt('old name', lambda: socket.socket(socket.AF_UNIX).connect(TEXT))
os.unlink('moved')
os.unlink('linked')
attempt('gone', lambda: socket.socket(socket.AF_UNIX).connect('pointed'))
print('still', server.getsockname())
server.close()
server = stream('fresh')
server.close()
attempt('left behind', lambda: socket.socket(socket.AF_UNIX).connect('fresh'))
attempt('taken', lambda: stream('fresh'))
os.mknod('made', 0o666 | stat.S_IFSOCK)
attempt('made by mknod', lambda: socket.socket(socket.AF_UNIX).connect('made'))

# Datagrams with names on both sides, by sendto and by sendmsg; long and short names.
for first, second in (('one', 'two'), ('l' * 100, 's')):
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    right = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    right.settimeout(10)
    left.settimeout(10)
    left.bind(first)
    right.bind(second)
    left.sendto(b'hello', second)
    print(right.recvfrom(10))
    right.sendmsg([b'good', b'bye'], [], 0, first)
    print(left.recvmsg(10, 100))
    left.connect(second)
    left.send(b'x')
    print(right.recvfrom(1), left.getpeername(), left.getsockname())
right.close()
attempt('nobody', lambda: left.send(b'x'))

# Between processes, with a descriptor on the way.
server = stream('pass')
child = subprocess.Popen([sys.executable, '-c', '''
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect("pass")
message, fds, flags, name = socket.recv_fds(s, 10, 1)
other = socket.socket(fileno=fds[0])
other.sendall(b"through " + message)
'''])
server.settimeout(10)
there, _ = server.accept()
mine, its = socket.socketpair()
socket.send_fds(there, [b'it'], [its.fileno()])
its.close()
mine.settimeout(10)
print(mine.recv(20), child.wait(20))

# Connections wait until somebody accepts them.
waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for one in waiting:
    one.connect('pass')
print([server.accept()[1] for _ in waiting])
