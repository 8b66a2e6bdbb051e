//! What is written nowhere stays in its image.

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::getuid;

use crate::{Images, shown, text, without_plan};

/// Project and home directory on one disk of 16 MiB, of which 7 are left: the usual layout.
const FULL: &str = r#"
mkdir "$ROOM/disk"; mount -t tmpfs -o size=16m tmpfs "$ROOM/disk"; cd "$ROOM/disk"
mkdir work home; export HOME="$PWD/home" XDG_STATE_HOME="$PWD/home"; cd work
head -c 9M /dev/zero > ../fill
"#;

fn on_a_full_disk(images: &Images, script: &str) -> (String, String) {
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let script = format!("{FULL}{script}");
    let mut command = images.command("unshare", &[user, "bash", "-euc", &script]);
    command.env("HUSK", binary()).env("ROOM", &images.room).env_remove("HUSK_FSCK");
    let output = command.output().expect("unshare");
    assert!(output.status.success(), "{}", shown(&output));
    (text(&output.stdout), without_plan(&text(&output.stderr)))
}

#[test]
fn an_image_stays_whose_changes_find_no_room_anywhere() {
    if against_native() {
        return;
    }
    let images = Images::new("stays");
    let (told, said) = on_a_full_disk(
        &images,
        r#""$HUSK" up ci --memory 64M
"$HUSK" exec ci -- sh -c 'head -c 9M /dev/zero | tr "\0" x > big; echo small > small'
for round in 1 2; do
  status=0; "$HUSK" down ci || status=$?; echo "$status"
  "$HUSK" ls --names; "$HUSK" exec ci -- head -c 1 big; ls
done
status=0; "$HUSK" sync ci || status=$?; echo "$status"; cat small
rm ../fill; "$HUSK" down ci; head -c 1 big; "$HUSK" ls --names
ls ../home | grep -v '^husk$' || true"#,
    );
    assert_eq!(told, "125\nci\nx".repeat(2) + "125\nsmall\nx", "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for line in &lines[..2] {
        let what = "husk: cannot take image ci down: no room for 9M in ";
        assert!(line.starts_with(what) && line.contains("nothing is written back"), "{said}");
        assert!(
            line.contains("`husk sync ci`") && line.ends_with("--discard` drops all"),
            "{said}"
        );
    }
    assert!(lines[2].contains("big: no space left on device"), "{said}");
}

/// What is not known before: another program takes the room while it is written back.
#[test]
fn an_image_stays_whose_room_is_taken_meanwhile() {
    if against_native() {
        return;
    }
    let images = Images::new("stays-late");
    // The same size, other bytes: a lower bound of what it needs is nothing.
    let (told, said) = on_a_full_disk(
        &images,
        r#"head -c 5M /dev/zero > old; "$HUSK" up ci --memory 64M
"$HUSK" exec ci -- sh -c 'head -c 6M /dev/zero | tr "\0" x > old'
status=0; "$HUSK" down ci || status=$?; echo "$status"
"$HUSK" ls --names; "$HUSK" exec ci -- head -c 1 old; head -c 1 old | tr '\0' 0
rm ../fill; "$HUSK" down ci; head -c 1 old; "$HUSK" ls --names"#,
    );
    assert_eq!(told, "125\nci\nx0x", "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("husk: cannot take image ci down: not written back: "), "{said}");
    assert!(said.contains("old: no space left on device"), "{said}");
    assert!(said.ends_with("or drop it: husk down ci --discard; it stays\n"), "{said}");
}

/// Less room than the image takes, and enough for what has changed.
#[test]
fn what_does_find_room_is_written_back_without_a_word() {
    if against_native() {
        return;
    }
    let images = Images::new("stays-not");
    let (told, said) = on_a_full_disk(
        &images,
        r#"echo host > old
change='head -c 8M /dev/zero > /tmp/large; echo image >> old; echo new > new'
"$HUSK" up ci --memory 64M; "$HUSK" exec ci -- sh -c "$change"; "$HUSK" down ci; cat old new; ls
"$HUSK" ls --names; ls ../home | grep -v '^husk$' || true"#,
    );
    assert_eq!(told, "host\nimage\nnew\nnew\nold\n", "{said}");
    assert_eq!(said, "");
}

/// What a run says on a terminal on the full disk, where the answers are given, and then `script`.
fn answered(images: &Images, answers: &[(&str, &str)], script: &str) -> String {
    let driver = husk_tests::husk::workspace().join("tests/named/sources/answers.py");
    let answers = serde_json::to_string(answers).expect("JSON");
    let change = "head -c 9M /dev/zero > big; echo small > small";
    let script = format!(
        "mkdir ../other; python3 {} '{answers}' \"$HUSK\" run --memory 64M -- sh -c '{change}' \
         > ../said || :\n{script}",
        driver.display()
    );
    on_a_full_disk(images, &script).0
}

#[test]
fn a_run_without_room_asks_on_a_terminal_and_keeps_the_image_otherwise() {
    if against_native() {
        return;
    }
    const QUESTION: &str = "[d]iscard: ";
    let retry = [("no room for 9M in ", "DO rm ../fill"), (QUESTION, "r\n")];
    let other =
        [(QUESTION, "o\n"), ("directory: ", "/proc\n"), ("/proc: no room", ""), (QUESTION, "k\n")];
    let ways: [(&str, &[(&str, &str)], &str); 4] = [
        ("retry", &retry, "exit 0\nbig\nsmall\n0\n"),
        ("discard", &[(QUESTION, "?\n"), (QUESTION, "d\n")], "exit 0\n0\n"),
        ("keep", &[(QUESTION, "\u{3}")], "exit 125\n1\n"),
        ("other", &other, "exit 125\n1\n"),
    ];
    for (way, answers, then) in ways {
        let images = Images::new("room-asked");
        let script = "tail -1 ../said; ls; \"$HUSK\" ls --names | wc -l; cat ../said >&2
            for name in $(\"$HUSK\" ls --names); do
                \"$HUSK\" down $name --discard 2> ../down
            done";
        let told = answered(&images, answers, script);
        assert_eq!(told, then, "{way}");
    }
    // Without a terminal.
    let images = Images::new("room-unasked");
    let (told, said) = on_a_full_disk(
        &images,
        r#"status=0
setsid -w "$HUSK" run --memory 64M -- sh -c 'head -c 9M /dev/zero > big' || status=$?
echo "$status"; ls; rm ../fill; "$HUSK" down "$("$HUSK" ls --names)"; wc -c < big"#,
    );
    assert_eq!(told, "125\n9437184\n", "{said}");
    assert!(said.starts_with("husk: no room for 9M in ") && said.contains(" keeps its changes; "));
    assert_eq!(said.lines().count(), 1, "{said}");
}
