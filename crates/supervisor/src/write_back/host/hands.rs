//! Several threads share the host calls that many files take: while one waits for the host, another
//! goes on.
//!
//! Who shares has read from the image all that is needed: what is left are calls on names in
//! directories that are open (`beneath::Place`). Each thread takes a block of what lies side by
//! side, so that two of them are rarely in one directory. Where no thread can be had, this one does
//! all.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::beneath::schedule;

/// Threads at most; more would wait for each other in the same directories.
const HANDS_MAX: usize = 4;
/// Errands that are worth a thread, and blocks of them for each.
const BLOCK_MIN: usize = 64;
const BLOCKS: usize = 4;

/// Does all `errands`; what came of each, in their order.
pub fn share<E: Sync, R: Send>(errands: &[E], work: impl Fn(&E) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let hands = cores.min(HANDS_MAX).min(errands.len() / BLOCK_MIN);
    if hands <= 1 || schedule::is_set() {
        return errands.iter().map(work).collect();
    }
    let blocks: Vec<_> =
        errands.chunks((errands.len() / (hands * BLOCKS)).max(BLOCK_MIN)).collect();
    let next = AtomicUsize::new(0);
    let hand = || {
        let mut done = Vec::new();
        while let Some((n, block)) = taken(&next, &blocks) {
            done.push((n, block.iter().map(&work).collect::<Vec<_>>()));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, hand).ok();
        let others: Vec<_> = (1..hands).filter_map(spawn).collect();
        let mut done = hand();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(n, _)| *n);
    done.into_iter().flat_map(|(_, block)| block).collect()
}

fn taken<'e, E>(next: &AtomicUsize, blocks: &[&'e [E]]) -> Option<(usize, &'e [E])> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    blocks.get(n).map(|block| (n, *block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_each_is_in_the_order_of_the_errands() {
        for count in [0, 1, BLOCK_MIN, 10 * BLOCK_MIN + 7] {
            let errands: Vec<_> = (0..count).collect();
            let doubled = share(&errands, |one| 2 * one);
            assert_eq!(doubled, errands.iter().map(|one| 2 * one).collect::<Vec<_>>());
        }
    }
}
