//! Host objects that are first looked at by a program with other rights than the image's user, or
//! with the ids of another user namespace: what the image and the host have is what Linux has.
//!
//! A script runs natively and in an image, in a tree that is made the same way. `as` runs a command
//! as another user where the tests run as root. What both print and leave is compared.

use std::path::Path;
use std::process::Command;

use husk_tests::{Scratch, against_native, husk};

use crate::{as_nobody, give_to_nobody, run};

/// Who `as` is; `own`: whose tree and image it is, root's or that one's.
const AS: &str = "as() { setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; }; ";
const LEFT: &str = "find . -mindepth 1 -printf '%p %U:%G %m %s\\n' | sort";

fn shell(words: &[&str], script: &str) -> Command {
    let mut shell = Command::new(words[0]);
    shell.args(&words[1..]).args(["-c", &format!("{AS}{script}")]);
    shell
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Whether this host lets users make user namespaces.
fn has_namespaces() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(["-Ur", "true"]);
    as_nobody(&unshare).status().is_ok_and(|status| status.success())
}

/// Makes a tree by `made` (as root, if we are), and has `script` say and leave in an image what it
/// does natively, begun by us, or by an ordinary user.
#[track_caller]
fn the_same(name: &str, ordinary: bool, made: &str, script: &str) {
    if against_native() {
        return;
    }
    let scratch = Scratch::new(name);
    for above in scratch.path().ancestors().take(3) {
        open_to_all(above);
    }
    let mut seen = Vec::new();
    let whole = format!("{AS}{script}");
    for command in [shell(&["bash"], script), husk(&["--memory", "64M"], &["bash", "-c", &whole])] {
        let tree = scratch.fresh("tree");
        open_to_all(&tree);
        if ordinary {
            give_to_nobody(&tree);
        }
        let made = run(&scratch, &tree, shell(&["bash", "-e"], made));
        assert!(made.status.success(), "{}", made.shown());
        let command = if ordinary { as_nobody(&command) } else { command };
        let done = run(&scratch, &tree, command);
        let left = run(&scratch, &tree, shell(&["bash"], LEFT));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        seen.push((done.code(), text(&done.stdout), text(&left.stdout), done.shown()));
    }
    let (native, tested) = (&seen[0], &seen[1]);
    assert!(!native.1.is_empty(), "{}", native.3);
    assert_eq!((native.0, &native.1), (tested.0, &tested.1), "{}", tested.3);
    assert_eq!(native.2, tested.2, "left on the host: {}", tested.3);
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = path.metadata().expect("a directory").permissions().mode();
    if mode & 0o005 != 0o005 {
        let open = std::fs::Permissions::from_mode(mode | 0o055);
        std::fs::set_permissions(path, open).expect("a mode");
    }
}

const THREE: &str = "for n in 1 2 3; do mkdir d$n; echo x > d$n/f; done; chmod 700 d2; echo y > y";

/// Its ids are not the image's: 65534 for all that it does not map, 0 for its own.
#[test]
fn what_a_program_in_a_user_namespace_sees_first_keeps_its_owners() {
    if !is_root() || !has_namespaces() {
        return;
    }
    let script = r#"
as unshare -Ur bash -c 'ls d2; ls d1; cat d3/f; stat -c "%u %n" d1' 2> /dev/null
stat -c '%u:%g %a %n' d* d*/f y; chmod 755 d2; touch d3/g; echo more >> d1/f; chmod 600 y
"#;
    the_same("first-namespace", false, THREE, script);
}

#[test]
fn an_ordinary_user_keeps_what_is_looked_at_first_in_a_user_namespace() {
    if !has_namespaces() {
        return;
    }
    let made =
        if is_root() { format!("{THREE}; chown 65534:65534 d1 d1/f d3") } else { THREE.into() };
    let script = r#"
unshare -Ur bash -c 'ls d1; cat d3/f; stat -c "%u %n" d1'
unshare -Uc bash -c 'stat -c "%U %n" d2' > /dev/null
stat -c '%u:%g %a %n' d* d1/f d3/f y; chmod 711 d1; touch d3/g; echo more >> d1/f; stat -c %u / /etc
"#;
    the_same("first-namespace-own", true, &made, script);
}

