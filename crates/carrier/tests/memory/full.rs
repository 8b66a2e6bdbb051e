//! No room at every place where room is asked for: the n-th allocation of each call is refused, for
//! n = 1, 2, ... until the call ends without reaching it.
//!
//! ```text
//!   fresh image ─► prepare ─► look ─► call, n-th allocation refused ─► look ─► remove all ─► look
//!                                     error: as before, and of the kinds Linux gives
//!                                     no error: as when nothing was refused
//!                                                       nothing left of it, to the block ──┘
//! ```
//!
//! Each n is tried twice: that one allocation fails, or it and all after it do.

#[path = "../client/plain.rs"]
#[allow(dead_code)]
mod plain;
#[path = "../support/mod.rs"]
mod support;
#[path = "../client/system.rs"]
#[allow(dead_code)]
mod system;
#[path = "../support/world.rs"]
mod world;

use std::collections::BTreeMap;

use husk_abi::{Errno, nr};
use husk_carrier::{Direct, Directories, Layout};
use husk_client::{Buffers, Client};
use husk_proto::fs::Kind;
use husk_proto::process::Sharing;
use husk_proto::watch::Watches;
use husk_proto::{Admin as _, Descriptors, Fs, Inode, Processes, Shortcuts as _};
use husk_region::observe::kill;
use support::{FD_HIGH, format_anew, frozen, map, root_user, tid};
use system::{Husk, System};
use world::{WATCHED, WATCHER_FILE, build, findings, imported, remove_all, snapshot, watch};

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 16 << 20 };
/// More allocations than any call makes.
const ALLOCATIONS_MAX: u64 = 2000;
const CWD: usize = -100isize as usize;
/// Bytes moved by one call, and where to: behind what a small tree of blocks reaches.
const MOVED: usize = 60_000;
const FAR: usize = 5 << 20;
const MOUNT: &str = "/tmp/mount";

/// The clock that `plain` asks for: it stands still, so that two tries can be compared.
fn clock() -> i64 {
    frozen()
}

/// A program of the image, with what its calls need.
struct World {
    husk: Husk<Direct>,
    root: Inode,
    kept: Vec<Vec<u8>>,
}

impl World {
    fn enter(boss: &mut Direct, root: Inode) -> World {
        let pid = std::process::id();
        let process = boss.first_process(pid, &[0, 1, 2]).expect("a record");
        let direct = Direct::attach(frozen, process, pid, tid()).expect("attached");
        let plain = plain::Plain { region: FD_HIGH };
        let buffers = Box::leak(Box::new(Buffers::new()));
        let husk = Husk { client: Client::new(direct, plain, plain, buffers) };
        World { husk, root, kept: Vec::new() }
    }

    fn direct(&mut self) -> &mut Direct {
        self.husk.client.services()
    }

    /// Address of a path below the mount.
    fn path(&mut self, path: &str) -> usize {
        self.bytes(format!("{MOUNT}/{path}\0").into_bytes())
    }

    /// Address of bytes that live as long as the world.
    fn bytes(&mut self, bytes: Vec<u8>) -> usize {
        self.kept.push(bytes);
        self.kept.last().expect("just pushed").as_ptr() as usize
    }

    fn call(&mut self, number: usize, args: &[usize]) -> Result<i64, Errno> {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        Errno::check(self.husk.call(number, all)).map(|value| value as i64)
    }

    fn open(&mut self, path: &str, flags: i32) -> Result<i64, Errno> {
        let path = self.path(path);
        self.call(nr::openat, &[CWD, path, flags as usize, 0o644])
    }

    /// Two paths and a call.
    fn both(&mut self, number: usize, one: &str, two: &str) -> Result<i64, Errno> {
        let (one, two) = (self.path(one), self.path(two));
        self.call(number, &[one, two])
    }

    fn write(&mut self, fd: i64, length: usize) -> Result<i64, Errno> {
        let data = self.bytes(vec![7; length]);
        self.call(nr::write, &[fd as usize, data, length])
    }

