//! Service `image`: mounts, caches and requests to the supervisor that all programs share.
//!
//! Written once at the start (mounts, paths), marks that are only ever set
//! (whether there are sockets), or caches whose loss costs time only.

pub mod answers;
pub mod copies;
pub mod volume;

use husk_proto::image::{Cover, MOUNTS_MAX, Mount, Udp};
use husk_proto::{Errno, Inode, Result};
use husk_region::rings::epoll::SETS_MAX;
use husk_region::rings::pipes::PIPES_MAX;
use husk_region::{Cell, FIXED_WORDS, Region};

use crate::Kernel;
use crate::state::process::{PROCESSES, PROCESSES_MAX};
use crate::state::text::word_at;
use crate::state::{high, ino, low, pair};

const DEVICE: u32 = 0;
const MOUNTS: u32 = 1;
/// Lock of renames that change a directory's parent.
pub(crate) const RENAME_LOCK: u32 = 16;
/// Who releases what dead processes held.
pub(crate) const BURIAL: u32 = 11;
const SOCKETS: u32 = 3;
const DIRECTORIES: u32 = 4;
/// Watches there are on files of the image; beside what every path walk reads.
pub(crate) const WATCH_COUNT: u32 = 5;
/// Instances of inotify there are.
pub(crate) const WATCH_INSTANCES: u32 = 6;
/// How processes are placed, beside what every path walk reads (`placement`).
pub(crate) const PLACE_RULE: u32 = 7;
const COPIES_LENGTH: u32 = 32;
const COPIES: u32 = 64;
const PRIVATE_LENGTH: u32 = 33;
const PRIVATE: u32 = 640;
/// Longest path of the private directory: a name in it fits the address of a unix socket.
pub const PRIVATE_BYTES_MAX: usize = 64;
const MOUNT_TABLE: u32 = 1024;
const MOUNT_WORDS: u32 = 528;
/// Words of a mount, all in one line: root, cover, length of its path, `Shown`.
const MOUNT_DEVICE: u32 = 3;
const MOUNT_NUMBERS: u32 = 4;
/// Added to the numbers of what an overlay has beside the host's objects, whose numbers are the
/// host's: above those that host file systems give, and exact where programs keep a double. Between
/// it and the number of 32 bits is what tells this image from others.
const OWN_NUMBERS: u64 = 1 << 52;
const COUNTERS: u32 = 9600;
const COUNTERS_MAX: usize = 512;
/// Words that waiters for record locks sleep on.
pub(crate) const LOCK_WORDS: u32 = 10240;
pub(crate) const LOCK_WORDS_MAX: u32 = 256;
const OUTSIDE: u32 = 12288;
const OUTSIDE_MAX: u64 = 4096;
/// Host programs and their copies (`copies`), up to here.
pub(crate) const COPIES_STATE: u32 = 24576;
pub(crate) const COPIES_STATE_END: u32 = PROCESSES;
/// Which get rings: new pipes, new unix sockets (`pipe::RINGS`, `LANES`).
pub(crate) const PIPES_WANTED: u32 = 40;
/// How often what is known of paths outside was forgotten.
const OUTSIDE_AGE: u32 = 41;
/// How many lanes await a reader.
pub(crate) const LANES_AWAITING: u32 = 42;
/// Whether what lies outside the trees is read-only for programs.
const SEALED: u32 = 56;
/// When the image was made.
const MADE_NS: u32 = 43;
/// How often there was no room for a file of the host that was to be changed.
const TOO_LONG: u32 = 45;
/// The image's user namespace, once a process has made another one.
const NAMESPACE: u32 = 44;
/// How datagram sockets are set up (`Udp`).
const UDP: u32 = 46;
/// Whose rights the fetcher has, plus one; 0: there is none.
const FETCHER: u32 = 47;
/// Which node this is (0: the home of all names), length of where that listens, and the text.
const NODE: u32 = 57;
/// The supervisor of that home; how many nodes there are (at home, 0: one), and whose turn it is.
const HOME_PID: u32 = 59;
const NODES: u32 = 60;
const NODES_TURN: u32 = 61;
/// How many requests processes of this node have sent to others.
const REQUESTS: u32 = 62;
const HOME_LENGTH: u32 = 58;
const HOME: u32 = 704;
/// Longest path of a home's socket.
pub const HOME_BYTES_MAX: usize = 104;
/// Lock, first free one and number of the pipes.
pub(crate) const PIPES_LIST: u32 = 400_000;
/// Pipe records.
pub(crate) const PIPES: u32 = 400_384;
/// Lock and number of the flights.
pub(crate) const FLIGHTS_LIST: u32 = 420_000;
/// Flights, two words each.
pub(crate) const FLIGHTS: u32 = 420_008;
/// Most descriptors on their way at once.
pub(crate) const FLIGHTS_MAX: u32 = 1024;
/// Lock of the leases.
pub(crate) const LEASES_LIST: u32 = 422_400;
/// Most leases of a node.
pub const LEASES_MAX: u32 = 16;
/// Leases, two words each.
pub(crate) const LEASES: u32 = 422_408;
/// How many requests processes of this node have sent to others, by kind.
pub(crate) const REQUEST_KINDS: u32 = 423_000;
/// Most kinds that are counted apart.
pub const REQUEST_KINDS_MAX: u16 = 256;
/// Lock, first free one and number of the epoll sets.
pub(crate) const SETS_LIST: u32 = 424_000;
/// Sets' records.
pub(crate) const SETS: u32 = 424_008;
/// Lock, first free one and number of the eventfds.
pub(crate) const EVENTS_LIST: u32 = 425_040;
/// Their records.
pub(crate) const EVENTS: u32 = 425_048;
/// Most eventfds whose count is the image's.
pub(crate) const EVENTS_MAX: u32 = 256;
/// Cores and loads of kernels, and whose turn it is (`placement`).
pub(crate) const PLACE_KERNELS: u32 = 430_080;
/// What is known of how processes were placed, a line each.
pub(crate) const PLACES: u32 = FIXED_WORDS - PROCESSES_MAX * 8;
/// The reply cache (`answers`).
#[cfg(feature = "answers")]
pub(crate) const ANSWERS: u32 = 505_000;
/// Watches (`watch`).
pub(crate) const WATCH: u32 = 524_288;

