//! A refresh is killed before each of its steps. What the image shows of each object is one version
//! of it then, and the next refresh takes the rest in. That a step itself is all or nothing, the
//! kills of the carrier's tests show.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use husk_carrier::{check, scratch_words};

use super::*;
use crate::write_back::tests::Scene;
use crate::write_back::tests::killed::killed_at;

/// More steps than there are.
const STEPS_MAX: u32 = 200;

/// What one look says of an object: kind, mode, size, time, number, and whose bytes it has.
type Facts = (Kind, u32, u64, i64, u64, Option<HostIdentity>);

fn fill(path: &Path) {
    for name in ["grows", "shrinks", "touched", "mode", "gone", "both", "replaced", "kind"] {
        fs::write(path.join(name), format!("host: {name}")).unwrap();
    }
    for name in ["in", "away", "away/below", "turned", "turned/below"] {
        fs::create_dir(path.join(name)).unwrap();
        fs::write(path.join(name).join("inner"), "host: inner").unwrap();
    }
    symlink("old", path.join("link")).unwrap();
}

/// What the host changes.
fn change(path: &Path) {
    fs::write(path.join("grows"), "much longer than it was").unwrap();
    fs::write(path.join("shrinks"), "s").unwrap();
    let old = fs::File::options().write(true).open(path.join("touched")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::set_permissions(path.join("mode"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::remove_file(path.join("gone")).unwrap();
    fs::write(path.join("both"), "theirs, and longer").unwrap();
    fs::write(path.join("new"), "another one, longer").unwrap();
    fs::rename(path.join("new"), path.join("replaced")).unwrap();
    fs::remove_file(path.join("kind")).unwrap();
    fs::create_dir(path.join("kind")).unwrap();
    fs::write(path.join("in/inner"), "longer than inner was").unwrap();
    fs::write(path.join("in/came"), "came").unwrap();
    fs::remove_dir_all(path.join("away")).unwrap();
    fs::remove_dir_all(path.join("turned")).unwrap();
    fs::write(path.join("turned"), "a file now").unwrap();
    fs::remove_file(path.join("link")).unwrap();
    symlink("a longer one", path.join("link")).unwrap();
    fs::write(path.join("came"), "came").unwrap();
}

/// Everything that the image shows, by its path.
fn shown(scene: &mut Scene) -> BTreeMap<String, Facts> {
    let (mut open, mut all) = (vec![(scene.root, String::new())], BTreeMap::new());
    while let Some((dir, path)) = open.pop() {
        let mut names = Vec::new();
        let listed = scene.direct.list(dir, 0, &mut |entry| {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.inode));
            true
        });
        listed.unwrap();
        for (name, inode) in names {
            let one = scene.direct.attributes(inode).unwrap();
            let path = format!("{path}/{name}");
            let identity = one.origin.map(|origin| scene.direct.host_identity(origin).unwrap());
            let kind = one.step.kind;
            // Directories change with what is in them.
            let facts = match kind {
                Kind::Directory => (kind, one.step.mode, 0, 0, one.shown_number, None),
                _ => {
                    let number = one.shown_number;
                    (kind, one.step.mode, one.size, one.modified_ns, number, identity)
                }
            };
            all.insert(path.clone(), facts);
            if kind == Kind::Directory && !one.step.unlisted {
                open.push((inode, path));
            }
        }
    }
    all
}

/// What a look for damage finds: what the scene itself holds.
fn findings(scene: &Scene) -> Vec<String> {
    let mut scratch = vec![0; scratch_words(scene.direct.kernel())];
    let mut found = Vec::new();
    check(scene.direct.kernel(), &mut scratch, &mut |one| found.push(format!("{one:?}")));
    found
}

fn scene(n: u32) -> Scene {
    if n.is_multiple_of(32) {
        Scene::renew_the_image();
    }
    let mut scene = Scene::at_once(fill);
    for directory in ["", "in", "away", "away/below", "turned", "turned/below"] {
        scene.at(directory);
    }
    scene.rewrite("both", b"ours");
    scene
}

/// What is there before, and after a refresh that nobody kills; then the same at each step.
#[test]
fn who_is_killed_at_any_step_leaves_each_object_old_or_new_and_the_next_takes_in_the_rest() {
    let mut kills = 0;
    for n in 1.. {
        assert!(n < STEPS_MAX);
        let mut scene = scene(n);
        let (before, sound) = (shown(&mut scene), findings(&scene));
        change(&scene.path);
        let (root, path) = (scene.root, scene.path.clone());
        let refresh = |scene: &mut Scene| {
            let ledger = Ledger::default();
            let image = &mut scene.direct;
            let mut look = Look { image, ledger: &ledger, told: Refreshed::default() };
            look.below(root, path.clone());
            look.told
        };
        let over = killed_at(n, || refresh(&mut scene)).is_some();
        let killed = shown(&mut scene);
        let told = refresh(&mut scene);
        assert!(told.failures.is_empty(), "killed at step {n}: {told:#?}");
        let both = |line: &String| line.contains("/both: ");
        assert!(told.conflicts.len() == 1 && told.conflicts.iter().all(both), "{told:#?}");
        let after = shown(&mut scene);
        for (path, facts) in &killed {
            let whole = [before.get(path), after.get(path)].contains(&Some(facts));
            assert!(whole, "killed at step {n}: {path}: {facts:?} is neither old nor new");
        }
        for (path, facts) in &after {
            let same = before.get(path) == Some(facts);
            assert!(same || killed.get(path).is_none_or(|one| !over || one == facts), "{path}");
        }
        as_on_the_host(&scene.path, &after);
        assert_eq!(findings(&scene), sound, "killed at step {n}");
        if over {
            break;
        }
        kills += 1;
    }
    assert!(kills > 12, "{kills} steps");
}

/// A name of the host is free in the image when a directory has gone, whatever comes there next.
#[test]
fn what_takes_the_place_of_a_directory_is_shown_as_it_is_on_the_host() {
    type Comes = fn(&Path);
    let file: Comes = |path| fs::write(path, "a file").unwrap();
    let directory: Comes = |path| fs::create_dir(path).unwrap();
    let link: Comes = |path| symlink("somewhere", path).unwrap();
    for (comes, at_once) in
        [file, directory, link].into_iter().flat_map(|one| [(one, true), (one, false)])
    {
        let mut scene = Scene::at_once(|path| {
            fs::create_dir_all(path.join("was/below")).unwrap();
            fs::write(path.join("was/below/inner"), "host: inner").unwrap();
        });
        for directory in ["", "was", "was/below"] {
            scene.at(directory);
        }
        let sound = findings(&scene);
        let refresh = |scene: &mut Scene| {
            let (root, path) = (scene.root, scene.path.clone());
            let (ledger, image) = (Ledger::default(), &mut scene.direct);
            let mut look = Look { image, ledger: &ledger, told: Refreshed::default() };
            look.below(root, path);
            assert!(look.told.is_complete(), "{:#?}", look.told);
        };
        let was = scene.path.join("was");
        fs::remove_dir_all(&was).unwrap();
        if !at_once {
            refresh(&mut scene);
            assert!(shown(&mut scene).is_empty());
        }
        comes(&was);
        refresh(&mut scene);
        let (all, found) = (shown(&mut scene), fs::symlink_metadata(&was).unwrap());
        assert_eq!(all.keys().collect::<Vec<_>>(), ["/was"]);
        assert_eq!((all["/was"].1 & 0o7777, all["/was"].4), (found.mode() & 0o7777, found.ino()));
        let top = host::identity_of(&fs::metadata(&scene.path).unwrap());
        let root = scene.direct.attributes(scene.root).unwrap();
        assert_eq!(root.modified_ns, top.modified_ns, "its directory has the host's time");
        assert_eq!(findings(&scene), sound);
        // Nothing of it is the image's: a write-back has nothing to do.
        let outcome = scene.bring_here(false);
        assert!(outcome.is_complete() && outcome.written + outcome.removed == 0, "{outcome:#?}");
    }
}

/// What the image shows is what is on the host, but for what both have changed.
fn as_on_the_host(path: &Path, shown: &BTreeMap<String, Facts>) {
    let mut names: Vec<_> = shown.keys().map(|name| name.trim_start_matches('/')).collect();
    names.retain(|name| *name != "both");
    for name in &names {
        let found = fs::symlink_metadata(path.join(name)).unwrap();
        let (_, mode, size, modified, number, _) = shown[&format!("/{name}")];
        assert_eq!(number, found.ino(), "{name}");
        assert_eq!(mode & 0o7777, found.mode() & 0o7777, "{name}");
        if !found.is_dir() {
            assert_eq!((size, modified), (found.len(), host::identity_of(&found).modified_ns));
        }
    }
    let expected = [
        "came", "grows", "in", "in/came", "in/inner", "kind", "link", "mode", "replaced",
        "shrinks", "touched", "turned",
    ];
    assert_eq!(names, expected);
}
