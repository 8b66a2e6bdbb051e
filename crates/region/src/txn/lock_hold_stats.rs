//! How long locks are held, measured in a process that asks for it (feature `holds`).
//!
//! ```text
//!   first lock of a transaction taken ─► ... ─► last one let go    one hold
//!   long lock taken ─────────────────► ... ─► let go               one hold
//! ```
//!
//! A hold is measured twice: by the processor's clock, as those see it who wait, and in processor
//! time, which says what the work itself takes: a holder may lose its core in the middle. Numbers
//! of journal entries bound the work whatever the machine does.
//!
//! Invariants
//! 1. Without the feature nothing of this is there: no word, no instruction. Programs of an image
//!    are always built without.
//! 2. With it, and while nobody has switched it on, a transaction pays one load.
//! 3. Waiting for a second lock counts: others wait for the first meanwhile.

/// Kinds of work that are told apart.
pub const HOLDERS: usize = 16;

#[cfg(feature = "holds")]
pub use measured::*;

#[cfg(feature = "holds")]
mod measured {
    use super::HOLDERS;
    use crate::hooks::clock::ticks;
    use crate::txn::session::Session;
    use core::cell::Cell as Local;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use husk_abi::nr;
    use husk_host::syscall;

    /// What is known of the holds of one kind of work.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Held {
        /// How many.
        pub count: u64,
        /// How many took longer than the limit, by the clock.
        pub late: u64,
        /// How many did in processor time.
        pub slow: u64,
        /// The longest, ticks of the processor's clock.
        pub longest_ticks: u64,
        /// The longest in processor time.
        pub longest_cpu_ns: u64,
        /// Most entries in a journal.
        pub entries: u64,
    }

    const FIELDS: usize = 6;
    static TABLE: [[AtomicU64; FIELDS]; HOLDERS] =
        [const { [const { AtomicU64::new(0) }; FIELDS] }; HOLDERS];
    /// Ticks, then ns, that a hold may take; 0 = nobody wants to know.
    static LIMIT_TICKS: AtomicU64 = AtomicU64::new(0);
    static LIMIT_NS: AtomicU64 = AtomicU64::new(0);

    /// Measures from now on. Holds may take `limit_ns`, which are `limit_ticks`.
    pub fn switch_on(limit_ns: u64, limit_ticks: u64) {
        LIMIT_NS.store(limit_ns, Relaxed);
        LIMIT_TICKS.store(limit_ticks.max(1), Relaxed);
    }

    /// What is known of one kind of work.
    pub fn held(holder: usize) -> Held {
        let [count, late, slow, longest_ticks, longest_cpu_ns, entries] =
            TABLE[holder % HOLDERS].each_ref().map(|word| word.load(Relaxed));
        Held { count, late, slow, longest_ticks, longest_cpu_ns, entries }
    }

    fn note(holder: usize, took_ticks: u64, took_ns: u64, entries: u64) {
        let [count, late, slow, longest_ticks, longest_cpu_ns, most] = &TABLE[holder % HOLDERS];
        count.fetch_add(1, Relaxed);
        late.fetch_add(u64::from(took_ticks > LIMIT_TICKS.load(Relaxed)), Relaxed);
        slow.fetch_add(u64::from(took_ns > LIMIT_NS.load(Relaxed)), Relaxed);
        longest_ticks.fetch_max(took_ticks, Relaxed);
        longest_cpu_ns.fetch_max(took_ns, Relaxed);
        most.fetch_max(entries, Relaxed);
    }

    /// Processor time of this thread, ns.
    fn cpu_ns() -> u64 {
        const THREAD_CPUTIME: usize = 3;
        let mut time = [0u64; 2];
        let place = time.as_mut_ptr() as usize;
        // SAFETY: `struct timespec` is two words.
        unsafe { syscall(nr::clock_gettime, [THREAD_CPUTIME, place, 0, 0, 0, 0]) };
        time[0] * 1_000_000_000 + time[1]
    }

    /// When a hold began: ticks, and processor time in ns.
    #[derive(Clone, Copy, Debug, Default)]
    struct Since(u64, u64);

    impl Since {
        fn now() -> Since {
            // The call of the host lies outside of what the clock measures.
            let cpu_ns = cpu_ns();
            Since(ticks(), cpu_ns)
        }

        fn end(self, holder: usize, entries: u64) {
            if self.0 != 0 {
                let took_ticks = ticks() - self.0;
                note(holder, took_ticks, cpu_ns() - self.1, entries);
            }
        }
    }

    /// What a seat is about, and since when it holds something.
    #[derive(Debug, Default)]
    pub(crate) struct Hold {
        holder: Local<usize>,
        transaction: Local<Since>,
        long: Local<Since>,
        longs: Local<u32>,
    }

    fn is_on() -> bool {
        LIMIT_TICKS.load(Relaxed) != 0
    }

    impl Session {
        /// What this thread does from now on is work of kind `holder`.
        pub fn work_as(&self, holder: usize) {
            self.hold.holder.set(holder);
        }

        /// What it does now.
        pub fn works_as(&self) -> usize {
            self.hold.holder.get()
        }

        pub(crate) fn hold_begins(&self) {
            if is_on() {
                self.hold.transaction.set(Since::now());
            }
        }

        pub(crate) fn hold_ends(&self, entries: u32) {
            self.hold.transaction.take().end(self.works_as(), entries.into());
        }

        pub(crate) fn long_begins(&self) {
            if self.hold.longs.replace(self.hold.longs.get() + 1) == 0 && is_on() {
                self.hold.long.set(Since::now());
            }
        }

        pub(crate) fn long_ends(&self) {
            self.hold.longs.set(self.hold.longs.get().saturating_sub(1));
            if self.hold.longs.get() == 0 {
                self.hold.long.take().end(self.works_as(), 0);
            }
        }
    }
}

#[cfg(not(feature = "holds"))]
impl crate::txn::session::Session {
    /// What this thread does from now on is work of that kind.
    #[inline(always)]
    pub fn work_as(&self, _: usize) {}

    /// What it does now.
    #[inline(always)]
    pub fn works_as(&self) -> usize {
        0
    }

    #[inline(always)]
    pub(crate) fn hold_begins(&self) {}

    #[inline(always)]
    pub(crate) fn hold_ends(&self, _: u32) {}

    #[inline(always)]
    pub(crate) fn long_begins(&self) {}

    #[inline(always)]
    pub(crate) fn long_ends(&self) {}
}
