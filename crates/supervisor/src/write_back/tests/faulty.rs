//! Host calls fail: one, or each from one on, as on a disk that is full and stays full. What the
//! image had is on the host then, or the manifest brings it there, or the image keeps it.
//!
//! Each way of failing is tried at every call in turns of `TURN`, with `HUSK_FULL` at each.

use std::cell::Cell;
use std::rc::Rc;

use rustix::io::Errno;

use super::Scene;
use super::adversary::{as_expected, judge, scene};
use super::killed::pending;
use crate::write_back::beneath::schedule;
use crate::write_back::recover;

/// More host calls than there are.
const CALLS_MAX: u32 = 5000;
/// Calls that change nothing, or only take something away: a full disk lets them through.
const EASY: [&str; 11] = [
    "unlinkat",
    "fstat",
    "fstatat",
    "openat",
    "openat2",
    "open",
    "readlinkat",
    "listxattr",
    "getxattr",
    "access",
    "pread",
];
/// What disks and file servers say.
const DISKS: [Errno; 5] = [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS, Errno::NAMETOOLONG];
/// What others say, now and then.
const OTHERS: [Errno; 4] = [Errno::ACCESS, Errno::XDEV, Errno::STALE, Errno::NOENT];
/// Calls until the same fault is tried again.
const TURN: u32 = 8;

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    /// The n-th.
    Once,
    /// Each from the n-th on that is not easy.
    Changes,
    /// Each from the n-th on.
    All,
}

/// How, and with what.
#[derive(Clone, Copy, Debug)]
struct Fault {
    errno: Errno,
    fails: Fails,
    /// While programs go on.
    live: bool,
}

/// All there are.
fn faults() -> Vec<Fault> {
    let ways = [Fails::Once, Fails::Changes, Fails::All];
    let disks = DISKS.iter().flat_map(|errno| ways.map(|fails| (*errno, fails)));
    let others = OTHERS.iter().map(|errno| (*errno, Fails::Once));
    let all: Vec<_> = disks.chain(others).collect();
    let both = |live| all.iter().map(move |&(errno, fails)| Fault { errno, fails, live });
    both(false).chain(both(true)).collect()
}

/// Does `work` while calls fail from the n-th on. Whether there was such a call.
fn failing<T>(n: u32, fault: Fault, work: impl FnOnce() -> T) -> (bool, T) {
    let count = Rc::new(Cell::new(0));
    let seen = Rc::clone(&count);
    let plan = move |call: &'static str| {
        count.set(count.get() + 1);
        let fails = match fault.fails {
            Fails::Once => count.get() == n,
            Fails::Changes => count.get() >= n && !EASY.contains(&call),
            Fails::All => count.get() >= n,
        };
        if fails { Err(fault.errno.into()) } else { Ok(()) }
    };
    let done = schedule::during(plan, work);
    assert!(seen.get() < CALLS_MAX, "{} host calls", seen.get());
    (seen.get() >= n, done)
}

/// Tries each fault at each of its calls, until there are no more. How many there were.
fn each(mut act: impl FnMut(u32, Fault) -> bool) -> u32 {
    let full = std::env::var_os("HUSK_FULL").is_some();
    let faults = faults();
    let (mut n, mut last) = (0, 0);
    while n < last + TURN + 1 {
        n += 1;
        for (number, fault) in (0..).zip(&faults) {
            if (full || (n + number) % TURN == 0) && act(n, *fault) {
                last = n;
            }
        }
    }
    last
}

/// Brings to its end what was killed, on a disk that is well again. Whether there was anything.
fn recovered(scene: &Scene) -> bool {
    match pending(scene) {
        Some(one) if one.ready => drop(recover::forward(one)),
        Some(one) => recover::abandon(one),
        None => return false,
    }
    true
}

#[test]
fn whichever_host_calls_fail_nothing_is_lost_and_all_is_told() {
    let (mut stayed, mut noted) = (0, 0);
    let calls = each(|n, fault| {
        let scene = &mut scene(n);
        let (reached, outcome) = failing(n, fault, || scene.bring_here(fault.live));
        let what = format!("{fault:?} at host call {n}");
        // What the host says is not there is nothing to remove.
        if outcome.is_complete() && fault.errno != Errno::NOENT {
            as_expected(scene, &outcome, &what);
        }
        noted += u32::from(recovered(scene));
        if outcome.untouched || fault.live && !outcome.is_complete() {
            stayed += 1;
            scene.bring_here(fault.live);
        }
        judge(scene, &outcome, &what);
        reached
    });
    assert!(calls > 100, "{calls} host calls");
    assert!(stayed > 50 && noted > 50, "the image stayed {stayed} times, notes {noted} times");
}
