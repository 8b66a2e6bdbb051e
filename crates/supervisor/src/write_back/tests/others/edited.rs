//! Somebody edits files of the host before each host call of a write-back, or of who recovers it:
//! what they have written is there afterwards. So it is on file systems without `RENAME_EXCHANGE`.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use husk_proto::Fs;
use husk_proto::fs::Kind;
use rustix::io::Errno;

use super::adversary::{contents, scene};
use crate::write_back::host::beneath::schedule;
use crate::write_back::record::manifest::Pending;
use crate::write_back::record::recover;
use crate::write_back::tests::failures::killed::{killed_at, pending};
use crate::write_back::tests::{Outcome, Scene};

/// What the image has rewritten, replaced and removed.
const EDITED: [&str; 3] = ["changed", "replaced", "gone"];
/// More host calls than there are.
const CALLS_MAX: u32 = 5000;

/// How an editor saves a file.
type Save = fn(&Path, &str) -> io::Result<()>;

fn write_into(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    // The clock of files stands still for some ms.
    File::open(path)?.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("edited");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

const SAVES: [(&str, Save); 2] = [("written into", write_into), ("replaced", replace)];

/// What was edited, and whether it was still the host's.
type Edits = Rc<RefCell<Vec<(&'static str, bool)>>>;

/// Does `work`; before the n-th host call files in `public` are edited. Whether there was such a
/// call.
fn edited_at(
    n: u32,
    (public, save, lacking): (&Path, Save, bool),
    edits: &Edits,
    work: impl FnOnce(),
) -> bool {
    let (count, public, edits) = (Rc::new(Cell::new(0)), public.to_owned(), Rc::clone(edits));
    let seen = Rc::clone(&count);
    let plan = move |call| {
        count.set(count.get() + 1);
        if count.get() == n {
            for name in EDITED {
                let path = public.join(name);
                if let Ok(text) = fs::read_to_string(&path) {
                    save(&path, &format!("theirs: {name}")).unwrap();
                    edits.borrow_mut().push((name, text == format!("host: {name}")));
                }
            }
        }
        if lacking && call == "renameat2" { Err(Errno::INVAL.into()) } else { Ok(()) }
    };
    schedule::during(plan, work);
    assert!(seen.get() < CALLS_MAX);
    seen.get() >= n
}

#[track_caller]
fn judge(scene: &Scene, edits: &Edits, what: &str, told: &dyn std::fmt::Debug) {
    let found = contents(scene.scratch.path());
    let is_there = |text: String| found.values().any(|one| *one == text);
    for (name, was_the_hosts) in edits.borrow().iter() {
        assert!(is_there(format!("theirs: {name}")), "{what}: {name}: {told:#?}\n{found:#?}");
        let ours = *name == "gone" || !was_the_hosts || is_there(format!("ours: {name}"));
        assert!(ours, "{what}: the image's {name}: {told:#?}\n{found:#?}");
    }
}

#[test]
fn what_somebody_writes_at_any_moment_of_a_write_back_is_there_afterwards() {
    for ((how, save), lacking) in SAVES.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let (mut n, mut reached) = (0, true);
        while reached {
            n += 1;
            let scene = &mut scene(n);
            let (public, edits) = (scene.path.join("pub"), Edits::default());
            let mut outcome = Outcome::default();
            reached = edited_at(n, (&public, save, lacking), &edits, || {
                outcome = scene.bring_here(false);
            });
            let what = format!("{how} before call {n}, without flags: {lacking}");
            judge(scene, &edits, &what, &outcome);
        }
        assert!(n > 100, "{how}: {n} host calls");
    }
}

/// A scene whose write-back was killed when it had noted everything, and about which call that is.
fn ready_scene(n: u32, first: u32) -> (Scene, Pending, u32) {
    for call in first..CALLS_MAX {
        let mut scene = scene(n);
        killed_at(call, || scene.bring_here(false));
        if let Some(one) = pending(&scene).filter(|one| one.ready) {
            return (scene, one, call);
        }
    }
    panic!("no write-back was ready");
}

#[test]
fn so_it_is_where_a_write_back_was_killed_and_is_recovered() {
    let mut first = 1;
    for ((how, save), lacking) in SAVES.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let (mut n, mut reached) = (0, true);
        while reached {
            n += 1;
            let (scene, one);
            (scene, one, first) = ready_scene(n, first);
            let (public, edits) = (scene.path.join("pub"), Edits::default());
            let mut told = None;
            reached = edited_at(n, (&public, save, lacking), &edits, || {
                told = recover::forward(one);
            });
            let what = format!("{how} before call {n}, without flags: {lacking}");
            judge(&scene, &edits, &what, &told);
        }
        assert!(n > 50, "{how}: {n} host calls");
    }
}

/// Between the plan and the first thing that is made there are a few calls yet.
const WINDOW: u32 = 12;

#[test]
fn a_right_that_is_taken_away_while_a_file_is_replaced_is_not_there_again() {
    for live in [false, true] {
        let (mut lost, mut n, mut reached) = (0, 0, true);
        while reached {
            n += 1;
            let scene = &mut scene(n);
            let path = scene.path.join("pub/changed");
            let (count, there) = (Rc::new(Cell::new(0)), path.clone());
            let seen = Rc::clone(&count);
            let plan = move |_: &'static str| {
                count.set(count.get() + 1);
                if count.get() == n {
                    fs::set_permissions(&there, PermissionsExt::from_mode(0o600)).unwrap();
                }
                Ok(())
            };
            schedule::during(plan, || scene.bring_here(live));
            reached = seen.get() >= n;
            let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            lost += u32::from(reached && mode() != 0o600);
            assert_eq!(scene.host("pub/changed"), "ours: changed");
            if live && reached && mode() == 0o600 {
                let inode = scene.at("pub/changed");
                scene.direct.write_at(inode, 0, b"more").unwrap();
                scene.bring_here(true);
                assert_eq!(mode(), 0o600, "call {n}: it is there again after the next sync");
            }
        }
        assert!(n > 100 && lost <= WINDOW, "{lost} of {n} calls, live: {live}");
    }
}

