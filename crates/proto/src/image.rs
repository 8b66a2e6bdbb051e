//! Service `image`: what one image is made of, fixed when it starts.

use crate::Inode;
use crate::fs::HostIdentity;

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

/// What a client must know of its image.
pub trait Image {
    /// Number of mounts.
    fn mounts(&self) -> usize;
    /// Mount `index`.
    fn mount(&self, index: usize) -> Mount<'_>;
    /// `st_dev` shown for all inodes of the image's memory trees.
    fn device(&self) -> u64;
    /// Whether this host path (or directory) is known not to lead into a mount through symlinks;
    /// a cache shared by the image (`note_outside`), keyed by hash, 128 bits.
    fn known_outside(&self, path: &[u8]) -> bool;
    /// How often that was forgotten.
    fn outside_age(&self) -> u64;
    /// Remembers it, as found out when nothing had been forgotten since `age`.
    fn note_outside(&mut self, path: &[u8], age: u64);
    /// Forgets all of it: the host has a link, or a directory, where there was none.
    fn forget_outside(&mut self);
    /// A call that only looked so far is about to change state.
    fn unguard(&self) {}
    /// Whether what lies outside the trees is read-only for programs (`--read-only-outside`).
    fn outside_is_sealed(&self) -> bool {
        false
    }
    /// Counts a call that Husk refused on one of its own files, by number (`HUSK_TRACE`).
    fn count_unsupported(&mut self, number: usize);

    /// A file of the host that was to be changed found no room, which is free again by now: the
    /// supervisor says so.
    fn note_too_long(&mut self) {}
    /// Whether a socket has been bound to a name in a tree.
    fn sockets(&self) -> bool;
    /// One has.
    fn note_sockets(&mut self);

    /// Number of the image's user namespace once a process has made another one, else 0.
    fn home_namespace(&self) -> u64 {
        0
    }
    /// A process in the image's user namespace, which has this number, makes another one.
    fn note_home_namespace(&mut self, _number: u64) {}

    /// Host directory where the host's objects behind FIFOs and sockets stand, absolute and with a
    /// slash at its end; nobody outside the image can enter it. Empty: there is none.
    fn private_path(&self) -> &[u8];

    /// Host directory of the rewritten copies, absolute.
    fn copies_path(&self) -> &[u8];
    /// State of the copy of a host file (`changed_ns` is not part of the key).
    fn rewritten(&self, file: &HostIdentity) -> Rewritten;
    /// Asks the supervisor for a copy of the host file at `path` (`Unknown` -> `Requested`); a
    /// full queue drops the wish.
    fn request_rewrite(&mut self, file: &HostIdentity, path: &[u8]);
    /// Asks that the host file at `path` be looked at, by the queue of `request_rewrite`.
    fn request_remembered(&mut self, _file: &HostIdentity, _path: &[u8]) {}
    /// Supervisor: the next wish; its path is copied to `path`, the length returned.
    fn next_wish(&mut self, path: &mut [u8]) -> Option<(Wish, HostIdentity, usize)>;
    /// Supervisor: notes how it ended (or, at start, what the cache on disk has).
    fn set_rewritten(&mut self, file: &HostIdentity, state: Rewritten);

    /// Counts a start of a large host program that is not gathered; whether it has started so
    /// often that it is worth asking for that.
    fn count_start(&mut self, file: &HostIdentity) -> bool;
    /// Asks the supervisor to gather the host file at `path`, by the queue of `request_rewrite`.
    fn request_gathered(&mut self, file: &HostIdentity, path: &[u8]);
    /// Asks for a recording of the program at `path` by the same queue; `count_start`,
    /// `rewritten` (`Gathered`: where it lies) and the rest are told its `recorded` identity.
    fn request_recorded(&mut self, file: &HostIdentity, path: &[u8]);
    /// Supervisor: where the next gathered program goes in the region's file, and how many bytes
    /// are left there.
    fn room_to_gather(&self) -> (u64, u64);
    /// Supervisor: notes that `bytes` of a program are there, from `room_to_gather` on.
    fn set_gathered(&mut self, file: &HostIdentity, bytes: u64);
    /// Supervisor: nobody is to ask for this one again.
    fn refuse_to_gather(&mut self, file: &HostIdentity);
}
