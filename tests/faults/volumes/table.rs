//! The table of docs/volumes.md, "What survives what", cell by cell.

use std::process::Command;

use husk_tests::against_native;
use husk_tests::husk::husk;

use super::Room;

/// Writes a file of each kind in a process that is killed; then says which files there are, or
/// stays. TREE OVERLAY MOUNT NUMBER VERB
const SCRIPT: &str = r#"
tree=$1 overlay=$2 mount=$3 number=$4 verb=$5
if [ "$verb" != look ]; then
    ( for file in "$tree/synced" "$tree/unsynced" "$overlay/overlaid" "$mount/mounted"; do
        echo text > "$file$number"
      done
      sync "$tree/synced$number"
      kill -9 $BASHPID )
fi
if [ "$verb" = stay ]; then echo "$number"; exec sleep 60; fi
cd "$tree" && echo *; cd "$overlay" && echo *; cd "$mount" && echo *
"#;

impl Room {
    fn survivors(&self, policy: &str, number: &str, verb: &str) -> Command {
        let [overlay, mount] = ["overlay", "mount"].map(|name| self.path(name));
        let volume = format!("data:{}:{policy}", self.tree());
        let options = ["--memory", "128M", "--volume", &volume, "--overlay", &overlay];
        let options = [&options[..], &["--mount", &mount]].concat();
        let argv = ["bash", "-c", SCRIPT, "bash", &self.tree(), &overlay, &mount, number, verb];
        self.with_state(husk(&options, &argv))
    }

    /// What there is in the volume, the overlay and the mount.
    fn seen(&self, policy: &str, number: &str, verb: &str) -> [String; 3] {
        let outcome = self.run(self.survivors(policy, number, verb));
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
        let text = String::from_utf8(outcome.stdout).expect("text");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.try_into().expect("three lines")
    }
}

#[test]
fn what_survives_what_is_as_the_table_says() {
    if against_native() {
        return;
    }
    let room = Room::new("table", "16M");
    room.scratch.fresh("overlay");
    room.scratch.fresh("mount");
    // The program is killed: all is there.
    let one = ["synced1 unsynced1", "overlaid1", "mounted1"];
    assert_eq!(room.seen("fsync", "1", "write"), one);
    // The image ends: the volume is there, the overlay is written back, the mount is lost.
    assert_eq!(room.seen("fsync", "1", "look"), ["synced1 unsynced1", "overlaid1", "*"]);
    // All of Husk is killed at once.
    assert_eq!(room.kill_after(room.survivors("fsync", "2", "stay"), "table", 1), 2);
    let [volume, overlay, mount] = room.seen("fsync", "2", "look");
    let words: Vec<&str> = volume.split(' ').collect();
    for there in ["synced1", "unsynced1", "synced2"] {
        assert!(words.contains(&there), "{volume}");
    }
    assert_eq!((overlay.as_str(), mount.as_str()), ("overlaid1", "*"));
    room.is_clean();
}

#[test]
fn with_each_policy_what_survives_what_is_as_the_table_says() {
    if against_native() {
        return;
    }
    for policy in ["async=60000", "immediate"] {
        let room = Room::new("policies", "16M");
        room.scratch.fresh("overlay");
        room.scratch.fresh("mount");
        assert_eq!(room.seen(policy, "1", "write")[0], "synced1 unsynced1");
        assert_eq!(room.seen(policy, "1", "look")[0], "synced1 unsynced1");
        assert_eq!(room.kill_after(room.survivors(policy, "2", "stay"), policy, 1), 2);
        let volume = &room.seen(policy, "2", "look")[0];
        let words: Vec<&str> = volume.split(' ').collect();
        for there in ["synced1", "unsynced1"] {
            assert!(words.contains(&there), "{policy}: {volume}");
        }
        if policy == "immediate" {
            assert_eq!(volume, "synced1 synced2 unsynced1 unsynced2");
        }
        room.is_clean();
    }
}
