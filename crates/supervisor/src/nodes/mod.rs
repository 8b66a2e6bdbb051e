//! The other nodes of an image, and the agent of this one, which is the home of all names.
//!
//! ```text
//!   husk run --nodes 3 ── starts ──► agent of node 0 (`husk-node`): a process of this image
//!                      ── starts ──► images run-PID-1, run-PID-2: each a region, a supervisor and
//!                                    a keeper, as of `husk up`; no tree of their own
//!   a program's exec   ── joins  ──► one of these, as `husk exec` does
//! ```
//!
//! Invariants
//! 1. An image of one node has none of this.
//! 2. Whoever is killed is started again: the agent by us, within a tick, with the same socket, in
//!    whose queue requests wait; supervisors of the others by their keepers.
//! 3. The other nodes end with us, also where we are killed: they watch our number.

mod asked;
mod show;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use husk_carrier::Direct;
use husk_proto::Inode;
use husk_proto::image::{Cover, Image as _};
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::descent::state_and_parent;
use crate::failure::Failure;
use crate::hosts::Hosts;
use crate::named::{self, Name, SELF};
use crate::request::{MEMORY_BYTES_MIN, Settings, reason, size};
use crate::say::say;

pub use asked::{NODE_NAME, settle_asked};
pub use show::{Row, nodes, others, serves, table};

/// What the agent of a node calls itself.
const AGENT: &str = "husk: home";
/// Most nodes of an image.
pub const NODES_MAX: u32 = 16;
/// Most memory of a node that is the home of nothing.
const OTHER_BYTES_MAX: u64 = 1 << 30;
/// What part of the memory all the others have.
const OTHERS_PART: u64 = 4;
/// Requests that wait for a thread of the agent, or for another agent.
const QUEUE: i32 = 1024;
/// Agents that may be killed before they are given up.
const KILLED_MAX: u32 = 100;
/// How the home of all names is called in the private directory, and how the others begin.
const HOME: &str = "home";
const NODE: &str = "node";

/// A tree of the home, as another node is told of it.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Tree {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it shows a directory of the host.
    pub overlay: bool,
    /// Its root at home.
    pub root: [u32; 2],
    /// The device of an overlay.
    pub device: u64,
}

/// What another node is told of its image.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct PartOf {
    /// Its number.
    pub node: u16,
    /// Where the home of all names listens.
    pub home: PathBuf,
    /// The supervisor of the home.
    pub pid: u32,
    /// The home's trees.
    pub trees: Vec<Tree>,
}

/// What another node of an image called `base` is called.
fn name(base: &str, node: u16) -> String {
    format!("{base}-{node}")
}

/// The memory of the home and of each other node, where the image has `nodes`.
pub fn shares(nodes: u32, memory_bytes: u64) -> Result<(u64, u64), Failure> {
    let others = u64::from(nodes - 1);
    if others == 0 {
        return Ok((memory_bytes, 0));
    }
    let other = (memory_bytes / OTHERS_PART / others) >> 20 << 20;
    let other = other.clamp(MEMORY_BYTES_MIN, OTHER_BYTES_MAX);
    match memory_bytes.checked_sub(other * others).filter(|home| *home >= MEMORY_BYTES_MIN) {
        Some(home) => Ok((home, other)),
        None => Err(Failure::new(
            format!("cannot make {nodes} nodes of {}", size(memory_bytes)),
            format!("each needs {}", size(MEMORY_BYTES_MIN)),
            format!("choose --memory {} or more", size(MEMORY_BYTES_MIN * u64::from(nodes))),
        )),
    }
}

/// How many nodes were asked for.
pub fn settle_nodes(asked: Option<u32>) -> Result<u32, Failure> {
    let nodes = asked.unwrap_or(1);
    if (1..=NODES_MAX).contains(&nodes) {
        return Ok(nodes);
    }
    let remedy = format!("choose --nodes 1 to {NODES_MAX}");
    Err(Failure::new(format!("cannot make {nodes} nodes"), "out of range", remedy))
}

