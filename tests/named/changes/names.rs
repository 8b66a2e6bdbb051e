//! Names of files that are no text, or that a terminal would take for something else: written back
//! as they are, and printed so that nobody is led astray.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Output;

use husk_tests::against_native;
use husk_tests::husk::{binary, workspace};
use rustix::process::getuid;
use serde_json::Value;

use crate::{Images, shown, text};

fn names() -> Vec<OsString> {
    let odd: [&[u8]; 6] =
        [b"two\nlines", b"\xff\xfe", b"\x1b[31mred", b"tab\there", b"it's \"$x\" \\", b"-rf"];
    let long = OsString::from("l".repeat(255));
    odd.map(|name| OsString::from_vec(name.to_vec())).into_iter().chain([long]).collect()
}

/// Makes them on the host; `CHANGE` in the image.
fn prepared(images: &Images) {
    for name in names() {
        fs::write(images.work.join(name), "host\n").expect("a file");
    }
}

const CHANGE: &str = "for file in *; do echo image > \"./$file\"; done";

fn written(images: &Images) -> usize {
    let is = |name: &OsString| fs::read(images.work.join(name)).is_ok_and(|got| got == b"image\n");
    names().iter().filter(|name| is(name)).count()
}

/// Nothing that a terminal takes for its own.
fn safe(output: &Output) -> String {
    assert!(output.status.success(), "{}", shown(output));
    for bytes in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(bytes).expect("text");
        assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
    }
    text(&output.stdout)
}

/// A path in JSON.
fn path_of(value: &Value) -> OsString {
    match value.as_array() {
        None => value.as_str().expect("text").into(),
        Some(bytes) => {
            let byte = |byte: &Value| byte.as_u64().expect("a byte") as u8;
            OsString::from_vec(bytes.iter().map(byte).collect())
        }
    }
}

#[test]
fn a_diff_of_odd_names_is_a_line_each_and_tells_them_exactly() {
    if against_native() {
        return;
    }
    let images = Images::new("names-diff");
    prepared(&images);
    images.up("ci");
    images.script("ci", CHANGE);
    let wanted: BTreeSet<OsString> = names().into_iter().collect();
    for form in [&["diff", "ci"][..], &["sync", "ci", "-n"]] {
        let told = safe(&images.husk(form));
        let lines = told.lines().filter(|line| line.starts_with("M  "));
        assert_eq!(lines.count(), wanted.len(), "{form:?}: {told}");
    }
    let lines = safe(&images.husk(&["diff", "ci", "--name-only"]));
    assert_eq!(lines.lines().count(), wanted.len(), "{lines}");
    safe(&images.husk(&["diff", "ci", "--stat"]));
    let told: Value = serde_json::from_str(&images.done(&["diff", "ci", "--json"])).expect("JSON");
    let told = told.as_array().expect("a list").iter().map(|one| path_of(&one["path"]));
    assert_eq!(told.collect::<BTreeSet<_>>(), wanted);
    let exact = images.husk(&["diff", "ci", "--name-only", "-z"]).stdout;
    let exact = exact.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    assert_eq!(
        exact.map(|name| OsStr::from_bytes(name).to_owned()).collect::<BTreeSet<_>>(),
        wanted
    );
    // What is typed for one of them means that one.
    for (count, name) in names().into_iter().enumerate() {
        let mut command = images.command(binary().to_str().expect("plain"), &["sync", "ci", "--"]);
        safe(&command.arg(name).output().expect("husk"));
        assert_eq!(written(&images), count + 1);
    }
    assert_eq!(images.down("ci"), "");
}

#[test]
fn odd_names_are_asked_about_and_written_as_answered() {
    if against_native() {
        return;
    }
    let images = Images::new("names-asked");
    prepared(&images);
    let driver = workspace().join("tests/named/sources/answers.py");
    let answers = r#"[["Write back? ", "l\n"], ["END", ""], ["Write back? ", "a\n"]]"#;
    let driver = [driver.to_str().expect("plain"), answers, binary().to_str().expect("plain")];
    let run = ["run", "--ask", "--memory", "64M", "--", "sh", "-c", CHANGE];
    let mut command = images.command("python3", &[&driver[..], &run].concat());
    let said = text(&command.env("PAGER", "cat; echo END").output().expect("python3").stdout);
    assert!(said.ends_with("exit 0\n") && !said.contains("\u{1b}[31m"), "{said:?}");
    assert_eq!(written(&images), names().len(), "{said:?}");
}

