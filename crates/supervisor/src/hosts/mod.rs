//! Other hosts of an image: `husk run --on HOST[,HOST...]`.
//!
//! ```text
//!   husk run ─ starts ─► husk serve-host HOST ─ ssh ─► husk serve-guest at HOST: a node without
//!                        (starter, one a host)         a tree of its own, as of `--nodes`
//!   a program's exec ─ becomes ─► shadow here ─────────► the program there, names and files here
//! ```
//!
//! Invariants
//! 1. An image without `--on` has none of this.
//! 2. Whatever can fail at the start fails before the first program starts, in one line.
//! 3. All of it ends with us: the starters at our death, ssh with them, the guests with ssh.

mod account;
mod guest;
mod job;
mod known;
mod own;
mod same;
mod shadow;
mod ssh;
mod starter;
mod stream;

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use husk_node::AFAR;

use crate::descent::descendants;
use crate::descriptors::inherited;
use crate::failure::Failure;
use crate::named::{SELF, answer};
use crate::nodes::Tree;
use crate::request::reason;
use crate::say::say;
pub use account::{Account, Running, seen};
pub use shadow::SHADOW as SHADOW_NAME;
use starter::Told;

/// Most hosts beside this one.
pub const HOSTS_MAX: usize = 64;
/// Memory of a node on another host: it is the home of nothing.
const MEMORY_BYTES: u64 = 256 << 20;
/// How long a starter may take for its account, and to end.
const END_MAX: Duration = Duration::from_secs(20);
/// What the runtime reads: which descriptors come from outside.
const APART: &str = "apart";
/// Most bytes of that: 24 for each.
const APART_BYTES_MAX: usize = 24 * 64;
/// What shadows are, in the private directory.
const SHADOW: &str = "shadow";

/// How the socket of the starter of `node` is called.
fn socket_name(node: u16) -> String {
    format!("host{}", node - AFAR)
}

/// The hosts that were named: each once, and no option of ssh among them.
pub fn settle_hosts(typed: &[String]) -> Result<Vec<String>, Failure> {
    let refuse = |what: &str, why: &str| {
        let remedy = "name hosts as for ssh: --on HOST[,HOST...]";
        Err(Failure::new(format!("cannot use {what}"), why, remedy))
    };
    let mut hosts: Vec<String> = Vec::new();
    for host in typed {
        if host.is_empty() || host.starts_with('-') || host.contains(['\0', '\n']) {
            return refuse(&format!("{host:?}"), "it is no name of a host");
        }
        if hosts.contains(host) {
            return refuse(host, "it is named twice");
        }
        hosts.push(host.clone());
    }
    if hosts.len() > HOSTS_MAX {
        let why = format!("an image has at most {HOSTS_MAX}");
        return refuse(&format!("{} hosts", hosts.len()), &why);
    }
    Ok(hosts)
}

/// One of them.
struct Started {
    host: String,
    socket: PathBuf,
    starter: Child,
}

/// The other hosts of an image.
pub struct Hosts {
    all: Vec<Started>,
    /// All are there: what went on is told at the end.
    begun: bool,
}

impl Hosts {
    /// Starts a session with each; node 0 listens at `home`, and has these trees.
    pub fn begin(hosts: &[String], home: &Path, trees: &[Tree]) -> Result<Hosts, Failure> {
        let mut begun = Hosts { all: Vec::new(), begun: false };
        let own = format!("/proc/{}/exe", std::process::id());
        let shadow = home.with_file_name(SHADOW);
        std::os::unix::fs::symlink(own, shadow).map_err(|problem| {
            Failure::new("cannot use other hosts", reason(&problem), "see `husk check`")
        })?;
        note_apart(home).map_err(|problem| {
            Failure::new("cannot use other hosts", reason(&problem), "see `husk check`")
        })?;
        // All of them at once, each of which may take some time.
        for (index, host) in hosts.iter().enumerate() {
            let node = AFAR + index as u16 + 1;
            let started = start(host, node, home, trees).map_err(|problem| {
                Failure::new(format!("cannot use {host}"), reason(&problem), "see `husk check`")
            })?;
            begun.all.push(started);
        }
        for started in &mut begun.all {
            let text = answer(&mut started.starter, ssh::START_MAX);
            let told = text.and_then(|text| serde_json::from_slice(&text).ok());
            let told: Result<(), Failure> = told.unwrap_or_else(|| {
                let what = format!("cannot use {}", started.host);
                Err(Failure::new(what, "it does not answer", "try again, or leave it out"))
            });
            told?;
        }
        begun.begun = true;
        Ok(begun)
    }

