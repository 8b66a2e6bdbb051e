//! What becomes durable: the server of a volume is asked.

use husk_kernel::fs::unsaved;
use husk_kernel::image::volume;
use husk_proto::image::MOUNTS_MAX;
use husk_proto::volume::State;
use husk_proto::{Inode, Result};

use crate::Direct;

pub(crate) fn commit(me: &mut Direct, inode: Inode, whole: bool) -> Result<()> {
    if !volume::any(&me.kernel) {
        return Ok(());
    }
    match volume::of(&me.kernel, inode)? {
        Some(tree) => me.ask_volume(tree, (!whole).then_some(inode)),
        None => Ok(()),
    }
}

pub(crate) fn commit_changes(me: &mut Direct) -> Result<()> {
    match unsaved::take_touched(&me.kernel) {
        // What is gone has no names left, and those of others are saved by any object's.
        Some(inode) => match volume::of(&me.kernel, inode) {
            Ok(Some(tree)) => me.ask_volume(tree, Some(inode)),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

pub(crate) fn commit_all(me: &mut Direct) -> Result<()> {
    if !volume::any(&me.kernel) {
        return Ok(());
    }
    let served = |tree: &u32| volume::state(&me.kernel, *tree) != State::None;
    let trees = (0..MOUNTS_MAX as u32).filter(served);
    trees.map(|tree| me.ask_volume(tree, None)).fold(Ok(()), Result::and)
}
