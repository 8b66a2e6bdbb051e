//! Every mistake gets one line that says what to do, and costs nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::getuid;

use crate::{Images, refusal, shown, text, until};

#[test]
fn who_has_no_descriptors_left_is_not_told_to_remove_the_image() {
    if against_native() {
        return;
    }
    let images = Images::new("few");
    images.up("ci");
    let husk = binary().to_str().expect("a plain path");
    for (limit, asked) in (3..=6).map(|n| (n, "exec ci -- true")).chain([(5, "stat ci")]) {
        let script = format!("ulimit -n {limit}; exec {husk} {asked}");
        let output = images.command("sh", &["-c", &script]).output().expect("sh");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{limit} {asked}: {said}");
        assert!(said.contains("ulimit -n 1024") && !said.contains("down"), "{limit}: {said}");
    }
    images.down("ci");
}

/// Both ways of `husk exec`: each would be ended by a signal, or be told of memory.
#[test]
fn who_has_no_room_is_told_which_limit_to_raise() {
    if against_native() {
        return;
    }
    let images = Images::new("room");
    images.up("ci");
    let husk = binary().to_str().expect("a plain path");
    for (limit, option) in
        [("-s 40", "-s"), ("-s 128", "-s"), ("-d 4000", "-d"), ("-v 99000", "-v")]
    {
        for way in ["exec ci --", "exec -- ci"] {
            let script = format!("ulimit -S {limit}; exec {husk} {way} true");
            let output = images.command("sh", &["-c", &script]).output().expect("sh");
            let said = refusal(&output, 125);
            let remedy = format!("raise the limit: ulimit {option}");
            assert!(said.contains(&remedy), "{limit} {way}: {said}");
        }
    }
    for limit in ["-s 256", "-d 32768"] {
        let script = format!("ulimit -S {limit}; exec {husk} exec ci -- true");
        let output = images.command("sh", &["-c", &script]).output().expect("sh");
        assert!(output.status.success(), "{limit}: {}", shown(&output));
    }
    images.down("ci");
}

/// Without its owner's rights a directory could be neither locked nor removed.
#[test]
fn files_of_husk_are_open_to_their_owner_whatever_the_umask_is() {
    if against_native() {
        return;
    }
    let images = Images::new("umask");
    let husk = binary().to_str().expect("a plain path");
    let script = format!("umask 0777; exec {husk} up ci");
    let output = images.command("sh", &["-c", &script]).output().expect("sh");
    assert!(output.status.success(), "{}", shown(&output));
    let place = images.place("ci");
    for (path, mode) in [(place.clone(), 0o700), (place.join("lock"), 0o600)] {
        let found = fs::metadata(&path).expect("a file of the image").permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{}", path.display());
    }
    images.down("ci");
    let script = format!("umask 0777; exec {husk} run -- sh -c 'umask; touch made'");
    let output = images.command("sh", &["-c", &script]).output().expect("sh");
    assert_eq!(text(&output.stdout), "0777\n", "{}", shown(&output));
    let made = fs::metadata(images.work.join("made")).expect("a file").permissions().mode();
    assert_eq!(made & 0o7777, 0, "the program's own file");
}

/// From there no relative path leads anywhere.
#[test]
fn who_enters_from_a_directory_that_the_image_has_not_is_told_so() {
    if against_native() {
        return;
    }
    let images = Images::new("nowhere");
    images.up("ci");
    // The image has a /tmp of its own.
    let tmp = PathBuf::from(format!("/tmp/husk-nowhere-{}", std::process::id()));
    fs::create_dir(&tmp).expect("a directory");
    let husk = binary().to_str().expect("a plain path");
    let enter = || {
        let mut command = images.command(husk, &["exec", "ci", "--", "ls"]);
        text(&command.current_dir(&tmp).output().expect("it starts").stderr)
    };
    let note = format!("husk: note: {} is on the host, but not in the image", tmp.display());
    let said = enter();
    assert!(said.starts_with(&note) && said.contains("; change to another directory\n"), "{said}");
    images.script("ci", &format!("mkdir -p {}", tmp.display()));
    assert_eq!(enter(), "");
    assert_eq!(text(&images.husk(&["exec", "ci", "--", "ls"]).stderr), "");
    fs::remove_dir(&tmp).expect("nothing in it");
    images.down("ci");
}