const _: () = assert!(LEASES + 2 * LEASES_MAX <= REQUEST_KINDS);
const _: () = assert!(REQUEST_KINDS + REQUEST_KINDS_MAX as u32 <= SETS_LIST);
const _: () = assert!(COPIES as usize + husk_abi::PATH_MAX / 8 <= PRIVATE as usize);
const _: () = assert!(PRIVATE as usize + PRIVATE_BYTES_MAX / 8 <= HOME as usize);
const _: () = assert!(HOME as usize + HOME_BYTES_MAX / 8 <= MOUNT_TABLE as usize);
const _: () = assert!(MOUNT_TABLE + MOUNT_WORDS * MOUNTS_MAX as u32 <= COUNTERS);
const _: () = assert!(MOUNTS_MAX as u32 == (ino::TREE >> ino::TREE_SHIFT) + 1);
const _: () = assert!(OUTSIDE + 2 * OUTSIDE_MAX as u32 <= COPIES_STATE);
const _: () = assert!(PROCESSES + PROCESSES_MAX * 8 <= PIPES_LIST);
const _: () = assert!(PIPES + PIPES_MAX * 4 <= FLIGHTS_LIST);
const _: () = assert!(FLIGHTS + FLIGHTS_MAX * 2 <= LEASES_LIST);
const _: () = assert!(LEASES + LEASES_MAX * 2 <= SETS_LIST);
const _: () = assert!(SETS + SETS_MAX * 4 <= EVENTS_LIST);
const _: () = assert!(EVENTS + EVENTS_MAX * 4 <= PLACE_KERNELS);

pub(crate) fn fixed(kernel: &Kernel, index: u32) -> Cell {
    kernel.session.region.map.fixed(index)
}

fn put_text(region: &Region, cell: Cell, bytes: &[u8]) {
    for n in 0..bytes.len().div_ceil(8) {
        region.store(cell.word(n as u32), word_at(bytes, n * 8));
    }
}

/// Writes what is fixed for an image's life. `EINVAL` for a path that is too long.
pub fn format(region: &Region, device: u64, copies_path: &[u8]) -> Result<()> {
    if copies_path.len() > husk_abi::PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    region.store(region.map.fixed(DEVICE), device);
    put_text(region, region.map.fixed(COPIES), copies_path);
    region.store(region.map.fixed(COPIES_LENGTH), copies_path.len() as u64);
    Ok(())
}

/// How directories are shared between processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Directories {
    /// Narrow until processes wait for each other in one.
    #[default]
    ByContention,
    /// Always narrow.
    Narrow,
    /// Wide from the first change on.
    Wide,
}

/// The image's rule for directories.
pub fn directories(region: &Region) -> Directories {
    match region.load(region.map.fixed(DIRECTORIES)) {
        1 => Directories::Narrow,
        2 => Directories::Wide,
        _ => Directories::ByContention,
    }
}

