//! All short sequences of operations on a volume's tree, with syncs between them, and a crash after
//! the last one or inside of it, on a disk that keeps any part of what was not flushed.
//!
//! ```text
//!   operation ─ sync? ─ operation ─ sync? ─ operation ─ sync ─► crash ─► replay ─► compare
//!                                                        └─ or the power goes inside of it
//! ```
//!
//! What must hold, as on ext4 with its journal, where a sync commits all names:
//! 1. After a sync the names are those that were there, and lead to the same objects.
//! 2. The synced object has the bytes, the mode and the extended attributes that it had; one that
//!    was synced before and has not changed since has its own as well. (ext4 keeps the mode of
//!    others, too; nobody may rely on that.) The clock stands still or goes back: no time tells
//!    that something has changed.
//! 3. Inside of a sync the names are those of the last one or those of this one, never a mixture;
//!    and 2 holds for what was synced before.
//! 4. The same where the volume gets another disk, at whatever write the power goes; while it is
//!    not certain which disk counts, on both.

mod fuzzy;
mod policies;
mod traces;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use husk_carrier::{Direct, Layout};
use husk_proto::fs::{Change, Credentials, Imported, Node as Make, SetExtended};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Errno, Fs as _, Inode};
use husk_storage::Uuid;
use husk_storage::disk::Disk as _;
use husk_storage::disk::sim::{Random, Sim};
use husk_storage::log::{Found, Log};
use husk_storage::tree::{Id, Kind, Tree};
use rustix::fs::{FallocateFlags, fallocate};

use husk_kernel::fs::directory::names;
use husk_kernel::fs::unsaved;

use super::facts::{attributes, extended, id_of};
use super::save::{Mutant, PLANTED, Place, Saver};
use crate::image;
use crate::image::descriptors;

const LAYOUT: Layout = Layout { kernels: 1, memory_bytes: 32 << 20 };
const SIZE_BYTES: u64 = 1 << 20;
const UUID: Uuid = Uuid([7; 16]);
const ROOT: Credentials<'_> =
    Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };
/// Longest sequence, for every change and with `HUSK_FULL`.
const LENGTHS: (usize, usize) = (2, 3);
/// Writes and flushes of a sync, about: the power goes after less of them.
const STEPS: u64 = 8;
/// Ways to get another disk: for each of half as many writes, settled and not.
const MOVES: u64 = 10;

