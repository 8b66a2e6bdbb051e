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
  "$HUSK" ls --names; "$HUSK" exec ci -- head -c 1 big; cat small
done
rm ../fill; "$HUSK" down ci; head -c 1 big; "$HUSK" ls --names; ls ../home"#,
    );
    assert_eq!(told, "125\nci\nxsmall\n".repeat(2) + "x", "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    for line in lines {
        assert!(line.starts_with("husk: cannot take image ci down: not written back: "), "{said}");
        assert!(line.contains("big: no space left on device"), "{said}");
        assert!(line.ends_with("or drop it: husk down ci --discard; it stays"), "{said}");
    }
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
"$HUSK" ls --names; ls ../home"#,
    );
    assert_eq!(told, "host\nimage\nnew\nnew\nold\n", "{said}");
    assert_eq!(said, "");
}
