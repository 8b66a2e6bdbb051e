# lighttpd on loopback, ten requests at once.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
seq 1 5000 > file
printf 'server.document-root = "%s"\nserver.port = %d\nserver.bind = "127.0.0.1"\n' "$PWD" "$port" > conf
lighttpd -D -f conf 2> log & server=$!
python3 - "$port" <<'X'
import socket, sys, time, concurrent.futures as f
def get(_):
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10)
    s.sendall(b'GET /file HTTP/1.0\r\n\r\n')
    data = b''
    while piece := s.recv(65536): data += piece
    return len(data.split(b'\r\n\r\n', 1)[1])
end = time.time() + 20
while True:
    try: get(0); break
    except OSError:
        assert time.time() < end
        time.sleep(0.05)
with f.ThreadPoolExecutor(10) as pool: print(list(pool.map(get, range(10))))
X
kill $server; wait $server || true
rm conf log
