//! Where images are found: from each session of their user, and whatever is removed.

use std::fs;
use std::process::Output;

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::getuid;

use crate::{Images, shown, text, until, without_plan};

/// A script in a mount namespace where `/etc/passwd` names `$ROOM/home` and nothing lies in /tmp.
fn apart(images: &Images, script: &str) -> Output {
    let home = images.room.join("home");
    fs::create_dir(&home).expect("a directory");
    let users = images.room.join("passwd");
    fs::write(&users, format!("root:x:0:0:root:{}:/bin/sh\n", home.display())).expect("a file");
    let prepared =
        format!("mount --bind \"$ROOM/passwd\" /etc/passwd; mount -t tmpfs tmpfs /tmp; {script}");
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let mut command = images.command("unshare", &[user, "bash", "-euc", &prepared]);
    command
        .env_remove("HUSK_IMAGES")
        .env_remove("HUSK_FSCK")
        .env("HUSK", binary())
        .env("ROOM", &images.room);
    command.output().expect("unshare")
}

/// As after a log-out, which takes the runtime directory away, from cron, `su -` and `sudo`.
const SESSIONS: &str = r#"
mkdir "$ROOM/run" "$ROOM/other"
XDG_RUNTIME_DIR="$ROOM/run" HOME="$ROOM/other" XDG_STATE_HOME="$ROOM/other" \
  "$HUSK" up day --memory 64M --mount /mnt
ls -A "$ROOM/run"; rm -r "$ROOM/run"
env -i "$HUSK" exec day -- sh -c 'echo "a day of work" > work'
XDG_RUNTIME_DIR="$ROOM/run" HOME=/nope "$HUSK" exec day -- cat work
HOME=/nope XDG_STATE_HOME=/nope "$HUSK" ls --names
stat -c %a "$ROOM/home/.local/state/husk/images"
(cd /; env -i "$HUSK" down day); cat work
"#;

#[test]
fn each_session_of_a_user_finds_the_same_images() {
    if against_native() {
        return;
    }
    let images = Images::new("sessions");
    let output = apart(&images, SESSIONS);
    assert!(output.status.success(), "{}", shown(&output));
    let work = "a day of work\n";
    assert_eq!(text(&output.stdout), format!("{work}day\n700\n{work}"), "{}", shown(&output));
    assert_eq!(without_plan(&text(&output.stderr)), "", "nothing to tell");
}

/// A home directory that is full or read-only.
const ELSEWHERE: &str = r#"
mount -t tmpfs -o size=64k tmpfs "$ROOM/home"; head -c 60k /dev/zero > "$ROOM/home/fill"
for how in full read-only; do
  "$HUSK" up ci --memory 64M; env -i "$HUSK" exec ci -- sh -c 'echo x >> file'
  "$HUSK" ls --names; "$HUSK" down ci; mount -o remount,ro "$ROOM/home"
done
cat file; stat -c %a /tmp/husk-0
"#;

#[test]
fn without_room_in_the_home_directory_images_are_kept_elsewhere() {
    if against_native() {
        return;
    }
    let images = Images::new("elsewhere");
    let output = apart(&images, ELSEWHERE);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(text(&output.stdout), "ci\nci\nx\nx\n700\n", "{}", shown(&output));
    let said = text(&output.stderr);
    for why in ["no space left on device", "read-only file system"] {
        assert!(said.contains(&format!("{why}: the image's files are in /tmp/husk-0")), "{said}");
    }
}

/// All that is not in memory lies on one disk, and that is full to the last byte.
const FULL: &str = r#"
disk="$ROOM/disk"; mkdir "$disk"; mount -t tmpfs -o size=2m tmpfs "$disk"
mkdir "$disk/work" "$disk/home" "$disk/tmp"; mount --bind "$disk/home" "$ROOM/home"
mount --bind "$disk/tmp" /tmp; mount --bind "$disk/tmp" /var/tmp; mount -t tmpfs tmpfs /dev/shm
export XDG_STATE_HOME="$disk/home"; cd "$disk/work"
cat /dev/zero > ../fill 2> /dev/null || status=0
setsid -w "$HUSK" run --memory 64M -- sh -c 'echo work > new' || status=$?
echo "$status"; ls; name=$("$HUSK" ls --names); stat -c %a /dev/shm/husk-0
rm ../fill; "$HUSK" down "$name"; cat new; ls /dev/shm/husk-0
"#;

#[test]
fn where_not_one_byte_is_left_on_the_disk_an_image_stays_in_memory() {
    if against_native() {
        return;
    }
    let images = Images::new("no-byte");
    let output = apart(&images, FULL);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(text(&output.stdout), "125\n700\nwork\n", "{}", shown(&output));
    assert!(text(&output.stderr).contains(" keeps its changes; "), "{}", shown(&output));
}

#[test]
fn a_relative_place_for_images_is_refused() {
    if against_native() {
        return;
    }
    let images = Images::new("relative");
    let husk = binary().to_str().expect("a plain path");
    for words in [&["up", "ci"][..], &["ls"], &["exec", "ci", "--", "true"]] {
        let output = images.command(husk, words).env("HUSK_IMAGES", "here").output();
        let said = crate::refusal(&output.expect("husk"), 125);
        assert!(said.contains("not an absolute path; mend HUSK_IMAGES"), "{said}");
    }
}

/// By hand, or by who cleans up what looks old.
#[test]
fn what_an_image_is_found_by_is_made_again_when_it_is_removed() {
    if against_native() {
        return;
    }
    let images = Images::new("removed");
    images.up("ci");
    images.script("ci", "echo x > file");
    let place = images.place("ci");
    for removed in [place.join("socket"), place.join("lock"), place.clone(), images.all()] {
        match removed.is_dir() {
            true => fs::remove_dir_all(&removed).expect("it goes"),
            false => fs::remove_file(&removed).expect("it goes"),
        }
        until("it is found", || images.row("ci")["state"] == "up");
        assert_eq!(images.script("ci", "cat file"), "x\n");
        // The next supervisor is reached there, too.
        images.kill_supervisor("ci");
        assert_eq!(images.script("ci", "cat file"), "x\n");
    }
    assert_eq!(images.down("ci"), "");
    assert_eq!(fs::read(images.work.join("file")).expect("written back"), b"x\n");
    assert!(!place.exists());
}

/// `sudo` that keeps HOME.
#[test]
fn root_with_the_home_of_another_user_leaves_nothing_there() {
    if against_native() || !getuid().is_root() {
        return;
    }
    let images = Images::new("sudo");
    let theirs = images.scratch.fresh("theirs");
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).expect("given away");
    let script = r#"export HOME="$ROOM/../theirs"; "$HUSK" up ci --memory 64M
"$HUSK" exec ci -- sh -c 'echo x > file'; "$HUSK" down ci; "$HUSK" run -- cat file
find "$ROOM/../theirs" -mindepth 1"#;
    let output = apart(&images, script);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(text(&output.stdout), "x\n", "{}", shown(&output));
}
