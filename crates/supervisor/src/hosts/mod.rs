//! Other hosts of an image: `husk run --on HOST[,HOST...]`, `husk up --on`, `husk node add`.
//!
//! ```text
//!   husk run, or the supervisor of an image with a name
//!        ─ starts ─► husk serve-host HOST ─ ssh ─► husk serve-guest at HOST: a node without
//!                    (starter, one a host)         a tree of its own, as of `--nodes`
//!   a program's exec ─ becomes ─► shadow here ─────────► the program there, names and files here
//! ```
//!
//! Invariants
//! 1. An image without `--on` has none of this.
//! 2. Whatever can fail at the start fails before the first program starts, in one line.
//! 3. All of it ends with us: the starters at our death, ssh with them, the guests with ssh. The
//!    supervisor that follows one that was killed begins a session with each host again.

mod account;
mod all;
mod fingerprint;
mod loads;
mod program;
mod room;
mod session;

use serde::{Deserialize, Serialize};

use crate::output::failure::Failure;
pub use account::{Account, Running, seen};
pub use all::{Hosts, Leaving, News};
pub use program::apart::Apart;
pub use program::shadow::SHADOW as SHADOW_NAME;
pub use session::ssh::START_MAX;

/// Whose files programs on other hosts see outside of the trees.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Root {
    /// Those of the host on which they run; a program runs there if it is the same.
    #[default]
    There,
    /// This host's.
    Home,
}

impl Root {
    /// Whether nobody has said anything else.
    pub fn is_usual(&self) -> bool {
        *self == Root::default()
    }
}

/// Most hosts beside this one.
pub const HOSTS_MAX: usize = 64;
/// Memory of a node on another host: it is the home of nothing.
const MEMORY_BYTES: u64 = 256 << 20;
/// What shadows are, in the private directory.
const SHADOW: &str = "shadow";

/// How the socket of the starter of a host is called.
fn socket_name(number: u16) -> String {
    format!("host{number}")
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
            return refuse(&format!("{host:?}"), "it is not the name of a host");
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

/// What `husk serve-guest` does; its exit status.
pub fn serve_guest() -> u8 {
    session::guest::serve();
    0
}

/// What `husk serve-host` does; its exit status.
pub fn serve_host(host: &str, told: &str) -> u8 {
    session::starter::serve(host, told)
}

/// What shadows and jobs do, before the words are read as a command's; their exit status.
pub fn at_a_glance() -> Option<u8> {
    program::shadow::at_a_glance(std::env::args_os())
        .or_else(|| program::process::at_a_glance(std::env::args_os()))
        .or_else(|| room::at_a_glance(std::env::args_os()))
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
