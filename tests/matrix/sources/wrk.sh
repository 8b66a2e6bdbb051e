# nginx on loopback under wrk: every answer is whole.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir -p www; seq 1 2000 > www/file
user=; [ "$(id -u)" != 0 ] || user="user root;"
cat > conf <<C
$user
worker_processes 2; pid $PWD/pid; error_log $PWD/errors;
events {}
http {
    access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;
    uwsgi_temp_path u; scgi_temp_path s; sendfile on;
    server { listen 127.0.0.1:$port; root $PWD/www; }
}
C
nginx -p "$PWD" -e errors -c "$PWD/conf" -g 'daemon off;' 2> /dev/null &
for _ in $(seq 400); do (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null && break; sleep 0.05; done
wrk -t 2 -c 16 -d 1s "http://127.0.0.1:$port/file" > told
awk '/requests in/ { print ($1 > 100) ? "many requests" : $0 } /Socket errors|Non-2xx/' told
kill -QUIT "$(cat pid)"; wait
rm -rf b p f u s conf errors told
