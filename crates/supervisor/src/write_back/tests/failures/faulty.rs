//! Host calls fail: one, or each from one on, as on a disk that is full and stays full. What the
//! image had is on the host then, or the manifest brings it there, or the image keeps it.
//!
//! Each way of failing is tried at every call in turns of `TURN`, with `HUSK_FULL` at each.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;

use rustix::io::Errno;

use super::killed::{Tree, pending, tree, without_times};
use crate::write_back::host::beneath::schedule;
use crate::write_back::record::recover;
use crate::write_back::tests::others::adversary::{KEPT, as_expected, judge, scene};
use crate::write_back::tests::{Outcome, Scene};

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
const TURN: u32 = 16;

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
    /// While programs go on; of a recovery: forward.
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

fn is_text(one: &(u32, i64, i64, Vec<u8>), (_, text): &(&str, &str)) -> bool {
    one.3 == text.as_bytes()
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

/// What is there, but for what a temporary name tells to remove: that can wait.
fn lasting(scene: &Scene) -> Tree {
    let mut all = without_times(tree(&scene.path));
    all.retain(|path, _| !path.to_string_lossy().contains(".husk-tmp-"));
    all
}

/// Writes back, and is killed so many host calls after what is to be done was noted. Whether there
/// is something to recover.
pub fn killed_after(calls: u32, scene: &mut Scene) -> bool {
    let (mut syncs, mut after) = (0, 0);
    let plan = move |call: &'static str| {
        syncs += u32::from(call == "fsync manifest");
        // The file, and its directory.
        after += u32::from(syncs >= 2);
        if after > calls { resume_unwind(Box::new("killed")) } else { Ok(()) }
    };
    let work = || schedule::during(plan, || scene.bring_here(false));
    let killed = catch_unwind(AssertUnwindSafe(work)).is_err();
    killed && pending(scene).is_some_and(|one| one.ready)
}

/// Kills at which there is something to recover: an early one, one in the middle, and a late one.
pub fn kills() -> [u32; 3] {
    let last = (1..).find(|&calls| !killed_after(calls, &mut scene(calls))).unwrap() - 1;
    assert!(last > 20, "{last} calls");
    [1, last / 2, last - 1]
}

#[test]
fn whichever_host_calls_fail_a_recovery_can_be_tried_again_and_loses_nothing() {
    let kills = kills();
    let mut unfinished = 0;
    let calls = each(|n, fault| {
        // What the host says is not there cannot be put back.
        if fault.errno == Errno::NOENT {
            return false;
        }
        let kill = kills[(n / TURN) as usize % kills.len()];
        let mut scene = scene(n);
        let before = lasting(&scene);
        let what = format!("{fault:?} at host call {n}, killed {kill} calls later");
        assert!(killed_after(kill, &mut scene), "{what}");
        let way = |forward: bool| {
            let one = pending(&scene)?;
            if forward { recover::forward(one) } else { recover::back(one) }
        };
        let (reached, told) = failing(n, fault, || way(fault.live));
        let failed = told.as_ref().is_none_or(|told| !told.lines.is_empty());
        unfinished += u32::from(pending(&scene).is_some());
        // The disk is well again; where one way is closed, the other one is left.
        let again = pending(&scene).is_some();
        let then = match again {
            true => way(fault.live).or_else(|| way(!fault.live)),
            false => told,
        };
        assert!(failed || !again, "{what}: {then:#?}");
        assert!(pending(&scene).is_none(), "{what}: it cannot be brought to an end: {then:#?}");
        let now = lasting(&scene);
        let differs = |path: &&PathBuf| before.get(*path) != now.get(*path);
        let differ: Vec<_> = before.keys().chain(now.keys()).filter(differs).collect();
        let back = differ.is_empty();
        let what = format!("{what}; other than before: {differ:?}; {then:?}");
        if !back && then.is_some_and(|then| then.lines.is_empty()) {
            as_expected(&scene, &Outcome::default(), &what);
        } else if !back && fault.live {
            judge(&scene, &Outcome::default(), &what);
        }
        // Whichever way it went, what the host had and the image has not changed is there.
        let now: HashSet<_> = now.into_values().map(|one| one.3).collect();
        let kept = before.values().filter(|one| back || KEPT.iter().any(|kept| is_text(one, kept)));
        kept.for_each(|one| assert!(now.contains(&one.3), "{what}: {one:?} is lost"));
        reached
    });
    assert!(calls > 30, "{calls} host calls");
    assert!(unfinished > 50, "{unfinished} recoveries were not brought to their ends");
}

#[test]
fn what_is_immutable_is_told_with_what_to_type_and_nothing_is_lost() {
    use std::fs;

    use husk_proto::Fs as _;
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let mut scene = Scene::new(|path| {
        for name in ["written", "removed", "mode", "free"] {
            fs::write(path.join(name), "host").unwrap();
        }
    });
    let names = ["written", "removed", "mode"];
    let set = |scene: &Scene, on: bool| -> bool {
        names.iter().all(|name| {
            let file = fs::File::open(scene.path.join(name)).unwrap();
            let flags = ioctl_getflags(&file).unwrap_or(IFlags::empty());
            let flags = if on { flags | IFlags::IMMUTABLE } else { flags - IFlags::IMMUTABLE };
            ioctl_setflags(&file, flags).is_ok()
        })
    };
    scene.rewrite("written", b"image");
    scene.rewrite("free", b"image");
    scene.unlink("removed");
    let inode = scene.at("mode");
    let mode = husk_proto::fs::Change { mode: Some(0o600), ..Default::default() };
    scene.direct.change(&crate::write_back::tests::who(), inode, mode).unwrap();
    if !set(&scene, true) {
        // Not here, or not by this user.
        set(&scene, false);
        return;
    }
    let outcome = scene.bring_here(true);
    set(&scene, false);
    assert_eq!(scene.host("free"), "image");
    for name in names {
        let typed = format!("chattr -i {}", scene.path.join(name).display());
        let told = outcome.failures.iter().filter(|line| line.contains(&typed));
        assert_eq!(told.count(), 1, "{name}: {outcome:#?}");
        assert_eq!(scene.host(name), "host");
    }
    let outcome = scene.bring_here(true);
    assert!(outcome.is_complete(), "{outcome:#?}");
    assert_eq!(scene.host("written"), "image");
    assert!(!scene.path.join("removed").exists());
}
