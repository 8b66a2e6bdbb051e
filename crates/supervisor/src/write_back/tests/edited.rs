//! Somebody edits files of the host before each host call of a write-back, or of who recovers it:
//! what they have written is there afterwards. So it is on file systems without `RENAME_EXCHANGE`.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::adversary::{contents, scene};
use super::killed::{killed_at, pending};
use super::{Outcome, Scene};
use crate::write_back::host::beneath::schedule;
use crate::write_back::record::manifest::Pending;
use crate::write_back::record::recover;

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
            let old = Rc::new(Cell::new(false));
            let was_old = Rc::clone(&old);
            let plan = move |_: &'static str| {
                count.set(count.get() + 1);
                if count.get() == n {
                    old.set(fs::read_to_string(&there).unwrap().starts_with("host"));
                    fs::set_permissions(&there, PermissionsExt::from_mode(0o600)).unwrap();
                }
                Ok(())
            };
            schedule::during(plan, || scene.bring_here(live));
            reached = seen.get() >= n;
            let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            lost += u32::from(reached && mode() != 0o600);
            assert_eq!(scene.host("pub/changed"), "ours: changed");
            if live && was_old.get() && mode() == 0o600 {
                let inode = scene.at("pub/changed");
                scene.direct.write_at(inode, 0, b"more").unwrap();
                scene.bring_here(true);
                assert_eq!(mode(), 0o600, "call {n}: it is there again after the next sync");
            }
        }
        assert!(n > 100 && lost <= WINDOW, "{lost} of {n} calls, live: {live}");
    }
}
