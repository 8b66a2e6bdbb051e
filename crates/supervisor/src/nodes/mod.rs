//! The other nodes of an image, and the agent of this one, which is the home of all names.
//!
//! ```text
//!   husk run --nodes 3 ── starts ──► agent of node 0 (`husk-node`): a process of this image
//!   husk up --nodes 3  ── starts ──► images NAME-1, NAME-2 (run-PID-1, run-PID-2): each a region,
//!                                    supervisor and keeper, as of `husk up`; no tree of its own
//!   a program's exec   ── joins  ──► one of these, as `husk exec` does
//! ```
//!
//! Invariants
//! 1. An image of one node has none of this.
//! 2. Whoever is killed is started again: the agent by us, within a tick, with the same socket, in
//!    whose queue requests wait; supervisors of the others by their keepers. Of an image with a
//!    name the keeper has the socket, too, for our successor (`resume`).
//! 3. The other nodes end with us, also where we are killed: they watch our number, or where the
//!    image has a name, whether anybody has its memory (`part`).

mod asked;
mod deaths;
mod part;
mod show;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_node::AFAR;
use husk_proto::Shortcuts as _;
use husk_proto::image::Cover;
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::hosts::{Apart, Hosts, Leaving, News, Root};
use crate::named::{self, Name, SELF};
use crate::nodes::deaths::Deaths;
use crate::output::failure::Failure;
use crate::output::say;
use crate::run::request::{MEMORY_BYTES_MIN, Settings, reason, size};

pub use asked::{NODE_NAME, settle_asked};
pub use part::{PartOf, Tree, join};
pub use show::{Row, nodes, other_hosts, others, serves, table};

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
/// Agents that may be killed within `WHILE` before they are given up.
const KILLED_MAX: usize = 100;
/// The time in which they count.
const WHILE: Duration = Duration::from_secs(60);
/// How the home of all names is called in the private directory, and how the others begin.
const HOME: &str = "home";
const NODE: &str = "node";