/// Makes a region that of another node: it shows the home's trees, and has none of its own.
pub fn join(direct: &mut Direct, part: &PartOf) -> Result<(), husk_proto::Errno> {
    for tree in &part.trees {
        let root = Inode { number: tree.root[0], generation: tree.root[1] };
        let cover = if tree.overlay { Cover::Overlay } else { Cover::Memory };
        direct.add_far_mount(tree.path.as_os_str().as_bytes(), cover, root, tree.device)?;
    }
    direct.set_node(part.node, part.home.as_os_str().as_bytes(), part.pid)
}

/// Whether the supervisor of the home has ended, of a node that is the home of nothing.
pub fn has_lost_home(direct: &Direct) -> bool {
    let gone = |state: &str| state == "Z" || state == "X";
    let found = || state_and_parent(direct.home_pid() as i32);
    direct.node() != 0 && found().is_none_or(|(state, _)| gone(&state))
}

/// The other nodes, and the agent of ours.
pub struct Nodes {
    region: OwnedFd,
    listener: OwnedFd,
    agent: Option<Child>,
    killed: u32,
    names: Vec<Name>,
    hosts: Option<Hosts>,
}

impl Nodes {
    /// Starts them; `region` and `direct` are the home's.
    pub fn begin(
        settings: &Settings,
        region: OwnedFd,
        direct: &mut Direct,
        base: &str,
    ) -> Result<Nodes, Failure> {
        let failed = |why: String| {
            Failure::new("cannot make the nodes", why, "see `husk check`, or leave out --nodes")
        };
        let private = direct.private_path().to_vec();
        if private.is_empty() {
            return Err(failed("there is no directory for their sockets".to_owned()));
        }
        let home = PathBuf::from(OsStr::from_bytes(&private)).join(HOME);
        let listener = listen(&home).map_err(|errno| failed(reason(&errno.into())))?;
        let mut nodes =
            Nodes { region, listener, agent: None, killed: 0, names: Vec::new(), hosts: None };
        nodes.start_agent().map_err(|problem| failed(reason(&problem)))?;
        let trees = trees(direct);
        for node in 1..settings.nodes as u16 {
            let pid = std::process::id();
            let part = PartOf { node, home: home.clone(), pid, trees: trees.clone() };
            nodes.start_other(settings, &part, base)?;
        }
        direct.set_nodes(settings.nodes as u16, std::process::id());
        if !settings.hosts.is_empty() {
            let hosts = Hosts::begin(&settings.hosts, &home, &trees)?;
            direct.set_nodes(husk_node::AFAR + hosts.count(), std::process::id());
            nodes.hosts = Some(hosts);
        }
        Ok(nodes)
    }

    fn start_other(
        &mut self,
        settings: &Settings,
        part: &PartOf,
        base: &str,
    ) -> Result<(), Failure> {
        let name = name(base, part.node);
        let told = serde_json::to_string(part).unwrap_or_default();
        let switch = if settings.guard { "on" } else { "off" };
        let words = [
            name.clone(),
            "--memory".to_owned(),
            settings.other_bytes.to_string(),
            "--kernels".to_owned(),
            settings.kernels.to_string(),
            "--guard".to_owned(),
            switch.to_owned(),
            "--discard".to_owned(),
            "--part-of".to_owned(),
            told,
        ];
        let words: Vec<OsString> = words.map(OsString::from).into();
        let name = Name::parse(OsStr::new(&name))?;
        named::up(words[0].as_os_str(), &words)?;
        // Programs find it by a short way: addresses of sockets are.
        let short = part.home.with_file_name(format!("{NODE}{}", part.node));
        let linked = named::path(&name).map(|path| std::os::unix::fs::symlink(path, short));
        self.names.push(name);
        match linked? {
            Ok(()) => Ok(()),
            Err(problem) => {
                let what = "cannot make the nodes";
                Err(Failure::new(what, reason(&problem), "see `husk check`"))
            }
        }
    }

    fn start_agent(&mut self) -> std::io::Result<()> {
        let mut command = Command::new(SELF);
        let (region, listener) = (self.region.try_clone()?, self.listener.try_clone()?);
        command
            .arg0(AGENT)
            .arg("serve-home")
            .stdin(Stdio::from(region))
            .stdout(Stdio::from(listener));
        self.agent = Some(command.spawn()?);
        Ok(())
    }

