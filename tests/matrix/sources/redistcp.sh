# redis over TCP, server and clients beside each other: requests one by one, many on their way at
# once, values of all sizes, messages to subscribers, and a client that waits for a list.
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --daemonize no > log 2>&1 &
ask() { redis-cli -p "$port" "$@"; }
for _ in $(seq 100); do ask ping > /dev/null 2>&1 && break; sleep 0.1; done
ask set key value
ask get key
redis-benchmark -p "$port" -n 5000 -c 20 -q -t set,get,lpush > /dev/null && echo benchmark
redis-benchmark -p "$port" -n 5000 -c 4 -P 16 -q -t incr > /dev/null && ask get counter:__rand_int__
redis-benchmark -p "$port" -n 500 -c 4 -d 100000 -q -t set,get > /dev/null && echo large
seq 200000 | ask -x set much
ask get much | md5sum
for n in $(seq 500); do echo "set n$n $n"; done | ask --pipe | tail -1
ask mget n1 n250 n500 | tr '\n' ' '
ask blpop jobs 20 > popped &
waits=$!
for _ in $(seq 100); do [ "$(ask info clients | grep -c blocked_clients:1)" = 1 ] && break; sleep 0.1; done
ask rpush jobs first
wait $waits
cat popped
timeout 20 redis-cli -p "$port" subscribe news > heard &
hears=$!
for _ in $(seq 100); do [ "$(ask publish news flash)" = 1 ] && break; sleep 0.1; done
for _ in $(seq 100); do grep -q flash heard && break; sleep 0.1; done
kill $hears
head -6 heard | tr '\n' ' '
ask client list | grep -c addr=127.0.0.1
ask shutdown nosave || true
wait || true
rm -f log popped heard
