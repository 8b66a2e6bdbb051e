//! What one side of `husk bench volume` does for each row, in its working directory.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use crate::bench::files::operations::Wanted;
use crate::bench::report::median;

/// Bytes of a record, and of a small file.
const RECORD_BYTES: usize = 4096;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// So many writers each append records to a file, and make each durable.
    Append(u64),
    /// A file is made, synced and renamed over another.
    Replace,
    /// Transactions of SQLite, each made durable, with a write-ahead log.
    Sqlite,
    /// Transactions of pgbench -N by one client of PostgreSQL.
    Postgres,
    /// Puts into LevelDB, each made durable: its own benchmark's `fillsync`.
    LevelDb,
    /// redis with `appendfsync`, asked by so many clients.
    Redis(&'static str, u64),
    /// Small files are made and removed, and none is synced.
    Unsynced,
}

/// A row of the table.
pub struct Row {
    pub name: &'static str,
    pub part: Part,
    /// Repetitions in a round.
    pub count: u64,
    pub wanted: Wanted,
}

const fn row(name: &'static str, part: Part, count: u64, wanted: f64) -> Row {
    Row { name, part, count, wanted: Wanted::FasterBy(wanted) }
}

/// All rows.
pub const ALL: &[Row] = &[
    row("append 4 KiB, 1 writer", Part::Append(1), 300, 2.0),
    row("append 4 KiB, 16 writers", Part::Append(16), 1600, 2.0),
    row("append 4 KiB, 32 writers", Part::Append(32), 1600, 2.0),
    row("create, fsync, rename", Part::Replace, 200, 2.0),
    row("SQLite, FULL, WAL", Part::Sqlite, 400, 1.5),
    Row { wanted: Wanted::Nothing, ..row("LevelDB, fillsync", Part::LevelDb, 400, 1.0) },
    row("PostgreSQL, pgbench -N, c=1", Part::Postgres, 200, 1.2),
    row("redis always, c=1", Part::Redis("always", 1), 2000, 1.7),
    row("redis always, c=8", Part::Redis("always", 8), 8000, 1.2),
    row("redis always, c=50", Part::Redis("always", 50), 20_000, 1.0),
    row("redis everysec, c=50", Part::Redis("everysec", 50), 40_000, 0.95),
    row("redis no, c=50", Part::Redis("no", 50), 40_000, 0.95),
    row("no sync: create, unlink", Part::Unsynced, 20_000, 0.9),
];

impl Row {
    /// Does it once; ns for each repetition.
    pub fn once(&self) -> anyhow::Result<f64> {
        match self.part {
            Part::Append(1) => append(self.count),
            Part::Append(writers) => appends(writers, self.count),
            Part::Replace => per(self.count, replace),
            Part::Sqlite => sqlite(self.count),
            Part::LevelDb => leveldb(self.count),
            Part::Postgres => postgres(self.count),
            Part::Redis(when, clients) => redis(when, clients, self.count),
            Part::Unsynced => per(self.count, unsynced),
        }
    }
}

/// Time of each repetition.
fn per(count: u64, body: fn(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    body(count)?;
    Ok(begun.elapsed().as_nanos() as f64 / count as f64)
}

/// The median of what one append takes.
fn append(count: u64) -> anyhow::Result<f64> {
    let file = File::create("append")?;
    let mut took = Vec::new();
    for n in 0..count {
        let begun = Instant::now();
        file.write_all_at(&[n as u8; RECORD_BYTES], n * RECORD_BYTES as u64)?;
        file.sync_data()?;
        took.push(begun.elapsed().as_nanos() as f64);
    }
    fs::remove_file("append")?;
    Ok(median(took.into_iter()))
}

/// Time over records: what all of them have done.
fn appends(writers: u64, count: u64) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let work = |writer: u64| {
        let file = File::create(format!("append{writer}"))?;
        for n in 0..count / writers {
            file.write_all_at(&[n as u8; RECORD_BYTES], n * RECORD_BYTES as u64)?;
            file.sync_data()?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..writers).map(|writer| scope.spawn(move || work(writer))).collect();
        all.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
    })?;
    let ns = begun.elapsed().as_nanos() as f64 / count as f64;
    (0..writers).try_for_each(|writer| fs::remove_file(format!("append{writer}")))?;
    Ok(ns)
}

fn replace(count: u64) -> anyhow::Result<()> {
    for n in 0..count {
        let mut file = File::create("new")?;
        file.write_all(&[n as u8; RECORD_BYTES])?;
        file.sync_all()?;
        fs::rename("new", format!("file{}", n % 10))?;
    }
    Ok(())
}

fn unsynced(count: u64) -> anyhow::Result<()> {
    for n in 0..count {
        File::create("new")?.write_all(&[n as u8; RECORD_BYTES])?;
        fs::remove_file("new")?;
    }
    Ok(())
}

