//! Words that two nodes share. With the feature `models`, every access goes through the scheduler
//! given to `install`, which decides the order of threads and of stores. Without the feature a
//! `Word` is an `AtomicU64`.

#[cfg(not(feature = "models"))]
pub(crate) use core::sync::atomic::AtomicU64 as Word;

#[cfg(feature = "models")]
pub use watched::{Memory, Word, install, mutate};
#[cfg(feature = "models")]
pub(crate) use watched::{mutant, rest};

/// All stores so far are visible before any later load reads.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(feature = "models")]
    watched::fence();
    #[cfg(not(feature = "models"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// The bug that is planted (models only); 0: none.
#[cfg(not(feature = "models"))]
#[inline(always)]
pub(crate) const fn mutant() -> u64 {
    0
}

#[cfg(feature = "models")]
mod watched {
    use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// What stands in the place of memory and of sleep.
    pub trait Memory: Sync {
        /// Reads.
        fn load(&self, word: &AtomicU64) -> u64;
        /// Writes; others may see it later, in the order of this thread's writes.
        fn store(&self, word: &AtomicU64, value: u64);
        /// Changes a word in one step, visible at once, as is all written before; the old value.
        fn swap(&self, word: &AtomicU64, to: &mut dyn FnMut(u64) -> u64) -> u64;
        /// All stores so far become visible.
        fn fence(&self);
        /// Lets others run.
        fn rest(&self);
    }

    static MEMORY: AtomicUsize = AtomicUsize::new(0);
    static MUTANT: AtomicU64 = AtomicU64::new(0);

    /// From now on `memory` is asked, in all threads.
    pub fn install(memory: &'static &'static dyn Memory) {
        MEMORY.store(memory as *const &dyn Memory as usize, Ordering::Release);
    }

    /// Plants a bug. Of lanes: 1 publishes a slot before its bytes, 2 takes without looking for
    /// room, 3 tells that a message was taken before it is read, 4 gives continuing slots a number
    /// of their own, 5 begins a takeover at the first slot, 6 reads a slot without its lap. Of
    /// doorbells: 7 looks for a sleeper without a fence, 8 sleeps without a second look, 9 clears
    /// the ready bits after the look.
    pub fn mutate(bug: u64) {
        MUTANT.store(bug, Ordering::SeqCst);
    }

    pub(crate) fn mutant() -> u64 {
        MUTANT.load(Ordering::Relaxed)
    }

    fn memory() -> Option<&'static dyn Memory> {
        let at = MEMORY.load(Ordering::Acquire) as *const &'static dyn Memory;
        // SAFETY: 0, or what `install` was given, which lives for ever.
        unsafe { at.as_ref().copied() }
    }

    pub(crate) fn fence() {
        if let Some(memory) = memory() {
            memory.fence();
        }
    }

    pub(crate) fn rest() {
        if let Some(memory) = memory() {
            memory.rest();
        }
    }

    /// A word that two nodes share.
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

        pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
            match memory() {
                Some(memory) => memory.swap(&self.0, &mut |_| value),
                None => self.0.swap(value, order),
            }
        }

        pub(crate) fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
            match memory() {
                Some(memory) => memory.swap(&self.0, &mut |old| old | bits),
                None => self.0.fetch_or(bits, order),
            }
        }
    }
}
