//! From one host call on each one fails, as on a disk that is full and stays full. What the image
//! had is on the host then, or the manifest brings it there, or the image stays.

use std::cell::Cell;
use std::rc::Rc;

use rustix::io::Errno;

use super::Outcome;
use super::adversary::{as_expected, judge, scene, stride};
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

/// Writes back while each host call from the n-th on fails, or each that is not easy. Whether there
/// was such a call.
fn failing_from(
    n: u32,
    errno: Errno,
    easy: bool,
    work: impl FnOnce() -> Outcome,
) -> (bool, Outcome) {
    let count = Rc::new(Cell::new(0));
    let seen = Rc::clone(&count);
    let plan = move |call: &'static str| {
        count.set(count.get() + 1);
        let spared = easy && EASY.contains(&call);
        if count.get() < n || spared { Ok(()) } else { Err(errno.into()) }
    };
    let outcome = schedule::during(plan, work);
    assert!(seen.get() < CALLS_MAX);
    (seen.get() >= n, outcome)
}

#[test]
fn where_every_host_call_fails_from_one_on_nothing_is_lost_and_all_is_told() {
    let all = [
        (Errno::NOSPC, true),
        (Errno::DQUOT, true),
        (Errno::ROFS, true),
        (Errno::NAMETOOLONG, true),
        (Errno::NOSPC, false),
        (Errno::IO, false),
    ];
    let (mut stayed, mut noted) = (0, 0);
    for (at, (errno, easy)) in (0..).zip(all) {
        let (mut n, mut reached) = (1 + at % stride(), true);
        while reached {
            let scene = &mut scene(n);
            let outcome;
            (reached, outcome) = failing_from(n, errno, easy, || scene.bring_here(false));
            let what = format!("{errno:?} from host call {n} on, easy ones go on: {easy}");
            if outcome.is_complete() {
                as_expected(scene, &outcome, &what);
            }
            // The disk is well again.
            match pending(scene) {
                Some(one) if one.ready => {
                    noted += 1;
                    drop(recover::forward(one));
                }
                other => other.into_iter().for_each(recover::abandon),
            }
            if outcome.untouched {
                stayed += 1;
                scene.bring_here(false);
            }
            judge(scene, &outcome, &what);
            n += stride();
        }
        assert!(n > 100, "{errno:?}: {n} host calls");
    }
    assert!(stayed > 30 && noted > 30, "the image stayed {stayed} times, notes {noted} times");
}
