# PostgreSQL in DIRECTORY: "go" acknowledges one insert after the other and prints each step; "look"
# prints how many there are. postgres.sh go|look DIRECTORY
verb=$1 tree=$2
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
cd "$tree" || exit 9
sockets=$(mktemp -d)
if [ "$(id -u)" = 0 ]; then chown 65534:65534 "$tree" "$sockets"; fi
export PGHOST=$sockets PGUSER=tester PGDATABASE=postgres
# Its last file says that it is whole: a start that was killed begins again.
if [ ! -e whole ]; then
    rm -rf data
    as "$tools/initdb" -k -U tester -A trust -D data > /dev/null || exit 9
    sync && : > whole && sync
fi
# Who wrote it was killed; its number may be another's by now. What it shared is the host's.
if [ -e data/postmaster.pid ]; then ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)" 2> /dev/null; fi
rm -f data/postmaster.pid
as "$tools/postgres" -D data -k "$sockets" -h '' -c shared_buffers=8MB -c autovacuum=off \
    -c dynamic_shared_memory_type=mmap 2>> log &
server=$!
ask() { as "$tools/psql" -XAtq -v ON_ERROR_STOP=1 "$@"; }
until ask -c 'select 1' > /dev/null 2>&1; do
    kill -0 "$server" || { cat log >&2; exit 9; }
done
ask 2> /dev/null -c 'create table if not exists ledger(step bigint primary key, text text)' || exit 9
if [ "$verb" = go ]; then
    while :; do
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            echo "insert into ledger select coalesce(max(step), 0) + 1, repeat('text', 100)
                from ledger returning step;"
        done
        echo "checkpoint;"
    done | ask
    exit 9
fi
# All pages are read and their checksums looked at; no step is missing.
ask -c 'select count(*), min(length(text)), max(step) = count(*) from ledger' > found || exit 9
kill -INT "$(head -1 data/postmaster.pid)" && wait "$server"
IFS='|' read -r count length is_whole < found
rm -f found && rm -rf "$sockets"
[ "$count" = 0 ] || [ "$length$is_whole" = 400t ] || exit 9
echo "$count"
