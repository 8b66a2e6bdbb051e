//! Servers whose clients are on the other side of an image's border, and the other way round.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use husk_tests::against_native;
use husk_tests::toolchain::build_go;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Images, shown, text, until};

/// A server of two worker threads, whose clients are on the other side of the image's border.
#[test]
fn a_tokio_server_and_its_clients_talk_across_the_image_s_border() {
    if against_native() {
        return;
    }
    let images = Images::new("tokio");
    images.done(&["up", "ci", "--memory", "64M"]);
    let echo = env!("CARGO_BIN_EXE_tokio-echo");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let command = |inside: bool, words: &[&str]| match inside {
        true => images.command(husk, &[&["exec", "ci", "--", echo], words].concat()),
        false => images.command(echo, words),
    };
    for server_inside in [true, false] {
        let mut serve = command(server_inside, &["serve", "tcp", "127.0.0.1:0"]);
        let mut server = serve.stdout(Stdio::piped()).spawn().expect("a server");
        let mut address = String::new();
        let output = server.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut address).expect("its address");
        let asked = command(!server_inside, &["ask", "tcp", address.trim()]).output();
        let asked = asked.expect("clients");
        // `timeout` hands the signal on.
        kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
        server.wait().expect("its end");
        let said = text(&asked.stdout);
        assert!(asked.status.success() && said.starts_with("tcp "), "{}", shown(&asked));
    }
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

