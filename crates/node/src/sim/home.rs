//! The home of all names: a real region, its supervisor, and an agent that can be killed.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use husk_carrier::{CACHE_ADDRESS, Direct, Hold, Layout, STATE_ADDRESS, check, scratch_words};
use husk_client::{Buffers, Client};
use husk_proto::descriptor::{Descriptors as _, Slot};
use husk_proto::fs::{Credentials, Fs as _, Imported, Kind};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Inode, Process, Shortcuts as _};
use husk_wire::Header;
use husk_wire::record::{Object, Sort};

use super::asks::{BOTH, Facts};
use super::dice::LETTERS;
use super::tree::line;
use crate::CALL_BYTES_MAX;
use crate::agent::Agent;
use crate::dispatch::reply_to;
use crate::file::holds::end_of;
use crate::plain::Plain;
use crate::planted::planted;
use crate::sessions::Sessions;
use crate::translate::{object, told};

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 8 << 20 };
/// Mode of the root.
pub const ROOT_MODE: u32 = 0o755;
/// No process of the host has such a number: whoever has one looks dead as soon as it is looked at.
const PIDS: u32 = 5_000_000;
/// Between those of two agents: their threads'.
const PIDS_EACH: u32 = 8;
/// Threads of an agent.
pub const THREADS: usize = 4;

static NOW_NS: AtomicI64 = AtomicI64::new(0);

