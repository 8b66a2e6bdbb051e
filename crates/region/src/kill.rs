//! Places where a test may stop an operation for good: after every journalled store, in every phase
//! of a commit, around every lock. Compiled to nothing without the feature `kill-points`.

#[cfg(feature = "kill-points")]
mod armed {
    use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    static LEFT: AtomicU64 = AtomicU64::new(0);
    static HOOK: AtomicUsize = AtomicUsize::new(0);
    static MUTANT: AtomicU64 = AtomicU64::new(0);

    /// Calls `hook` at the `points`-th point from now; 0 disarms.
    pub fn arm(points: u64, hook: fn()) {
        HOOK.store(hook as usize, Ordering::SeqCst);
        LEFT.store(points, Ordering::SeqCst);
    }

    /// Points left until the hook runs; 0 when it ran or nothing is armed.
    pub fn left() -> u64 {
        LEFT.load(Ordering::SeqCst)
    }

    /// Plants a bug: 1 undoes in forward order, 2 forgets the commit mark, 3 forgets redo at
    /// replay, 4 forgets to release what a dead slot held.
    pub fn mutate(bug: u64) {
        MUTANT.store(bug, Ordering::SeqCst);
    }

    pub(crate) fn mutant() -> u64 {
        MUTANT.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn point() {
        let left = LEFT.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        LEFT.store(left - 1, Ordering::Relaxed);
        if left == 1 {
            let hook = HOOK.load(Ordering::SeqCst);
            // SAFETY: `arm` stored a `fn()` there.
            let hook: fn() = unsafe { core::mem::transmute::<usize, fn()>(hook) };
            hook();
        }
    }
}

#[cfg(feature = "kill-points")]
pub use armed::{arm, left, mutate};
#[cfg(feature = "kill-points")]
pub(crate) use armed::{mutant, point};

#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub(crate) fn point() {}

#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub(crate) fn mutant() -> u64 {
    0
}
