//! `statfs`, `fstatfs`: the image as one file system in memory.

use crate::layout::{STATFS_BYTES, put};
use crate::path::{Aim, plain};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::NAME_MAX;
use husk_abi::sys::general::TMPFS_MAGIC;
use husk_proto::Services;

/// `ST_RELATIME | ST_VALID`.
const MOUNT_FLAGS: u64 = 0x1020;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `statfs`.
    pub(crate) fn statfs(&mut self, c: &Call) -> Answer {
        let out = c.args[1];
        self.on_existing(c, plain(0), Aim::FOLLOW, |client, _| client.give_statfs(out))
    }

    /// `fstatfs`.
    pub(crate) fn fstatfs(&mut self, c: &Call) -> Answer {
        match self.inode_behind(c.args[0])? {
            Some(_) => self.give_statfs(c.args[1]),
            None => Ok(Verdict::Pass),
        }
    }

    fn give_statfs(&mut self, out: usize) -> Answer {
        let usage = self.services.usage();
        let mut bytes = [0u8; STATFS_BYTES];
        let words = [
            u64::from(TMPFS_MAGIC),
            4096,
            usage.blocks,
            usage.blocks_free,
            usage.blocks_free,
            usage.inodes,
            usage.inodes_free,
            self.services.device(),
            NAME_MAX as u64,
            4096,
            MOUNT_FLAGS,
        ];
        for (index, word) in words.into_iter().enumerate() {
            put(&mut bytes, 8 * index, word.to_le_bytes());
        }
        self.memory.write(out, &bytes)?;
        value(0)
    }
}