fn die() {
    // SAFETY: kills this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// The clock of the home.
fn clock() -> i64 {
    NOW_NS.load(Ordering::Relaxed)
}

/// Sets it.
pub fn set_clock(us: u64) {
    NOW_NS.store(1_000_000_000 + us as i64 * 1000, Ordering::Relaxed);
}

/// A thread of the agent, which has one request at a time.
struct Thread {
    agent: Agent,
    buffers: *mut Buffers,
}

/// An agent that runs.
struct Running {
    threads: Vec<Thread>,
    sessions: Arc<Sessions>,
    pid: u32,
}

/// The home's side.
pub struct Home {
    boss: Direct,
    pub root: Inode,
    running: Option<Running>,
    /// Agents that are dead and have not been cleaned up after.
    dead: Vec<u32>,
    next_pid: u32,
    bytes: Vec<u8>,
    /// Blocks and inodes that are free where there is nothing but the root.
    pub room: (u64, u64),
}

fn memory() -> OwnedFd {
    let memory = rustix::fs::memfd_create("husk-sim", rustix::fs::MemfdFlags::CLOEXEC);
    let memory = memory.expect("memory");
    rustix::fs::ftruncate(&memory, LAYOUT.total_bytes()).expect("room");
    memory
}

/// Maps the memory of all homes of this process, one after the other.
pub fn map() {
    let memory = memory();
    husk_carrier::map_region(memory.as_raw_fd() as u32, LAYOUT).expect("mapped");
    // Parts of files are written by its number: it stays.
    std::mem::forget(memory);
}

impl Home {
    /// A new one in the memory that is mapped; what used it is gone.
    pub fn new() -> Home {
        let halves = [(STATE_ADDRESS, LAYOUT.state_bytes()), (CACHE_ADDRESS, LAYOUT.cache_bytes())];
        for (address, bytes) in halves {
            // SAFETY: the region that `map` has mapped; nobody has a reference into it.
            let gone =
                unsafe { libc::madvise(address as *mut _, bytes as usize, libc::MADV_REMOVE) };
            assert_eq!(gone, 0);
        }
        set_clock(0);
        husk_carrier::format(LAYOUT, 77, b"/tmp/copies").expect("formatted");
        let mut boss = Direct::attach(clock, Process(0), PIDS, PIDS).expect("attached");
        let root = boss
            .add_mount(b"/tmp/mount", Cover::Memory, &Imported::top(b"/tmp/mount", ROOT_MODE))
            .expect("mounted");
        let (running, dead, bytes) = (None, Vec::new(), vec![0; CALL_BYTES_MAX]);
        let mut home = Home { boss, root, running, dead, next_pid: PIDS, bytes, room: (0, 0) };
        home.start_agent();
        home.kill_agent();
        home.bury_agents();
        home.room = home.room_left();
        home
    }

    /// Starts an agent.
    pub fn start_agent(&mut self) {
        self.next_pid += PIDS_EACH;
        let pid = self.next_pid;
        let process = self.boss.first_process(pid, &[]).expect("a record");
        let sessions = Arc::new(Sessions::begin(|_| {}));
        if planted!(HoldsDieWithAgent) {
            self.boss.end_holds(|_, _| true);
        }
        let threads = (0..THREADS as u32).map(|n| {
            let direct = Direct::attach(clock, process, pid, pid + n).expect("attached");
            let buffers = Box::into_raw(Box::new(Buffers::new()));
            // SAFETY: freed with the agent only (`kill_agent`).
            let client = Client::new(direct, Plain, Plain, unsafe { &mut *buffers });
            Thread { agent: Agent::new(client, sessions.clone()), buffers }
        });
        self.running = Some(Running { threads: threads.collect(), sessions, pid });
    }

    /// A program of the home that has a file open at this offset: its process, number, description.
    pub fn program_with(&mut self, file: Object, offset: u64) -> (u32, u32, Object) {
        self.next_pid += PIDS_EACH;
        let pid = self.next_pid;
        let process = self.boss.first_process(pid, &[]).expect("a record");
        let mut direct = Direct::attach(clock, process, pid, pid).expect("attached");
        let who = Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };
        let inode = crate::translate::inode(file).expect("an inode");
        let files = direct.files();
        let number = direct.open(&who, files, inode, BOTH, 0, 64).expect("open");
        let Slot::Husk(description) = direct.slot(files, number) else { panic!("the image's") };
        direct.set_offset(description, offset).expect("open");
        let generation = direct.generation_of(description);
        direct.detach();
        (pid, number, Object { number: description.0.into(), generation })
    }

    /// It knows that a node is dead, before it serves.
    pub fn knows_dead(&mut self, node: u16, epoch: u32) {
        if let Some(running) = self.running.as_ref().filter(|_| !planted!(DeathsForgotten)) {
            running.sessions.fence(node, epoch);
            end_of(&mut self.boss, node, epoch);
        }
    }

    /// Kills it, where it is.
    pub fn kill_agent(&mut self) {
        let Some(Running { threads, pid, .. }) = self.running.take() else { return };
        for Thread { agent, buffers } in threads {
            drop(agent);
            // SAFETY: made by `start_agent`, and who used it has just gone.
            drop(unsafe { Box::from_raw(buffers) });
        }
        self.dead.push(pid);
    }

    /// Its supervisor cleans up after all that were killed.
    pub fn bury_agents(&mut self) {
        for pid in std::mem::take(&mut self.dead) {
            self.boss.reap(pid).expect("reaped");
        }
    }

    /// Whether there is an agent.
    pub fn has_agent(&self) -> bool {
        self.running.is_some()
    }

    fn thread(&mut self, thread: usize) -> &mut Agent {
        &mut self.running.as_mut().expect("an agent").threads[thread].agent
    }

    /// What a thread of the agent answers to these bytes, if anything.
    pub fn answer_any(
        &mut self,
        thread: usize,
        message: &[u8],
        is_supervisor: bool,
    ) -> Option<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let length = reply_to(self.thread(thread), message, || is_supervisor, &mut bytes);
        let answer = length.map(|length| bytes[..length].to_vec());
        self.bytes = bytes;
        answer
    }

    /// The answer of a thread of the agent to a request.
    pub fn answer(&mut self, thread: usize, message: &[u8], is_supervisor: bool) -> Vec<u8> {
        self.answer_any(thread, message, is_supervisor).expect("each is answered")
    }

    /// How many messages broke the rules.
    pub fn refused(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.sessions.refused_in_all())
    }

    /// Nobody was there to take the last answer of a thread.
    pub fn was_not_heard(&mut self, thread: usize) {
        self.thread(thread).was_not_heard();
    }

    /// A thread of the agent dies inside the handler of a message, at its `point`th store, or at
    /// its end: whether it has so many.
    pub fn die_inside(&mut self, thread: usize, message: &[u8], point: u64) -> bool {
        /// The exit status of one that has not.
        const THROUGH: i32 = 7;
        // SAFETY: the child runs one handler, which only computes, and is killed then.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            husk_region::observe::kill::arm(point, die);
            self.answer(thread, message, false);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(THROUGH) };
        }
        let mut status = 0;
        // SAFETY: our own child, which is killed at the end of the handler at the latest.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        let is_through = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == THROUGH;
        let is_killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        assert!(is_through || is_killed, "{status}");
        is_killed
    }

    /// What the record of a request says, if there is one.
    pub fn record(&mut self, header: &Header) -> Option<[u64; 2]> {
        // Which transactions take it is not in its name.
        let asked = crate::once::asked(header, husk_carrier::Changes::Names)?;
        self.boss.answer(&asked, false).expect("it can be looked at")
    }

    /// Who asked has got the last answer of a thread.
    pub fn was_heard(&mut self, thread: usize) {
        self.thread(thread).was_heard();
    }

    /// How many files are open for other nodes.
    pub fn holds(&self) -> usize {
        self.holds_of(|_| true).len()
    }

    /// The holds that fit.
    pub fn holds_of(&self, fits: impl Fn(&Hold) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        self.boss.each_hold(&mut |name, hold| found.extend(fits(&hold).then_some(name)));
        found
    }

    /// Ends all holds.
    pub fn end_holds(&mut self) {
        self.boss.end_holds(|_, _| true);
    }

    /// What the structure check finds.
    pub fn findings(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let kernel = self.boss.kernel();
        let mut scratch = vec![0; scratch_words(kernel)];
        check(kernel, &mut scratch, &mut |finding| found.push(format!("{finding:?}")));
        found
    }

    /// Blocks and inodes that are free.
    pub fn room_left(&mut self) -> (u64, u64) {
        let usage = self.boss.usage();
        (usage.blocks_free, usage.inodes_free)
    }

    fn names(&mut self, dir: Inode) -> Vec<(Vec<u8>, Inode)> {
        let mut names = Vec::new();
        let listed = self.boss.list(dir, 0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.inode));
            true
        });
        listed.expect("listed");
        names
    }

    /// Every path, with what is there.
    pub fn snapshot(&mut self) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        self.walk(self.root, "", &mut seen);
        seen
    }

    fn walk(&mut self, inode: Inode, path: &str, seen: &mut BTreeMap<String, String>) {
        let found = told(&self.boss.attributes(inode).expect("named"));
        let (object, links) = (object(inode), found.links);
        let mut bytes = vec![0; found.size as usize];
        let count = match found.sort {
            Sort::File => self.boss.read_at(inode, 0, &mut bytes).expect("read"),
            Sort::Symlink => self.boss.read_link(inode, &mut bytes).expect("read"),
            _ => 0,
        };
        let (sort, mode, size) = (found.sort, found.mode, found.size);
        let facts = Facts { object, sort, mode, links, size };
        let extended = self.extended(inode);
        seen.insert(path.to_owned(), line(&facts, &bytes[..count], &extended));
        if sort == Sort::Directory {
            for (name, inode) in self.names(inode) {
                let path = format!("{path}/{}", String::from_utf8_lossy(&name));
                self.walk(inode, &path, seen);
            }
        }
    }

    fn extended(&mut self, inode: Inode) -> BTreeMap<u8, Vec<u8>> {
        let mut room = vec![0; 16 << 10];
        let mut value = |letter: &u8| {
            let name = [b"user.", &[*letter][..]].concat();
            let length = self.boss.extended(inode, &name, &mut room).ok()?;
            Some((*letter, room[..length].to_vec()))
        };
        LETTERS.iter().filter_map(&mut value).collect()
    }

    /// All bytes of a file; `None`: there is none.
    pub fn bytes_of(&mut self, file: Object) -> Option<Vec<u8>> {
        let inode = crate::translate::inode(file).ok()?;
        let mut bytes = vec![0; self.boss.attributes(inode).ok()?.size as usize];
        let count = self.boss.read_at(inode, 0, &mut bytes).ok()?;
        bytes.truncate(count);
        Some(bytes)
    }

    /// Where a name leads.
    pub fn named(&mut self, dir: Object, name: u8) -> Option<Object> {
        let dir = crate::translate::inode(dir).ok()?;
        self.boss.lookup(dir, &[name]).ok().map(|found| object(found.inode))
    }

    /// Removes all names.
    pub fn clear(&mut self) {
        self.remove_below(self.root);
    }

    fn remove_below(&mut self, dir: Inode) {
        let who = Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };
        for (name, inode) in self.names(dir) {
            if self.boss.step(inode).expect("named").kind == Kind::Directory {
                self.remove_below(inode);
                self.boss.rmdir(&who, dir, &name).expect("removed");
            } else {
                self.boss.unlink(&who, dir, &name).expect("removed");
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.kill_agent();
    }
}
