//! Service `image`: what one image is made of, fixed when it starts.

use crate::Inode;
use crate::fs::HostIdentity;

/// How the path of a user's cache begins where every user may make names; then comes the number of
/// the user.
pub const CACHE_BESIDE_OTHERS: &str = "/var/tmp/husk-cache-";

/// How a host directory is covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cover {
    /// Empty, in memory.
    Memory,
    /// The host directory read through, changes kept in the image.
    Overlay,
}

/// A Husk tree at a place of the host's tree.
#[derive(Clone, Copy, Debug)]
pub struct Mount<'a> {
    /// Real absolute path of the covered host directory, without symlinks, `.` or trailing `/`.
    pub path: &'a [u8],
    /// Root of the tree.
    pub root: Inode,
    /// What it shows.
    pub cover: Cover,
}

/// How Internet datagram sockets are set up when programs bind them to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Udp {
    /// Several sockets may have one port, and the host spreads what comes (`SO_REUSEPORT`).
    pub reuseport: bool,
    /// Each gets a core of its own, by turns, and the thread that binds it (`SO_INCOMING_CPU`).
    pub pin: bool,
    /// Who waits for one polls its queue for a while (`SO_BUSY_POLL`).
    pub busy_poll: bool,
}

impl Udp {
    /// How long who waits polls: what `husk net tune` sets for all sockets, too.
    pub const BUSY_POLL_US: i32 = 50;

    /// As a word; 0: nothing is set up.
    pub const fn word(self) -> u64 {
        self.reuseport as u64 | (self.pin as u64) << 1 | (self.busy_poll as u64) << 2
    }

    /// What `word` has made a word of.
    pub const fn of_word(word: u64) -> Udp {
        Udp { reuseport: word & 1 != 0, pin: word & 2 != 0, busy_poll: word & 4 != 0 }
    }
}

/// How names begin that Husk itself makes in directories of the host; no image shows them.
pub const OWN_NAMES: &[u8] = b".husk-tmp-";

/// Most mounts in one image.
pub const MOUNTS_MAX: usize = 16;

/// Whether a host file has a rewritten copy (call sites patched once per file).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewritten {
    /// Nobody has asked yet.
    Unknown,
    /// Somebody has; the supervisor is at it.
    Requested,
    /// Nothing to patch, or not patchable: map the file itself.
    Plain,
    /// The copy is `copies_path()/<key>`, key = device, inode, modified_ns, size as lower-case hex
    /// joined by `-`.
    Ready,
    /// A large program: what is loaded of it, or of its copy, lies in huge pages of the region's
    /// file, from this byte on (a multiple of 2 MiB). Its copy is where it was, if there is one.
    Gathered(u64),
}

/// What the supervisor is asked to do with a host file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Make a rewritten copy.
    Rewrite,
    /// Gather it in huge pages.
    Gather,
    /// Record it as it is right before its first own instruction (`snapshot`).
    Record,
    /// Look at it: what it says now is to be compared later with what it says then.
    Remember,
}

/// Smaller host programs are not worth huge pages, bytes.
pub const GATHERED_MIN: u64 = 3 << 20;

operations! { ($) image_operations

/// What a client must know of its image.
Image in image, operations {
    /// Remembers it, as found out when nothing had been forgotten since `age`.
    note_outside = - { path: &[u8], age: u64 } -> (),
        by image::note_outside;

    /// Forgets all of it: the host has a link, or a directory, where there was none.
    forget_outside = - {} -> (),
        by image::forget_outside;

    /// Counts a call that Husk refused on one of its own files, by number (`HUSK_TRACE`).
    count_unsupported = - { number: usize } -> (),
        by image::count_unsupported;

    /// A file of the host that was to be changed found no room, which is free again by now: the
    /// supervisor says so.
    note_too_long = - {} -> () = (),
        by image::note_too_long;

    /// One has.
    note_sockets = - {} -> (),
        by image::note_sockets;

    /// A process in the image's user namespace, which has this number, makes another one.
    note_home_namespace = - { number: u64 } -> () = (),
        by image::note_home_namespace;

    /// Asks the supervisor for a copy of the host file at `path` (`Unknown` -> `Requested`); a
    /// full queue drops the wish.
    request_rewrite = - { file: &HostIdentity, path: &[u8] } -> (),
        by image::copies::request_rewrite;

    /// Asks that the host file at `path` be looked at, by the queue of `request_rewrite`. Then its
    /// `remembered` identity is `Ready`, or `Plain` where another file is there by now.
    request_remembered = - { file: &HostIdentity, path: &[u8] } -> () = (),
        by image::copies::request_remembered;

    /// Supervisor: the next wish; its path is copied to `path`, the length returned.
    next_wish = - { path: &mut [u8] } -> Option<(Wish, HostIdentity, usize)>,
        by image::copies::next_wish;

    /// Supervisor: notes how it ended (or, at start, what the cache on disk has).
    set_rewritten = - { file: &HostIdentity, state: Rewritten } -> (),
        by image::copies::set_rewritten;

    /// Counts a start of a large host program that is not gathered; whether it has started so
    /// often that it is worth asking for that.
    count_start = - { file: &HostIdentity } -> bool,
        by image::copies::count_start;

    /// Asks the supervisor to gather the host file at `path`, by the queue of `request_rewrite`.
    request_gathered = - { file: &HostIdentity, path: &[u8] } -> (),
        by image::copies::request_gathered;

    /// Asks for a recording of the program at `path` by the same queue; `count_start`,
    /// `rewritten` (`Gathered`: where it lies) and the rest are told its `recorded` identity.
    request_recorded = - { file: &HostIdentity, path: &[u8] } -> (),
        by image::copies::request_recorded;

    /// Supervisor: notes that `bytes` of a program are there, from `room_to_gather` on.
    set_gathered = - { file: &HostIdentity, bytes: u64 } -> (),
        by image::copies::set_gathered;

    /// Supervisor: nobody is to ask for this one again.
    refuse_to_gather = - { file: &HostIdentity } -> (),
        by image::copies::refuse_to_gather;
}}