#[test]
fn a_name_is_a_plain_word_and_taken_once() {
    if against_native() {
        return;
    }
    let images = Images::new("names");
    let long = "n".repeat(300);
    for name in ["", ".", "..", "a/b", "/etc", "a.b", "7", "a b", "ü", &long] {
        let said = images.refused(&["up", "--", name], 125);
        assert!(said.contains("beginning with a letter"), "{name:?}: {said}");
        let said = images.refused(&["down", "--", name], 125);
        let why = if name == "7" { "number of a process" } else { "beginning with a letter" };
        assert!(said.contains(why), "{name:?}: {said}");
        let said = images.refused(&["exec", "--", name, "true"], 125);
        assert!(said.contains("beginning with a letter"), "{name:?}: {said}");
    }
    images.up("ci");
    images.script("ci", "echo x > file");
    let said = images.refused(&["up", "ci", "--memory", "64M"], 125);
    assert!(said.contains("it is up already"), "{said}");
    assert_eq!(images.script("ci", "cat file"), "x\n");
    images.down("ci");
}

#[test]
fn ten_at_once_make_one_image_of_a_name() {
    if against_native() {
        return;
    }
    let images = Images::new("race");
    let script = "for n in 1 2 3 4 5 6 7 8 9 10; do
        \"$0\" up ci --memory 64M --discard 2> err$n && echo made & done; wait";
    let husk = binary().to_str().expect("a plain path");
    let output = images.command("bash", &["-c", script, husk]).output().expect("bash");
    assert_eq!(text(&output.stdout), "made\n", "{}", shown(&output));
    for n in 1..=10 {
        let said = fs::read_to_string(images.work.join(format!("err{n}"))).expect("a file");
        assert!(said.is_empty() || said.contains("it is up already"), "{said}");
    }
    images.down("ci");
}

#[test]
fn an_image_that_is_not_there_is_named() {
    if against_native() {
        return;
    }
    let images = Images::new("missing");
    for arguments in
        [&["exec", "ci", "--", "true"][..], &["down", "ci"], &["down", "ci", "--force"]]
    {
        let said = images.refused(arguments, 125);
        assert!(said.contains("image ci") && said.contains("no such image"), "{said}");
    }
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
    images.refused(&["exec", "ci"], 125);
    images.refused(&["up"], 125);
}