/// The fetcher's name is not there: ids that the namespace maps are known, others are not, and what
/// they own is left for the next who looks.
#[test]
fn where_nobody_can_be_asked_an_owner_that_is_not_known_is_not_made_up() {
    if against_native() || !is_root() || !has_namespaces() {
        return;
    }
    let scratch = Scratch::new("first-alone");
    for above in scratch.path().ancestors().take(3) {
        open_to_all(above);
    }
    let tree = scratch.fresh("tree");
    open_to_all(&tree);
    let made = "mkdir own theirs; echo x > own/f; chown -R 65534:65534 own .; echo x > theirs/f;
chown -R 0:0 theirs; chmod 755 theirs";
    let made = run(&scratch, &tree, shell(&["bash", "-e"], made));
    assert!(made.status.success(), "{}", made.shown());
    let script = r#"
ls > /dev/null
work='mount -t tmpfs none /dev/shm; ls own; ls theirs || echo not known'
unshare -Urm bash -c "$work" 2> /dev/null
stat -c '%u %n' own/f theirs/f"#;
    let command = as_nobody(&husk(&["--memory", "64M"], &["bash", "-c", script]));
    let done = run(&scratch, &tree, command);
    let wanted = "f\nnot known\n65534 own/f\n0 theirs/f\n";
    assert_eq!(String::from_utf8_lossy(&done.stdout), wanted, "{}", done.shown());
}

const LISTED: &str = "mkdir l l2; touch l/x l/y l2/x l2/y; ln -s x l/z; chmod 744 l l2";

#[test]
fn a_directory_that_another_user_lists_and_may_not_search_has_its_names_for_all() {
    if !is_root() {
        return;
    }
    let script = r#"
as ls l l2; as cat l/x 2> /dev/null; echo $?; ls l l2; cat l/x && echo read; tar c l | tar t | sort
cp -r l copy; rm -r l2; echo $?"#;
    the_same("first-listing", false, LISTED, script);
}

#[test]
fn names_that_the_image_s_own_user_may_only_list_are_listed() {
    if !is_root() {
        return;
    }
    let script = "ls l; cat l/x 2> /dev/null; echo $?; rm -rf l2 2> /dev/null; echo $?; ls l2";
    the_same("first-listing-own", true, LISTED, script);
}

/// As entrypoints of containers do: `chown -R`, then the service as its user.
#[test]
fn who_is_given_a_host_file_in_the_image_reads_and_writes_it() {
    if !is_root() {
        return;
    }
    let made = r#"
for n in 1 2 3 4 5; do echo x > o$n; chmod 600 o$n; done; cp /bin/echo program; chmod 700 program
mkdir -m 700 dd; echo x > dd/f; mkdir d0; echo x > d0/f; chown -R 65534 d0; chmod 0 d0"#;
    let script = r#"
chown 65534 o1; as cat o1; chown 65534 o2; as sh -c 'echo y >> o2'; as cat o3 2> /dev/null; echo $?
chmod 666 o3; as cat o3; chmod 666 o4; as sh -c 'echo y >> o4; cat o4'; chown -R 65534 dd
as sh -c 'cat dd/f; ls dd; cd dd && cat f; echo y > g'; as sh -c 'chmod 700 d0; echo y >> d0/f'
chgrp 65534 o5; chmod 640 o5; as cat o5; as sh -c 'echo z >> o5' 2> /dev/null; echo $?
chmod 755 program; as ./program ran; as sh -c 'exec 3< o3; readlink /proc/self/fd/3' | grep -c o3
"#;
    the_same("first-given", false, made, script);
}

#[test]
fn what_a_user_may_write_and_not_read_is_appended_to() {
    if !is_root() {
        return;
    }
    let made = "echo x > drop; chmod 642 drop; echo x > kept; chmod 640 kept";
    let script = r#"
as sh -c 'echo more >> drop'; echo $?; as cat drop 2> /dev/null; echo $?
as sh -c 'echo more >> kept' 2> /dev/null; echo $?; cat drop kept"#;
    the_same("first-append", false, made, script);
}

/// Its bytes would have to be taken into the image, which nobody there may do.
#[test]
fn what_the_image_s_own_user_may_write_and_not_read_is_only_replaced() {
    if against_native() || !is_root() {
        return;
    }
    let scratch = Scratch::new("first-unread");
    for above in scratch.path().ancestors().take(3) {
        open_to_all(above);
    }
    let tree = scratch.fresh("tree");
    open_to_all(&tree);
    give_to_nobody(&tree);
    let made = "echo x > drop; echo x > other; chmod 642 drop other";
    let made = run(&scratch, &tree, shell(&["bash", "-e"], made));
    assert!(made.status.success(), "{}", made.shown());
    let script = "echo more >> drop; echo $?; echo new > other; echo $?";
    let command = as_nobody(&husk(&["--memory", "64M"], &["bash", "-c", script]));
    let done = run(&scratch, &tree, command);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "1\n0\n", "{}", done.shown());
    let left = run(&scratch, &tree, shell(&["bash"], "cat drop other"));
    assert_eq!(String::from_utf8_lossy(&left.stdout), "x\nnew\n", "{}", left.shown());
}
