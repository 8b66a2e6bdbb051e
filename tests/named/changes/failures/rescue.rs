//! `husk rescue`: what found no room at its place, and how it gets there later.

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::getuid;
use serde_json::Value;

use crate::{Images, shown, text};

/// A disk that is full, and a home directory on another one; and another rescue of this user.
const FULL: &str = r#"
case "$HUSK" in /tmp/*) ;; *)
    mount -t tmpfs tmpfs /tmp; other=/tmp/husk-rescue-other
    mkdir -m 700 $other; echo x > $other/x;;
esac
mkdir "$ROOM/disk" "$ROOM/state"; mount -t tmpfs -o size=4m tmpfs "$ROOM/disk"; cd "$ROOM/disk"
export XDG_STATE_HOME="$ROOM/state"; mkdir work; cd work; echo host > old
head -c 9M /dev/zero > fill || :
rescue() { status=0; "$HUSK" rescue "$@" || status=$?; echo "= $status"; }
"#;
/// Files in directories, a link, and one that the host has.
const CHANGES: &str = "mkdir -p t/u; for n in $(seq 30); do yes $n | head -c 100K > t/u/$n; done
    ln -s u t/l; chmod 640 t/u/7; yes image | head -c 200K > old";

fn on_a_full_disk(images: &Images, script: &str) -> (String, String) {
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let script = format!("{FULL}{script}");
    let mut command = images.command("unshare", &[user, "bash", "-euc", &script]);
    command.env("HUSK", binary()).env("ROOM", &images.room).env("CHANGES", CHANGES);
    let output = command.env_remove("HUSK_FSCK").output().expect("unshare");
    assert!(output.status.success(), "{}", shown(&output));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_found_no_room_is_told_in_a_line_and_put_back_when_there_is_some() {
    if against_native() {
        return;
    }
    let images = Images::new("rescue");
    let (told, said) = on_a_full_disk(
        &images,
        r#"status=0; "$HUSK" run --memory 64M -- sh -c "$CHANGES" 2> "$ROOM/said" || status=$?
echo "$status"; grep -c . "$ROOM/said"; cat "$ROOM/said" >&2
id=$(sed -n 's/.*rescue restore \(.*\)`.*/\1/p' "$ROOM/said")
"$HUSK" rescue ls | sed -n "s/^$id  \([0-9]* files\), .*/\1/p"
rescue restore "$id" > "$ROOM/full" 2>&1; tail -1 "$ROOM/full"
rm fill; head -c 4 old
"$HUSK" rescue show "$id" | grep -c '^ready .*/t/u/'
rescue restore "$id" "$PWD/t/u/7"; stat -c '%a %s' t/u/7
rescue restore "${id%???}"; ls t/u | wc -l; readlink t/l; head -c 5 old; echo
"$HUSK" rescue ls | grep -c "$id" || ls "$ROOM/state""#,
    );
    let expected = "125\n1\n31 files\n= 125\nhost30\n1 file restored\n= 0\n640 102400\n\
                    30 files restored\n= 0\n30\nu\nimage\n0\nhusk\n";
    assert_eq!(told, expected, "{said}");
    let line = " and 30 more: no space left on device; `husk rescue restore ";
    assert!(said.contains(line), "{said}");
}

#[test]
fn what_has_changed_since_is_left_with_what_to_type() {
    if against_native() {
        return;
    }
    let images = Images::new("rescue-changed");
    let (told, said) = on_a_full_disk(
        &images,
        r#""$HUSK" run --memory 64M -- sh -c "$CHANGES" 2> "$ROOM/said" || :
rm fill; echo other > old; id=$(sed -n 's/.*rescue restore \(.*\)`.*/\1/p' "$ROOM/said")
"$HUSK" rescue show "$id" --json > "$ROOM/shown"; rescue restore "$id"; cat old
"$HUSK" rescue restore "$id" 2>&1 | sed -n 's/.*take the saved one: //p' > "$ROOM/typed"
sh "$ROOM/typed"; head -c 5 old; echo; rescue rm "${id%???}"; rescue rm "$id"
"$HUSK" rescue ls --json | grep -c "$id" || cat "$ROOM/shown""#,
    );
    let (lines, json) = told.split_once("[\n").expect("JSON at the end");
    let expected = "30 files restored; 1 left\n= 125\nother\nimage\n= 125\n= 0\n0\n";
    assert_eq!(lines, expected, "{said}");
    assert!(said.contains("/old has changed since: diff "), "{said}");
    assert!(said.contains("it is the beginning of a name; write its whole name: "), "{said}");
    let shown: Value = serde_json::from_str(&format!("[\n{json}")).expect("JSON");
    let old = shown.as_array().expect("a list").iter().find(|one| one["size"] == 200 * 1024);
    let old = old.expect("the file that is larger than the others");
    assert_eq!((&old["state"], &old["kind"]), (&"changed".into(), &"file".into()), "{old}");
}

/// A disk error or a person has damaged the list.
#[test]
fn what_the_list_of_a_rescue_does_not_name_is_told_and_stays() {
    if against_native() {
        return;
    }
    let images = Images::new("rescue-list");
    let (told, said) = on_a_full_disk(
        &images,
        r#""$HUSK" run --memory 64M -- sh -c "$CHANGES" 2> "$ROOM/said" || :
rm fill; id=$(sed -n 's/.*rescue restore \(.*\)`.*/\1/p' "$ROOM/said")
kept="$ROOM/state/husk-rescue-$id"; sed -i '/"place":.*\/u\/7"/d' "$kept/list"
"$HUSK" rescue ls | grep -o "^$id.*" | grep -o ', and .*'
rescue restore "$id"; find "$kept" -name 7 | wc -l
"$HUSK" rescue ls --json | sed -n "/\"id\": \"$id\"/,/}/p" | grep -o '"unlisted": .'"#,
    );
    let expected = ", and 1 file that its list does not name\n\
                    30 files restored\n= 0\n1\n\"unlisted\": 1\n";
    assert_eq!(told, expected, "{said}");
}
