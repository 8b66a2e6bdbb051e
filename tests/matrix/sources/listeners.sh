# A listener under LISTEN_FDS, and one with a connection in a message; bytes that nobody has read.
cat > heir.py <<'X'
import os, socket
assert os.environ['LISTEN_FDS'] == '1'
listener = socket.socket(fileno=3)
for _ in range(10):
    peer, _ = listener.accept()
    while data := peer.recv(65536): peer.sendall(data)
    peer.close()
X
cat > all.py <<'X'
import array, errno, hashlib, os, select, selectors, socket, subprocess, sys, threading

def warm(a, b):
    for _ in range(40):
        a.sendall(b'w'); assert b.recv(1) == b'w'
        b.sendall(b'v'); assert a.recv(1) == b'v'

def connection():
    listener = socket.create_server(('127.0.0.1', 0))
    near = socket.create_connection(listener.getsockname(), timeout=20)
    far, _ = listener.accept()
    far.settimeout(20)
    return listener, near, far

def inherited():
    listener = socket.create_server(('127.0.0.1', 0))
    address = listener.getsockname()
    give = lambda: os.dup2(listener.fileno(), 3)
    heir = subprocess.Popen([sys.executable, 'heir.py'], close_fds=False,
                            env={**os.environ, 'LISTEN_FDS': '1'},
                            preexec_fn=lambda: os.set_inheritable(give(), True))
    listener.close()
    for turn in range(10):
        with socket.create_connection(address, timeout=20) as peer:
            for i in range(60):
                peer.sendall(b'%d' % i); assert peer.recv(100) == b'%d' % i
    print('inherited', heir.wait(20))

def sent():
    near, far = socket.socketpair()
    child = os.fork()
    if child == 0:
        near.close()
        _, ancillary, _, _ = far.recvmsg(10, socket.CMSG_SPACE(8))
        fds = array.array('i', ancillary[0][2])
        listener, reader = (socket.socket(fileno=fd) for fd in fds)
        reader.settimeout(20)
        digest = hashlib.sha1()
        while data := reader.recv(65536): digest.update(data)
        peer, _ = listener.accept()
        peer.sendall(digest.digest())
        os._exit(0)
    listener, writer, reader = connection()
    address, digest = listener.getsockname(), hashlib.sha1()
    warm(writer, reader)
    def give(size):
        data = os.urandom(size); digest.update(data); writer.sendall(data)
    give(30000)
    fds = array.array('i', [listener.fileno(), reader.fileno()])
    near.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    reader.close(); listener.close()
    for _ in range(50): give(5000)
    writer.close()
    with socket.create_connection(address, timeout=20) as peer:
        print('sent', peer.recv(100) == digest.digest())
    os.waitpid(child, 0)

def unread():
    listener, writer, reader = connection()
    warm(writer, reader)
    writer.setblocking(False)
    sel, put, digest = selectors.DefaultSelector(), 0, hashlib.sha1()
    sel.register(writer, selectors.EVENT_WRITE)
    while sel.select(0.5):
        data = os.urandom(10000)
        try: count = writer.send(data)
        except BlockingIOError: continue
        put += count; digest.update(data[:count])
    print('full', 100_000 < put < 30_000_000)
    writer.shutdown(socket.SHUT_WR)
    got, seen = 0, hashlib.sha1()
    while data := reader.recv(65536): got += len(data); seen.update(data)
    print('all of it', got == put and seen.digest() == digest.digest())

def halved():
    told = 0
    for turn in range(20):
        listener, writer, reader = connection()
        warm(writer, reader)
        reader.setblocking(False)
        edges = select.epoll()
        edges.register(reader, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        writer.sendall(bytes(300_000)); edges.poll(20)
        def end(): writer.shutdown(socket.SHUT_WR); writer.close()
        ends = threading.Thread(target=end); ends.start()
        got = 0
        while True:
            try: data = reader.recv(4096)
            except BlockingIOError:
                if edges.poll(20): continue
                break
            got += len(data)
            if not data: break
        ends.join(); reader.close(); listener.close(); edges.close()
        told += got == 300_000
    print('halved', told)

def taken():
    listener = socket.create_server(('127.0.0.1', 0))
    address = listener.getsockname()
    for call in (lambda: socket.socket().bind(address), listener.close,
                 lambda: socket.socket().connect(address)):
        try: call()
        except OSError as error: print(errno.errorcode[error.errno])

for part in (inherited, sent, unread, halved, taken): part()
X
timeout 100 python3 all.py
rm heir.py all.py