    /// Process `pid` has ended: if it was the agent, there is another one now.
    pub fn ended(&mut self, pid: Pid) {
        if self.agent.as_ref().is_none_or(|agent| agent.id() != pid.as_raw() as u32) {
            return;
        }
        if let Some(mut agent) = self.agent.take() {
            // Whoever told us may have waited for it.
            let _ = agent.wait();
        }
        self.killed += 1;
        if self.killed > KILLED_MAX {
            return say("the agent of node 0 was killed too often: the other nodes are cut off");
        }
        if let Err(problem) = self.start_agent() {
            say(&format!("cannot start another agent of node 0: {}", reason(&problem)));
        }
    }

    /// Those who work for the nodes: leaders of sessions, and no programs.
    pub fn workers(&self) -> Vec<Pid> {
        let keepers = self.names.iter().filter_map(named::keeper);
        let agent = self.agent.as_ref().map(Child::id);
        let hosts = self.hosts.iter().flat_map(Hosts::workers);
        keepers.chain(agent).chain(hosts).map(|pid| Pid::from_raw(pid as i32)).collect()
    }
}

impl Drop for Nodes {
    /// Ends the others, then the agent; nobody runs on them any more.
    fn drop(&mut self) {
        drop(self.hosts.take());
        for (node, name) in (1..).zip(&self.names) {
            match named::down(OsStr::new(&name.to_string()), true, true) {
                Ok(ended) if ended.complete => {}
                // It was the home of nothing: nothing is lost with it but its programs.
                Ok(_) => say(&format!("note: node {node} was killed, and its programs with it")),
                Err(failure) => say(&failure.to_string()),
            }
        }
        if let Some(mut agent) = self.agent.take() {
            // It may have been killed this moment.
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

fn trees(direct: &Direct) -> Vec<Tree> {
    let tree = |index| {
        let mount = direct.mount(index);
        let path = PathBuf::from(OsStr::from_bytes(mount.path));
        let overlay = mount.cover == Cover::Overlay;
        let root = [mount.root.number, mount.root.generation];
        Tree { path, overlay, root, device: direct.mount_device(index) }
    };
    (0..direct.mounts()).map(tree).collect()
}

/// A socket at `path` for whole messages.
pub(crate) fn listen(path: &std::path::Path) -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The directory keeps others out; programs may become other users.
    rustix::fs::chmod(path, rustix::fs::Mode::from_bits_truncate(0o666))?;
    rustix::net::listen(&socket, QUEUE)?;
    Ok(socket)
}

/// What `husk serve-home` does: is the agent of the node whose region is its standard input, and
/// whose socket its standard output.
pub fn serve_home() {
    // A session of its own: it is no program of the image.
    let _ = rustix::process::setsid();
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::thread::set_name(c"husk: home");
    let begun = begin_home();
    if let Err(why) = begun {
        say(&format!("the agent of node 0 ends: {why}; see `husk check`"));
    }
}

fn begin_home() -> Result<(), String> {
    let told = |problem: std::io::Error| reason(&problem);
    let region = rustix::stdio::stdin().try_clone_to_owned().map_err(told)?;
    let listener = rustix::stdio::stdout().try_clone_to_owned().map_err(told)?;
    let region = File::from(region);
    let layout = crate::visit::layout(&region)?;
    let region = OwnedFd::from(region);
    debug_assert!(region.as_raw_fd() >= 0 && listener.as_fd().as_raw_fd() >= 0);
    husk_node::serve(&region, layout, listener).map_err(|errno| format!("{errno:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_by_all_nodes_or_refused() {
        assert_eq!(shares(1, 1 << 30).unwrap(), (1 << 30, 0));
        let (home, other) = shares(3, 1 << 30).unwrap();
        assert_eq!((home + 2 * other, other), (1 << 30, 128 << 20));
        assert!(shares(2, 63 << 20).is_err());
        let (home, other) = shares(2, 64 << 20).unwrap();
        assert_eq!((home, other), (32 << 20, 32 << 20));
    }

    #[test]
    fn no_node_and_a_thousand_are_refused() {
        for nodes in [0, 17, 1000] {
            assert!(settle_nodes(Some(nodes)).unwrap_err().to_string().contains("--nodes 1 to 16"));
        }
        assert_eq!(settle_nodes(None).unwrap(), 1);
    }
}
