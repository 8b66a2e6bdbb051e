# Two processes insert into one table, one transaction a row; nobody is lost.
mode=$1
sqlite3 two.db "pragma journal_mode=$mode; create table t(who text, n integer)"
for who in a b; do
  (echo '.timeout 30000'; for n in $(seq 1 60); do echo "begin immediate; insert into t values('$who', $n); commit;"; done) |
    sqlite3 -batch two.db &
done
wait
sqlite3 two.db 'pragma integrity_check; select who, count(*), sum(n) from t group by who order by who'