/// Sets it, before the first directory is made.
pub fn set_directories(region: &Region, rule: Directories) {
    region.store(region.map.fixed(DIRECTORIES), rule as u64);
}

/// What the objects of a tree show as their device and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// `st_dev`.
    pub device: u64,
    /// Added to the numbers of objects that the host does not have.
    pub own_numbers: u64,
}

/// What the tree shows that an inode with these flags is in.
#[inline]
pub fn shown_in(region: &Region, flags: u32) -> Shown {
    let tree = (flags & ino::TREE) >> ino::TREE_SHIFT;
    let cell = region.map.fixed(MOUNT_TABLE + tree * MOUNT_WORDS);
    Shown {
        device: region.load(cell.word(MOUNT_DEVICE)),
        own_numbers: region.load(cell.word(MOUNT_NUMBERS)),
    }
}

/// The flags of all inodes in the tree that the next mount shows.
pub fn next_tree(kernel: &Kernel) -> u32 {
    ((mounts(kernel) as u32) << ino::TREE_SHIFT) & ino::TREE
}

/// Adds a mount. `ENFILE` when there are too many. An overlay's objects show `device`, as those of
/// the host do.
pub fn add_mount(
    kernel: &Kernel,
    path: &[u8],
    root: Inode,
    cover: Cover,
    device: u64,
) -> Result<()> {
    let region = &kernel.session.region;
    let index = region.load(fixed(kernel, MOUNTS)) as u32;
    if index as usize >= MOUNTS_MAX {
        return Err(Errno::ENFILE);
    }
    if path.len() > husk_abi::PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let cell = fixed(kernel, MOUNT_TABLE + index * MOUNT_WORDS);
    put_text(region, cell.word(8), path);
    let shown = match cover {
        Cover::Overlay => Shown { device, own_numbers: own_numbers(self::device(kernel)) },
        Cover::Memory => Shown { device: self::device(kernel), own_numbers: 0 },
    };
    region.store(cell.word(MOUNT_DEVICE), shown.device);
    region.store(cell.word(MOUNT_NUMBERS), shown.own_numbers);
    region.store(cell.word(1), (cover == Cover::Overlay) as u64);
    region.store(cell.word(2), path.len() as u64);
    region.store(cell, pair(root.generation, root.number));
    region.store(fixed(kernel, MOUNTS), index as u64 + 1);
    Ok(())
}

/// `OWN_NUMBERS` of the image that has `device`, of whose minor number 19 bits fit in.
fn own_numbers(device: u64) -> u64 {
    let minor = device & 0xff | device >> 12 & 0x7ff00;
    OWN_NUMBERS | minor << 32
}

/// `Image::mounts`.
pub fn mounts(kernel: &Kernel) -> usize {
    (kernel.session.region.load(fixed(kernel, MOUNTS)) as usize).min(MOUNTS_MAX)
}

/// `Image::mount`.
pub fn mount(kernel: &Kernel, index: usize) -> Mount<'_> {
    assert!(index < mounts(kernel), "mount out of range");
    let region = &kernel.session.region;
    let cell = fixed(kernel, MOUNT_TABLE + index as u32 * MOUNT_WORDS);
    let root = region.load(cell);
    Mount {
        path: region.text(cell.word(8), region.load(cell.word(2)) as usize),
        root: Inode { number: low(root), generation: high(root) },
        cover: if region.load(cell.word(1)) == 0 { Cover::Memory } else { Cover::Overlay },
    }
}

/// The device that a mount's objects show.
pub fn mount_device(kernel: &Kernel, index: usize) -> u64 {
    let cell = fixed(kernel, MOUNT_TABLE + index as u32 * MOUNT_WORDS);
    kernel.session.region.load(cell.word(MOUNT_DEVICE))
}

/// `Image::device`.
pub fn device(kernel: &Kernel) -> u64 {
    kernel.session.region.load(fixed(kernel, DEVICE))
}

/// `Image::sockets`.
pub fn sockets(kernel: &Kernel) -> bool {
    kernel.session.region.load(fixed(kernel, SOCKETS)) != 0
}

/// `Image::note_sockets`.
pub fn note_sockets(kernel: &Kernel) {
    kernel.session.region.store(fixed(kernel, SOCKETS), 1);
}

/// `Image::note_too_long`. Two at once may count as one.
pub fn note_too_long(kernel: &Kernel) {
    let count = kernel.session.region.load(fixed(kernel, TOO_LONG));
    kernel.session.region.store(fixed(kernel, TOO_LONG), count.wrapping_add(1));
}

/// How often that was noted.
pub fn too_long(kernel: &Kernel) -> u64 {
    kernel.session.region.load(fixed(kernel, TOO_LONG))
}

