# redis: an append-only file and a snapshot by a forked child, over a unix socket in the tree.
redis-server --port 0 --unixsocket "$PWD/s" --dir . --appendonly yes --daemonize no > log 2>&1 &
for _ in $(seq 100); do [ -S s ] && redis-cli -s s ping > /dev/null 2>&1 && break; sleep 0.1; done
redis-cli -s s set key value
redis-cli -s s get key
redis-benchmark -s s -n 3000 -c 8 -q -t set,lpush > /dev/null && echo benchmark
redis-cli -s s bgsave > /dev/null
for _ in $(seq 100); do [ "$(redis-cli -s s info persistence | grep -c rdb_bgsave_in_progress:0)" = 1 ] && break; sleep 0.1; done
redis-cli -s s info persistence | tr -d '\r' | grep rdb_last_bgsave_status
redis-cli -s s shutdown
wait
redis-check-rdb dump.rdb | tail -1 | sed 's/.*\] //'
ls | sort | tr '\n' ' '
rm -rf appendonlydir dump.rdb log s
