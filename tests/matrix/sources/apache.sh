# apache2 with preforked workers, and ab.
mkdir h; echo hello > h/index.html; chmod 755 . h
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > conf <<X
ServerName x
ServerRoot $PWD
PidFile $PWD/pid
Listen 127.0.0.1:$port
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DocumentRoot $PWD/h
ErrorLog $PWD/errors
DefaultRuntimeDir $PWD
StartServers 3
X
setsid apache2 -DFOREGROUND -f "$PWD/conf" & server=$!
ready() { [ -s pid ] && [ "$(pgrep -P "$(cat pid)" | wc -l)" -ge 3 ]; }
for _ in $(seq 400); do ready && break; sleep 0.05; done
ready
ab -q -n 300 -c 4 "http://127.0.0.1:$port/index.html" | grep -E 'Complete|Failed|Document Length'
kill -TERM "$(cat pid)"; wait $server || true
rm -rf conf h errors pid
