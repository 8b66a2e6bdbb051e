# Jobs in the background, stopped, continued, waited for; traps that run in time.
set -m
sleep 0.2 & first=$!
(exit 7) & wait $!; echo "second $?"
wait $first; echo "first $?"
sleep 100 & job=$!
kill -STOP $job; for _ in $(seq 100); do [ "$(jobs -s | wc -l)" = 1 ] && break; sleep 0.02; done
jobs -s | sed 's/^[^ ]* *//'
kill -CONT $job; bg > /dev/null 2>&1; kill -TERM $job; wait $job; echo "job $?"
set +m
trap 'echo usr1' USR1; kill -USR1 $$; trap 'echo int' INT; kill -INT $$
(trap 'echo sub exits' EXIT; exit 5); echo "sub $?"
trap 'echo child' CHLD; /bin/true; trap - CHLD
for n in 1 2 3 4 5 6; do (echo "$n" > "job$n"; exit "$n") & pids="$pids $!"; done
for pid in $pids; do wait "$pid"; echo -n "$? "; done; echo
cat job*
bash -c 'kill -9 $$'; echo "killed $?"
timeout 0.2 sleep 10; echo "timeout $?"
timeout -s INT 0.2 bash -c 'trap "echo caught; exit 3" INT; while :; do sleep 0.05; done'; echo "$?"
nohup sh -c 'echo nohup' 2> /dev/null
echo 'echo from stdin; exit 4' | bash; echo "$?"
trap 'echo bye; rm -f job*' EXIT
exit 0
