# nginx: a master and workers serve files of the tree; reload; a log.
mkdir -p www; for i in $(seq 50); do head -c $((i * 500)) /dev/zero > "www/$i"; done
user=; [ "$(id -u)" != 0 ] || user="user root;"
cat > conf <<X
$user
worker_processes 2; pid $PWD/pid; error_log $PWD/errors;
events {}
http {
    access_log $PWD/access; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;
    uwsgi_temp_path u; scgi_temp_path s;
    server { listen unix:$PWD/sock; root $PWD/www; }
}
X
nginx -p "$PWD" -e errors -c "$PWD/conf" -g 'daemon off;' 2> /dev/null &
python3 - <<'X'
import socket, time
def get(path):
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect('sock')
    s.sendall(f'GET {path} HTTP/1.0\r\n\r\n'.encode())
    data = b''
    while piece := s.recv(65536): data += piece
    head, body = data.split(b'\r\n\r\n', 1)
    return head.split(b'\r\n')[0].decode(), len(body)
end = time.time() + 20
while True:
    try: get('/1'); break
    except OSError:
        assert time.time() < end
        time.sleep(0.05)
for i in range(1, 51): assert get(f'/{i}')[1] == i * 500, i
print(get('/50'), get('/none')[0])
X
workers() { pgrep -P "$(cat pid)" | sort; }
old=$(workers); kill -HUP "$(cat pid)"
reloaded() { [ "$(workers | wc -l)" = 2 ] && [ -z "$(comm -12 <(echo "$old") <(workers))" ]; }
for _ in $(seq 400); do reloaded && break; sleep 0.05; done
reloaded
python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect('sock'); s.sendall(b'GET /7 HTTP/1.0\r\n\r\n'); print(s.recv(15))"
kill -QUIT "$(cat pid)"; wait
grep -c '"GET /' access
rm -rf b p f u s www conf access errors sock
