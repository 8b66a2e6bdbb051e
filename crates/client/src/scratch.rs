//! Scratch memory and cached facts of one thread, all bounded.

use crate::buffers::{BATCH_BYTES, BOUNCE_BYTES, GROUPS_MAX, Groups, TEXT_MAX, VALUE_BYTES, Walk};
use crate::fd::fd_cache::{SPARES_MAX, Spare};
use crate::path::dir_cache::{KNOWN_MAX, Known, STEPS_MAX};
use crate::path::outside_cache::{LATELY_MAX, Lately};
use husk_abi::PATH_MAX;
use husk_proto::Inode;
use husk_proto::fs::Witness;
use husk_proto::image::MOUNTS_MAX;
use husk_proto::namespace::Namespace;

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