    /// A host descriptor far from the numbers of the image.
    fn far(&self, fd: i64) -> usize {
        let far = plain::host(nr::fcntl, [fd as usize, libc::F_DUPFD as usize, 100, 0, 0, 0]);
        plain::host(nr::close, [fd as usize, 0, 0, 0, 0, 0]);
        usize::try_from(far).expect("a number")
    }

    /// A file of the host without a name, full of nines.
    fn host_file(&mut self) -> usize {
        let name = self.bytes(b"full\0".to_vec());
        let fd = self.far(plain::host(nr::memfd_create, [name, 0, 0, 0, 0, 0]));
        let nines = self.bytes(vec![9; MOVED]);
        assert_eq!(plain::host(nr::pwrite64, [fd, nines, MOVED, 0, 0, 0]), MOVED as i64);
        fd
    }

    /// What `ended` says of bytes moved to file 3 behind `at`, `EIO` if they are not all there or
    /// more than that is gone from where they were: `left` of `MOVED`.
    fn moved(&mut self, ended: Result<i64, Errno>, left: i64, at: usize) -> Result<i64, Errno> {
        let count = ended.unwrap_or(0) as usize;
        let there = self.bytes(vec![0; MOVED]);
        let got = self.call(nr::pread64, &[3, there, MOVED, at]).unwrap_or(0) as usize;
        let bytes = self.kept.last().expect("just pushed");
        let whole = got == count && bytes[..count].iter().all(|&byte| byte == 9);
        if whole && left as usize == MOVED - count { ended } else { Err(Errno::EIO) }
    }

    /// `splice` of a pipe with `MOVED` bytes to far behind the end of file 3.
    fn splice(&mut self) -> Result<i64, Errno> {
        let mut ends = [0i32; 2];
        plain::host(nr::pipe2, [ends.as_mut_ptr() as usize, 0, 0, 0, 0, 0]);
        let [read, write] = std::hint::black_box(ends).map(|fd| self.far(i64::from(fd)));
        let nines = self.bytes(vec![9; MOVED]);
        assert_eq!(plain::host(nr::write, [write, nines, MOVED, 0, 0, 0]), MOVED as i64);
        let at = self.bytes(FAR.to_ne_bytes().to_vec());
        let ended = self.call(nr::splice, &[read, 0, 3, at, MOVED, 0]);
        let mut left = 0i32;
        let asked = [read, libc::FIONREAD as usize, &raw mut left as usize, 0, 0, 0];
        plain::host(nr::ioctl, asked);
        for fd in [read, write] {
            plain::host(nr::close, [fd, 0, 0, 0, 0, 0]);
        }
        self.moved(ended, i64::from(std::hint::black_box(left)), FAR)
    }

    /// `sendfile` of `MOVED` bytes of the host to far behind the end of file 3.
    fn sendfile(&mut self) -> Result<i64, Errno> {
        let source = self.host_file();
        self.call(nr::lseek, &[3, FAR, 0])?;
        let ended = self.call(nr::sendfile, &[3, source, 0, MOVED]);
        let place = plain::host(nr::lseek, [source, 0, libc::SEEK_CUR as usize, 0, 0, 0]);
        plain::host(nr::close, [source, 0, 0, 0, 0, 0]);
        self.moved(ended, MOVED as i64 - place, FAR)
    }

    /// Record lock `kind` of `from..from + 10`.
    fn lock(&mut self, fd: i64, kind: i16, from: i64) -> Result<i64, Errno> {
        let mut flock = vec![0u8; 32];
        flock[..2].copy_from_slice(&kind.to_ne_bytes());
        flock[8..16].copy_from_slice(&from.to_ne_bytes());
        flock[16..24].copy_from_slice(&10i64.to_ne_bytes());
        let flock = self.bytes(flock);
        self.call(nr::fcntl, &[fd as usize, libc::F_SETLK as usize, flock])
    }
}

