//! Wakes a sleeping node when a message arrives from any peer.
//!
//! ```text
//!   reader  spins; sleeping = 1; looks again; futex wait while it is 1, bounded
//!   writer  delivers; fence; sleeping? then sleeping = 0 and futex wake
//! ```
//!
//! Invariants
//! 1. Either the writer sees that the reader sleeps, or the reader's second look sees the message.
//! 2. Every wait is bounded. A peer that clears bits or wakes without reason delays others by at
//!    most one such wait.
//! 3. Only one thread at a time waits at a doorbell.
//! 4. A ready bit is a hint. Before it sleeps, a reader looks at all its lanes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use husk_abi::{Errno, PAGE, nr};
use husk_host::calls::raw;
use husk_wire::NODES_MAX;

use crate::layout::LINE;
use crate::memory::{Area, Memory};
use crate::word::{fence, mutant};

/// Peers up to which a reader polls each; above, they set bits.
pub const POLLED_MAX: usize = 8;
/// Longest sleep at once.
pub const SLEEP_MS_MAX: u32 = 100;
#[cfg(not(feature = "models"))]
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const SLEEPING: usize = 0;
/// Whether bits are to be set.
const COUNTS: usize = 8;
const READY: usize = LINE;
const READY_WORDS: usize = NODES_MAX as usize / 64;
const _: () = assert!(READY + 8 * READY_WORDS <= PAGE);

/// How long to wait, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Looks before it sleeps: each is some 20 ns.
    pub spins: u32,
    /// Then for so long; at most `SLEEP_MS_MAX`.
    pub sleep_ms: u32,
}

impl Wait {
    /// About as long as a wake-up takes, then asleep.
    pub const HYBRID: Wait = Wait { spins: 200, sleep_ms: SLEEP_MS_MAX };
    /// Asleep at once: where the other side runs on the same core.
    pub const SLEEP: Wait = Wait { spins: 0, sleep_ms: SLEEP_MS_MAX };
}

/// Where a node is told of messages. A page that all its peers map.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'m> {
    area: Area<'m>,
}

impl<'m> Doorbell<'m> {
    /// Bytes of memory that one needs.
    pub const BYTES: usize = PAGE;

    /// The doorbell in `memory`, of `BYTES` bytes.
    pub fn of(memory: &'m Memory) -> Self {
        Self { area: memory.area() }
    }

    /// From now on peers set their bits: said by the reader when it has more than `POLLED_MAX`. It
    /// then looks at all lanes once.
    pub fn count_peers(&self) {
        self.area.word(COUNTS).swap(1, SeqCst);
    }

    /// Tells the reader that there is a message from node `peer`.
    #[inline]
    pub fn ring(&self, peer: u16) {
        if mutant() != 7 {
            fence();
        }
        if self.area.word(COUNTS).load(Relaxed) != 0 {
            self.set_ready(peer);
        }
        let sleeping = self.area.word(SLEEPING);
        let slept = sleeping.load(Relaxed) != 0 && sleeping.swap(0, SeqCst) != 0;
        // In models its sleep ends when the word is cleared.
        if slept && !cfg!(feature = "models") {
            wake(self.area.address(SLEEPING, 4));
        }
    }

    fn set_ready(&self, peer: u16) {
        let (word, bit) = (usize::from(peer) / 64 % READY_WORDS, 1 << (peer % 64));
        let word = self.area.word(READY + 8 * word);
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, SeqCst);
        }
    }

    /// Names each peer that has set its bit. Its lanes are to be read until they are empty.
    pub fn each_ready(&self, mut peer: impl FnMut(u16)) {
        for word in 0..READY_WORDS {
            let at = self.area.word(READY + 8 * word);
            let mut bits = at.load(Relaxed);
            if bits == 0 {
                continue;
            }
            if mutant() != 9 {
                bits = at.swap(0, SeqCst);
            }
            (0..64)
                .filter(|bit| bits >> bit & 1 == 1)
                .for_each(|bit| peer((64 * word + bit) as u16));
            if mutant() == 9 {
                at.swap(0, SeqCst);
            }
        }
    }

    /// Waits until `has_message`, or for as long as `wait` says; whether it has. It may end before:
    /// woken for a message that was taken already.
    pub fn wait(&self, wait: Wait, mut has_message: impl FnMut() -> bool) -> bool {
        for _ in 0..wait.spins {
            if has_message() {
                return true;
            }
            core::hint::spin_loop();
        }
        let sleeping = self.area.word(SLEEPING);
        sleeping.swap(1, SeqCst);
        let mut found = mutant() != 8 && has_message();
        if !found {
            sleep(&self.area, wait.sleep_ms.min(SLEEP_MS_MAX));
            found = has_message();
        }
        if sleeping.load(Acquire) != 0 {
            sleeping.store(0, Relaxed);
        }
        found
    }
}

#[cfg(not(feature = "models"))]
fn sleep(area: &Area<'_>, ms: u32) {
    let time = [u64::from(ms / 1000), u64::from(ms % 1000) * 1_000_000];
    let address = area.address(SLEEPING, 4);
    let args = [address, FUTEX_WAIT, 1, time.as_ptr() as usize, 0, 0];
    // SAFETY: the word is mapped and aligned, `time` outlives the call. Woken, out of time or
    // interrupted: the caller looks.
    let _: Result<usize, Errno> = unsafe { raw(nr::futex, args) };
}

/// In models a sleep ends when the word is cleared. Whoever sleeps for as many rests as no fair
/// schedule needs was not woken.
#[cfg(feature = "models")]
fn sleep(area: &Area<'_>, ms: u32) {
    for _ in 0..ms {
        if area.word(SLEEPING).load(Acquire) != 1 {
            return;
        }
        crate::word::rest();
    }
    panic!("nobody woke the sleeper");
}

/// Wakes one who sleeps on the word at an address, which is mapped and aligned.
#[cold]
pub(crate) fn wake(address: usize) {
    // SAFETY: the word is mapped and aligned.
    let _: Result<usize, Errno> = unsafe { raw(nr::futex, [address, FUTEX_WAKE, 1, 0, 0, 0]) };
}