/// Each statement is a transaction of its own.
fn sqlite(count: u64) -> anyhow::Result<f64> {
    let begin = "pragma journal_mode=wal; pragma synchronous=full;\n\
                 drop table if exists t; create table t(n integer primary key, text);\n";
    let mut script = begin.to_owned();
    (0..count).for_each(|n| script += &format!("insert into t values({n}, 'some text {n}');\n"));
    let begun = Instant::now();
    let mut shell = Command::new("sqlite3")
        .args(["-batch", "base"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("sqlite3 does not start")?;
    shell.stdin.take().context("no pipe")?.write_all(script.as_bytes())?;
    let ended = shell.wait()?;
    anyhow::ensure!(ended.success(), "sqlite3: {ended}");
    Ok(begun.elapsed().as_nanos() as f64 / count as f64)
}

/// Records as long as those of LevelDB's benchmark; ns of a put.
const LEVELDB: &str = r#"
import random, sys, time, plyvel
count, value = int(sys.argv[1]), random.Random(1).randbytes(100)
plyvel.destroy_db('leveldb')
base = plyvel.DB('leveldb', create_if_missing=True)
begun = time.perf_counter_ns()
for n in range(count):
    base.put(b'%016d' % n, value, sync=True)
print((time.perf_counter_ns() - begun) / count)
base.close()
"#;

fn leveldb(count: u64) -> anyhow::Result<f64> {
    // Debian's: another one would not have Debian's modules.
    let mut python = Command::new("/usr/bin/python3");
    let said = python.args(["-c", LEVELDB, &count.to_string()]).stderr(Stdio::null()).output();
    let text =
        String::from_utf8_lossy(&said.context("python3 does not start")?.stdout).into_owned();
    text.trim().parse().context("plyvel is not there (python3-plyvel)")
}

/// Starts the server of this side, and makes its tables where there are none; then pgbench, and an
/// orderly stop. The server wants a user without privileges.
const POSTGRES: &str = r#"
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
root=$(id -u | grep -x 0)
as() { ${root:+setpriv --reuid 65534 --regid 65534 --clear-groups} "$@"; }
export PGHOST=$(mktemp -d) PGUSER=bench PGDATABASE=postgres
[ -z "$root" ] || chown 65534:65534 . "$PGHOST"
exec 2> postgres.errors
new=
[ -e base/PG_VERSION ] || { new=1; as "$tools/initdb" -N -U bench -A trust -D base > /dev/null; }
as "$tools/pg_ctl" -D base -w -t 50 -o "-k $PGHOST -h ''" -l base/log start > /dev/null || exit 9
[ -z "$new" ] || as "$tools/pgbench" -i -q postgres > /dev/null
as "$tools/pgbench" -n -N -c 1 -t "$1" postgres | sed -n 's/^latency average = \(.*\) ms$/\1/p'
as "$tools/pg_ctl" -D base -m fast -w stop > /dev/null
rm -rf "$PGHOST"
"#;

fn postgres(count: u64) -> anyhow::Result<f64> {
    std::fs::create_dir_all("postgres")?;
    let mut shell = Command::new("bash");
    shell.args(["-c", POSTGRES, "bash", &count.to_string()]).current_dir("postgres");
    let said = shell.output().context("bash does not start")?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let ms: f64 = text.trim().parse().context("PostgreSQL is not there, or has not begun")?;
    Ok(ms * 1e6)
}

/// The server and who asks it are on the same side.
fn redis(when: &str, clients: u64, count: u64) -> anyhow::Result<f64> {
    let socket = std::env::current_dir()?.join("redis.sock");
    let socket = if socket.as_os_str().len() > 90 { "redis.sock".into() } else { socket };
    let mut server = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "yes", "--loglevel", "warning"])
        .args(["--auto-aof-rewrite-percentage", "0", "--appendfsync", when, "--unixsocket"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()
        .context("redis-server does not start")?;
    let asked = ask_redis(&socket, clients, count);
    // All that signals are blocked in inherit that: only this one ends it.
    let _ = server.kill();
    server.wait()?;
    fs::remove_dir_all("appendonlydir")?;
    // A killed server leaves it.
    let _ = fs::remove_file(&socket);
    asked
}

fn ask_redis(socket: &std::path::Path, clients: u64, count: u64) -> anyhow::Result<f64> {
    let asks = |arguments: &[&str]| {
        let mut client = Command::new("redis-benchmark");
        client.arg("-s").arg(socket).args(["--csv", "-t", "set", "-d", "64", "-r", "100000"]);
        client.args(arguments).output()
    };
    // It answers once it has begun; 10 s are enough for that.
    let is_up = || {
        let ping = Command::new("redis-cli").arg("-s").arg(socket).arg("ping").output();
        ping.is_ok_and(|said| said.stdout.starts_with(b"PONG"))
    };
    let up = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_up()
    });
    anyhow::ensure!(up, "redis-server does not answer");
    let said = asks(&["-n", &count.to_string(), "-c", &clients.to_string()])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text.lines().rfind(|line| line.starts_with("\"SET\"")).context("no rate")?;
    let rate: f64 = line.split('"').nth(3).context("no rate")?.parse()?;
    Ok(1e9 / rate.max(1.0))
}