#[test]
fn an_image_that_cannot_be_made_leaves_nothing() {
    if against_native() {
        return;
    }
    let images = Images::new("unmade");
    let husk = binary().to_str().expect("a plain path");
    for (options, why) in [
        (&["--memory", "255G"][..], "--memory"),
        (&["--memory", "1M"], "choose --memory 32M to "),
        (&["--kernels", "0"], "--kernels"),
        (&["--overlay", "absent"], "absent"),
        (&["--mount", "absent"], "absent"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let arguments: Vec<_> = ["up", "ci"].into_iter().chain(options.iter().copied()).collect();
        let said = images.refused(&arguments, 125);
        assert!(said.contains(why), "{options:?}: {said}");
    }
    // A limit on the size of files, which the image's memory is one of.
    let script = "ulimit -f 16384; exec \"$0\" up ci --memory 64M";
    let output = images.command("bash", &["-c", script, husk]).output().expect("bash");
    let said = refusal(&output, 125);
    assert!(said.contains("ulimit -f") && said.contains("smaller --memory"), "{said}");
    let mut odd = images.command(husk, &["up", "ci", "--memory", "64M"]);
    let said = refusal(&odd.env("HUSK_REWRITE", "perhaps").output().expect("husk"), 125);
    assert!(said.contains("HUSK_REWRITE=perhaps"), "{said}");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
    assert!(!images.place("ci").exists());
}

#[test]
fn an_image_inside_an_image_is_refused() {
    if against_native() {
        return;
    }
    let images = Images::new("inside");
    images.up("ci");
    let husk = binary().to_str().expect("a plain path");
    for arguments in [&["exec", "ci", "--", "true"][..], &["up", "inner", "--memory", "64M"]] {
        let nested: Vec<_> =
            ["exec", "ci", "--", husk].into_iter().chain(arguments.iter().copied()).collect();
        let said = images.refused(&nested, 125);
        assert!(said.contains("cannot run inside an image"), "{said}");
    }
    // Those of the host may be out of sight in there.
    let mut listed = images.command(husk, &["exec", "ci", "--", "env", "HUSK_IMAGES=/tmp/none"]);
    let output = listed.args([husk, "ls"]).output().expect("husk");
    assert!(output.status.success(), "{}", shown(&output));
    let said = text(&output.stderr);
    assert!(said.contains("inside an image") && said.lines().count() == 1, "{said}");
    images.down("ci");
}

#[test]
fn a_directory_that_others_could_write_to_is_not_used() {
    if against_native() {
        return;
    }
    let images = Images::new("foreign");
    let base = images.all();
    let up = ["up", "ci", "--memory", "64M", "--discard"];
    symlink("/tmp", &base).expect("a link");
    assert!(images.refused(&up, 125).contains("not a directory"));
    fs::remove_file(&base).expect("the link goes");
    fs::create_dir(&base).expect("a directory");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).expect("open to all");
    assert!(images.refused(&up, 125).contains("other users may enter it"));
    if getuid().is_root() {
        fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).expect("closed");
        std::os::unix::fs::chown(&base, Some(65534), Some(65534)).expect("given away");
        assert!(images.refused(&up, 125).contains("another user's"));
        std::os::unix::fs::chown(&base, Some(0), Some(0)).expect("taken back");
    }
    fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).expect("closed");
    symlink("/tmp", base.join("ci")).expect("a link");
    assert!(images.refused(&["exec", "ci", "--", "true"], 125).contains("cannot look at image ci"));
    fs::remove_file(base.join("ci")).expect("the link goes");
}

/// Root's image, and somebody else who has even been let into its directory.
#[test]
fn another_users_image_gives_nothing_away() {
    if against_native() || !getuid().is_root() {
        return;
    }
    let images = Images::new("others");
    images.up("ci");
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let husk = binary().to_str().expect("a plain path");
    let exec: Vec<_> = nobody.into_iter().chain([husk, "exec", "ci", "--", "true"]).collect();
    let output = images.command("setpriv", &exec).output().expect("setpriv");
    let said = refusal(&output, 125);
    assert!(said.contains("it is another user's; remove it, or set HUSK_IMAGES"), "{said}");
    // One of the same name is nobody's but its own user's, and each sees what is its own.
    let ours = images.script("ci", "sleep 67 > /dev/null 2>&1 & echo $!");
    // Where they may go; it is left to nobody.
    let theirs = std::env::temp_dir().join(format!("husk-theirs-{}", std::process::id()));
    fs::create_dir(&theirs).expect("a directory");
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).expect("given away");
    let as_nobody = |arguments: &[&str]| {
        let words: Vec<_> = nobody.into_iter().chain([husk]).chain(arguments.to_vec()).collect();
        let mut command = images.command("setpriv", &words);
        command.env("HUSK_IMAGES", theirs.join("husk")).env("HOME", &theirs).current_dir("/");
        command.output().expect("setpriv")
    };
    assert_eq!(text(&as_nobody(&["ls", "--json"]).stdout).trim(), "[]");
    assert!(refusal(&as_nobody(&["explain", ours.trim()]), 125).contains("another user's"));
    assert!(refusal(&as_nobody(&["stat", ours.trim()]), 125).contains("another user's"));
    let theirs_path = theirs.to_str().expect("a plain path");
    let up = as_nobody(&["up", "ci", "--memory", "64M", "--overlay", theirs_path]);
    assert!(up.status.success(), "{}", shown(&up));
    let script = "echo theirs > /tmp/note; cat /tmp/note; id -u";
    let told = as_nobody(&["exec", "ci", "--", "sh", "-c", script]);
    assert_eq!(text(&told.stdout), "theirs\n65534\n", "{}", shown(&told));
    let ps = text(&as_nobody(&["ps", "ci", "--json"]).stdout);
    assert_eq!(ps.trim(), "[]", "our process is none of theirs");
    assert_eq!(images.script("ci", "test ! -e /tmp/note; id -u"), "0\n");
    let down = as_nobody(&["down", "ci"]);
    assert!(down.status.success(), "{}", shown(&down));
    fs::remove_dir_all(&theirs).expect("it goes");
    assert_eq!(images.row("ci")["processes"], 1, "ours is there");
    images.done(&["kill", "ci", ours.trim()]);
    until("it has gone", || images.row("ci")["processes"] == 0);
    for path in [images.all(), images.place("ci")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("let in");
    }
    let socket = images.place("ci").join("socket");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("let in");
    let script = include_str!("sources/stranger.py");
    // From inside its directory: those above it are closed, too.
    let ask: Vec<_> = nobody.into_iter().chain(["python3", "-c", script, "socket"]).collect();
    let mut stranger = images.command("setpriv", &ask);
    let output = stranger.current_dir(images.place("ci")).output().expect("setpriv");
    assert!(text(&output.stdout).contains("it is another user's"), "{}", shown(&output));
    assert!(text(&output.stdout).ends_with("descriptors: 0\n"), "{}", shown(&output));
    fs::set_permissions(images.all(), fs::Permissions::from_mode(0o700)).expect("closed");
    images.down("ci");
}