type Step = fn(&mut World) -> Result<i64, Errno>;

/// One call, what comes before it, and how it may say that there is no room.
struct Tried {
    name: &'static str,
    before: Step,
    call: Step,
    /// Empty: it needs no room and must not fail.
    errors: &'static [Errno],
    /// Whether a part of it may have happened (a short write).
    in_parts: bool,
}

const FULL: &[Errno] = &[Errno::ENOSPC];
/// A new file can find no room for itself or for what is open.
const OPENS_NEW: &[Errno] = &[Errno::ENOSPC, Errno::ENFILE];
const OPENS: &[Errno] = &[Errno::ENFILE];
const NUMBERS: &[Errno] = &[Errno::ENOMEM];
const FORKS: &[Errno] = &[Errno::EAGAIN, Errno::ENOMEM];
const LOCKS: &[Errno] = &[Errno::ENOLCK];

fn nothing(_: &mut World) -> Result<i64, Errno> {
    Ok(0)
}

/// Somebody watches all.
fn watched(w: &mut World) -> Result<i64, Errno> {
    let root = w.root;
    watch(w.direct(), root, WATCHED);
    Ok(0)
}

/// Calls on and under watches.
fn watches() -> Vec<Tried> {
    let tried = |name, before, call, errors| Tried { name, before, call, errors, in_parts: false };
    vec![
        tried(
            "watch",
            watched,
            |w| {
                let root = w.root;
                let dir = w.direct().lookup(root, b"host-dir")?.inode;
                let instance = w.direct().watch_find(WATCHER_FILE).expect("an instance");
                w.direct().watch_add(instance, dir, 0xfff).map(i64::from)
            },
            FULL,
        ),
        tried(
            "watch of the host",
            watched,
            |w| {
                let instance = w.direct().watch_find(WATCHER_FILE).expect("an instance");
                w.direct().watch_host(instance, 5000).map(i64::from)
            },
            FULL,
        ),
        tried("watched rename", watched, |w| w.both(nr::rename, "a/f4", "b/second"), &[]),
        tried(
            "watched unlink",
            watched,
            |w| {
                let path = w.path("a/f3");
                w.call(nr::unlink, &[path])
            },
            &[],
        ),
        tried(
            "end of a watcher",
            watched,
            |w| {
                let files = w.direct().files();
                w.direct().host_closed(files, 20);
                Ok(0)
            },
            &[],
        ),
    ]
}

fn open_f2(w: &mut World) -> Result<i64, Errno> {
    w.open("a/f2", libc::O_RDWR)
}

const LONG: &str = concat!(
    "a name of more than a line: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
);

/// Calls on names.
fn names() -> Vec<Tried> {
    let tried = |name, before, call, errors| Tried { name, before, call, errors, in_parts: false };
    vec![
        tried("open", nothing, |w| w.open("a/f2", libc::O_RDONLY), OPENS),
        tried("create", nothing, |w| w.open("a/new", libc::O_CREAT | libc::O_RDWR), OPENS_NEW),
        tried("create long", nothing, |w| w.open(LONG, libc::O_CREAT | libc::O_RDWR), OPENS_NEW),
        tried("open truncating", nothing, |w| w.open("a/f5", libc::O_TRUNC | 1), OPENS),
        tried(
            "mkdir",
            nothing,
            |w| {
                let path = w.path("a/newdir");
                w.call(nr::mkdir, &[path, 0o755])
            },
            FULL,
        ),
        tried(
            "mknod",
            nothing,
            |w| {
                let path = w.path("a/plain");
                w.call(nr::mknod, &[path, 0o100644, 0])
            },
            FULL,
        ),
        tried(
            "symlink",
            nothing,
            |w| {
                let text = [vec![b'q'; 3000], vec![0]].concat();
                let (text, path) = (w.bytes(text), w.path("a/newlink"));
                w.call(nr::symlink, &[text, path])
            },
            FULL,
        ),
        tried("link", nothing, |w| w.both(nr::link, "a/f2", LONG), FULL),
        tried("rename", nothing, |w| w.both(nr::rename, "a/f4", LONG), FULL),
        tried("rename over", nothing, |w| w.both(nr::rename, "a/f4", "b/second"), &[]),
        tried("rename of a directory", nothing, |w| w.both(nr::rename, "empty", "b/m"), FULL),
        tried("rename over the host's", nothing, |w| w.both(nr::rename, "a/f4", "host-file"), FULL),
        tried(
            "unlink",
            nothing,
            |w| {
                let path = w.path("a/f3");
                w.call(nr::unlink, &[path])
            },
            &[],
        ),
        tried(
            "rmdir",
            nothing,
            |w| {
                let path = w.path("empty");
                w.call(nr::rmdir, &[path])
            },
            &[],
        ),
        tried(
            "chdir",
            nothing,
            |w| {
                let path = w.path("empty");
                w.call(nr::chdir, &[path])
            },
            &[],
        ),
    ]
}

