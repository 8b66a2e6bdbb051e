# PostgreSQL: initdb, start, pgbench over a unix socket in the tree and TCP, a crash and its recovery, stop.
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
cd "$(mktemp -d)"
if [ "$(id -u)" = 0 ]; then chown 65534:65534 .; fi
export PGHOST=$PWD/data PGUSER=tester
as "$tools/initdb" -N -U tester -A trust -D data > log 2>&1 && echo initialised
PGPORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PGPORT
start() { as "$tools/pg_ctl" -D data -w -t 50 -o "-F -k $PWD/data -h 127.0.0.1 -p $PGPORT" -l data/log start > /dev/null && echo started; }
start
as "$tools/createdb" bench
as "$tools/pgbench" -i -q bench > /dev/null 2>&1 && echo filled
as "$tools/pgbench" -c 2 -j 2 -t 50 bench 2> /dev/null | grep -E 'processed|failed'
as "$tools/psql" -Atc 'select count(*), sum(abalance) = (select sum(delta) from pgbench_history) from pgbench_accounts' bench
as "$tools/pgbench" -h 127.0.0.1 -S -c 8 -j 2 -t 300 bench 2> /dev/null | grep -E 'processed|failed'
as "$tools/pgbench" -h 127.0.0.1 -S -C -c 4 -t 10 bench 2> /dev/null | grep -E 'processed|failed'
as "$tools/psql" -h 127.0.0.1 -Atc 'select i from generate_series(1, 200000) i' bench | md5sum
as "$tools/pg_ctl" -D data -m immediate stop > /dev/null && echo killed
start
as "$tools/psql" -Atc 'select count(*) from pgbench_history' bench
as "$tools/pg_ctl" -D data -m fast stop > /dev/null && echo stopped
rm -rf "$PWD"
