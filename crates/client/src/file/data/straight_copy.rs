//! Copies from one file of the image to another without a buffer between them.
//!
//! 1. The source is pinned while its blocks are read: who shortens it meanwhile leaves zeroes in
//!    them, and they are not given to another file.
//! 2. Only bytes that have blocks are copied here. Holes, and what meets an error, are left to the
//!    caller's way through the bounce buffer, which knows what to say.

use crate::file::data::Opened;
use crate::{Client, Host, Memory};
use husk_proto::fs::{Place, Run};
use husk_proto::{Result, Services};

/// Runs looked at by one call.
const RUNS: usize = 32;
/// Fewer bytes are not worth the pin.
const BYTES_MIN: usize = 16 << 10;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Copies bytes of `source` from `from` on to `target` at `to`, which is another file; how many
    /// of `length`. 0: this way leads nowhere.
    pub(crate) fn copy_straight(
        &mut self,
        (source, from): (Opened, u64),
        (target, to): (Opened, u64),
        length: usize,
    ) -> usize {
        let is_near = !self.services.is_elsewhere(source.inode);
        if length < BYTES_MIN || !is_near || self.services.is_elsewhere(target.inode) {
            return 0;
        }
        if self.memory.ready().is_err() || self.services.pin(source.inode).is_err() {
            return 0;
        }
        let done = self.copy_pinned((source, from), (target, to), length);
        self.services.unpin(source.inode);
        done.unwrap_or(0)
    }

    fn copy_pinned(
        &mut self,
        (source, from): (Opened, u64),
        (target, to): (Opened, u64),
        length: usize,
    ) -> Result<usize> {
        let size = self.services.attributes(source.inode)?.size;
        let length = (length as u64).min(size.saturating_sub(from));
        let (runs, count) = self.runs_at(source, from, length)?;
        // It has been read from.
        self.services.read(source.inode, from, 1, &mut |_| Ok(()))?;
        let (mut done, mut within) = (0, from % husk_abi::PAGE as u64);
        for run in &runs[..count] {
            let Some(offset) = run.cache_offset else { break };
            let bytes = (run.length - within).min(length - done);
            let (mut at, place) = (offset + within, Place::At(to + done));
            let put = self.changing(target.inode, |client| {
                let memory = &client.memory;
                client.services.write(target.inode, place, bytes as usize, &mut |span| {
                    memory.copy_within(at, span)?;
                    at += span.length as u64;
                    Ok(())
                })
            });
            let put = put.map_or(0, |(_, put)| put as u64);
            (done, within) = (done + put, 0);
            if put < bytes {
                break;
            }
        }
        Ok(done as usize)
    }

    /// The first runs behind `length` bytes of a file.
    fn runs_at(&mut self, file: Opened, at: u64, length: u64) -> Result<([Run; RUNS], usize)> {
        let mut runs = [Run { cache_offset: None, length: 0 }; RUNS];
        let mut count = 0;
        let most = length.min((RUNS * crate::buffers::BOUNCE_BYTES * 8) as u64);
        self.services.runs(file.inode, at, most, false, &mut |run| {
            if let Some(room) = runs.get_mut(count) {
                *room = run;
                count += 1;
            }
            Ok(())
        })?;
        Ok((runs, count))
    }
}