/// `Image::home_namespace`.
pub fn home_namespace(kernel: &Kernel) -> u64 {
    kernel.session.region.load(fixed(kernel, NAMESPACE))
}

/// `Image::note_home_namespace`. Who comes second says the same.
pub fn note_home_namespace(kernel: &Kernel, number: u64) {
    kernel.session.region.store(fixed(kernel, NAMESPACE), number);
}

/// `Image::fetcher`.
pub fn fetcher(kernel: &Kernel) -> Option<u32> {
    let uid = kernel.session.region.load(fixed(kernel, FETCHER)).checked_sub(1)?;
    u32::try_from(uid).ok()
}

/// Says that there is one (the supervisor, which alone writes this word).
pub fn set_fetcher(kernel: &Kernel, uid: u32) {
    kernel.session.region.store(fixed(kernel, FETCHER), u64::from(uid) + 1);
}

/// `Image::copies_path`.
pub fn copies_path(kernel: &Kernel) -> &[u8] {
    let length = kernel.session.region.load(fixed(kernel, COPIES_LENGTH)) as usize;
    kernel.session.region.text(fixed(kernel, COPIES), length)
}

/// `Image::private_path`.
pub fn private_path(kernel: &Kernel) -> &[u8] {
    let length = kernel.session.region.load(fixed(kernel, PRIVATE_LENGTH)) as usize;
    kernel.session.region.text(fixed(kernel, PRIVATE), length)
}

/// Sets it, before the first program runs. `ENAMETOOLONG`.
pub fn set_private_path(kernel: &Kernel, path: &[u8]) -> Result<()> {
    if path.len() > PRIVATE_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    put_text(&kernel.session.region, fixed(kernel, PRIVATE), path);
    kernel.session.region.store(fixed(kernel, PRIVATE_LENGTH), path.len() as u64);
    Ok(())
}

/// Which node of its image this is; 0: the home of all names.
#[inline]
pub fn node(kernel: &Kernel) -> u16 {
    kernel.session.region.load(fixed(kernel, NODE)) as u16
}

/// Where the home of all names listens, of another node; at home, how the others' names begin.
pub fn home_path(kernel: &Kernel) -> &[u8] {
    let length = kernel.session.region.load(fixed(kernel, HOME_LENGTH)) as usize;
    kernel.session.region.text(fixed(kernel, HOME), length)
}

/// The supervisor of the home of all names.
pub fn home_pid(kernel: &Kernel) -> u32 {
    kernel.session.region.load(fixed(kernel, HOME_PID)) as u32
}

/// How many nodes the image has that this one is the home of; 0: this one alone.
#[inline]
pub fn nodes(kernel: &Kernel) -> u16 {
    kernel.session.region.load(fixed(kernel, NODES)) as u16
}

/// The next turn of who places processes on nodes.
pub fn next_turn(kernel: &Kernel) -> u64 {
    kernel.session.unguard();
    kernel.session.region.add(fixed(kernel, NODES_TURN), 1)
}

/// The number of the next request that a process of this node sends, of a `kind`: none has the
/// number 0.
pub fn next_request(kernel: &Kernel, kind: u16) -> u32 {
    kernel.session.unguard();
    if kind < REQUEST_KINDS_MAX {
        kernel.session.region.add(fixed(kernel, REQUEST_KINDS + u32::from(kind)), 1);
    }
    let number = kernel.session.region.add(fixed(kernel, REQUESTS), 1);
    (number % u64::from(u32::MAX)) as u32 + 1
}

/// How many requests of a `kind` below `REQUEST_KINDS_MAX` processes of this node have sent.
pub fn requests_of(kernel: &Kernel, kind: u16) -> u64 {
    debug_assert!(kind < REQUEST_KINDS_MAX);
    kernel.session.region.load(fixed(kernel, REQUEST_KINDS + u32::from(kind % REQUEST_KINDS_MAX)))
}

/// Requests that processes of this node have sent.
pub fn requests(kernel: &Kernel) -> u64 {
    kernel.session.region.load(fixed(kernel, REQUESTS))
}

/// Says how many nodes this one is the home of, how the names of the others begin, and who
/// supervises it (0: whoever does is replaced if it is killed). `ENAMETOOLONG`.
pub fn set_nodes(kernel: &Kernel, nodes: u16, base: &[u8], pid: u32) -> Result<()> {
    set_home(kernel, base, pid)?;
    kernel.session.region.store(fixed(kernel, NODES), nodes.into());
    Ok(())
}

