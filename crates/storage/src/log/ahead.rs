//! Reads bytes of a disk one after the other; a second thread reads those that come next.
//!
//! ```text
//!   read ─► | chunk, read | chunk, read | chunk, asked for |     thread: disk ─► the next chunk
//! ```
//!
//! 1. A read has the bytes and the error that the disk has for it: where a chunk cannot be read,
//!    the disk is asked again for what is wanted alone.
//! 2. At most `CHUNKS_MAX` chunks are held.
//!
//! A range that is not longer than a chunk is read without a thread.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use crate::disk::{Aligned, Disk};

const CHUNK_BYTES: u64 = 1 << 20;
const CHUNKS_MAX: usize = 4;

/// Reads up to an end.
pub struct Ahead<'scope, 'env, D> {
    scope: &'scope Scope<'scope, 'env>,
    disk: &'env D,
    end_bytes: u64,
    lane: Option<Lane>,
    /// Consecutive ones, those that are read first.
    chunks: VecDeque<Chunk>,
    spare: Vec<Aligned>,
}

/// The way to the thread, which ends with it.
struct Lane {
    asks: Sender<(u64, Aligned)>,
    answers: Receiver<io::Result<Aligned>>,
}

struct Chunk {
    at_bytes: u64,
    length: u64,
    state: State,
}

enum State {
    Asked,
    Read(Aligned),
    Failed,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.at_bytes + self.length
    }
}

impl<'scope, 'env, D: Disk> Ahead<'scope, 'env, D> {
    /// Nothing behind `end_bytes` is asked for.
    pub fn new(scope: &'scope Scope<'scope, 'env>, disk: &'env D, end_bytes: u64) -> Self {
        let (chunks, spare) = (VecDeque::new(), Vec::new());
        Self { scope, disk, end_bytes, lane: None, chunks, spare }
    }

    /// Fills `into` with what is at `at_bytes`.
    pub fn read(&mut self, mut at_bytes: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            self.forget_before(at_bytes);
            if self.chunks.is_empty() {
                if self.end_bytes.saturating_sub(at_bytes) <= CHUNK_BYTES {
                    return self.disk.read(at_bytes, into);
                }
                self.ask(at_bytes);
            }
            if !self.is_front_read() {
                // Invariant 1.
                self.forget_all();
                return self.disk.read(at_bytes, into);
            }
            let chunk = &self.chunks[0];
            let State::Read(bytes) = &chunk.state else { unreachable!("it is read") };
            let from = (at_bytes - chunk.at_bytes) as usize;
            let count = into.len().min(chunk.length as usize - from);
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&bytes[from..from + count]);
            (at_bytes, into) = (at_bytes + count as u64, later);
        }
        Ok(())
    }

    /// Lets go of chunks before `at_bytes`, of all where it is in none of them.
    fn forget_before(&mut self, at_bytes: u64) {
        let within =
            self.chunks.iter().position(|chunk| (chunk.at_bytes..chunk.end()).contains(&at_bytes));
        let Some(count) = within else { return self.forget_all() };
        (0..count).for_each(|_| self.forget_front());
        if let Some(last) = self.chunks.back() {
            self.ask(last.end());
        }
    }

    fn forget_all(&mut self) {
        while !self.chunks.is_empty() {
            self.forget_front();
        }
    }

    fn forget_front(&mut self) {
        self.is_front_read();
        if let Some(Chunk { state: State::Read(bytes), .. }) = self.chunks.pop_front() {
            self.spare.push(bytes);
        }
    }

    /// Asks for chunks from `at_bytes` on, as many as may be held.
    fn ask(&mut self, mut at_bytes: u64) {
        while self.chunks.len() < CHUNKS_MAX && at_bytes < self.end_bytes {
            let length = CHUNK_BYTES.min(self.end_bytes - at_bytes);
            let whole = |spare: &Aligned| spare.len() as u64 == length;
            let bytes = self.spare.pop().filter(whole);
            let bytes = bytes.unwrap_or_else(|| Aligned::zeroed(length as usize));
            let (scope, disk) = (self.scope, self.disk);
            let lane = self.lane.get_or_insert_with(|| begin(scope, disk));
            if lane.asks.send((at_bytes, bytes)).is_err() {
                return;
            }
            self.chunks.push_back(Chunk { at_bytes, length, state: State::Asked });
            at_bytes += length;
        }
    }

    /// Waits for the first chunk; whether it was read.
    fn is_front_read(&mut self) -> bool {
        let Some(front) = self.chunks.front_mut() else { return false };
        if matches!(front.state, State::Asked) {
            let answer = self.lane.as_ref().and_then(|lane| lane.answers.recv().ok());
            front.state = answer.and_then(Result::ok).map_or(State::Failed, State::Read);
        }
        matches!(front.state, State::Read(_))
    }
}

fn begin<'scope, D: Disk>(scope: &'scope Scope<'scope, '_>, disk: &'scope D) -> Lane {
    let (asks, asked) = channel::<(u64, Aligned)>();
    let (answered, answers) = channel();
    scope.spawn(move || {
        for (at_bytes, mut bytes) in asked {
            let read = disk.read(at_bytes, &mut bytes).map(|()| bytes);
            if answered.send(read).is_err() {
                return;
            }
        }
    });
    Lane { asks, answers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Random, Sim};
    use crate::disk::{BLOCK, BLOCK_BYTES};

    const END: u64 = 7 * CHUNK_BYTES + 3 * BLOCK;

    fn disk() -> Sim {
        let disk = Sim::new(END + BLOCK, 1);
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        for at in (0..END).step_by(BLOCK_BYTES) {
            block.fill((at / BLOCK % 251) as u8);
            disk.write_durable(at, &block).unwrap();
        }
        disk
    }

    fn reads_as_the_disk(disk: &Sim, mut next: impl FnMut() -> (u64, u64)) {
        std::thread::scope(|scope| {
            let mut ahead = Ahead::new(scope, disk, END);
            for _ in 0..400 {
                let (at, blocks) = next();
                let length = (blocks * BLOCK).min(END - at) as usize;
                let (mut one, mut other) = (Aligned::zeroed(length), Aligned::zeroed(length));
                let (got, wanted) = (ahead.read(at, &mut one), disk.read(at, &mut other));
                assert_eq!(got.is_ok(), wanted.is_ok(), "at {at}");
                assert!(got.is_err() || one[..] == other[..], "at {at}");
                assert!(ahead.chunks.len() <= CHUNKS_MAX);
            }
        });
    }

    #[test]
    fn a_read_has_what_the_disk_has_wherever_it_is_also_where_a_block_cannot_be_read() {
        for spoils in [false, true] {
            let (disk, mut random, mut at) = (disk(), Random::new(3), 0);
            if spoils {
                disk.spoil(2 * CHUNK_BYTES + 5 * BLOCK);
                disk.spoil(END - BLOCK);
            }
            reads_as_the_disk(&disk, || {
                let blocks = 1 + random.below(600);
                let here = at;
                // On, once in a while from the same place again or from elsewhere.
                at = match random.below(8) {
                    0 => random.below(END / BLOCK) * BLOCK,
                    1 => here,
                    _ => (here + blocks * BLOCK) % (END / BLOCK * BLOCK),
                };
                (here, blocks)
            });
        }
    }
}
