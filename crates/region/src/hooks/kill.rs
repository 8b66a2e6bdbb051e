//! Kill points, where a test may stop an operation for good: after every store, in every phase of a
//! commit, around every lock; and every allocation, which a test may make fail.
//! Compiled to nothing without the feature `kill-points`.

#[cfg(feature = "kill-points")]
mod armed {
    use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

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
    /// replay, 4 forgets to release what a dead slot held, 5 lets two recover at once,
    /// 6 redoes whatever the word holds by now. Of pipes: 21 makes a host call
    /// though the bytes are elsewhere by now, 22 leaves a dead holder its lock, 23 takes the ring
    /// into use under a host call, 24 goes to sleep without a second look,
    /// 25 never asks whether a reader is left, 26 invites no writer, 29 does not wait for who is
    /// busy alone, 30 looks at the state before it says that it is busy.
    ///
    /// Of wide directories: 31 asks whether one is shut after its generation, 32 not at all,
    /// 33 shuts without passing tokens, 34 does not look at the mode again under the token,
    /// 35 narrows without tokens, 36 removes without another look whether it is shut. Of words:
    /// 41 reads without a second look, 42 lets go without a new sequence, 43 frees an inode
    /// without a new generation, 44 takes from a pool without its lock, 46 buries the dead without
    /// the word for it, 47 settles a slot that may be another's by now, 48 leaves a file that goes
    /// in steps without its mark. Of thefts: 49 takes from a magazine whatever a thief does, 50
    /// steals whatever the victim does, 53 though it fills what it has, 54 fills whatever a thief
    /// does. Of watches: 51 tells of what may yet be undone. Of epoll sets:
    /// 61 takes the ring of a pipe in one into use, 62 makes host calls unseen, 63 clears bits
    /// without counting a change, 64 takes a call in flight for none, 65 trusts in a pipe that
    /// others may hold. Of sockets in sets: 71 does not look whether a set sleeps after telling,
    /// 72 goes to sleep without a last look at the bits, 73 does not look for who polls. Of the
    /// reply cache: 81 takes a record whatever becomes of the transaction.
    pub fn mutate(bug: u64) {
        MUTANT.store(bug, Ordering::SeqCst);
    }

    /// The bug that is planted; 0 = none.
    pub fn mutant() -> u64 {
        MUTANT.load(Ordering::Relaxed)
    }

    static JITTER: AtomicU64 = AtomicU64::new(0);
    static DICE: AtomicU64 = AtomicU64::new(1);

    /// Lets others run at one of so many points from now on, at random: what would have to happen
    /// within a few instructions then happens often. 0 = never.
    pub fn jitter(one_in: u64) {
        JITTER.store(one_in, Ordering::SeqCst);
    }

    #[cold]
    fn pause(one_in: u64) {
        let dice = DICE.fetch_add(husk_abi::SPREAD, Ordering::Relaxed);
        let dice = (dice ^ dice >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        if dice.is_multiple_of(one_in) {
            // SAFETY: sched_yield changes nothing.
            unsafe { husk_host::syscall(husk_abi::nr::sched_yield, [0; 6]) };
        }
    }

    static GRANTED: AtomicU64 = AtomicU64::new(0);
    static STAYS_FULL: AtomicBool = AtomicBool::new(false);
    static REFUSED: AtomicU64 = AtomicU64::new(0);

    /// Refuses the `nth` allocation from now, and with `stays_full` all later ones; 0 refuses none.
    pub fn refuse(nth: u64, stays_full: bool) {
        REFUSED.store(0, Ordering::SeqCst);
        STAYS_FULL.store(stays_full, Ordering::SeqCst);
        GRANTED.store(nth, Ordering::SeqCst);
    }

    /// Allocations refused since `refuse`.
    pub fn refused() -> u64 {
        REFUSED.load(Ordering::SeqCst)
    }

    /// Whether this allocation is to fail.
    pub fn refuses() -> bool {
        let left = GRANTED.load(Ordering::Relaxed);
        if left > 1 {
            GRANTED.store(left - 1, Ordering::Relaxed);
        }
        if left != 1 {
            return false;
        }
        if !STAYS_FULL.load(Ordering::Relaxed) {
            GRANTED.store(0, Ordering::Relaxed);
        }
        REFUSED.fetch_add(1, Ordering::Relaxed);
        true
    }

    #[inline]
    pub(crate) fn point() {
        let jitter = JITTER.load(Ordering::Relaxed);
        if jitter != 0 {
            pause(jitter);
        }
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
pub(crate) use armed::point;
#[cfg(feature = "kill-points")]
pub use armed::{arm, jitter, left, mutant, mutate, refuse, refused, refuses};

#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub(crate) fn point() {}

/// The bug that is planted (tests only).
#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub fn mutant() -> u64 {
    0
}

/// Whether this allocation is to fail (tests only).
#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub fn refuses() -> bool {
    false
}
