//! What lives in an image between `up` and `down`.

use std::fs;
use std::os::unix::fs::FileExt;

use husk_tests::against_native;
use husk_tests::husk::binary;

use crate::{Images, shown, text, until};

#[test]
fn an_image_keeps_what_its_commands_leave_until_it_goes_down() {
    if against_native() {
        return;
    }
    let images = Images::new("keeps");
    fs::write(images.work.join("old"), "host\n").expect("a file");
    images.up("ci");
    images.script("ci", "echo image > old; mkdir d; echo new > d/new; echo t > /tmp/t");
    assert_eq!(images.script("ci", "cat old d/new /tmp/t"), "image\nnew\nt\n");
    assert_eq!(fs::read(images.work.join("old")).expect("the host's"), b"host\n");
    assert!(!images.work.join("d").exists());
    assert_eq!(images.down("ci"), "");
    assert_eq!(fs::read(images.work.join("old")).expect("written back"), b"image\n");
    assert_eq!(fs::read(images.work.join("d/new")).expect("written back"), b"new\n");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
    assert!(!images.place("ci").exists());
}

#[test]
fn images_live_side_by_side() {
    if against_native() {
        return;
    }
    let images = Images::new("side-by-side");
    images.up("one");
    images.up("two");
    images.script("one", "echo one > file");
    images.script("two", "echo two > other; test ! -e file");
    assert_eq!(images.script("one", "ls"), "file\n");
    // As PostgreSQL looks whether a directory is another server's.
    let shown = |what: &str, name: &str| {
        images.script(name, &format!("mkdir -p /tmp/d d; stat -c '{what}' /tmp/d d; rmdir d"))
    };
    let (one, two) = (shown("%Hd %d", "one"), shown("%Hd %d", "two"));
    assert!(one.starts_with("0 ") && two.starts_with("0 "), "{one}{two}");
    assert_ne!(one.lines().next(), two.lines().next(), "devices of memory trees");
    assert_eq!(one.lines().nth(1), two.lines().nth(1), "both overlay the same");
    let (one, two) = (shown("%i", "one"), shown("%i", "two"));
    assert_ne!(one.lines().nth(1), two.lines().nth(1), "numbers of what is new in an overlay");
    let list = images.done(&["ls"]);
    let states: Vec<_> = list.lines().skip(1).map(|line| &line[..22]).collect();
    assert_eq!(states, ["one              up   ", "two              up   "]);
    assert_eq!(images.down("two"), "");
    assert_eq!(images.down("one"), "");
    assert_eq!(fs::read(images.work.join("file")).expect("a file"), b"one\n");
    assert_eq!(fs::read(images.work.join("other")).expect("a file"), b"two\n");
}

#[test]
fn the_list_tells_what_an_image_is_made_of() {
    if against_native() {
        return;
    }
    let images = Images::new("facts");
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", "96M", "--kernels", "3", "--overlay", work, "--discard"]);
    let mut sleeper = images.command("sh", &["-c", "exec \"$0\" exec ci -- cat"]);
    let husk = husk_tests::husk::binary();
    let mut sleeper = {
        sleeper.arg(husk).stdin(std::process::Stdio::piped());
        sleeper.spawn().expect("it starts")
    };
    until("one process", || images.row("ci")["processes"] == 1);
    let row = images.row("ci");
    assert_eq!(row["state"], "up");
    assert_eq!((&row["kernels"], &row["memory_bytes"]), (&3.into(), &(96 << 20).into()));
    assert_eq!((&row["overlays"][0], &row["discard"]), (&work.into(), &true.into()));
    drop(sleeper.stdin.take());
    sleeper.wait().expect("it ends");
    until("no process", || images.row("ci")["processes"] == 0);
}

/// The figure that is promised is 100 ms; the machine that tests may be busy.
#[test]
fn what_a_killed_process_held_is_released_soon() {
    if against_native() {
        return;
    }
    let images = Images::new("killed");
    images.up("ci");
    let script = include_str!("../sources/killed.py");
    let told = images.done(&["exec", "ci", "--", "python3", "-c", script]);
    println!("{told}");
    let ms = told.split_whitespace().next().and_then(|ms| ms.parse::<f64>().ok()).expect("ms");
    assert!(ms < 1000.0, "{told}");
    images.down("ci");
}

