//! How long Linux lets a thread run before it looks for another one: who asks for less gets the
//! core sooner when it wakes up, and no more of it in all (EEVDF; Linux 6.12).

use husk_abi::{Errno, nr};

use crate::syscall;

const SCHED_OTHER: u32 = 0;
const SCHED_BATCH: u32 = 3;

/// `struct sched_attr`, as far as its first version goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: usize = size_of::<Attributes>();
const _: () = assert!(SIZE == 48);

impl Attributes {
    fn of_this_thread() -> Result<Attributes, Errno> {
        let mut now = Attributes::default();
        // SAFETY: as many bytes as it has are written.
        let raw =
            unsafe { syscall(nr::sched_getattr, [0, (&raw mut now) as usize, SIZE, 0, 0, 0]) };
        Errno::check(raw as i64).map(|_| now)
    }
}

/// How long this thread runs at a time. `None`: Linux does not say, or it is no ordinary thread.
pub fn of_this_thread() -> Option<u64> {
    let now = Attributes::of_this_thread().ok()?;
    let is_ordinary = now.policy == SCHED_OTHER || now.policy == SCHED_BATCH;
    (is_ordinary && now.runtime_ns != 0).then_some(now.runtime_ns)
}

/// Asks for a shorter time, for this thread and those that it makes: at least 100 us. Nothing
/// happens where `of_this_thread` is `None`, or where it is shorter by now.
pub fn shorten_to(ns: u64) -> Result<(), Errno> {
    if of_this_thread().is_none_or(|now| now <= ns) {
        return Ok(());
    }
    // The call sets everything: what is not the slice stays as it is.
    let wanted = Attributes { runtime_ns: ns, ..Attributes::of_this_thread()? };
    // SAFETY: its own length says how many bytes are read.
    let raw = unsafe { syscall(nr::sched_setattr, [0, (&raw const wanted) as usize, 0, 0, 0, 0]) };
    Errno::check(raw as i64).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_slice_leaves_everything_else_as_it_was() {
        let thread = std::thread::spawn(|| {
            // SAFETY: two numbers: this thread's own, and how much it gives way.
            unsafe { syscall(nr::setpriority, [0, 0, 3, 0, 0, 0]) };
            let before = Attributes::of_this_thread().unwrap();
            shorten_to(200_000).unwrap();
            shorten_to(300_000).unwrap();
            (before, Attributes::of_this_thread().unwrap())
        });
        let (before, after) = thread.join().unwrap();
        assert_eq!(before.nice, 3);
        // Linux before 6.12 knows none.
        let runtime_ns = if before.runtime_ns == 0 { 0 } else { 200_000 };
        assert_eq!(after, Attributes { runtime_ns, ..before });
    }
}