/// Calls on bytes, descriptors and processes. The file is descriptor 3.
fn the_rest() -> Vec<Tried> {
    let tried = |name, call, errors| Tried { name, before: open_f2, call, errors, in_parts: false };
    let parts = |name, call, errors| Tried { name, before: open_f2, call, errors, in_parts: true };
    vec![
        parts("write", |w| w.write(3, 9000), FULL),
        parts("large write", |w| w.write(3, 700_000), FULL),
        parts("splice", World::splice, FULL),
        parts("sendfile", World::sendfile, FULL),
        parts("allocate", |w| w.call(nr::fallocate, &[3, 0, 0, 300_000]), FULL),
        tried("truncate", |w| w.call(nr::ftruncate, &[3, 100]), &[]),
        tried("extend", |w| w.call(nr::ftruncate, &[3, 5_000_000]), &[]),
        tried("dup", |w| w.call(nr::dup, &[3]), &[]),
        tried("dup far away", |w| w.call(nr::fcntl, &[3, 0, 900]), NUMBERS),
        tried("dup2", |w| w.call(nr::dup2, &[3, 800]), NUMBERS),
        tried("record lock", |w| w.lock(3, 1, 0).and_then(|_| w.lock(3, 1, 50)), LOCKS),
        tried("flock", |w| w.call(nr::flock, &[3, 2]), LOCKS),
        tried(
            "fork",
            |w| {
                let child = w.direct().prepare_fork(Sharing::default())?;
                w.direct().cancel_fork(child);
                Ok(0)
            },
            FORKS,
        ),
        tried(
            "unshare",
            |w| {
                let both = Sharing { files: true, context: true };
                let child = w.direct().prepare_fork(both)?;
                let done = w.direct().unshare(both);
                w.direct().cancel_fork(child);
                done.map(|()| 0)
            },
            FORKS,
        ),
        tried("close", |w| w.call(nr::close, &[3]), &[]),
        parts(
            "import",
            |w| {
                let dir = w.root;
                let entries = [imported(b"later", Kind::File), imported(b"last", Kind::Symlink)];
                let dir = w.direct().lookup(dir, b"host-dir-2")?.inode;
                w.direct().import(dir, &entries)?;
                w.direct().import_done(dir).map(|()| 0)
            },
            FULL,
        ),
        tried(
            "adopt",
            |w| {
                let dir = w.root;
                let file = w.direct().lookup(dir, b"host-file")?.inode;
                let donor = w.direct().create_nameless(&root_user(), dir, 0o600, false)?;
                let done = w.direct().adopt(file, donor);
                w.direct().unpin(donor);
                done.map(|_| 0)
            },
            FULL,
        ),
    ]
}

type Look = BTreeMap<String, String>;

/// What one try came to.
struct Ended {
    result: Result<i64, Errno>,
    refused: u64,
    before: Look,
    after: Look,
    findings: usize,
    /// Free blocks and inodes once everything is removed.
    left: String,
}

