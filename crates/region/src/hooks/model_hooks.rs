//! Words of the arena as a model checker sees them. With the feature `models` every access to a
//! word, every wait and every question for somebody's life goes through what `install` names;
//! without it a `Word` is an `AtomicU64`, and nothing here is compiled.

#[cfg(not(feature = "models"))]
pub(crate) use core::sync::atomic::AtomicU64 as Word;

#[cfg(feature = "models")]
pub use watched::{Memory, Word, install};
#[cfg(feature = "models")]
pub(crate) use watched::{is_dead, rest};

/// Rounds of spinning before a waiter sleeps.
pub(crate) const SPINS: u32 = if cfg!(feature = "models") { 1 } else { 60 };

/// Says to the processor that this thread spins.
#[inline(always)]
pub(crate) fn spin() {
    #[cfg(feature = "models")]
    rest();
    core::hint::spin_loop();
}

#[cfg(feature = "models")]
mod watched {
    use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// What stands in the place of memory, of sleep and of the host's list of threads.
    pub trait Memory: Sync {
        /// Reads.
        fn load(&self, word: &AtomicU64) -> u64;
        /// Writes; others may see it later, in the order of this thread's writes.
        fn store(&self, word: &AtomicU64, value: u64);
        /// Changes a word in one step, visible at once, as is all written before; the old value.
        fn change(&self, word: &AtomicU64, to: &mut dyn FnMut(u64) -> Option<u64>) -> u64;
        /// Lets others run. False: nobody is watched, sleep as usual.
        fn rest(&self) -> bool;
        /// Whether a thread is dead; `None`: ask the host.
        fn is_dead(&self, pid: u32, tid: u32) -> Option<bool>;
    }

    static MEMORY: AtomicUsize = AtomicUsize::new(0);

    /// From now on `memory` is asked, in all threads.
    pub fn install(memory: &'static &'static dyn Memory) {
        MEMORY.store(memory as *const &dyn Memory as usize, Ordering::Release);
    }

    fn memory() -> Option<&'static dyn Memory> {
        let at = MEMORY.load(Ordering::Acquire) as *const &'static dyn Memory;
        // SAFETY: 0, or what `install` was given, which lives for ever.
        unsafe { at.as_ref().copied() }
    }

    pub(crate) fn rest() -> bool {
        memory().is_some_and(|memory| memory.rest())
    }

    pub(crate) fn is_dead(pid: u32, tid: u32) -> Option<bool> {
        memory().and_then(|memory| memory.is_dead(pid, tid))
    }

    /// A word of the arena.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct Word(AtomicU64);

    impl Word {
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            memory().map_or_else(|| self.0.load(order), |memory| memory.load(&self.0))
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            match memory() {
                Some(memory) => memory.store(&self.0, value),
                None => self.0.store(value, order),
            }
        }

        pub(crate) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            let Some(memory) = memory() else {
                return self.0.compare_exchange(old, new, success, failure);
            };
            let found = memory.change(&self.0, &mut |now| (now == old).then_some(new));
            if found == old { Ok(found) } else { Err(found) }
        }

        pub(crate) fn fetch_add(&self, amount: u64, order: Ordering) -> u64 {
            match memory() {
                Some(memory) => memory.change(&self.0, &mut |now| Some(now.wrapping_add(amount))),
                None => self.0.fetch_add(amount, order),
            }
        }
    }
}
