//! One side of `husk bench redis`: a server and a client in the working directory.
//!
//! ```text
//!   start POLICY       ─► ok PID               a server with `appendfsync POLICY`
//!   ask KIND CLIENTS N ─► ok RPS P50 P99       requests a second; ms
//!   stop               ─► ok -
//! ```

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;

/// Fields of a line of redis-benchmark --csv, behind the name of the request.
const RATE: usize = 1;
const P50: usize = 4;
const P99: usize = 6;
/// How long the server may take to begin: so many looks of 10 ms.
const LOOKS: u32 = 1000;

/// Serves until the parent closes the pipe.
pub fn serve(directory: &Path) -> anyhow::Result<()> {
    let mut server = None;
    crate::bench::storage::volume::answer_orders(directory, |order| {
        match order.split(' ').collect::<Vec<_>>()[..] {
            ["start", policy] => {
                let started = server.insert(Server::start(policy)?);
                Ok(started.child.id().to_string())
            }
            ["ask", kind, clients, count] => {
                server.as_ref().context("no server")?.ask(kind, clients, count)
            }
            ["stop"] => {
                server = None;
                Ok("-".to_owned())
            }
            _ => anyhow::bail!("no such order: {order}"),
        }
    })
}

struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(policy: &str) -> anyhow::Result<Server> {
        // Free a moment later, as the kernel gives ports round.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let child = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"])
            .args(["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"])
            .args(["--appendfsync", policy])
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server does not start; install redis-server")?;
        let server = Server { child, port };
        let up = (0..LOOKS).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let ping = Command::new("redis-cli").args(["-p", &server.port, "ping"]).output();
            ping.is_ok_and(|said| said.stdout.starts_with(b"PONG"))
        });
        anyhow::ensure!(up, "redis-server does not answer");
        Ok(server)
    }

    fn ask(&self, kind: &str, clients: &str, count: &str) -> anyhow::Result<String> {
        let said = Command::new("redis-benchmark")
            .args(["-p", &self.port, "--csv", "-t", kind, "-d", "64", "-r", "100000"])
            .args(["-c", clients, "-n", count])
            .output()
            .context("redis-benchmark does not start; install redis-tools")?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let name = format!("\"{}\"", kind.to_uppercase());
        let line = text.lines().rfind(|line| line.starts_with(&name)).context("no rate")?;
        let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
        let field = |n: usize| fields.get(n).copied().context("a field is missing");
        Ok(format!("{} {} {}", field(RATE)?, field(P50)?, field(P99)?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Signals that are blocked here are blocked in it: only this one ends it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all("appendonlydir");
    }
}