/// Whatever stands where the image's files should be: one line, and no harm.
#[test]
fn files_that_make_no_sense_are_told_and_cleaned_up() {
    if against_native() {
        return;
    }
    let images = Images::new("senseless");
    images.up("ci");
    let facts = images.place("ci").join("facts");
    fs::write(&facts, "\0 nonsense").expect("written");
    assert_eq!(images.script("ci", "echo fine"), "fine\n");
    assert_eq!(images.row("ci")["state"], "up");
    images.kill("ci");
    assert!(images.done(&["ls"]).contains("its record cannot be read"));
    images.husk(&["down", "ci"]);
    // Somebody else answers, with a region that is none.
    let place = images.place("fake");
    let script = include_str!("sources/fake.py");
    let path = place.to_str().expect("a plain path");
    let husk = binary().to_str().expect("a plain path");
    let output = images.command("python3", &["-c", script, path, husk]).output().expect("python3");
    let told = text(&output.stdout);
    let lines: Vec<_> = told.lines().collect();
    assert!(output.status.success() && lines.len() == 5, "{}", shown(&output));
    assert!(lines[0].contains("is not valid"), "{told}");
    assert!(lines[1].contains("its memory is damaged, or not Husk's"), "{told}");
    assert!(lines[2].contains("it gave no descriptor"), "{told}");
    assert!(lines[3].contains("is going down"), "{told}");
    assert!(lines[4].contains("is not valid"), "{told}");
}

#[test]
fn who_makes_an_image_over_a_directory_that_another_overlays_is_told_so() {
    if against_native() {
        return;
    }
    let images = Images::new("neighbours");
    let said = |arguments: &[&str]| {
        let output = images.husk(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
        text(&output.stderr).replace("husk: fsck: clean\n", "")
    };
    let work = images.work.display();
    let note = |which: &str| {
        format!("husk: note: another image overlays {work}{which}: neither sees what")
    };
    let made = ["up", "other", "--memory", "64M", "--overlay", "."];
    let (here, below) = (["run", "--", "true"], ["run", "--overlay", "below", "--", "true"]);
    fs::create_dir(images.work.join("below")).expect("a directory");
    assert_eq!(said(&["run", "--overlay", ".", "--overlay", "below", "--", "true"]), "");
    images.up("ci");
    assert!(said(&here).starts_with(&note("")));
    assert!(said(&below).starts_with(&note(&format!(", which {work}/below lies in"))));
    assert_eq!(said(&["run", "--discard", "--", "true"]), "");
    assert!(said(&made).starts_with(&note("")));
    images.down("ci");
    assert!(said(&here).starts_with(&note("")), "one is left");
    images.down("other");
    assert_eq!(said(&here), "");
}
