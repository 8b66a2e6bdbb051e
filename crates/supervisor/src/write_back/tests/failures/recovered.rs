//! What others do between the kill of a write-back and its recovery.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::killed::{killed_at, pending};
use crate::write_back::record::manifest::Pending;
use crate::write_back::record::recover;
use crate::write_back::tests::others::adversary::scene;
use crate::write_back::tests::*;

/// A scene whose write-back was killed when all has its new name and nothing old has gone, or when
/// nothing has (`begun`: false).
fn killed_scene(begun: bool) -> (Scene, Pending) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let at = |n| {
        let mut scene = scene(n);
        killed_at(n, || scene.bring_here(false));
        let one = pending(&scene).filter(|one| one.ready);
        (scene, one)
    };
    if begun && LAST.load(Relaxed) > 0 {
        let (scene, one) = at(LAST.load(Relaxed));
        return (scene, one.unwrap());
    }
    for n in 1..5000 {
        let (scene, one) = at(n);
        match one {
            Some(one) if !begun => return (scene, one),
            Some(one) if !recover::is_undoable(&one) => {
                LAST.store(n - 1, Relaxed);
                drop((scene, one));
                return killed_scene(true);
            }
            _ => {}
        }
    }
    panic!("no write-back was so far");
}

fn names_beside(scene: &Scene, name: &str) -> Vec<String> {
    let all = fs::read_dir(scene.path.join("pub")).unwrap();
    let all = all.map(|one| one.unwrap().file_name().into_string().unwrap());
    let beside = all.filter(|one| one.starts_with(&format!("{name}.husk-")));
    beside.map(|one| scene.host(&format!("pub/{one}"))).collect()
}

#[test]
fn what_others_do_after_a_kill_stays_and_going_back_comes_to_its_end() {
    let (scene, one) = killed_scene(true);
    let public = scene.path.join("pub");
    crate::write_back::tests::settle();
    // Another in the place of a new one, of one that went, an edit of a new one, none.
    fs::remove_file(public.join("changed")).unwrap();
    fs::write(public.join("changed"), "theirs").unwrap();
    fs::write(public.join("gone"), "theirs").unwrap();
    fs::write(public.join("gone.husk-77"), "has this name already").unwrap();
    let mut new = fs::OpenOptions::new().append(true).open(public.join("new")).unwrap();
    new.write_all(b", theirs").unwrap();
    fs::write(public.join("tree/late"), "theirs").unwrap();
    fs::remove_file(public.join("replaced")).unwrap();
    let told = recover::back(one).unwrap();
    assert!(pending(&scene).is_none(), "{told:#?}");
    assert!(!told.lines.iter().any(|line| line.contains("tried again")), "{told:#?}");
    for name in ["changed", "gone", "new", "tree"] {
        let at = format!("/pub/{name}");
        let lines = told
            .lines
            .iter()
            .filter(|line| line.contains(&format!("{at}: ")) || line.contains(&format!("{at} ")));
        assert_eq!(lines.count(), 1, "{name}: {told:#?}");
    }
    assert_eq!(scene.host("pub/changed"), "theirs");
    assert_eq!(names_beside(&scene, "changed"), ["host: changed"]);
    assert_eq!(scene.host("pub/gone"), "theirs");
    assert!(names_beside(&scene, "gone").contains(&"host: gone".to_owned()));
    assert_eq!(names_beside(&scene, "new"), ["ours: new, theirs"]);
    assert_eq!(scene.host("pub/replaced"), "host: replaced");
    assert_eq!(scene.host("pub/tree.husk-77/late"), "theirs");
    scene.assert_no_temporary_names();
}

/// After a restart a disk may have another number.
#[test]
fn a_write_back_is_recovered_whose_device_has_another_number_by_now() {
    for back in [false, true] {
        let (scene, one) = killed_scene(true);
        let device = fs::metadata(&scene.path).unwrap().dev();
        let manifest = one.path().to_owned();
        drop(one);
        let text = fs::read_to_string(&manifest).unwrap();
        let other = text.replace(&format!("[{device},"), &format!("[{},", device + 1));
        assert_ne!(text, other);
        fs::write(&manifest, other).unwrap();
        let one = pending(&scene).unwrap();
        assert!(recover::away(&one).is_none());
        let told = if back { recover::back(one) } else { recover::forward(one) }.unwrap();
        assert!(pending(&scene).is_none(), "{told:#?}");
        let (changed, new) = (scene.host("pub/changed"), scene.path.join("pub/new").exists());
        let wanted = if back { "host: changed" } else { "ours: changed" };
        assert_eq!((changed.as_str(), new), (wanted, !back), "{told:#?}");
    }
}

#[test]
fn where_the_directory_has_gone_one_way_is_open_and_a_few_lines_tell_it() {
    for undoing in [false, true] {
        let mut m = 0;
        loop {
            m += 1;
            let (scene, one) = killed_scene(undoing);
            // Somebody who went back was killed, too.
            let over = undoing && killed_at(m, || recover::back(one)).is_some();
            fs::remove_dir_all(scene.path.join("pub")).unwrap();
            for _ in 0..2 {
                let Some(one) = pending(&scene) else { break };
                let told = match recover::is_redoable(&one) {
                    true => recover::forward(one),
                    false => recover::back(one),
                };
                let told = told.expect("one of the ways is open");
                assert!(told.lines.len() <= 21, "{told:#?}");
            }
            assert!(pending(&scene).is_none(), "undoing: {undoing}, {m}");
            if over || !undoing {
                break;
            }
        }
        assert!(!undoing || m > 20, "{m}");
    }
}

#[test]
fn of_many_lines_the_first_are_told_and_the_others_counted() {
    let mut scene = Scene::new(|_| {});
    for n in 0..200 {
        scene.write(&format!("file-{n}"), b"ours");
    }
    let mut ready = None;
    for n in (1..5000).step_by(20) {
        if killed_at(n, || scene.bring_here(false)).is_some() {
            break;
        }
        ready = pending(&scene).filter(|one| one.ready);
        if ready.is_some() {
            break;
        }
    }
    let one = ready.expect("it was killed when it was ready");
    for entry in fs::read_dir(&scene.path).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let told = recover::forward(one).unwrap();
    assert_eq!(told.lines.len(), 21, "{told:#?}");
    let more = told.lines[20].strip_prefix("and ").and_then(|line| line.strip_suffix(" more"));
    assert!(more.is_some_and(|more| more.parse::<u32>().unwrap() > 100), "{told:#?}");
}

#[test]
fn rights_that_the_host_changes_after_a_kill_stay_in_both_directions() {
    for (begun, back) in [(false, false), (false, true), (true, false), (true, true)] {
        let (scene, one) = killed_scene(begun);
        let changed = scene.path.join("pub/changed");
        fs::set_permissions(&changed, fs::Permissions::from_mode(0o600)).unwrap();
        let told = if back { recover::back(one) } else { recover::forward(one) }.unwrap();
        assert!(told.lines.is_empty(), "{told:#?}");
        let mode = fs::metadata(&changed).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600, "begun: {begun}, back: {back}");
        let whose = if back { "host: changed" } else { "ours: changed" };
        assert_eq!(scene.host("pub/changed"), whose);
    }
}
