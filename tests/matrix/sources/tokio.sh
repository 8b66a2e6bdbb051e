# tokio: an echo server of two worker threads, asked by forty connections over TCP and a unix socket.
for way in tcp unix; do
    address=$PWD/sock
    [ $way = unix ] || address=127.0.0.1:0
    "$TOKIO_ECHO" serve $way "$address" > at &
    server=$!
    for look in $(seq 200); do [ ! -s at ] || break; sleep 0.05; done
    timeout 100 "$TOKIO_ECHO" ask $way "$(cat at)"
    kill $server; wait $server 2> /dev/null || true
    rm -f at sock
done