/// Says which node this is and where its home is, before the first program runs. `ENAMETOOLONG`.
pub fn set_node(kernel: &Kernel, node: u16, home: &[u8], pid: u32) -> Result<()> {
    set_home(kernel, home, pid)?;
    kernel.session.region.store(fixed(kernel, NODE), node.into());
    Ok(())
}

/// The text of `home_path`, and who supervises the home.
fn set_home(kernel: &Kernel, text: &[u8], pid: u32) -> Result<()> {
    if text.len() > HOME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let region = &kernel.session.region;
    put_text(region, fixed(kernel, HOME), text);
    region.store(fixed(kernel, HOME_LENGTH), text.len() as u64);
    region.store(fixed(kernel, HOME_PID), pid.into());
    Ok(())
}

/// When the image was made, ns since the epoch; 0: nobody has said.
pub fn made_ns(kernel: &Kernel) -> i64 {
    kernel.session.region.load(fixed(kernel, MADE_NS)) as i64
}

/// Says so, before the first program runs.
pub fn set_made_ns(kernel: &Kernel, ns: i64) {
    kernel.session.region.store(fixed(kernel, MADE_NS), ns as u64);
}

/// Where the two hashes of a text begin, and what the second one multiplies by (MurmurHash3).
const SEEDS: (u64, u64) = (husk_abi::SPREAD >> 32, 0xc2b2_ae3d_27d4_eb4f);
const FACTOR: u64 = 0xff51_afd7_ed55_8ccd;

/// Two independent 64-bit hashes.
pub(crate) fn hash(bytes: &[u8]) -> (u64, u64) {
    let (mut one, mut two) = (bytes.len() as u64 ^ SEEDS.0, SEEDS.1);
    for at in (0..bytes.len()).step_by(8) {
        let word = word_at(bytes, at);
        one = (one.rotate_left(23) ^ word).wrapping_mul(husk_abi::SPREAD);
        two = (two ^ word).wrapping_mul(FACTOR).rotate_left(31);
    }
    (one ^ one >> 29, two ^ two >> 33)
}

/// Where a path outside is remembered, and as what: with another age it is another path.
fn outside(kernel: &Kernel, path: &[u8], age: u64) -> (Cell, u64, u64) {
    let (one, two) = hash(path);
    let cell = fixed(kernel, OUTSIDE + (one % OUTSIDE_MAX) as u32 * 2);
    (cell, one, two ^ age.wrapping_mul(husk_abi::SPREAD))
}

/// `Image::known_outside`. A torn entry matches no path (both halves are hashes).
pub fn known_outside(kernel: &Kernel, path: &[u8]) -> bool {
    let (cell, one, two) = outside(kernel, path, outside_age(kernel));
    let region = &kernel.session.region;
    region.load(cell) == one && region.load(cell.word(1)) == two
}

/// `Image::outside_age`.
pub fn outside_age(kernel: &Kernel) -> u64 {
    kernel.session.region.load(fixed(kernel, OUTSIDE_AGE))
}

/// `Image::note_outside`.
pub fn note_outside(kernel: &Kernel, path: &[u8], age: u64) {
    let (cell, one, two) = outside(kernel, path, age);
    kernel.session.unguard();
    kernel.session.region.store(cell, one);
    kernel.session.region.store(cell.word(1), two);
}

/// `Image::outside_is_sealed`.
pub fn outside_is_sealed(kernel: &Kernel) -> bool {
    kernel.session.region.load(fixed(kernel, SEALED)) != 0
}

/// Seals it, before the first program runs.
pub fn seal_outside(kernel: &Kernel) {
    kernel.session.region.store(fixed(kernel, SEALED), 1);
}

/// `Admin::set_udp`.
pub fn set_udp(kernel: &Kernel, udp: Udp) {
    kernel.session.region.store(fixed(kernel, UDP), udp.word());
}

/// `Shortcuts::udp`.
pub fn udp(kernel: &Kernel) -> Udp {
    Udp::of_word(kernel.session.region.load(fixed(kernel, UDP)))
}

/// `Image::forget_outside`.
pub fn forget_outside(kernel: &Kernel) {
    kernel.session.region.add(fixed(kernel, OUTSIDE_AGE), 1);
}

/// `Image::count_unsupported`.
pub fn count_unsupported(kernel: &Kernel, number: usize) {
    let index = number.min(COUNTERS_MAX - 1) as u32;
    kernel.session.region.add(fixed(kernel, COUNTERS + index), 1);
}

/// How often call `number` was refused.
pub fn unsupported(kernel: &Kernel, number: usize) -> u64 {
    let index = number.min(COUNTERS_MAX - 1) as u32;
    kernel.session.region.load(fixed(kernel, COUNTERS + index))
}
