//! Another directory takes the name of one that a write-back works in, or of the whole overlay: it
//! gets nothing, on hosts with and without `openat2`. What is there is never taken for new.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::adversary::{
    Move, judge, outside, run, run_on, scene, swap_for_a_link, swap_for_another,
};
use crate::write_back::host::beneath::Beneath;
use crate::write_back::host::{Names, is_own};
use crate::write_back::tests::Scene;
use crate::write_back::tests::failures::killed::{Tree, tree};

/// Bits of a temporary name that nobody can guess.
const BITS: u32 = 128;

/// A directory with the same names that is no overlay.
fn decoy(path: &Path) -> io::Result<PathBuf> {
    let decoy = path.with_file_name("decoy");
    for name in ["pub/was-dir", "pub/unseen", "pub/gone-dir", "other"] {
        fs::create_dir_all(decoy.join(name))?;
    }
    for name in ["changed", "grown", "replaced", "moving", "touched", "gone", "gone-dir/inner"] {
        fs::write(decoy.join("pub").join(name), "decoy")?;
    }
    Ok(decoy)
}

/// It takes the overlay's name.
fn swap_the_overlay(path: &Path) -> io::Result<()> {
    let decoy = decoy(path)?;
    Ok(renameat_with(CWD, path, CWD, &decoy, RenameFlags::EXCHANGE)?)
}

/// So does a link to it.
fn swap_the_overlay_for_a_link(path: &Path) -> io::Result<()> {
    let decoy = decoy(path)?;
    fs::rename(path, path.with_file_name("real"))?;
    symlink(decoy, path)
}

/// Temporary names in the directory that all happens in.
fn temporary_names(scene: &Path) -> Vec<String> {
    let names = fs::read_dir(scene.join("pub")).into_iter().flatten().flatten();
    let names = names.filter(|one| is_own(&one.file_name()));
    names.map(|one| one.file_name().into_string().unwrap()).collect()
}

/// Before which host call there is a temporary name for the first time.
fn first(openat2: bool) -> u32 {
    (1..)
        .find(|&n| {
            let mut scene = scene(n);
            let (path, there) = (scene.path.clone(), Rc::new(Cell::new(false)));
            let seen = Rc::clone(&there);
            let look = move |_| {
                there.set(!temporary_names(&path).is_empty());
                Ok(())
            };
            assert!(run_on(&mut scene, n, false, openat2, look).0);
            seen.get()
        })
        .unwrap()
}

/// What a move has put in the place of the directory at `path`.
fn intruder(scene: &Path, whole: bool) -> PathBuf {
    let path = if whole { scene.to_owned() } else { scene.join("pub") };
    fs::canonicalize(path).unwrap()
}

#[test]
fn whatever_takes_the_name_of_a_directory_gets_nothing_once_the_write_back_has_begun() {
    let moves: [(_, Move, bool); 4] = [
        ("another directory", swap_for_another, false),
        ("a link", swap_for_a_link, false),
        ("another overlay", swap_the_overlay, true),
        ("a link to another overlay", swap_the_overlay_for_a_link, true),
    ];
    for openat2 in [true, false] {
        let first = first(openat2);
        for (what, act, whole) in moves {
            let (mut reached, mut n) = (true, 0);
            while reached {
                n += 1;
                let scene = &mut scene(n);
                let (path, before) = (scene.path.clone(), outside(scene));
                let theirs = Rc::new(RefCell::new((PathBuf::new(), Tree::new())));
                let put = Rc::clone(&theirs);
                let outcome;
                (reached, outcome) = run_on(scene, n, false, openat2, move |_| {
                    act(&path).unwrap();
                    let there = intruder(&path, whole);
                    let all = tree(&there);
                    *put.borrow_mut() = (there, all);
                    Ok(())
                });
                let what = format!("{what} before host call {n}, openat2: {openat2}");
                assert_eq!(outside(scene), before, "{what}: {outcome:#?}");
                let theirs = theirs.borrow();
                if reached && n >= first {
                    assert_eq!(tree(&theirs.0), theirs.1, "{what}: {outcome:#?}");
                }
                judge(scene, &outcome, &what);
            }
            assert!(n > first + 50, "{what}: {n} host calls");
        }
    }
}