#[test]
fn processes_are_listed_and_signalled() {
    if against_native() {
        return;
    }
    let images = Images::new("processes");
    images.up("ci");
    assert_eq!(images.done(&["ps", "ci", "--json"]).trim(), "[]");
    let sleeper = "sleep 61 < /dev/null > /dev/null 2>&1 & echo $!";
    let pid = images.script("ci", sleeper).trim().to_owned();
    let list = || -> serde_json::Value {
        serde_json::from_str(&images.done(&["ps", "ci", "--json"])).expect("JSON")
    };
    until("it sleeps", || list()[0]["name"] == "sleep");
    assert_eq!(list()[0]["pid"].to_string(), pid);
    assert_eq!(list()[0]["command"], serde_json::json!(["sleep", "61"]));
    let row = images.done(&["ps", "ci"]);
    let words: Vec<_> = row.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!((words[0], words[5], &words[9..]), (&pid[..], "S", &["sleep", "61"][..]), "{row}");
    let own = std::process::id().to_string();
    for (arguments, why) in [
        (["kill", "ci", &own, "-sTERM"], "no such process runs in it"),
        (["kill", "ci", "x", "-sTERM"], "not a process id"),
        (["kill", "ci", "0", "-sTERM"], "not a process id"),
        (["kill", "ci", &pid, "-sNONE"], "no such signal"),
        (["kill", "nix", &pid, "-sTERM"], "no such image"),
    ] {
        let said = images.refused(&arguments, 125);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    images.done(&["kill", "ci", &pid, "--signal", "stop"]);
    until("it is stopped", || list()[0]["state"] == "T");
    images.done(&["kill", "ci", &pid, "--signal", "9"]);
    until("it has gone", || list().as_array().is_some_and(Vec::is_empty));
    assert!(images.refused(&["ps", "nix"], 125).contains("no such image"));
    images.down("ci");
}

#[test]
fn fsck_takes_the_name_of_an_image() {
    if against_native() {
        return;
    }
    let images = Images::new("fsck-name");
    images.up("ci");
    images.script("ci", "seq 1000 > file");
    assert!(images.done(&["fsck", "ci"]).starts_with("clean; held up for "));
    let supervisor = i64::from(images.supervisor("ci"));
    let json: serde_json::Value =
        serde_json::from_str(&images.done(&["fsck", "ci", "--json"])).expect("JSON");
    assert_eq!((json["image"].as_str(), json["pid"].as_i64()), (Some("ci"), Some(supervisor)));
    let missing = images.refused(&["fsck", "nightly"], 2);
    assert!(missing.contains("there is no such image"), "{missing}");
}

/// Takes three free blocks of the last chunk from an image's count.
fn damage(supervisor: i32) {
    let listing = fs::read_dir(format!("/proc/{supervisor}/fd")).expect("its descriptors");
    let mut paths = listing.flatten().map(|entry| entry.path());
    let path = paths.find(|path| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("husk-region"))
    });
    let path = path.expect("the region");
    let region = fs::File::options().read(true).write(true).open(path).expect("it opens");
    let mut header = [0; husk_carrier::HEADER_BYTES];
    region.read_exact_at(&mut header, 0).expect("a header");
    let husk_carrier::Header::Ours(layout) = husk_carrier::read_header(&header) else {
        panic!("no header")
    };
    let map = layout.map();
    let place = u64::from(map.chunk(map.chunk_count - 1).word(1).index()) * 8;
    let mut word = [0; 8];
    region.read_exact_at(&mut word, place).expect("a word");
    region.write_all_at(&(u64::from_le_bytes(word) - 3).to_le_bytes(), place).expect("damage");
}

/// Also where nobody has asked for checks (`HUSK_FSCK`).
#[test]
fn the_end_of_a_damaged_image_says_so_and_what_was_written_back() {
    if against_native() {
        return;
    }
    let images = Images::new("damaged-down");
    let husk = binary().to_str().expect("a plain path");
    let work = images.work.to_str().expect("a plain path");
    for (discard, became) in [
        (false, "all that it showed was written back; compare what it changed"),
        (true, "nothing was written back, as asked"),
    ] {
        let mut up = images.command(husk, &["up", "ci", "--memory", "64M", "--overlay", work]);
        assert!(up.env_remove("HUSK_FSCK").status().expect("husk").success());
        images.script("ci", &format!("echo {discard} > file"));
        damage(images.supervisor("ci"));
        let arguments: &[&str] =
            if discard { &["down", "ci", "--discard"] } else { &["down", "ci"] };
        let output = images.husk(arguments);
        assert_eq!(output.status.code(), Some(125), "{}", shown(&output));
        let line = format!("husk: the image is damaged (1 finding of its structure): {became}\n");
        assert_eq!(text(&output.stderr), line);
        let file = fs::read_to_string(images.work.join("file")).expect("written back");
        assert_eq!(file, "false\n");
        assert_eq!(images.row("ci"), serde_json::Value::Null, "nothing is left of it");
    }
}

#[test]
fn nobody_can_hold_a_supervisor_up() {
    if against_native() {
        return;
    }
    let images = Images::new("talks");
    images.up("ci");
    let socket = images.place("ci").join("socket");
    let script = include_str!("../sources/talks.py");
    let path = socket.to_str().expect("a plain path");
    let output = images.command("python3", &["-c", script, path]).output().expect("python3 starts");
    assert!(output.status.success(), "{}", shown(&output));
    let answers = text(&output.stdout);
    let lines: Vec<_> = answers.lines().collect();
    assert!(lines[0].contains("is not valid") && lines[1].contains("is not valid"), "{answers}");
    assert!(lines[2].contains("this is 9.9.9"), "another version: {answers}");
    assert!(lines[3].contains("another PID namespace"), "another's number: {answers}");
    assert_eq!(lines[4], "exec meanwhile: 0", "{answers}");
    assert_eq!(lines[5].matches("Joined").count(), 2, "{answers}");
    assert_eq!(lines[6], "1", "who asks again has one record: {answers}");
    images.down("ci");
}