    /// How many.
    pub fn count(&self) -> u16 {
        self.all.len() as u16
    }

    /// The processes that carry their links: the starters, and what ssh consists of.
    pub fn workers(&self) -> impl Iterator<Item = u32> + '_ {
        self.all.iter().map(|started| started.starter.id()).flat_map(|starter| {
            let others = descendants(starter).into_iter().map(|pid| pid.as_raw() as u32);
            std::iter::once(starter).chain(others)
        })
    }
}

/// Notes which descriptors beside the standard ones we were started with: number, device and inode
/// of each. They are nobody's who starts a program in the image, and do not keep it here.
fn note_apart(home: &Path) -> std::io::Result<()> {
    let mut text = Vec::new();
    for number in inherited().into_iter().filter(|number| *number > 2) {
        let Ok(found) = std::fs::metadata(format!("/proc/self/fd/{number}")) else { continue };
        for value in [number.into(), found.dev(), found.ino()] {
            text.extend_from_slice(&value.to_le_bytes());
        }
    }
    text.truncate(APART_BYTES_MAX);
    std::fs::write(home.with_file_name(APART), text)
}

fn start(host: &str, node: u16, home: &Path, trees: &[Tree]) -> std::io::Result<Started> {
    let socket = home.with_file_name(socket_name(node));
    let listener = OwnedFd::from(UnixListener::bind(&socket)?);
    let told =
        Told { node, home: home.to_owned(), trees: trees.to_vec(), memory_bytes: MEMORY_BYTES };
    let starter = Command::new(SELF)
        .args(["serve-host", host, &serde_json::to_string(&told)?])
        .stdin(Stdio::from(listener))
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(Started { host: host.to_owned(), socket, starter })
}

impl Started {
    /// Wants an end; what went on.
    fn end(&self) -> Option<Account> {
        account::ask(&self.socket, starter::ENDS, END_MAX)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for started in &mut self.all {
            if let Some(account) = started.end().filter(|_| self.begun) {
                say(&account.line());
            }
        }
        for started in &mut self.all {
            // It ends when ssh has, which has a limit; who does not is killed.
            if !ended_within(&mut started.starter, END_MAX) {
                let _ = started.starter.kill();
            }
            let _ = started.starter.wait();
        }
    }
}

/// Whether a child ends in time.
fn ended_within(child: &mut Child, patience: Duration) -> bool {
    let end = std::time::Instant::now() + patience;
    while std::time::Instant::now() < end {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            _ => return true,
        }
    }
    false
}

/// What `husk serve-guest` does; its exit status.
pub fn serve_guest() -> u8 {
    guest::serve();
    0
}

/// What `husk serve-host` does; its exit status.
pub fn serve_host(host: &str, told: &str) -> u8 {
    starter::serve(host, told)
}

/// What shadows and jobs do, before the words are read as a command's; their exit status.
pub fn at_a_glance() -> Option<u8> {
    shadow::at_a_glance(std::env::args_os()).or_else(|| guest::at_a_glance(std::env::args_os()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_once_each_and_are_no_options_of_ssh() {
        let settle = |typed: &[&str]| {
            settle_hosts(&typed.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(settle(&["a", "user@b"]).unwrap(), ["a", "user@b"]);
        for wrong in [&["a", "a"][..], &["-oProxyCommand=x"], &[""], &["a\nb"]] {
            assert!(settle(wrong).unwrap_err().to_string().contains("--on HOST"), "{wrong:?}");
        }
        let many: Vec<_> = (0..=HOSTS_MAX).map(|number| format!("h{number}")).collect();
        assert!(settle_hosts(&many).is_err());
    }
}