/// Waits until somebody listens at the port of a script.
const LISTENS: &str = "for _ in $(seq 400); do
    (: < \"/dev/tcp/127.0.0.1/$1\") 2> /dev/null && break; sleep 0.05; done\n";

/// Runs `client` against `server`, scripts that get a port and the program that both may need: all
/// natively, then with either one in an image, where it must say the same.
fn cross(name: &str, program: &str, server: &str, client: &str) {
    if against_native() {
        return;
    }
    let images = Images::new(name);
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", "256M", "--overlay", work]);
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let command = |inside: bool, script: &str, port: &str| {
        let words = ["-euo", "pipefail", "-c", script, "bash", port, program];
        match inside {
            true => images.command(husk, &[&["exec", "ci", "--", "bash"], &words[..]].concat()),
            false => images.command("bash", &words),
        }
    };
    let mut expected = None;
    for (server_inside, client_inside) in [(false, false), (true, false), (false, true)] {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
        let port = free.expect("a port").port().to_string();
        let mut serves = command(server_inside, server, &port);
        let serves = serves.stdout(Stdio::null()).stderr(Stdio::null());
        let mut serves = serves.spawn().expect("a server");
        let asked = command(client_inside, &format!("{LISTENS}{client}"), &port).output();
        let asked = asked.expect("clients");
        // `timeout` hands the signal on.
        kill_process(Pid::from_child(&serves), Signal::TERM).expect("it runs");
        serves.wait().expect("its end");
        let number = port.parse::<u16>().expect("a port");
        until("nobody listens any more", || TcpListener::bind(("127.0.0.1", number)).is_ok());
        let said = text(&asked.stdout);
        let ways = format!("{name}, server inside {server_inside}, client {client_inside}");
        assert!(asked.status.success() && !said.is_empty(), "{ways}: {}", shown(&asked));
        assert_eq!(&said, expected.get_or_insert_with(|| said.clone()), "{ways}");
    }
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

#[test]
fn redis_and_its_clients_talk_across_the_image_s_border() {
    let server = "exec redis-server --port $1 --bind 127.0.0.1 --save '' --appendonly no \
    --unixsocket /var/tmp/husk-border-$1";
    let client = "
redis-benchmark -p $1 -n 3000 -c 20 -q -t set,get,lpush > /dev/null
unix=\"-s /var/tmp/husk-border-$1\"
redis-benchmark $unix -n 3000 -c 20 -q -t set,get > /dev/null
redis-benchmark $unix -n 3000 -c 4 -P 16 -q -t incr > /dev/null
redis-cli $unix incr counter:__rand_int__
redis-benchmark -p $1 -n 3000 -c 4 -P 16 -q -t incr > /dev/null
seq 200000 | redis-cli -p $1 -x set much
redis-cli -p $1 get much | md5sum
redis-cli -p $1 get counter:__rand_int__";
    cross("redis", "", server, client);
}

#[test]
fn nginx_and_its_clients_talk_across_the_image_s_border() {
    let server = r#"
d=$(mktemp -d); trap 'rm -r "$d"' EXIT; chmod 755 "$d"
seq 500000 > "$d/much"; echo hello > "$d/small"
user=; [ "$(id -u)" != 0 ] || user="user root;"
cat > "$d/conf" <<X
$user
worker_processes 2; pid $d/pid; error_log $d/errors; daemon off; events {}
http {
    access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;
    uwsgi_temp_path u; scgi_temp_path s; sendfile on;
    server { listen 127.0.0.1:$1; root $d; }
}
X
nginx -p "$d" -e errors -c "$d/conf" & child=$!
trap 'kill $child; wait $child' TERM
wait $child"#;
    let client = "
ab -q -k -n 2000 -c 20 http://127.0.0.1:$1/small | grep -E 'Complete|Failed'
ab -q -n 300 -c 10 http://127.0.0.1:$1/small | grep -E 'Complete|Failed'
ab -q -k -n 40 -c 4 http://127.0.0.1:$1/much | grep -E 'Complete|Failed'
python3 - $1 <<'X'
import hashlib, sys, urllib.request
much = urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/much', timeout=20).read()
print(len(much), hashlib.md5(much).hexdigest())
X";
    cross("nginx", "", server, client);
}

#[test]
fn memcached_and_its_clients_talk_across_the_image_s_border() {
    let server = "exec memcached -l 127.0.0.1 -p $1 -t 2 -u \"$(id -un)\"";
    let client = format!("python3 - $1 <<'X'\n{}X\n", include_str!("sources/cached.py"));
    cross("memcached", "", server, &client);
}

#[test]
fn postgresql_and_its_clients_talk_across_the_image_s_border() {
    let server = r#"
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as=(); [ "$(id -u)" != 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
mkdir "/var/tmp/husk-border-$1"; cd "/var/tmp/husk-border-$1"; trap 'rm -r "$PWD"' EXIT
if [ "$(id -u)" = 0 ]; then chown 65534:65534 .; fi
"${as[@]}" "$tools/initdb" -N -U tester -A trust -D data > log 2>&1
"${as[@]}" "$tools/postgres" -D data -F -k "$PWD/data" -h 127.0.0.1 -p $1 & child=$!
trap 'kill -INT $child; wait $child' TERM
wait $child"#;
    let client = r#"
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
export PGHOST=127.0.0.1 PGUSER=tester PGPORT=$1
for _ in $(seq 400); do "$tools/pg_isready" -q && break; sleep 0.05; done
"$tools/createdb" bench; "$tools/pgbench" -i -q bench > /dev/null 2>&1
"$tools/pgbench" -S -c 8 -j 2 -t 200 bench 2> /dev/null | grep -E 'processed|failed'
"$tools/pgbench" -c 2 -j 2 -t 50 bench 2> /dev/null | grep -E 'processed|failed'
"$tools/psql" -Atc 'select i from generate_series(1, 200000) i' bench | md5sum
export PGHOST=/var/tmp/husk-border-$1/data
"$tools/pgbench" -S -c 8 -j 2 -t 200 bench 2> /dev/null | grep -E 'processed|failed'
"$tools/psql" -Atc 'select i from generate_series(1, 200000) i' bench | md5sum"#;
    cross("postgres", "", server, client);
}

#[test]
fn node_s_http_and_its_clients_talk_across_the_image_s_border() {
    let script = |how: &str| {
        format!("exec node - {how} $1 <<'X'\n{}X\n", include_str!("sources/crossing.js"))
    };
    cross("node", "", &script("serve"), &script("ask"));
}

#[test]
fn go_s_http_and_its_clients_talk_across_the_image_s_border() {
    let scratch = husk_tests::Scratch::new("crossing-build");
    let program = scratch.path().join("crossing");
    build_go(include_str!("sources/crossing.go"), &program);
    let program = program.to_str().expect("a plain path");
    cross("go", program, "exec \"$2\" serve $1", "exec \"$2\" ask $1");
}

#[test]
fn asyncio_and_its_clients_talk_across_the_image_s_border() {
    let script = |how: &str| {
        format!("exec python3 - {how} $1 <<'X'\n{}X\n", include_str!("sources/crossing.py"))
    };
    cross("asyncio", "", &script("serve"), &script("ask"));
}
