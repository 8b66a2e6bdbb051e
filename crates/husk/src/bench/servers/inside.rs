//! Rows of `husk bench servers` where both sides are programs of one system, natively or in one
//! image: redis, PostgreSQL, nginx and memcached, each asked by the program that people measure it
//! with, and event loops of languages (node, Go, asyncio, tokio), asked by their own clients.
//!
//! A turn starts a server, asks it, and ends it. Its figure is the time a request takes by the rate
//! that the asking program prints, so start and end do not count. Both may use all processors.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;

use crate::bench::measure::memory;
use crate::bench::measure::scratch::Scratch;
use crate::bench::processes::exec::find;

/// Who is asked, and how.
#[derive(Clone, Copy)]
pub enum Load {
    /// redis, by redis-benchmark.
    Redis {
        /// What it is asked over.
        way: Way,
        /// Connections at a time.
        connections: u32,
        /// Requests under way on each.
        pipeline: u32,
        /// Of each kind, set and get.
        requests: u64,
    },
    /// PostgreSQL by `pgbench -S`, with so many clients.
    Postgres(Way, u32),
    /// nginx by wrk, with so many connections at a time.
    Nginx {
        /// How many.
        connections: u32,
        /// Whether they are kept, or each is for one request.
        keeps: bool,
    },
    /// One of [`Loop`], asked over so many connections that are kept.
    Loop(Loop, u32),
}

/// A server with an event loop of its own, and a client that says `Requests/sec`.
#[derive(Clone, Copy)]
pub enum Loop {
    /// memcached, asked by memcslap.
    Memcached,
    /// `http` of node on both sides.
    Node,
    /// `net/http` of Go on both sides.
    Go,
    /// `asyncio` of Python on both sides: 64 bytes there and back.
    Asyncio,
    /// The same on tokio, by the program `tokio-echo` of this project's tests.
    Tokio,
}

/// What connections go over.
#[derive(Clone, Copy)]
pub enum Way {
    /// 127.0.0.1.
    Tcp,
    /// A unix socket.
    Unix,
}

/// `$1` port, `$2` directory, `$3` way, then how to ask.
const REDIS: &str = "port=$1; cd \"$2\" || exit 1; way=$3; shift 3
redis-server --bind 127.0.0.1 --port \"$port\" --unixsocket redis.sock \\
    --save '' --appendonly no --loglevel warning &
server=$!
where=\"-p $port\"
[ \"$way\" = tcp ] || where='-s redis.sock'
for look in $(seq 1 200); do
    redis-cli $where ping >/dev/null 2>&1 && break
    sleep 0.05
done
redis-benchmark $where -t set,get -q \"$@\"
status=$?
kill -KILL \"$server\"; wait \"$server\" 2>/dev/null
exit $status";

/// The same; the server wants a user without privileges. What it has in memory when it is asked
/// needs no disk.
const POSTGRES: &str = r#"port=$1; cd "$2" || exit 1; shift 2
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
root=$(id -u | grep -x 0)
as() { ${root:+setpriv --reuid 65534 --regid 65534 --clear-groups} "$@"; }
export PGUSER=bench PGDATABASE=postgres PGPORT=$port PGHOST=$PWD
[ "$1" != tcp ] || export PGHOST=127.0.0.1
[ -z "$root" ] || chown 65534:65534 .
if [ ! -e base/made ]; then
    as "$tools/initdb" -N -U bench -A trust -D base >/dev/null || exit 1
fi
as "$tools/pg_ctl" -D base -w -t 50 -o "-p $port -k $PWD -c fsync=off" -l log start >/dev/null ||
    exit 1
[ -e base/made ] || as "$tools/pgbench" -i -q -s 5 >/dev/null 2>&1 && as touch base/made
as "$tools/pgbench" -n -S -c "$2" -T 1 >/dev/null 2>&1
as "$tools/pgbench" -n -S -c "$2" -T 3 2>/dev/null
status=$?
as "$tools/pg_ctl" -D base -m immediate -w stop >/dev/null
exit $status"#;

/// The same, as Debian sets nginx up but for its log.
const NGINX: &str = r#"port=$1; cd "$2" || exit 1; shift 2
mkdir -p pages parts && head -c 600 /dev/zero >pages/page
for kind in client_body proxy fastcgi uwsgi scgi; do
    echo "${kind}_temp_path $PWD/parts;"
done >ways
echo "daemon off; user root; worker_processes 1; pid $PWD/pid; error_log $PWD/errors; events { }
http { access_log off; sendfile on; tcp_nopush on; include $PWD/ways;
server { listen 127.0.0.1:$port; root $PWD/pages; } }" >conf
chmod -R a+rX .
nginx -e "$PWD/errors" -p "$PWD" -c "$PWD/conf" &
server=$!
for look in $(seq 1 200); do
    (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 0.05
done
[ "$2" = keeps ] || header='Connection: close'
wrk -t 1 -c "$1" ${header:+-H "$header"} -d 2s "http://127.0.0.1:$port/page"
status=$?
kill -QUIT "$server"; wait "$server" 2>/dev/null
exit $status"#;

/// The same of a server and a client that are told `serve PORT` and `ask PORT CONNECTIONS`.
const LOOP: &str = r#"port=$1; cd "$2" || exit 1; connections=$3; shift 3
"$@" serve "$port" &
server=$!
for look in $(seq 1 200); do
    (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 0.05
done
timeout 60 "$@" ask "$port" "$connections"
status=$?
kill -KILL "$server"; wait "$server" 2>/dev/null
exit $status"#;

/// Two thousand keys, each asked for by each connection.
const MEMCACHED: &str = r#"case $1 in
serve) exec memcached -l 127.0.0.1 -p "$2" -U 0 -u root -t 2 ;;
ask) memcslap --servers="127.0.0.1:$2" --concurrency="$3" --execute-number=2000 --test=get |
    awk '/Time to get/ { print "Requests/sec:", $4 / $(NF - 1), "all" }' ;;
esac"#;

/// `$0` is the source. It is compiled beside the directory, outside of the tree, once.
const GO: &str = r#"made=../go-http
[ -x "$made" ] || { printf %s "$0" >"$made.go" && go build -o "$made" "$made.go"; } || exit 1
exec "$made" "$@""#;

const TOKIO: &str = r#"case $1 in
serve) exec tokio-echo serve tcp "127.0.0.1:$2" >&2 ;;
ask) rate=$(tokio-echo rate tcp "127.0.0.1:$2" "$3" 2) && echo "Requests/sec: $rate all" ;;
esac"#;

