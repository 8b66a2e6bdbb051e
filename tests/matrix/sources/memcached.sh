# memcached over a unix socket in the tree, and its threads over TCP.
user=$(id -un)
memcached -s "$PWD/sock" -u "$user" & server=$!
for _ in $(seq 100); do [ -S sock ] && break; sleep 0.05; done
python3 - <<'X'
import socket
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect('sock')
def ask(text, end):
    s.sendall(text); data = b''
    while not data.endswith(end): data += s.recv(4096)
    return data
print(ask(b'set a 0 0 5\r\nhello\r\n', b'STORED\r\n'), ask(b'get a\r\n', b'END\r\n'))
for i in range(500): ask(b'set k%d 0 0 3\r\nabc\r\n' % i, b'STORED\r\n')
print(ask(b'get k499\r\n', b'END\r\n'))
X
kill $server; wait $server || true
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
memcached -l 127.0.0.1 -p "$port" -t 2 -u "$user" & server=$!
for _ in $(seq 400); do (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null && break; sleep 0.05; done
python3 - "$port" <<'X'
import socket, sys, threading
good = []
def load(number):
    peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=20)
    answers = peer.makefile('rb')
    for i in range(400):
        value = b'%d-%d' % (number, i) * (1 + i % 300)
        peer.sendall(b'set k%d 0 0 %d\r\n%b\r\n' % (number, len(value), value))
        assert answers.readline() == b'STORED\r\n'
        peer.sendall(b'get k%d\r\n' % number)
        assert int(answers.readline().split()[3]) == len(value)
        assert answers.read(len(value) + 2)[:-2] == value and answers.readline() == b'END\r\n'
    good.append(number)
threads = [threading.Thread(target=load, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('loaded', len(good))
X
kill $server; wait $server || true
rm -f sock
