//! Disks that fill in the middle of a write-back of many small files, which several threads write.

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::getuid;

use crate::{Images, shown, text};

/// A disk that takes half of what is written to it, and a home directory on another one. `restored`
/// gives it room, and puts back what was saved.
const DISK: &str = r#"
mkdir "$ROOM/disk" "$ROOM/state"; mount -t tmpfs -o size=12m tmpfs "$ROOM/disk"; cd "$ROOM/disk"
export XDG_STATE_HOME="$ROOM/state"; mkdir work; cd work; s=$(head -c 3000 /dev/zero | tr '\0' s)
whole() { find . -maxdepth 1 -type f -size "$1c" | wc -l; }
restored() { mount -o remount,size=64m "$ROOM/disk"
  for id in $("$HUSK" rescue ls --json | sed -n 's/.*"id": "\(.*\)",.*/\1/p'); do
    "$HUSK" rescue restore "$id" > /dev/null; done; }
"#;

fn on_a_small_disk(images: &Images, script: &str) -> (String, String) {
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let script = format!("{DISK}{script}");
    let mut command = images.command("unshare", &[user, "bash", "-uc", &script]);
    command.env("HUSK", binary()).env("ROOM", &images.room).env_remove("HUSK_FSCK");
    let output = command.output().expect("unshare");
    assert!(output.status.success(), "{}", shown(&output));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn new_files_that_a_full_disk_does_not_take_are_all_saved() {
    if against_native() {
        return;
    }
    let images = Images::new("crowded-new");
    let (told, said) = on_a_small_disk(
        &images,
        r#"S=$s "$HUSK" run --memory 64M -- bash -c 'for n in $(seq 6000); do echo "$S" > $n; done'
echo $?; n=$(whole 3001); [ "$n" -gt 0 ] && [ "$n" -lt 6000 ] && echo some
restored; whole 3001"#,
    );
    assert_eq!(told, "125\nsome\n6000\n", "{said}");
}

/// The host's file has all it had, or all that is new.
#[test]
fn files_that_a_full_disk_does_not_let_grow_are_as_they_were_and_their_new_bytes_saved() {
    if against_native() {
        return;
    }
    let images = Images::new("crowded-grown");
    let (told, said) = on_a_small_disk(
        &images,
        r#"for n in $(seq 2000); do echo "$s" > $n; done
S=$s "$HUSK" run --memory 64M -- bash -c 'for n in $(seq 2000); do echo "$S" >> $n; done'
echo $?; n=$(whole 6002); [ "$n" -gt 0 ] && [ "$n" -lt 2000 ] && echo some
echo $((n + $(whole 3001))); restored; whole 6002"#,
    );
    assert_eq!(told, "125\nsome\n2000\n2000\n", "{said}");
}

/// In containers the numbers of processes begin anew: each `husk run` has the same.
#[test]
fn rescues_of_processes_with_one_number_are_kept_apart() {
    if against_native() {
        return;
    }
    let images = Images::new("crowded-numbers");
    let (told, said) = on_a_small_disk(
        &images,
        r#"head -c 20M /dev/zero > fill 2> /dev/null
for n in 1 2 3; do
  unshare -rpf --mount-proc bash -c '"$HUSK" run --memory 64M -- \
    sh -c "(echo run $1; head -c 900000 /dev/zero) > big"; echo $?' bash $n
done
find "$XDG_STATE_HOME" -type f -size +800k -exec head -qc 6 {} + | sort"#,
    );
    assert_eq!(told, "125\n125\n125\nrun 1\nrun 2\nrun 3\n", "{said}");
}
