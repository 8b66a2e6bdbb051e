//! Two network namespaces with a veth between them, two queues in each direction.
//!
//! ```text
//!   sender 10.77.0.1 ── u0 ═══ u1 ── 10.77.0.2, 10.77.0.3 receiver
//! ```
//!
//! Namespaces belong to threads: a short thread enters one, opens a socket there, and hands it out.
//! They go with the last descriptor of theirs.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use anyhow::Context;
use husk_supervisor::output::failure::Failure;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};

use crate::bench::unable;

/// The sender's address.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Addresses of the receiver.
pub const RECEIVER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3)];

/// Two namespaces.
pub struct Lab {
    /// Where packets come from.
    pub sender: File,
    /// Where they go to.
    pub receiver: File,
}

/// What an ordinary user may do, too: become root of a user namespace. To be called while this
/// process has one thread.
pub fn gain_rights() -> anyhow::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|why| none(&why.into()))?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    Ok(())
}

/// Runs `work` in a namespace.
pub fn inside<T: Send>(
    namespace: &File,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let entered = || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        work()
    };
    thread::scope(|scope| scope.spawn(entered).join())
        .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread in a network namespace has panicked")))
}

/// A new namespace.
pub fn made() -> anyhow::Result<File> {
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        anyhow::Ok(File::open("/proc/thread-self/ns/net")?)
    };
    let made = thread::spawn(make).join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"));
    Ok(made.map_err(|why| none(&why))?)
}

fn none(why: &anyhow::Error) -> Failure {
    unable(format!("no network namespace can be made: {why}"), "run it as root")
}

impl Lab {
    /// Makes them.
    pub fn new() -> anyhow::Result<Lab> {
        let lab = Lab { sender: made()?, receiver: made()? };
        let other = format!("/proc/{}/fd/{}", std::process::id(), lab.receiver.as_raw_fd());
        let queues = "numrxqueues 2 numtxqueues 2";
        inside(&lab.sender, || {
            ip(&format!("link add u0 {queues} type veth peer name u1 {queues} netns {other}"))?;
            ip(&format!("address add {SENDER}/24 dev u0"))?;
            ip("link set u0 up")
        })?;
        inside(&lab.receiver, || {
            for address in RECEIVER {
                ip(&format!("address add {address}/24 dev u1"))?;
            }
            // The order of its sockets is found out from within (`husk net attach --way cbpf`).
            ip("link set lo up")?;
            ip("link set u1 up")
        })?;
        Ok(lab)
    }

    /// Merges packets that come (GRO), or not. A veth that does has a queue that can be polled.
    pub fn merge(&self, on: bool) -> anyhow::Result<()> {
        inside(&self.receiver, || {
            husk_net::udp::set_merging("u1", on).context("the veth cannot merge packets (GRO)")
        })
    }
}

/// Runs `ip` in the namespace of this thread.
pub fn ip(words: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let missing = |_| unable("no `ip` here", "install it (Debian: `apt-get install iproute2`)");
    let output = output.map_err(missing)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    anyhow::ensure!(output.status.success(), "`ip {words}`: {said}");
    Ok(())
}