/// An operation; `/` is in names below the directory `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create(&'static str),
    Append(&'static str),
    Grow(&'static str),
    Reserve(&'static str),
    Cut(&'static str),
    Mode(&'static str),
    Extend(&'static str),
    /// Nothing: it is synced.
    Look(&'static str),
    MakeDir(&'static str),
    Symlink(&'static str),
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str),
}

const STEPS_ALL: &[Step] = &[
    Step::Create("a"),
    Step::Create("b"),
    Step::Append("a"),
    Step::Append("b"),
    Step::Grow("a"),
    Step::Reserve("a"),
    Step::Cut("a"),
    Step::Mode("a"),
    Step::Extend("a"),
    Step::Extend("d"),
    Step::Look("a"),
    Step::MakeDir("d"),
    Step::Create("d/a"),
    Step::Symlink("s"),
    Step::Link("a", "b"),
    Step::Link("a", "d/a"),
    Step::Rename("a", "b"),
    Step::Rename("a", "d/a"),
    Step::Rename("d/a", "a"),
    Step::Rename("b", "a"),
    Step::Remove("a"),
    Step::Remove("b"),
];

/// Path, and what a name leads to.
type Names = BTreeMap<String, (Id, Kind)>;

/// What a crash may leave.
#[derive(Clone, Default)]
struct Promised {
    names: Names,
    /// Objects as they were synced, as long as they have not changed.
    synced: HashMap<Id, Synced>,
}

/// Mode, bytes, and extended attributes.
type Synced = (u32, Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>);

struct World {
    direct: Direct,
    root: Inode,
    saver: Saver<Arc<Sim>>,
    disk: Arc<Sim>,
    promised: Promised,
    dice: Random,
}

/// Whether it does; else it stands still.
static CLOCK_GOES_BACK: AtomicBool = AtomicBool::new(false);

fn clock() -> i64 {
    static NOW_NS: AtomicI64 = AtomicI64::new(1 << 60);
    let by = i64::from(CLOCK_GOES_BACK.load(Ordering::Relaxed));
    NOW_NS.fetch_sub(by, Ordering::Relaxed)
}

fn disk(size_bytes: u64, seed: u64) -> (Arc<Sim>, Log<Arc<Sim>>) {
    let disk = Arc::new(Sim::new(size_bytes, seed));
    Log::format(&disk, 0, size_bytes, UUID).expect("a log");
    let opened = Log::open(Arc::clone(&disk), (0, size_bytes), (UUID, 1), |_| ());
    (disk, opened.expect("an empty log").0)
}

/// Where a volume is, while it gets another disk.
struct Moving {
    is_taken: Cell<bool>,
    settles: bool,
}

impl Place for Moving {
    fn take(&self) -> io::Result<()> {
        self.is_taken.set(true);
        Ok(())
    }

    fn settle(&self) -> io::Result<()> {
        if self.settles { Ok(()) } else { Err(io::Error::from_raw_os_error(Errno::EIO.0)) }
    }
}

impl World {
    /// Formats the image that is mapped, and a disk.
    fn new(region: &OwnedFd, seed: u64) -> World {
        // Of the image before nothing is left.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(region, flags, 0, LAYOUT.file_bytes()).expect("a hole");
        husk_carrier::format(LAYOUT, 77, b"/nowhere").expect("an image");
        let mut direct = image::attach_with(clock).expect("a way to it");
        let directory = Imported::top(b"", 0o755);
        let root = direct.add_mount(b"/volume", Cover::Memory, &directory).expect("a tree");
        let tree = direct.make_volume(root).expect("a volume");
        let (disk, log) = disk(SIZE_BYTES, seed);
        let saver = Saver::begin(&mut direct, (tree, root), log).expect("a snapshot");
        let (promised, dice) = (Promised::default(), Random::new(seed));
        World { direct, root, saver, disk, promised, dice }
    }

    /// The directory and the name that a path is.
    fn place(&mut self, path: &'static str) -> Result<(Inode, &'static [u8]), Errno> {
        match path.split_once('/') {
            None => Ok((self.root, path.as_bytes())),
            Some((dir, name)) => {
                let dir = self.direct.lookup(self.root, dir.as_bytes())?.inode;
                Ok((dir, name.as_bytes()))
            }
        }
    }

    fn inode(&mut self, path: &'static str) -> Result<Inode, Errno> {
        let (dir, name) = self.place(path)?;
        Ok(self.direct.lookup(dir, name)?.inode)
    }

    /// Does one; what is to be synced after it.
    fn step(&mut self, step: Step) -> Result<Inode, Errno> {
        let make = |world: &mut World, path, node: Make<'_>| {
            let (dir, name) = world.place(path)?;
            world.direct.create(&ROOT, dir, name, node)
        };
        match step {
            Step::Create(path) => make(self, path, Make::File(0o644)),
            Step::MakeDir(path) => make(self, path, Make::Directory(0o755)),
            Step::Symlink(path) => make(self, path, Make::Symlink(b"a")),
            Step::Append(path) => {
                let inode = self.inode(path)?;
                let size = attributes(&mut self.direct, inode)?.1;
                self.direct.write_at(inode, size, &[b'x'; 3000])?;
                self.changed(inode)
            }
            Step::Cut(path) => {
                let inode = self.inode(path)?;
                let size = attributes(&mut self.direct, inode)?.1;
                self.direct.truncate(inode, size / 2)?;
                self.changed(inode)
            }
            Step::Grow(path) => {
                let inode = self.inode(path)?;
                let size = attributes(&mut self.direct, inode)?.1;
                self.direct.truncate(inode, size + 5000)?;
                self.changed(inode)
            }
            Step::Reserve(path) => {
                let inode = self.inode(path)?;
                let size = attributes(&mut self.direct, inode)?.1;
                self.direct.allocate(inode, 0, size + 5000, false)?;
                self.changed(inode)
            }
            Step::Extend(path) => {
                let inode = self.inode(path)?;
                let value = [self.dice.draw() as u8; 9];
                self.direct.set_extended(inode, b"user.x", Some(&value), SetExtended::Any)?;
                self.changed(inode)
            }
            Step::Look(path) => self.inode(path),
            Step::Mode(path) => {
                let inode = self.inode(path)?;
                let mode = Some(0o600);
                self.direct.change(&ROOT, inode, Change { mode, ..Change::default() })?;
                self.changed(inode)
            }
            Step::Link(path, other) => {
                let inode = self.inode(path)?;
                let (dir, name) = self.place(other)?;
                self.direct.link(&ROOT, inode, dir, name)?;
                Ok(inode)
            }
            Step::Rename(path, other) => {
                let (source, target) = (self.place(path)?, self.place(other)?);
                self.direct.rename(&ROOT, source.0, source.1, target.0, target.1, 0)?;
                self.inode(other)
            }
            Step::Remove(path) => {
                let (dir, name) = self.place(path)?;
                self.direct.unlink(&ROOT, dir, name)?;
                Ok(dir)
            }
        }
    }

    fn changed(&mut self, inode: Inode) -> Result<Inode, Errno> {
        self.promised.synced.remove(&id_of(inode));
        Ok(inode)
    }

    /// The names in the image.
    fn names(&mut self) -> Names {
        let (mut names, mut todo) = (Names::new(), vec![(self.root, String::new())]);
        while let Some((dir, before)) = todo.pop() {
            let mut entries = Vec::new();
            let list = &mut |entry: husk_proto::fs::Entry<'_>| {
                entries.push((String::from_utf8_lossy(entry.name).into_owned(), entry.inode));
                true
            };
            self.direct.list(dir, 0, list).expect("its names");
            for (name, inode) in entries {
                let found = attributes(&mut self.direct, inode).expect("it is there").0;
                let path = format!("{before}/{name}");
                if found.kind == Kind::Directory {
                    todo.push((inode, path.clone()));
                }
                names.insert(path, (id_of(inode), found.kind));
            }
        }
        names
    }

    fn bytes(&mut self, inode: Inode) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let length = self.direct.read_at(inode, 0, &mut bytes).unwrap_or(0);
        bytes.truncate(length);
        bytes
    }

    /// Syncs, and notes what is promised then; false: the power went.
    fn sync(&mut self, inode: Inode) -> bool {
        if self.saver.save(&mut self.direct, &[Some(inode)]).is_err() {
            return false;
        }
        self.promise(inode);
        true
    }

    /// From now on the names are promised, and what this object is.
    fn promise(&mut self, inode: Inode) {
        self.promised.names = self.names();
        let bytes = self.bytes(inode);
        let mode = attributes(&mut self.direct, inode).expect("it is there").0.mode;
        let extended = extended(&mut self.direct, inode).expect("it is there");
        let extended = extended.into_iter().collect();
        self.promised.synced.insert(id_of(inode), (mode, bytes, extended));
    }

    /// What a replay shows now.
    fn replayed(&self) -> Result<Tree, String> {
        let mut tree = Tree::default();
        let (disk, end) = (Arc::clone(&self.disk), self.disk.size_bytes());
        let opened = Log::open(disk, (0, end), (UUID, 2), |found| {
            let taken = match found {
                Found::Snapshot(_, part) => tree.snapshot(part),
                Found::Record(_, record) => tree.record(record),
            };
            taken.expect("well-formed");
        });
        opened.map_err(|damage| format!("damage: {damage}"))?;
        Ok(tree)
    }

    /// Compares what a crash has left with what was promised; `now`: names that may be there, too.
    fn judge(&self, now: Option<&Names>) -> Result<(), String> {
        let tree = self.replayed()?;
        let found = names_of(&tree).ok_or("a name leads to nothing")?;
        if found != self.promised.names && Some(&found) != now {
            let promised = &self.promised.names;
            return Err(format!("names {found:?}, promised {promised:?}, now {now:?}"));
        }
        let is_named = |id: &Id| found.values().any(|(named, _)| named == id);
        for (id, (mode, bytes, extended)) in
            self.promised.synced.iter().filter(|(id, _)| is_named(id))
        {
            let there = bytes_of(&tree, *id);
            let node = tree.node(*id).ok_or("none")?;
            let mode_now = node.attributes.ok_or("none")?.mode;
            if mode_now != *mode || there != *bytes || node.extended != *extended {
                let count = bytes.len();
                return Err(format!("{id:?}: {} of {count} bytes, {mode_now:o}", there.len()));
            }
        }
        Ok(())
    }
}

fn names_of(tree: &Tree) -> Option<Names> {
    let (mut names, mut todo) = (Names::new(), vec![(tree.root?, String::new())]);
    while let Some((dir, before)) = todo.pop() {
        for (name, id) in &tree.node(dir)?.names {
            let attributes = tree.node(*id)?.attributes?;
            let path = format!("{before}/{}", String::from_utf8_lossy(name));
            if attributes.kind == Kind::Directory {
                todo.push((*id, path.clone()));
            }
            names.insert(path, (*id, attributes.kind));
        }
    }
    Some(names)
}

fn bytes_of(tree: &Tree, id: Id) -> Vec<u8> {
    let Some(node) = tree.node(id) else { return Vec::new() };
    let mut all = vec![0; node.bytes.size() as usize];
    for (at, piece) in node.bytes.pieces() {
        all[at as usize..][..piece.len()].copy_from_slice(piece);
    }
    all
}

/// Does a sequence, with a sync behind each step that `syncs` has a bit for and behind the last.
/// `None`: one of the steps cannot be done.
fn live(
    mut world: World,
    steps: &[Step],
    syncs: usize,
    is_cut: bool,
) -> Option<Result<(), String>> {
    let last = steps.len() - 1;
    for (n, &step) in steps.iter().enumerate() {
        let inode = world.step(step).ok()?;
        if n < last && syncs >> n & 1 != 0 {
            assert!(world.sync(inode), "nothing fails yet");
        }
        if n == last && is_cut {
            let now = world.names();
            world.disk.cut_after(world.dice.below(STEPS));
            let is_done = world.sync(inode);
            world.disk.crash();
            return Some(world.judge((!is_done).then_some(&now)));
        }
        if n == last {
            assert!(world.sync(inode), "nothing fails");
        }
    }
    world.disk.crash();
    Some(world.judge(None))
}

/// All sequences of `length` steps; how many could be done, or the first that breaks a promise.
fn all(region: &OwnedFd, length: usize) -> Result<u64, String> {
    let mut done = 0;
    for number in 0..STEPS_ALL.len().pow(length as u32) {
        let at = |n: usize| STEPS_ALL[number / STEPS_ALL.len().pow(n as u32) % STEPS_ALL.len()];
        let steps: Vec<Step> = (0..length).map(at).collect();
        for case in 0..2 << length {
            let (syncs, is_cut) = (case >> 2, case & 1 != 0);
            CLOCK_GOES_BACK.store(case & 2 != 0, Ordering::Relaxed);
            let seed = (number << (length + 1) | case) as u64 + 1;
            let world = World::new(region, seed);
            let Some(judged) = live(world, &steps, syncs, is_cut) else { break };
            judged.map_err(|why| format!("{steps:?}, syncs {syncs:b}, cut {is_cut}: {why}"))?;
            done += 1;
        }
    }
    Ok(done)
}

/// Two steps with a sync between them, and the volume gets a larger disk; the power goes there
/// after `cut` writes, or it is never known which disk counts, or something more is synced after
/// it. `None`: one of the steps cannot be done.
fn moved(
    mut world: World,
    steps: [Step; 2],
    cut: u64,
    settles: bool,
) -> Option<Result<(), String>> {
    let first = world.step(steps[0]).ok()?;
    assert!(world.sync(first), "nothing fails yet");
    let second = world.step(steps[1]).ok()?;
    let now = world.names();
    let (larger, log) = disk(2 * SIZE_BYTES, world.dice.draw());
    larger.cut_after(cut);
    let place = Moving { is_taken: Cell::new(false), settles };
    let result = world.saver.move_to(&mut world.direct, log, &place);
    let old = std::mem::replace(&mut world.disk, Arc::clone(&larger));
    match (result, place.is_taken.get()) {
        (Err(_), is_taken) => {
            larger.crash();
            let judged = if is_taken { world.judge(Some(&now)) } else { Ok(()) };
            world.disk = old;
            // The old log goes on where it is certain that it counts.
            if !is_taken && !world.sync(second) {
                return Some(Err("the old log does not go on".to_owned()));
            }
            world.disk.crash();
            Some(judged.and_then(|()| world.judge(Some(&now))))
        }
        (Ok(()), _) => {
            let is_done = world.sync(second);
            larger.crash();
            Some(world.judge((!is_done).then_some(&now)))
        }
    }
}

/// All pairs of steps, with the power going at some write.
fn all_moved(region: &OwnedFd) -> Result<u64, String> {
    let mut done = 0;
    for number in 0..STEPS_ALL.len().pow(2) {
        let steps = [number % STEPS_ALL.len(), number / STEPS_ALL.len()].map(|n| STEPS_ALL[n]);
        for case in 0..MOVES {
            let world = World::new(region, number as u64 * MOVES + case + 1);
            let (cut, settles) = (case % (MOVES / 2), case < MOVES / 2);
            let Some(judged) = moved(world, steps, cut, settles) else { break };
            judged.map_err(|why| format!("{steps:?}, cut {cut}, settles {settles}: {why}"))?;
            done += 1;
        }
    }
    Ok(done)
}

/// A file that nobody has synced takes the name of another one, and something else is synced.
fn replaced_and_not_synced(region: &OwnedFd) -> Result<(), String> {
    let mut world = World::new(region, 1);
    for step in [Step::Create("a"), Step::Append("a"), Step::MakeDir("d")] {
        world.step(step).expect("it is done");
    }
    let old = world.inode("a").expect("it is there");
    assert!(world.sync(old));
    for step in [Step::Create("b"), Step::Append("b"), Step::Append("b"), Step::Rename("b", "a")] {
        world.step(step).expect("it is done");
    }
    let new = world.inode("a").expect("it is there");
    let dir = world.inode("d").expect("it is there");
    assert!(world.sync(dir));
    world.disk.crash();
    world.judge(None)?;
    match bytes_of(&world.replayed()?, id_of(new)).len() {
        6000 => Ok(()),
        count => Err(format!("{count} bytes of a file that replaced another one")),
    }
}

/// What nobody syncs is saved in turns of a bounded size; then nothing is left to write.
fn saved_without_a_sync(region: &OwnedFd) {
    let mut world = World::new(region, 1);
    for step in [Step::Create("a"), Step::Append("a"), Step::MakeDir("d"), Step::Create("d/a")] {
        world.step(step).expect("it is done");
    }
    let a = world.inode("a").expect("it is there");
    assert_eq!(world.saver.save_rest(&mut world.direct), Ok(true));
    world.promised.names = world.names();
    let bytes = world.bytes(a);
    world.promised.synced.insert(id_of(a), (0o644, bytes, BTreeMap::new()));
    let flushes = world.disk.counts().flushes;
    assert_eq!(world.saver.save_rest(&mut world.direct), Ok(true));
    assert_eq!(world.disk.counts().flushes, flushes);
    world.disk.crash();
    world.judge(None).unwrap();
}

/// Somebody is so slow in the middle of a change of names that a look counts him as dead; then
/// changes of others begin and end around syncs. Nothing that was synced may be missed.
fn changed_while_the_counts_were_settled(region: &OwnedFd) {
    let mut world = World::new(region, 1);
    world.step(Step::MakeDir("d")).expect("a directory");
    let (root, dir) = (world.root, world.inode("d").expect("it is there"));
    let begin = |world: &World, dir| unsaved::names_begin(world.direct.kernel(), dir);
    let end = |world: &World, begun| unsaved::names_ended(world.direct.kernel(), begun);
    let slow = begin(&world, root);
    assert!(world.sync(root));
    end(&world, slow);
    let second = begin(&world, root);
    assert!(world.sync(root));
    let made = names::create(world.direct.kernel(), &ROOT, root, b"a", Make::File(0o644), 1);
    end(&world, second);
    let third = begin(&world, dir);
    assert!(world.sync(made.expect("a file")));
    end(&world, third);
    world.disk.crash();
    world.judge(None).unwrap();
}

/// One image a process: it is mapped once, and formatted for each sequence.
fn mapped() -> OwnedFd {
    let region = descriptors::region(LAYOUT.file_bytes()).expect("memory");
    image::join(&region, LAYOUT, Path::new("/nowhere")).map(|_| ()).expect("an image");
    region
}

/// Says to a copy of this test that it has a process of its own.
const ALONE: &str = "HUSK_TEST_ALONE";

/// In a process of its own: a region lies at a fixed place, and other tests of this crate have one
/// of another size there.
#[test]
fn after_any_short_sequence_a_crash_leaves_what_was_promised_and_planted_bugs_are_found() {
    if std::env::var_os(ALONE).is_some() {
        return crash_after_all_sequences();
    }
    let module = module_path!().split_once("::").expect("a module of this crate").1;
    let test =
        "after_any_short_sequence_a_crash_leaves_what_was_promised_and_planted_bugs_are_found";
    let name = format!("{module}::{test}");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", &name, "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("the same program");
    let told = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{why}");
    println!("{told}");
}

fn crash_after_all_sequences() {
    let region = mapped();
    let is_full = std::env::var_os("HUSK_FULL").is_some();
    let most = if is_full { LENGTHS.1 } else { LENGTHS.0 };
    for length in 1..=most {
        let done = all(&region, length).unwrap_or_else(|why| panic!("{why}"));
        println!("{done} crashes after sequences of {length}");
        assert!(done > 0);
    }
    let done = all_moved(&region).unwrap_or_else(|why| panic!("{why}"));
    println!("{done} crashes on the way to another disk");
    let done = traces::all_traced(&region).unwrap_or_else(|why| panic!("{why}"));
    println!("{done} crashes of recorded programs");
    let done = fuzzy::all(&region).unwrap_or_else(|why| panic!("{why}"));
    println!("{done} crashes with a checkpoint beside syncs");
    let done = policies::all(&region).unwrap_or_else(|why| panic!("{why}"));
    println!("{done} crashes with each policy");
    changed_while_the_counts_were_settled(&region);
    replaced_and_not_synced(&region).unwrap_or_else(|why| panic!("{why}"));
    saved_without_a_sync(&region);
    for mutant in Mutant::ALL {
        PLANTED.set(Some(mutant));
        let found = fuzzy::all(&region).err();
        let found = found.or_else(|| (1..=LENGTHS.0).find_map(|length| all(&region, length).err()));
        let found = found.or_else(|| replaced_and_not_synced(&region).err());
        let found = found.or_else(|| all_moved(&region).err());
        let found = found.or_else(|| policies::all(&region).err());
        let by_trace = traces::all_traced(&region).err();
        PLANTED.set(None);
        println!("{mutant:?}: {found:?}; {by_trace:?}");
        assert!(found.is_some(), "{mutant:?} is not found");
        // Programs that sync the new file before they rename it do not meet the others.
        use Mutant::{AnsweredFirst, BytesNotWritten, NamesNotWritten};
        let is_met = matches!(mutant, AnsweredFirst | BytesNotWritten | NamesNotWritten);
        assert!(by_trace.is_some() || !is_met, "{mutant:?} is not found by a trace");
    }
}