impl Loop {
    /// What it needs.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Loop::Memcached => &["memcached", "memcslap"],
            Loop::Node => &["node"],
            Loop::Go => &["go"],
            Loop::Asyncio => &["python3"],
            Loop::Tokio => &["tokio-echo"],
        }
    }

    /// The command that serves and asks.
    const fn command(self) -> &'static [&'static str] {
        match self {
            Loop::Memcached => &["bash", "-c", MEMCACHED, "bash"],
            Loop::Node => &["node", "-e", include_str!("loops/http.js")],
            Loop::Go => &["bash", "-c", GO, include_str!("loops/http.go")],
            Loop::Asyncio => &["python3", "-c", include_str!("loops/echo.py")],
            Loop::Tokio => &["bash", "-c", TOKIO, "bash"],
        }
    }
}

impl Way {
    /// As the scripts are told.
    const fn word(self) -> &'static str {
        match self {
            Way::Tcp => "tcp",
            Way::Unix => "unix",
        }
    }
}

impl Load {
    /// So many connections to redis, with so many requests under way on each.
    pub const fn redis(way: Way, connections: u32, pipeline: u32, requests: u64) -> Load {
        Load::Redis { way, connections, pipeline, requests }
    }

    /// So many connections to nginx, which are kept or not.
    pub const fn nginx(connections: u32, keeps: bool) -> Load {
        Load::Nginx { connections, keeps }
    }

