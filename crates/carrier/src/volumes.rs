//! `Volumes`, by asking who writes the log; and what that one needs of the image.

use husk_kernel::fs::unsaved;
use husk_kernel::image::volume;
use husk_proto::volume::{Asked, Counter, State, Wish};
use husk_proto::{Errno, Inode, Result};

use crate::Direct;

/// Longest sleep before who waits looks whether the server still lives, ns.
const LOOK_NS: u64 = 100_000_000;
/// Looks at a server that lives: a disk may take its time, but not for ever.
const LOOKS_MAX: u32 = 3000;
/// The same while its server is dead and another one is to follow.
const FOLLOW_LOOKS_MAX: u32 = 300;
/// Naps while all slots are taken.
const NAPS_MAX: u32 = 1 << 20;

impl Direct {
    /// Asks the server of a volume, and waits for its answer.
    pub(crate) fn ask_volume(&self, tree: u32, inode: Option<Inode>) -> Result<()> {
        if volume::state(&self.kernel, tree) != State::Served {
            return Err(Errno::EIO);
        }
        self.kernel.session.unguard();
        let wish = self.post(tree, Asked::Commit(inode))?;
        self.await_grant(wish, LOOKS_MAX, &mut || ())
    }

    /// Asks that a volume gets larger; see `volume_resize`.
    pub(crate) fn ask_volume_size(
        &self,
        tree: u32,
        size_bytes: u64,
        told: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        if volume::state(&self.kernel, tree) != State::Served {
            return Err(Errno::EIO);
        }
        let wish = self.post(tree, Asked::Size(size_bytes))?;
        let counted = |counter| volume::counted(&self.kernel, tree, counter);
        // As long as the server lives: it makes progress, or says that it does not.
        self.await_grant(wish, u32::MAX, &mut || {
            told(counted(Counter::Grown), counted(Counter::Growth));
        })
    }

    /// Waits for the answer to a wish; `looked` after each look at whether the server lives.
    fn await_grant(&self, wish: Wish, looks_max: u32, looked: &mut dyn FnMut()) -> Result<()> {
        let (tree, mut dead_looks) = (wish.tree, 0);
        for _ in 0..looks_max {
            let granted = volume::granted(&self.kernel, tree);
            if let Some(answer) = volume::answer(&self.kernel, wish) {
                return answer;
            }
            if volume::await_answer(&self.kernel, wish, granted, LOOK_NS) && self.is_unserved(tree)
            {
                dead_looks += 1;
                if !self.is_followed(tree) || dead_looks > FOLLOW_LOOKS_MAX {
                    break;
                }
            }
            looked();
        }
        match volume::give_up(&self.kernel, wish) {
            true => Err(Errno::EIO),
            false => volume::answer(&self.kernel, wish).unwrap_or(Err(Errno::EIO)),
        }
    }

    fn post(&self, tree: u32, asked: Asked) -> Result<Wish> {
        for nap in 0..NAPS_MAX {
            match volume::post(&self.kernel, tree, asked) {
                Err(Errno::EAGAIN)
                    if nap % 1024 == 1023 && self.is_unserved(tree) && !self.is_followed(tree) =>
                {
                    break;
                }
                Err(Errno::EAGAIN) => husk_region::nap(),
                posted => return posted,
            }
        }
        Err(Errno::EIO)
    }

    fn is_unserved(&self, tree: u32) -> bool {
        let (pid, tid) = volume::server(&self.kernel, tree);
        volume::state(&self.kernel, tree) != State::Served
            || husk_region::judge(pid, tid) == husk_region::Life::Dead
    }

    /// Whether who has died is followed by another server.
    fn is_followed(&self, tree: u32) -> bool {
        volume::state(&self.kernel, tree) == State::Served
            && volume::is_followed(&self.kernel, tree)
    }

    /// Names in `dir`, and in `other` of the same tree, change in `body`.
    #[inline(always)]
    pub(crate) fn naming<T>(
        &mut self,
        dir: Inode,
        other: Option<Inode>,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let begun = unsaved::names_begin(&self.kernel, dir);
        let begun_too = match (begun, other) {
            (Some(_), Some(other)) => unsaved::names_begin(&self.kernel, other),
            _ => None,
        };
        let result = body(self);
        unsaved::names_ended(&self.kernel, begun);
        unsaved::names_ended(&self.kernel, begun_too);
        result
    }

    /// Extended attributes of `inode` change in `body`. They are noted after it, too: who saves
    /// them meanwhile may have seen the old ones.
    pub(crate) fn extending<T>(&mut self, inode: Inode, body: impl FnOnce(&mut Self) -> T) -> T {
        unsaved::note_extended(&self.kernel, inode);
        let result = body(self);
        unsaved::note_extended(&self.kernel, inode);
        result
    }
}
