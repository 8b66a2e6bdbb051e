//! An nginx for tests of steering: some workers, each answers with its process id.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use husk_tests::husk::binary;
use husk_tests::{Scratch, against_native};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{as_nobody, give_to_nobody};

/// No wait is longer, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
pub const PAUSE: Duration = Duration::from_millis(20);
/// Source ports that Linux itself does not give to clients.
pub const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Whether there is nothing to test here.
pub fn unable() -> bool {
    against_native() || !rustix::process::getuid().is_root()
}

/// `husk net ARGUMENTS`, bounded.
pub fn net(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT.as_secs().to_string()).arg(binary()).arg("net").args(arguments);
    command
}

/// `husk net ARGUMENTS` in namespaces of its own, made by `unshare OPTIONS`, after `SETUP`.
pub fn apart(options: &[&str], setup: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT.as_secs().to_string()).arg("unshare").args(options);
    command.args(["sh", "-c", &format!("{setup} && exec \"$@\""), "sh"]);
    command.arg(binary()).arg("net").args(arguments);
    command
}

pub fn output(mut command: Command) -> Output {
    command.output().expect("it starts")
}

pub fn done(arguments: &[&str]) {
    let output = output(net(arguments));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}

/// The one line of a refusal.
pub fn refused(command: Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        sleep(PAUSE);
    }
}

/// An nginx.
pub struct Server {
    pub scratch: Scratch,
    pub master: Child,
    /// What was started has the master as its child.
    pub is_within: bool,
    pub port: u16,
}

/// Where the servers of most tests listen.
pub const LOOPBACK: &[&str] = &["127.0.0.1"];

impl Server {
    pub fn start() -> Server {
        Server::at(LOOPBACK)
    }

    /// Listens at all of these, on one port.
    pub fn at(addresses: &[&str]) -> Server {
        Server::within(&[], addresses)
    }

    /// The same, started by a command that has it as its only child.
    pub fn within(above: &[&str], addresses: &[&str]) -> Server {
        let started = |nginx: Command| match above {
            [] => nginx,
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(nginx.get_program()).args(nginx.get_args());
                command
            }
        };
        let mut server = Server::launch(addresses, 2, started);
        server.is_within = !above.is_empty();
        until("both workers answer", || server.workers().len() == 2 && server.ask(20_000).is_ok());
        server
    }

    /// An ordinary user's.
    pub fn of_nobody(addresses: &[&str]) -> Server {
        let server = Server::launch(addresses, 2, |nginx| as_nobody(&nginx));
        until("both workers answer", || server.workers().len() == 2 && server.ask(20_000).is_ok());
        server
    }

    /// An ordinary user's with so many workers, in a network namespace of its own, in which `SETUP`
    /// has run.
    pub fn of_nobody_apart(setup: &str, workers: usize) -> Server {
        let server = Server::launch(LOOPBACK, workers, |nginx| {
            let nginx = as_nobody(&nginx);
            let mut unshare = Command::new("unshare");
            let setup = format!("ip link set lo up && {setup} && exec \"$@\"");
            unshare.args(["--net", "sh", "-c", &setup, "sh"]).arg(nginx.get_program());
            unshare.args(nginx.get_args());
            unshare
        });
        until("all workers run", || server.workers().len() == workers);
        server
    }

    /// Starts it by the command that `started` makes of its own; not waited for.
    fn launch(
        addresses: &[&str],
        workers: usize,
        started: impl FnOnce(Command) -> Command,
    ) -> Server {
        let scratch = Scratch::new("steering");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|any| any.local_addr());
        let port = port.expect("a free port").port();
        write_configuration(&scratch, addresses, port, workers);
        // Also where it runs as an ordinary user.
        give_to_nobody(scratch.path());
        let path = scratch.path().to_str().expect("a plain path");
        let mut nginx = Command::new("nginx");
        nginx.args(["-p", path, "-e", "errors", "-c", &format!("{path}/conf")]);
        let master = started(nginx).spawn().expect("nginx is there: apt-get install nginx-light");
        Server { scratch, master, is_within: false, port }
    }

    pub fn workers(&self) -> Vec<i32> {
        self.nginx().map(children).unwrap_or_default()
    }

    /// The master's process.
    pub fn nginx(&self) -> Option<i32> {
        let started = self.master.id() as i32;
        if self.is_within { children(started).first().copied() } else { Some(started) }
    }

    pub fn signal(&self, pid: i32, signal: Signal) {
        kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("a signal");
    }

    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Who answers a connection from a source port.
    pub fn ask(&self, source: u16) -> std::io::Result<String> {
        self.ask_at(Ipv4Addr::LOCALHOST.into(), source)
    }

    /// Who answers at an address.
    pub fn ask_at(&self, ip: IpAddr, source: u16) -> std::io::Result<String> {
        let address = |port| SocketAddr::new(ip, port);
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address(source))?;
        connect(&socket, &address(self.port))?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        Ok(body.trim().to_owned())
    }

    /// Who answers connections of flow groups that `is_wanted` takes; none may fail.
    pub fn answers(&self, number: usize, is_wanted: impl Fn(u16) -> bool) -> Vec<String> {
        self.answers_at(Ipv4Addr::LOCALHOST.into(), number, is_wanted)
    }

    /// The same, at an address.
    pub fn answers_at(
        &self,
        ip: IpAddr,
        number: usize,
        is_wanted: impl Fn(u16) -> bool,
    ) -> Vec<String> {
        let ports = PORTS.filter(|port| is_wanted(port >> 4)).cycle();
        // Somebody else may have the port, or Linux may not yet be done with the last time.
        let taken = [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable];
        let asked = ports.filter_map(|port| match self.ask_at(ip, port) {
            Err(why) if taken.contains(&why.kind()) => None,
            answer => Some(answer.expect("an answer")),
        });
        asked.take(number).collect()
    }

    /// What `husk net top` shows of it.
    pub fn top(&self) -> Value {
        let output = output(net(&["top", &self.place(), "--once", "--json"]));
        assert!(output.status.success(), "{output:?}");
        let mut all: Value = serde_json::from_slice(&output.stdout).expect("one document");
        all[0].take()
    }

    pub fn balancer(&self) -> i32 {
        self.top()["balancer"].as_i64().expect("a process") as i32
    }
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has gone, in some tests.
        let _ = output(net(&["detach", &self.place()]));
        if let Some(nginx) = self.nginx().and_then(Pid::from_raw) {
            let _ = kill_process(nginx, Signal::TERM);
        }
        let end = Instant::now() + LIMIT;
        while matches!(self.master.try_wait(), Ok(None)) && Instant::now() < end {
            sleep(PAUSE);
        }
        let _ = self.master.kill();
        let _ = self.master.wait();
    }
}

pub fn write_configuration(scratch: &Scratch, addresses: &[&str], port: u16, workers: usize) {
    let listen = |ip: &&str| format!("listen {ip}:{port} reuseport;");
    let listens: String = addresses.iter().map(listen).collect();
    let path = scratch.path().display();
    let text = format!(
        "daemon off; user root; worker_processes {workers}; pid {path}/pid; error_log {path}/errors;
         events {{ worker_connections 512; }}
         http {{
             access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;
             uwsgi_temp_path u; scgi_temp_path s;
             server {{
                 {listens}
                 location / {{ return 200 \"$pid\\n\"; }}
             }}
         }}"
    );
    fs::write(scratch.path().join("conf"), text).expect("a configuration");
}

pub fn all_same(answers: &[String]) -> bool {
    answers.iter().all(|answer| *answer == answers[0])
}
