# Create, fill, index, update, roll back, shrink, check.
db() { sqlite3 -batch one.db "$@"; }
db 'create table t(id integer primary key, name text, value real)'
db "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
    insert into t select i, 'name ' || i, i * 1.5 from n"
db 'create index by_name on t(name)'
db 'begin; delete from t where id % 2; rollback; select count(*) from t'
db 'update t set value = value * 2 where id % 3 = 0; delete from t where id > 4000; vacuum'
db 'select count(*), sum(value), max(name) from t; pragma integrity_check'
db .dump | cksum
sqlite3 -batch copy.db < <(db .dump); sqlite3 copy.db 'select count(*) from t'
db "attach 'copy.db' as c; insert into c.t select id + 10000, name, value from t; select count(*) from c.t"
ls