/// A disk that is full, and a home directory on another one; and another rescue of this user.
const FULL: &str = r#"
case "$HUSK" in /tmp/*) ;; *)
    mount -t tmpfs tmpfs /tmp; other=/tmp/husk-rescue-other
    mkdir -m 700 $other; echo x > $other/x;;
esac
mkdir "$ROOM/disk" "$ROOM/state"; mount -t tmpfs -o size=4m tmpfs "$ROOM/disk"
export XDG_STATE_HOME="$ROOM/state"; cp -r "$WORK" "$ROOM/disk/"; cd "$ROOM/disk"/*
head -c 9M /dev/zero > ../fill || :
"$HUSK" run --memory 64M -- sh -c 'for file in *; do yes image | head -c 64K > "./$file"; done' \
    2> "$ROOM/said" || :
id=$(sed -n 's/.*rescue restore \(.*\)`.*/\1/p' "$ROOM/said")
for form in ls "ls --json" "show $id" "show $id --json"; do "$HUSK" rescue $form; done \
    > "$ROOM/told"
rm ../fill; "$HUSK" rescue restore "$id"; "$HUSK" rescue ls --json | grep -c "$id" || :
for file in *; do head -c 6 "./$file"; done
"#;

#[test]
fn what_is_saved_of_odd_names_is_told_and_put_back() {
    if against_native() {
        return;
    }
    let images = Images::new("names-rescue");
    // The directory, too.
    let odd = images.work.join(OsStr::from_bytes(b"odd\n\xff\x1b[31m"));
    fs::create_dir(&odd).expect("a directory");
    for name in names() {
        fs::write(odd.join(name), "host\n").expect("a file");
    }
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let room = images.scratch.fresh("room");
    let mut command = images.command("unshare", &[user, "bash", "-euc", FULL]);
    command.env("HUSK", binary()).env("ROOM", &room).env("WORK", &odd).env_remove("HUSK_FSCK");
    let count = names().len();
    let expected = format!("{count} files restored\n0\n{}", "image\n".repeat(count));
    assert_eq!(safe(&command.output().expect("unshare")), expected);
    for file in ["said", "told"] {
        let told = fs::read_to_string(room.join(file)).expect("text");
        assert!(!told.replace('\n', "").contains(char::is_control), "{told:?}");
    }
}

/// Kills in the middle of a write-back, until one was; then a recovery.
const KILLED: &str = r#"
cd "$WORK"; for i in $(seq 1500); do echo host > $i; done
"$HUSK" run --memory 64M -- bash -c 'for i in *; do echo image > "./$i"; done' > /dev/null 2>&1 &
until grep -qs Ready "$XDG_STATE_HOME"/husk/write-back/*.manifest || ! kill -0 $! 2> /dev/null
do :; done
kill -9 $! 2> /dev/null || true; wait $! 2> /dev/null || true
case $("$HUSK" recover --json) in *half*) ;; *) exit 3;; esac
"$HUSK" recover; "$HUSK" rescue ls; "$HUSK" recover forward
"#;

#[test]
fn a_write_back_to_odd_names_is_recovered_and_told_of() {
    const KILLS_MAX: u32 = 40;
    if against_native() {
        return;
    }
    let seen = (0..KILLS_MAX).any(|_| {
        let mut images = Images::new("names-killed");
        images.work = images.work.join(OsStr::from_bytes(b"odd\n\xff\x1b[31m"));
        fs::create_dir(&images.work).expect("a directory");
        prepared(&images);
        let state: PathBuf = images.scratch.fresh("state");
        let mut command = images.command("bash", &["-uc", KILLED]);
        command.env("HUSK", binary()).env("WORK", &images.work).env("XDG_STATE_HOME", state);
        let output = command.output().expect("bash");
        if output.status.code() == Some(3) {
            return false;
        }
        let told = safe(&output);
        assert!(told.contains("\\377") && told.contains("is finished"), "{told}");
        assert_eq!(written(&images), names().len(), "{told}");
        true
    });
    assert!(seen, "{KILLS_MAX} kills, and none in the middle");
}
