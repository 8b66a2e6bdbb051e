//! Real file systems: one without room, and one without O_DIRECT. Each is mounted in a namespace of
//! its own, which takes it away at its end.

use std::process::Command;

use husk_tests::against_native;
use husk_tests::husk::binary;

use super::Room;
use crate::run;

/// Mounts an ext4 of 8 MiB, has two volumes there until it is full, and looks at what is left. Each
/// line: status, and what was said.
const NO_ROOM: &str = r#"
set -u
cd "$1"; husk=$2
truncate -s 8M disk && mkfs.ext4 -q disk && mkdir full tree && mount -o loop disk full || exit 77
try() { "$@" > said 2>&1; echo "$? $(tr '\n' ' ' < said)"; }
try $husk volume create data --size 2M --on full
try $husk run --memory 32M --volume "data:$PWD/tree" -- sh -c 'echo held > tree/f; sync tree/f'
try $husk volume create large --size 7M --on full
echo $(cd full; echo *)
dd if=/dev/zero of=full/rest bs=64K 2> said
try $husk volume resize data --size 4M
echo $(cd full; echo *)
try $husk run --memory 32M --volume "data:$PWD/tree" -- sh -c 'cat tree/f; echo more >> tree/f
sync tree/f; exec cat tree/f'
try $husk volume check data
rm full/rest
try $husk volume resize data --size 3M
try $husk volume check data
"#;

const NO_DIRECT: &str = r#"
set -u
cd "$1"; husk=$2
mkdir memory lower over && mount -t ramfs none memory && mkdir memory/u memory/w || exit 77
mount -t overlay none -o lowerdir=lower,upperdir=memory/u,workdir=memory/w over || exit 77
$husk volume create data --size 1M --on over > said 2>&1
echo "$? $(tr '\n' ' ' < said)"
echo over/* state/husk/volumes/*
"#;

impl Room {
    /// What a script says in a namespace of its own; `None`: this user may have none.
    fn mounted(&self, script: &str) -> Option<String> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", script, "bash"]).arg(self.scratch.path());
        command.arg(binary()).env("XDG_STATE_HOME", self.scratch.path().join("state"));
        let outcome = run(&self.scratch, &self.work, command);
        let is_told = !outcome.stdout.is_empty();
        assert!(is_told || [1, 77].contains(&outcome.code()), "{}", outcome.shown());
        if !is_told {
            eprintln!("skipped: no mounts without root: {}", outcome.shown());
        }
        is_told.then(|| String::from_utf8(outcome.stdout).expect("text"))
    }
}

#[test]
fn on_a_disk_without_room_a_volume_goes_on_and_nothing_half_made_is_left() {
    if against_native() {
        return;
    }
    let room = Room::new("full-disk");
    let Some(told) = room.mounted(NO_ROOM) else { return };
    let lines: Vec<&str> = told.lines().map(str::trim_end).collect();
    let full = "no space left on device";
    assert_eq!(lines[..2], ["0", "0"], "{told}");
    assert!(lines[2].starts_with("125 ") && lines[2].contains(full), "{told}");
    assert_eq!(lines[3], "data.husk-area lost+found", "{told}");
    assert!(lines[4].starts_with("125 ") && lines[4].contains(full), "{told}");
    assert_eq!(lines[5], "data.husk-area lost+found rest", "{told}");
    // An area was written when it was made: its disk may be full.
    assert_eq!(lines[6..8], ["0 held held more", "0 data: clean"], "{told}");
    assert_eq!(lines[8..], ["0", "0 data: clean"], "{told}");
}

#[test]
fn a_file_system_without_direct_access_is_refused_and_nothing_is_left_there() {
    if against_native() {
        return;
    }
    let room = Room::new("no-direct");
    let Some(told) = room.mounted(NO_DIRECT) else { return };
    let lines: Vec<&str> = told.lines().map(str::trim_end).collect();
    assert!(lines[0].starts_with("125 ") && lines[0].contains("has no O_DIRECT"), "{told}");
    assert_eq!(lines[1..], ["over/* state/husk/volumes/*"], "{told}");
}