fn prepared() -> (Direct, World) {
    let (mut boss, root) = format_anew(LAYOUT, Directories::default());
    assert_eq!(boss.import(root, &[imported(b"host-dir-2", Kind::Directory)]), Ok(true));
    build(&mut boss, root);
    let world = World::enter(&mut boss, root);
    (boss, world)
}

fn try_once(tried: &Tried, nth: u64, stays_full: bool) -> Ended {
    let (mut boss, mut world) = prepared();
    (tried.before)(&mut world).expect("prepared");
    let root = world.root;
    let before = snapshot(&mut boss, root);
    kill::refuse(nth, stays_full);
    let result = (tried.call)(&mut world);
    let refused = kill::refused();
    kill::refuse(0, false);
    let after = snapshot(&mut boss, root);
    let found = findings(&boss);
    for finding in &found {
        println!("{}: {finding:?}", tried.name);
    }
    world.direct().exit();
    world.direct().detach();
    remove_all(&mut boss, root);
    let usage = boss.usage();
    let left = format!("{} {} {}", usage.blocks_free, usage.inodes_free, findings(&boss).len());
    boss.detach();
    Ended { result, refused, before, after, findings: found.len(), left }
}

/// Tries one call to the end; how many refusals it met, and what was wrong.
fn sweep(tried: &Tried) -> (u64, Vec<String>) {
    let mut wrong = Vec::new();
    let mut refusals = 0;
    let usual = try_once(tried, 0, false);
    assert!(usual.result.is_ok(), "{}: fails undisturbed: {:?}", tried.name, usual.result);
    for stays_full in [false, true] {
        for nth in 1..ALLOCATIONS_MAX {
            let ended = try_once(tried, nth, stays_full);
            if ended.refused == 0 {
                break;
            }
            refusals += 1;
            let place = format!("{}, allocation {nth}, {stays_full}", tried.name);
            wrong.extend(judge(tried, &usual, &ended).map(|what| format!("{place}: {what}")));
        }
    }
    (refusals, wrong)
}

fn judge(tried: &Tried, usual: &Ended, ended: &Ended) -> Option<String> {
    if ended.findings > 0 {
        return Some(format!("{} findings", ended.findings));
    }
    if ended.left != usual.left {
        return Some(format!("left behind: {}, usually {}", ended.left, usual.left));
    }
    match ended.result {
        Err(errno) if !tried.errors.contains(&errno) => Some(format!("answered {errno:?}")),
        Err(_) if ended.before != ended.after && !tried.in_parts => {
            Some(format!("half made: {:?}", difference(&ended.before, &ended.after)))
        }
        Ok(_) if ended.after != usual.after && !tried.in_parts => {
            Some(format!("half made: {:?}", difference(&usual.after, &ended.after)))
        }
        _ => None,
    }
}

fn difference(one: &Look, two: &Look) -> Vec<String> {
    let only = |a: &Look, b: &Look| {
        let lines = a.iter().filter(|(name, text)| b.get(*name) != Some(text));
        lines.map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    [only(one, two), only(two, one)].concat()
}

#[test]
fn no_room_at_any_place_leaves_nothing_half_made() {
    map(LAYOUT);
    let only = std::env::var("HUSK_CALL").unwrap_or_default();
    let (mut refusals, mut wrong) = (0, Vec::new());
    for tried in names()
        .iter()
        .chain(&watches())
        .chain(&the_rest())
        .filter(|tried| tried.name.contains(&only))
    {
        let (met, faults) = sweep(tried);
        if met == 0 && !tried.errors.is_empty() {
            wrong.push(format!("{}: asks for no room", tried.name));
        }
        println!("{:24} {met:4} refusals, {} wrong", tried.name, faults.len());
        refusals += met;
        wrong.extend(faults);
    }
    println!("{refusals} refusals");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