#[test]
fn nothing_that_is_there_is_taken_for_new() {
    let scratch = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(scratch.path()).unwrap();
    let (outside, there) = (base.join("outside"), base.join("there"));
    fs::write(&outside, "outside").unwrap();
    let kinds: [fn(&Path, &Path); 6] = [
        |path, _| fs::write(path, "there").unwrap(),
        |path, _| fs::create_dir(path).unwrap(),
        |path, outside| symlink(outside, path).unwrap(),
        |path, _| symlink("nowhere", path).unwrap(),
        |path, outside| fs::hard_link(outside, path).unwrap(),
        |path, _| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
    ];
    for (number, make) in kinds.into_iter().enumerate() {
        make(&there, &outside);
        let before = tree(&base);
        let beneath = Beneath::new([&*base]);
        let held = beneath.hold(&outside).unwrap();
        let made = [
            beneath.create(&there).err(),
            beneath.at(&there).unwrap().create().err(),
            beneath.make_directory(&there).err(),
            beneath.make_symlink(Path::new("x"), &there).err(),
            beneath.make_special(&there, FileType::Fifo, 0).err(),
            beneath.link(&held, &there).err(),
            beneath.rename(&outside, &there, RenameFlags::NOREPLACE).err(),
        ];
        let kinds = made.map(|one| one.map(|problem| problem.kind()));
        assert_eq!(kinds, [Some(io::ErrorKind::AlreadyExists); 7], "kind {number}");
        assert_eq!(tree(&base), before, "kind {number}");
        beneath.remove_shallow(&there).unwrap();
    }
}

/// The part of a name that is drawn, and not known from other names.
fn drawn(name: &str) -> u128 {
    let last = name.rsplit('-').next().unwrap();
    assert_eq!(last.len(), (BITS / 4) as usize, "{name}");
    u128::from_str_radix(last, 16).unwrap()
}

#[test]
fn temporary_names_cannot_be_guessed_from_each_other() {
    let mut names = Names::of_this_process();
    let all: Vec<u128> =
        (0..256).map(|_| drawn(names.fresh(Path::new("/d")).to_str().unwrap())).collect();
    // Each bit is sometimes 0 and sometimes 1, and so is whether it is that of the name before.
    let steps: Vec<u128> = all.windows(2).map(|two| two[0] ^ two[1]).collect();
    for drawn in [&all, &steps] {
        assert_eq!(drawn.iter().fold(0, |sum, one| sum | one), u128::MAX);
        assert_eq!(drawn.iter().fold(u128::MAX, |rest, one| rest & one), 0);
    }
    // No name has been there before its object was made.
    let (mut met, mut n) = (BTreeSet::new(), 0);
    loop {
        n += 1;
        let mut scene = scene(n);
        let (path, seen) = (scene.path.clone(), Rc::new(RefCell::new(Vec::new())));
        let found = Rc::clone(&seen);
        let (reached, _) = run(&mut scene, n, false, move |_| {
            seen.borrow_mut().extend(temporary_names(&path));
            Ok(())
        });
        let found: BTreeSet<u128> = found.borrow().iter().map(|name| drawn(name)).collect();
        assert!(met.is_disjoint(&found), "call {n}");
        met.extend(found);
        if !reached {
            break;
        }
    }
    assert!(met.len() > 100, "{} names", met.len());
}

/// Owner and mode of what is made, until it has its name.
#[test]
fn what_is_made_belongs_to_nobody_else_until_it_is_whole() {
    let mut looked = 0;
    for n in 1.. {
        let scene: &mut Scene = &mut scene(n);
        let (path, modes) = (scene.path.clone(), Rc::new(RefCell::new(Vec::new())));
        let seen = Rc::clone(&modes);
        let (reached, _) = run(scene, n, false, move |_| {
            for name in temporary_names(&path) {
                let found = fs::symlink_metadata(path.join("pub").join(name))?;
                if found.is_file() && found.len() == 0 {
                    modes.borrow_mut().push(found.mode() & 0o7777);
                }
            }
            Ok(())
        });
        looked += seen.borrow().len();
        assert!(seen.borrow().iter().all(|mode| *mode == 0o600), "call {n}: {:?}", seen.borrow());
        if !reached {
            break;
        }
    }
    assert!(looked > 3, "{looked} new files");
}
