# memcached over a unix socket in the tree.
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
rm -f sock