/// What another node of an image called `base` is called.
pub(crate) fn name(base: &str, node: u16) -> String {
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

/// The other nodes, and the agent of ours.
pub struct Nodes {
    region: OwnedFd,
    listener: OwnedFd,
    agent: Option<Child>,
    killed: Vec<Instant>,
    names: Vec<Name>,
    /// The image that has a name, and a log.
    logs: Option<Name>,
    hosts: Option<Hosts>,
    /// Whose files programs on other hosts see.
    root: Root,
    home: PathBuf,
    deaths: Deaths,
}

impl Nodes {
    /// Starts them; `region` and `direct` are the home's. They are called after `base`, and end
    /// with process `pid` (0: with the image).
    pub fn begin(
        settings: &Settings,
        region: OwnedFd,
        direct: &mut Direct,
        (base, pid): (&str, u32),
    ) -> Result<Nodes, Failure> {
        let home = socket(direct)?;
        let listener = listen(&home).map_err(|errno| unmade(reason(&errno.into())))?;
        let known = rustix::fs::fstat(&region).map_err(|errno| unmade(reason(&errno.into())))?;
        let mut nodes = Nodes::new(region, listener, &home, settings.root);
        nodes.logs = if pid == 0 { Name::parse(OsStr::new(base)).ok() } else { None };
        nodes.start_agent().map_err(|problem| unmade(reason(&problem)))?;
        let (trees, image) = (trees(direct), base.to_owned());
        let known = (known.st_dev, known.st_ino);
        for node in 1..settings.nodes as u16 {
            let (home, trees, image) = (home.clone(), trees.clone(), image.clone());
            nodes.start_other(settings, &PartOf { node, image, home, known, pid, trees })?;
        }
        let long = |errno| unmade(format!("{errno:?}"));
        direct.set_nodes(settings.nodes as u16, base.as_bytes(), pid).map_err(long)?;
        if !settings.hosts.is_empty() {
            let hosts = nodes.hosts(direct)?;
            settings.hosts.iter().try_for_each(|host| hosts.start(host))?;
            hosts.wait()?;
            let count = AFAR + hosts.count();
            direct.set_nodes(count, base.as_bytes(), pid).map_err(long)?;
        }
        Ok(nodes)
    }

    /// The agent alone, for an image called `base` that goes on: hosts are added to it.
    pub fn alone(
        region: OwnedFd,
        direct: &mut Direct,
        (base, root): (&str, Root),
    ) -> Result<Nodes, Failure> {
        let home = socket(direct)?;
        // Nobody answers at one of before.
        let _ = std::fs::remove_file(&home);
        let listener = listen(&home).map_err(|errno| unmade(reason(&errno.into())))?;
        let mut nodes = Nodes::new(region, listener, &home, root);
        nodes.logs = Name::parse(OsStr::new(base)).ok();
        nodes.start_agent().map_err(|problem| unmade(reason(&problem)))?;
        direct.set_nodes(0, base.as_bytes(), 0).map_err(|errno| unmade(format!("{errno:?}")))?;
        Ok(nodes)
    }

    /// The other hosts, of which there may be none yet.
    fn hosts(&mut self, direct: &Direct) -> Result<&mut Hosts, Failure> {
        if self.hosts.is_none() {
            self.hosts =
                Some(Hosts::none(&self.home, trees(direct), self.root, self.logs.clone())?);
        }
        let Some(hosts) = &mut self.hosts else { unreachable!("they are there") };
        Ok(hosts)
    }

    /// Begins a session with another host: what becomes of it is told by `host_news`.
    pub fn add_host(&mut self, direct: &Direct, host: &str) -> Result<(), Failure> {
        let hosts = self.hosts(direct)?;
        hosts.tell_at_end();
        hosts.start(host)
    }

    /// Takes another host out of the image: what is to be ended.
    pub fn remove_host(
        &mut self,
        direct: &mut Direct,
        host: &str,
        force: bool,
    ) -> Result<Leaving, Failure> {
        let Some(hosts) = &mut self.hosts else {
            return Err(no_hosts(host));
        };
        let (leaving, node) = hosts.leave(host, force)?;
        let count = hosts.count();
        self.deaths.add(node);
        set_hosts(direct, count);
        Ok(leaving)
    }

    /// Another host is not wanted any more by who has added it.
    pub fn give_up_host(&mut self, direct: &mut Direct, host: &str) {
        if let Ok(leaving) = self.remove_host(direct, host, true) {
            leaving.end();
        }
    }

    /// Notes what programs that came from outside were started with.
    pub fn note_apart(&self, apart: &Apart) {
        if self.hosts.is_some() {
            // What is not noted keeps its programs here.
            let _ = apart.write(&self.home);
        }
    }

    /// The other hosts by number; no text: that number is free.
    pub fn host_names(&self) -> Vec<String> {
        self.hosts.as_ref().map(Hosts::names).unwrap_or_default()
    }

    /// What has become of other hosts.
    pub fn host_news(&mut self, direct: &mut Direct) -> Vec<(String, News)> {
        let Some(hosts) = &mut self.hosts else { return Vec::new() };
        let news = hosts.news();
        if news.iter().any(|(_, one)| matches!(one, News::Up)) {
            set_hosts(direct, hosts.count());
        }
        news
    }

    /// Begins sessions again with the hosts that an image had whose supervisor was killed.
    fn resume_hosts(&mut self, direct: &Direct, names: &[String]) -> Result<(), Failure> {
        if names.is_empty() {
            return Ok(());
        }
        let hosts = self.hosts(direct)?;
        hosts.tell_at_end();
        for (number, host) in names.iter().enumerate() {
            hosts.forget_socket(number);
            if host.is_empty() {
                hosts.skip();
            } else if let Err(failure) = hosts.start_next(host) {
                say(&failure.to_string());
                hosts.skip();
            }
        }
        Ok(())
    }

    /// Goes on with those of an image whose supervisor was killed, which has a log as `name`, and
    /// with these other `hosts`, which see the files of `root`. Without a `listener` that was left,
    /// there is another one at the same place.
    pub fn resume(
        region: OwnedFd,
        direct: &Direct,
        listener: Option<OwnedFd>,
        (name, root, hosts): (&Name, Root, &[String]),
    ) -> Result<Nodes, Failure> {
        let home = socket(direct)?;
        let listener = listener.map_or_else(
            || {
                // Nobody answers there.
                let _ = std::fs::remove_file(&home);
                listen(&home).map_err(|errno| unmade(reason(&errno.into())))
            },
            Ok,
        )?;
        let mut nodes = Nodes::new(region, listener, &home, root);
        for (node, name) in others(direct) {
            let name = Name::parse(OsStr::new(&name))?;
            // It is there, unless the whole directory had to be made again.
            let _ = link(&home, node, &name);
            nodes.names.push(name);
        }
        nodes.logs = Some(name.clone());
        nodes.start_agent().map_err(|problem| unmade(reason(&problem)))?;
        nodes.resume_hosts(direct, hosts)?;
        Ok(nodes)
    }

    fn new(region: OwnedFd, listener: OwnedFd, home: &Path, root: Root) -> Nodes {
        let (killed, names, deaths) = (Vec::new(), Vec::new(), Deaths::new());
        let (agent, logs, hosts, home) = (None, None, None, home.to_owned());
        Nodes { region, listener, agent, killed, names, logs, hosts, root, home, deaths }
    }

    /// Where the others reach us.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The process that answers them.
    pub fn agent(&self) -> Option<u32> {
        self.agent.as_ref().map(Child::id)
    }

    /// Programs of the others.
    pub fn programs(&self) -> Vec<Pid> {
        let of = |name| named::processes_of(name).unwrap_or_default();
        self.names.iter().flat_map(of).map(|pid| Pid::from_raw(pid as i32)).collect()
    }

    /// Sees to it that there is an agent, and that it knows of nodes that are dead.
    pub fn tick(&mut self) {
        let ended = self.agent.as_mut().is_some_and(|agent| !matches!(agent.try_wait(), Ok(None)));
        if ended {
            self.replace_agent();
        }
        let lost = self.hosts.as_mut().map(Hosts::lost).unwrap_or_default();
        lost.into_iter().for_each(|node| self.deaths.add(node));
        self.deaths.look(&self.home, &self.names);
    }

    fn start_other(&mut self, settings: &Settings, part: &PartOf) -> Result<(), Failure> {
        let name = name(&part.image, part.node);
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
        let linked = link(&part.home, part.node, &name);
        self.names.push(name);
        linked
    }

    fn start_agent(&mut self) -> std::io::Result<()> {
        let mut command = Command::new(SELF);
        let (region, listener) = (self.region.try_clone()?, self.listener.try_clone()?);
        if let Some(name) = &self.logs {
            // What was the caller's is not kept open.
            command.stderr(Stdio::from(named::log(name)?));
        }
        command
            .arg0(AGENT)
            .args(["serve-home", &std::process::id().to_string()])
            .args(self.deaths.dead().map(|node| node.to_string()))
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
        self.replace_agent();
    }

    fn replace_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            // Whoever told us may have waited for it.
            let _ = agent.wait();
        }
        self.killed.retain(|at| at.elapsed() < WHILE);
        self.killed.push(Instant::now());
        if self.killed.len() > KILLED_MAX {
            return say("the agent of node 0 was killed too often: the other nodes are cut off");
        }
        self.deaths.unheard();
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

impl Nodes {
    /// Ends the other hosts: what went on with them, a line each.
    pub fn end_hosts(&mut self) -> Vec<String> {
        self.hosts.take().map(|mut hosts| hosts.end()).unwrap_or_default()
    }
}

impl Drop for Nodes {
    /// Ends the others, then the agent; nobody runs on them any more.
    fn drop(&mut self) {
        drop(self.hosts.take());
        for (node, name) in (1..).zip(&self.names) {
            match named::down_part(name) {
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

/// Why `host` cannot be taken out of an image that has none.
pub fn no_hosts(host: &str) -> Failure {
    let why = "the image has no other hosts";
    Failure::new(format!("cannot remove {host}"), why, "see `husk nodes IMAGE`")
}

/// Programs may go to so many other hosts from now on.
fn set_hosts(direct: &mut Direct, count: u16) {
    let (base, pid) = (direct.nodes_base().to_vec(), direct.home_pid());
    let nodes = if count == 0 { 0 } else { AFAR + count };
    // The name was set before: it is not too long.
    let _ = direct.set_nodes(nodes, &base, pid);
}

fn unmade(why: String) -> Failure {
    Failure::new("cannot make the nodes", why, "see `husk check`, or leave out --nodes")
}

/// Where the home listens.
fn socket(direct: &Direct) -> Result<PathBuf, Failure> {
    match direct.private_path() {
        b"" => Err(unmade("there is no directory for their sockets".to_owned())),
        private => Ok(PathBuf::from(OsStr::from_bytes(private)).join(HOME)),
    }
}

/// Programs find another node by a short way: addresses of sockets are.
fn link(home: &Path, node: u16, name: &Name) -> Result<(), Failure> {
    let short = home.with_file_name(format!("{NODE}{node}"));
    let linked = std::os::unix::fs::symlink(named::path(name)?, short);
    linked.map_err(|problem| unmade(reason(&problem)))
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
/// whose socket its standard output, until process `parent` ends. What `dead` nodes ask is refused.
pub fn serve_home(parent: u32, dead: &[u16]) {
    // A session of its own: it is no program of the image.
    let _ = rustix::process::setsid();
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32) != Some(parent) {
        // It ended before it was watched.
        return;
    }
    let _ = rustix::thread::set_name(c"husk: home");
    let begun = begin_home(dead);
    if let Err(why) = begun {
        say(&format!("the agent of node 0 ends: {why}; see `husk check`"));
    }
}

fn begin_home(dead: &[u16]) -> Result<(), String> {
    let told = |problem: std::io::Error| reason(&problem);
    let region = rustix::stdio::stdin().try_clone_to_owned().map_err(told)?;
    let listener = rustix::stdio::stdout().try_clone_to_owned().map_err(told)?;
    let region = File::from(region);
    let layout = crate::image::attach::layout(&region)?;
    let region = OwnedFd::from(region);
    debug_assert!(region.as_raw_fd() >= 0 && listener.as_fd().as_raw_fd() >= 0);
    let fenced = (dead, deaths::EPOCH);
    husk_node::serve(&region, layout, listener, fenced, say).map_err(|errno| format!("{errno:?}"))
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
