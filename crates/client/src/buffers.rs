//! Scratch memory and cached facts of one thread, all bounded.

use crate::fd::fd_cache::{SPARES_MAX, Spare};
use crate::path::dir_cache::{KNOWN_MAX, Known, STEPS_MAX};
use crate::path::outside_cache::{LATELY_MAX, Lately};
use husk_abi::PATH_MAX;
use husk_proto::fs::Witness;
use husk_proto::namespace::Namespace;
use husk_proto::{Credentials, Inode, image::MOUNTS_MAX};

/// Longest text of a path in the middle of a walk: a link's target before what is left.
pub(crate) const TEXT_MAX: usize = 2 * PATH_MAX;
/// Supplementary groups a client knows of.
pub(crate) const GROUPS_MAX: usize = 256;
/// Bytes moved at once between two files, and of a host listing.
pub(crate) const BOUNCE_BYTES: usize = 16384;
/// Longest value of an extended attribute.
pub(crate) const VALUE_BYTES: usize = 65536;

/// Bytes of records of a listing that are copied to the application at once: a page of them, for
/// pages touched are faults.
pub(crate) const BATCH_BYTES: usize = 4096;

/// A path being walked: `text[at..length]` is what is left.
#[repr(C)]
pub(crate) struct Walk {
    pub at: usize,
    pub length: usize,
    pub text: [u8; TEXT_MAX + 8],
}

/// Scratch memory of one client; valid with any content, so zeroed pages will do.
#[repr(C)]
pub struct Buffers {
    pub(crate) walks: [Walk; 2],
    pub(crate) link: [u8; PATH_MAX + 8],
    pub(crate) base: [u8; PATH_MAX + 8],
    pub(crate) bounce: [u8; BOUNCE_BYTES],
    /// Of an extended attribute.
    pub(crate) value: [u8; VALUE_BYTES],
    pub(crate) batch: [u8; BATCH_BYTES],
    pub(crate) groups: Groups,
    pub(crate) nested: [[u32; 4]; MOUNTS_MAX],
    pub(crate) nested_count: usize,
    /// Directories reached lately.
    pub(crate) known: [Known; KNOWN_MAX],
    /// Texts that lately led outside every tree.
    pub(crate) lately: [Lately; LATELY_MAX],
    /// Files that are opened again and again.
    pub(crate) spares: [Spare; SPARES_MAX],
    /// What the steps of the walk under way rest on.
    pub(crate) trail: [Witness; STEPS_MAX],
}

impl Buffers {
    /// All zero.
    pub const fn new() -> Self {
        const EMPTY: Walk = Walk { at: 0, length: 0, text: [0; TEXT_MAX + 8] };
        Buffers {
            walks: [EMPTY; 2],
            link: [0; PATH_MAX + 8],
            base: [0; PATH_MAX + 8],
            bounce: [0; BOUNCE_BYTES],
            value: [0; VALUE_BYTES],
            batch: [0; BATCH_BYTES],
            groups: Groups { list: [0; GROUPS_MAX], namespace: Namespace::NONE },
            nested: [[0; 4]; MOUNTS_MAX],
            nested_count: 0,
            known: [Known::NONE; KNOWN_MAX],
            lately: [Lately::NONE; LATELY_MAX],
            spares: [Spare::NONE; SPARES_MAX],
            trail: [Witness { place: 0, seen: [0; 2] }; STEPS_MAX],
        }
    }

    /// Root of the mount that covers directory `inode` of another Husk tree.
    #[inline(never)]
    pub(crate) fn nested_root(&self, inode: Inode) -> Option<Inode> {
        let count = self.nested_count.min(MOUNTS_MAX);
        let here = [inode.number, inode.generation];
        let found = self.nested[..count].iter().find(|n| n[..2] == here)?;
        Some(Inode { number: found[2], generation: found[3] })
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

/// Supplementary groups, and the user namespace if it is not the image's: what is long of who asks.
pub(crate) struct Groups {
    pub list: [u32; GROUPS_MAX],
    pub namespace: Namespace,
}

/// Who the thread is, as the host says; asked once, again after calls that change it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Identity {
    pub known: bool,
    /// Credentials have changed since the program began.
    pub changed: bool,
    /// Real user and group, once `access` has asked.
    pub real: Option<(u32, u32)>,
    pub uid: u32,
    pub gid: u32,
    pub capabilities: u64,
    pub permitted: u64,
    pub groups: usize,
    /// Is in another user namespace than the image.
    pub foreign: bool,
    /// User and group before it made one.
    pub before: Option<(u32, u32)>,
}

impl Identity {
    /// The credentials for operations.
    #[inline]
    pub fn credentials<'a>(&self, known: &'a Groups) -> Credentials<'a> {
        let groups = &known.list[..self.groups.min(GROUPS_MAX)];
        let within = if self.foreign { Some(&known.namespace) } else { None };
        let (uid, gid, capabilities) = (self.uid, self.gid, self.capabilities);
        Credentials { uid, gid, groups, capabilities, within }
    }
}
