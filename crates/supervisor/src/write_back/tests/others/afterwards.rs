//! Somebody who may write to a directory of the overlay moves before each host call of whoever
//! finishes or undoes a write-back that was killed.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;

use super::adversary::{KEPT, MOVES, OURS, outside, scene, stride, swap_for_another};
use crate::write_back::host::beneath::{Beneath, schedule};
use crate::write_back::host::remove_leftovers;
use crate::write_back::record::recover::{self, Recovered};
use crate::write_back::tests::Scene;
use crate::write_back::tests::failures::faulty::{killed_after, kills};
use crate::write_back::tests::failures::killed::pending;

/// One host call in so many meets each move, which begin at different calls; with `HUSK_FULL` all.
const STEP: u32 = 7;
/// The move that leads somebody outside who does not look at what is held: all calls meet it.
const LEADS_OUTSIDE: &str = "replace by hard links";
/// What the host had, and the image has not left as it was.
const OLD: [&str; 6] =
    ["host: changed", "host: grown", "host: replaced", "host: gone", "host: inner", "host: moving"];

/// What all regular files below have in them, whatever they are called, but for what `skips` says.
fn texts(top: &Path, skips: fn(&str) -> bool) -> BTreeSet<String> {
    let (mut open, mut found) = (vec![top.to_owned()], BTreeSet::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap() {
                _ if skips(entry.file_name().to_str().unwrap()) => {}
                kind if kind.is_dir() => open.push(entry.path()),
                kind if kind.is_file() => {
                    found.extend(String::from_utf8(fs::read(entry.path()).unwrap()));
                }
                _ => {}
            }
        }
    }
    found
}

/// Recovers while `act` is done before the n-th host call. Whether there was one, and how it went.
fn recovered(
    scene: &Scene,
    n: u32,
    (forward, openat2): (bool, bool),
    act: super::adversary::Move,
) -> (bool, Option<Recovered>) {
    let (count, path) = (Rc::new(Cell::new(0)), scene.path.clone());
    let seen = Rc::clone(&count);
    let plan = move |call| {
        count.set(count.get() + 1);
        if count.get() == n {
            act(&path).unwrap();
        }
        if call == "openat2" && !openat2 { Err(Errno::NOSYS.into()) } else { Ok(()) }
    };
    let one = pending(scene).unwrap();
    let told = schedule::during(plan, || match forward {
        true => recover::forward(one),
        false => recover::back(one),
    });
    (seen.get() >= n, told)
}

/// The adversary gives a directory its name again, and is gone. Whether its name had been taken.
fn put_back(path: &Path) -> bool {
    let (name, real, other) = (path.join("pub"), path.join("real"), path.join("other"));
    if name.is_symlink() {
        fs::remove_file(&name).unwrap();
        fs::rename(real, name).unwrap();
    } else if !name.join("touched").exists() && other.join("touched").exists() {
        swap_for_another(path).unwrap();
    } else {
        return false;
    }
    true
}

/// Recovers once more where that is left, and removes what dead write-backs have left, as the next
/// one does.
fn afterwards(scene: &Scene, way: (bool, bool)) {
    if pending(scene).is_some() {
        recovered(scene, u32::MAX, way, |_| Ok(()));
    }
    let public = scene.path.join("pub");
    let own = format!("-{}-", std::process::id());
    for entry in fs::read_dir(&public).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with(".husk-tmp-") {
            let gone = public.join(name.replace(&own, "-4294967294-"));
            fs::rename(entry.path(), gone).unwrap();
        }
    }
    remove_leftovers(&Beneath::new([&*scene.path]), &public);
}

#[test]
fn an_adversary_beside_every_host_call_of_a_recovery_reaches_nothing_outside() {
    let kills = kills();
    let ways = [(true, true), (false, true), (true, false), (false, false)];
    for (number, (what, act)) in (0..).zip(MOVES) {
        let step = if *what == LEADS_OUTSIDE { 1 } else { stride(STEP) };
        for (at, (way, kill)) in (number..).zip(ways.into_iter().flat_map(|way| {
            // What is old has gone late: there is no way back then.
            kills.into_iter().take(if way.0 { 3 } else { 2 }).map(move |kill| (way, kill))
        })) {
            let (mut n, mut reached) = (1 + at % step, true);
            while reached {
                let scene = &mut scene(n);
                assert!(killed_after(kill, scene));
                let before = outside(scene);
                let told;
                (reached, told) = recovered(scene, n, way, *act);
                let what = format!("{what} before call {n}, {way:?}, killed {kill}: {told:#?}");
                assert_eq!(outside(scene), before, "{what}");
                let found = if put_back(&scene.path) {
                    afterwards(scene, way);
                    texts(scene.scratch.path(), |name| name.starts_with(".husk-tmp-"))
                } else {
                    texts(scene.scratch.path(), |_| false)
                };
                let new = OURS.iter().filter(|_| way.0).map(|(_, text)| *text);
                let old = OLD.into_iter().filter(|_| !way.0);
                for text in new.chain(old).chain(KEPT.iter().map(|(_, text)| *text)) {
                    // An end that finds no place is beside its file.
                    let end = text.strip_prefix("host: grown").filter(|end| !end.is_empty());
                    let there =
                        found.iter().any(|one| one.starts_with(text) || Some(&**one) == end);
                    assert!(there, "{what}: {text} is lost: {found:#?}");
                }
                n += step;
            }
            assert!(n > 20, "{what}: {n} host calls");
        }
    }
}