/// What a sync makes, sets or puts something into, and the mode that it has from then on.
const MADE: [(&str, u32); 7] = [
    ("pub/changed", 0o644),
    ("pub/new", 0o640),
    ("pub/first", 0o640),
    ("pub/tree", 0o751),
    ("pub/tree/one", 0o640),
    ("pub/touched", 0o640),
    ("pub", 0o777),
];

/// Gives all that is there, as the image has it, another mode; which these are.
fn narrowed(top: &Path) -> Vec<&'static str> {
    let is_made = |(name, mode): &(&str, u32)| {
        let path = top.join(name);
        let found = fs::metadata(&path).ok().filter(|found| found.mode() & 0o7777 == *mode);
        let theirs = fs::read_to_string(&path).is_ok_and(|text| text.starts_with("host"));
        let made = found.is_some() && (!theirs || *name == "pub/touched");
        made.then(|| fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap());
        made
    };
    MADE.into_iter().filter(is_made).map(|(name, _)| name).collect()
}

#[test]
fn rights_that_somebody_gives_what_a_sync_has_just_set_hold_after_the_next() {
    let (mut n, mut reached, mut seen) = (0, true, [0; MADE.len()]);
    while reached {
        n += 1;
        let scene = &mut scene(n);
        let (count, top) = (Rc::new(Cell::new(0)), scene.path.clone());
        let names = Rc::new(RefCell::new(Vec::new()));
        let (calls, narrow) = (Rc::clone(&count), Rc::clone(&names));
        let plan = move |_: &'static str| {
            calls.set(calls.get() + 1);
            if calls.get() == n {
                *narrow.borrow_mut() = narrowed(&top);
            }
            Ok(())
        };
        schedule::during(plan, || scene.bring_here(true));
        reached = count.get() >= n;
        let mode = |name| fs::metadata(scene.path.join(name)).unwrap().mode() & 0o7777;
        let held: Vec<_> = names.take().into_iter().filter(|name| mode(*name) == 0o700).collect();
        for name in &held {
            seen[MADE.iter().position(|(one, _)| one == name).unwrap()] += 1;
            let inode = scene.at(name);
            match scene.direct.step(inode).unwrap().kind {
                Kind::Directory => drop(scene.write(&format!("{name}/more"), b"more")),
                _ => scene.append(name, b"more"),
            }
        }
        let outcome = scene.bring_here(true);
        let mode = |name| fs::metadata(scene.path.join(name)).unwrap().mode() & 0o7777;
        for name in held {
            assert_eq!(mode(name), 0o700, "{name}, call {n}: {outcome:#?}");
        }
    }
    assert!(seen.iter().all(|&count| count > 10), "{seen:?} of {n} calls");
}

/// Calls from one moment of an edit to the moment of the kill.
const GAPS: u32 = 4;

#[test]
fn a_right_that_is_taken_away_right_before_a_kill_is_not_there_again_after_the_recovery() {
    let (_, _, first) = ready_scene(0, 1);
    let mut kills = 0;
    let mut n = first;
    loop {
        let mut any = false;
        for gap in 1..=GAPS {
            let scene = &mut scene(n * GAPS + gap);
            let path = scene.path.join("pub/changed");
            let (there, edited) = (path.clone(), Rc::new(Cell::new(false)));
            let (seen, mut count) = (Rc::clone(&edited), 0);
            let plan = move |_: &'static str| {
                count += 1;
                if count == n && fs::read_to_string(&there).unwrap().starts_with("host") {
                    fs::set_permissions(&there, PermissionsExt::from_mode(0o600)).unwrap();
                    seen.set(true);
                }
                if count == n + gap { resume_unwind(Box::new("killed")) } else { Ok(()) }
            };
            let work = || schedule::during(plan, || scene.bring_here(false));
            any |= catch_unwind(AssertUnwindSafe(work)).is_err();
            let Some(one) = pending(scene).filter(|one| one.ready && edited.get()) else {
                continue;
            };
            let told = recover::forward(one);
            kills += 1;
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o600, "call {n}, killed {gap} later: {told:#?}");
            assert_eq!(scene.host("pub/changed"), "ours: changed", "call {n}, {gap}: {told:#?}");
        }
        if !any {
            break;
        }
        n += 1;
    }
    assert!(kills > 20, "{kills} kills");
}

#[test]
fn what_somebody_appends_while_an_append_of_the_image_fails_is_there_afterwards() {
    let (mut n, mut reached) = (0, true);
    while reached {
        n += 1;
        let scene = &mut scene(n);
        let (grown, count) = (scene.path.join("pub/grown"), Rc::new(Cell::new(0)));
        let seen = Rc::clone(&count);
        let plan = move |call: &'static str| {
            count.set(count.get() + u32::from(call == "write"));
            if call != "write" || count.get() != n {
                return Ok(());
            }
            let mut file = File::options().append(true).open(&grown).unwrap();
            file.write_all(b", theirs").unwrap();
            Err(Errno::NOSPC.into())
        };
        let mut outcome = Outcome::default();
        schedule::during(plan, || outcome = scene.bring_here(false));
        reached = seen.get() >= n;
        let found = contents(scene.scratch.path());
        let kept = found.values().any(|text| text.contains("theirs"));
        assert!(kept || !reached, "write {n}: {outcome:#?}\n{found:#?}");
    }
    assert!(n > 2, "{n} writes");
}