    fn programs(&self) -> &'static [&'static str] {
        match self {
            Load::Redis { .. } => &["redis-server", "redis-benchmark", "redis-cli"],
            Load::Postgres(..) => &["pgbench", "setpriv"],
            Load::Nginx { .. } => &["nginx", "wrk"],
            Load::Loop(which, _) => which.programs(),
        }
    }

    fn script(&self) -> &'static str {
        match self {
            Load::Redis { .. } => REDIS,
            Load::Postgres(..) => POSTGRES,
            Load::Nginx { .. } => NGINX,
            Load::Loop(..) => LOOP,
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Load::Redis { way, connections, pipeline, requests } => {
                let (connections, pipeline) = (u64::from(*connections), u64::from(*pipeline));
                let options = [("-c", connections), ("-P", pipeline), ("-n", *requests)];
                let option = |&(name, n): &(&str, u64)| [name.to_owned(), n.to_string()];
                let options = options.iter().flat_map(option);
                std::iter::once(way.word().to_owned()).chain(options).collect()
            }
            Load::Postgres(way, clients) => vec![way.word().to_owned(), clients.to_string()],
            Load::Nginx { connections, keeps } => {
                let how = if *keeps { "keeps" } else { "closes" };
                vec![connections.to_string(), how.to_owned()]
            }
            Load::Loop(which, connections) => {
                let command = which.command().iter().map(|&word| word.to_owned());
                std::iter::once(connections.to_string()).chain(command).collect()
            }
        }
    }

    /// The rates in what it prints.
    fn rates(&self, said: &str) -> Vec<f64> {
        let words: Vec<&str> = said.split_whitespace().collect();
        let found = words.windows(3).filter_map(|three| match (self, three) {
            // `GET: 123456.78 requests per second, ...`
            (Load::Redis { .. }, [rate, "requests", "per"]) => Some(*rate),
            // `tps = 123.4 (without initial connection time)`
            (Load::Postgres(..), ["tps", "=", rate]) => Some(*rate),
            (Load::Nginx { .. } | Load::Loop(..), ["Requests/sec:", rate, _]) => Some(*rate),
            _ => None,
        });
        found.filter_map(|rate| rate.parse().ok()).collect()
    }

    /// Whether what it prints says that not all was answered.
    fn failed(&self, said: &str) -> bool {
        matches!(self, Load::Nginx { .. })
            && ["Non-2xx", "Socket errors"].iter().any(|words| said.contains(words))
    }

    /// Requests a second of one turn: the mean of all kinds. `image`: in an image of its own.
    /// `weighs`: also the most memory that all processes had, in bytes, by a look every 50 ms.
    pub fn turn(
        &self,
        port: u16,
        files: &Path,
        image: Option<(&Scratch, Option<&str>)>,
        weighs: bool,
    ) -> anyhow::Result<(f64, u64)> {
        self.programs().iter().try_for_each(|program| find(program).map(drop))?;
        let mut command = match image {
            Some((scratch, guard)) => {
                let mut image = Command::new(&scratch.program);
                image.env("HUSK_CONFIG", "none").current_dir(&scratch.idle);
                image.args(["run", "--discard", "--memory", "1G", "--mount"]).arg(&scratch.mount);
                image.args(guard.map(|guard| format!("--guard={guard}")));
                image.args(["--", "bash"]);
                image
            }
            None => Command::new("bash"),
        };
        let files = image.map_or(files, |(scratch, _)| &scratch.mount);
        command.args(["-c", self.script(), "bash", &port.to_string()]).arg(files);
        command.args(self.arguments());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let (pid, ended) = (child.id(), AtomicBool::new(!weighs));
        let (output, memory_bytes) = std::thread::scope(|scope| {
            let most = scope.spawn(|| most_memory(pid, &ended));
            let output = child.wait_with_output();
            ended.store(true, Ordering::Relaxed);
            (output, most.join().unwrap_or(0))
        });
        let output = output?;
        let said = String::from_utf8_lossy(&output.stdout);
        let rates = self.rates(&said);
        let answered = output.status.success() && !rates.is_empty() && !self.failed(&said);
        anyhow::ensure!(answered, "{} said {said:?}", self.programs()[0]);
        Ok((rates.iter().sum::<f64>() / rates.len() as f64, memory_bytes))
    }
}

/// The most memory that a process and all that it starts have until it has ended, in bytes.
fn most_memory(pid: u32, ended: &AtomicBool) -> u64 {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let mut most = 0;
    while !ended.load(Ordering::Relaxed) {
        most = most.max(memory::tree_bytes(pid).unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::{Load, Way};

    #[test]
    fn the_last_rate_of_each_kind_is_read() {
        let said = "SET: rps=0.0 (overall: 0.0)\rSET: 61728.39 requests per second, p50=0.4 msec\n\
                    GET: 70000.00 requests per second, p50=0.3 msec\n";
        assert_eq!(Load::redis(Way::Tcp, 1, 1, 1).rates(said), [61728.39, 70000.0]);
        let said = "latency average = 0.1 ms\ntps = 1234.5 (without initial connection time)\n";
        assert_eq!(Load::Postgres(Way::Tcp, 8).rates(said), [1234.5]);
        let said = "  9 requests in 2.00s, 1MB read\nRequests/sec:   4711.08\nTransfer/sec: 1MB\n";
        assert_eq!(Load::nginx(50, true).rates(said), [4711.08]);
        assert!(Load::nginx(50, true).failed("  Socket errors: connect 1, read 0"));
    }
}
