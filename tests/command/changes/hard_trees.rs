//! Trees of the host that change or refuse under a write-back: what cannot be written is told and
//! kept, and the rest is written.
//!
//! Each script prints what is to be compared; `$1` is the tree, `$2` a directory beside it.

use std::process::Command;

use husk_tests::{Scratch, against_native, husk};

use crate::run;

/// Runs `script` and compares what it prints.
#[track_caller]
fn prints(name: &str, script: &str, wanted: &str) {
    if against_native() {
        return;
    }
    let scratch = Scratch::new(name);
    let (tree, beside) = (scratch.fresh("tree"), scratch.fresh("beside"));
    let binary = husk(&[], &["true"]).get_program().to_owned();
    let mut command = Command::new("bash");
    command.args(["-uc", script, "bash"]).arg(&tree).arg(&beside).env("HUSK", &binary);
    command.env("XDG_STATE_HOME", scratch.fresh("state"));
    let outcome = run(&scratch, &tree, command);
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text == wanted || text == "not here\n", "{}", outcome.shown());
}

#[test]
fn an_immutable_file_stays_its_new_content_is_saved_and_the_rest_is_written() {
    prints(
        "immutable",
        r#"
cd "$1"; echo old > fixed; echo old > free; chattr +i fixed 2> /dev/null || { echo not here; exit; }
"$HUSK" run --memory 64M -- sh -c 'echo new > free; echo more > added; chmod 600 fixed' \
    > /dev/null 2> "$2/said"; echo "status $?"
cat free added fixed; stat -c %a fixed; grep -c fixed "$2/said"
chattr -i fixed; ls -a | grep -c husk-tmp
"#,
        "status 125\nnew\nmore\nold\n644\n1\n0\n",
    );
}

#[test]
fn a_directory_that_is_removed_meanwhile_is_told_and_what_was_written_in_it_is_kept() {
    prints(
        "removed",
        r#"
cd "$1"; mkdir sub; echo old > sub/file; "$HUSK" up hard-removed --memory 64M --overlay "$1"
"$HUSK" exec hard-removed -- sh -c 'echo precious > sub/file; echo new > other'
rm -r sub; "$HUSK" down hard-removed 2> "$2/said"; echo "status $?"
cat other; grep -rl precious "$1" "$XDG_STATE_HOME" | wc -l; grep -c sub "$2/said"
"#,
        "status 125\nnew\n1\n1\n",
    );
}

#[test]
fn of_two_images_over_one_tree_the_second_keeps_its_version_beside() {
    prints(
        "two",
        r#"
cd "$1"; echo old > file
for name in one two; do "$HUSK" up "hard-$name" --memory 64M --overlay "$1" 2> /dev/null; done
for name in one two; do "$HUSK" exec "hard-$name" -- sh -c "echo $name > file; echo $name > $name"
done
"$HUSK" down hard-one 2> /dev/null; echo "status $?"
"$HUSK" down hard-two 2> "$2/said"; echo "status $?"
cat file one two file.husk-*; grep -c 'compare: diff' "$2/said"
"#,
        "status 0\nstatus 125\none\none\ntwo\ntwo\n1\n",
    );
}

#[test]
fn an_outside_edit_with_a_time_in_the_past_is_a_conflict_like_any_other() {
    prints(
        "past",
        r#"
cd "$1"; echo old > file; "$HUSK" up hard-past --memory 64M --overlay "$1" 2> /dev/null
"$HUSK" exec hard-past -- sh -c 'cat file > /dev/null; echo inside > file'
echo back > file; touch -d 2001-01-01 file
"$HUSK" down hard-past 2> "$2/said"; echo "status $?"; cat file file.husk-*
"#,
        "status 125\nback\ninside\n",
    );
}

#[test]
fn what_is_mounted_over_a_directory_meanwhile_is_a_conflict_and_what_is_below_stays() {
    prints(
        "mounted",
        r#"
unshare -m true 2> /dev/null || { echo not here; exit; }
unshare -m bash -uc '
cd "$1"; mkdir sub; echo old > sub/file
"$HUSK" up hard-mounted --memory 64M --overlay "$1" 2> /dev/null
"$HUSK" exec hard-mounted -- sh -c "echo precious > sub/file"
mount -t tmpfs -o size=1M none sub 2> /dev/null || { "$HUSK" down hard-mounted --discard; exit 9; }
"$HUSK" down hard-mounted > "$2/said" 2>&1; echo "status $?"
grep -c "sub is under a mount" "$2/said"; umount sub; cat sub/file sub.husk-*/file
' bash "$1" "$2" || echo not here
"#,
        "status 125\n1\nold\nprecious\n",
    );
}

/// Nothing is written into what was mounted there: it would be gone with the mount.
#[test]
fn what_is_mounted_over_the_whole_tree_meanwhile_gets_nothing_and_all_is_saved() {
    prints(
        "mounted-whole",
        r#"
unshare -m true 2> /dev/null || { echo not here; exit; }
unshare -m bash -uc '
cd "$1"; echo old > file; "$HUSK" up hard-covered --memory 64M --overlay "$1" 2> /dev/null
"$HUSK" exec hard-covered -- sh -c "echo precious > file; mkdir sub; echo precious > sub/new"
mount -t tmpfs -o size=1M none "$1" 2> /dev/null || {
    "$HUSK" down hard-covered --discard; exit 9; }
cd /; "$HUSK" down hard-covered > "$2/said" 2>&1; echo "status $?"; ls -A "$1" | wc -l
umount "$1"; cat "$1/file"; id=$(grep -o "restore [0-9a-f]*" "$2/said" | cut -c9-)
"$HUSK" rescue restore "$id" > /dev/null 2>&1; cat "$1/sub/new"
grep -rl precious "$1" "$XDG_STATE_HOME" | wc -l
' bash "$1" "$2" || echo not here
"#,
        "status 125\n0\nold\nprecious\n2\n",
    );
}

/// A project that is removed, or moved away, while an image of it is up.
#[test]
fn a_whole_tree_that_is_gone_at_the_end_is_told_and_all_of_the_image_is_saved() {
    prints(
        "gone",
        r#"
cd "$2"; for how in 'rm -r' 'mv -t aside'; do
    mkdir -p tree aside; echo old > tree/file
    "$HUSK" up hard-gone --memory 64M --overlay "$2/tree" 2> /dev/null
    (cd tree; "$HUSK" exec hard-gone -- sh -c 'mkdir s; tee file > s/new' <<< precious)
    $how tree; "$HUSK" down hard-gone > said 2>&1; echo "status $?"
    grep -c 'saved as' said; mkdir tree; id=$(grep -o 'restore [0-9a-f]*' said | cut -c9-)
    "$HUSK" rescue restore "$id" > /dev/null 2>&1; cat tree/file tree/s/new; rm -r tree
done
"#,
        "status 125\n1\nprecious\nprecious\nstatus 125\n1\nprecious\nprecious\n",
    );
}

#[test]
fn an_append_only_file_grows_and_its_times_follow_by_themselves() {
    prints(
        "append-only",
        r#"
cd "$1"; echo old > log; chattr +a log 2> /dev/null || { echo not here; exit; }
"$HUSK" run --memory 64M -- sh -c 'echo more >> log; echo free > free' > /dev/null 2> "$2/said"
echo "status $?"; cat free log; grep -c "log: .*saved as" "$2/said"
chattr -a log; ls -a | grep -c husk-tmp
"#,
        "status 0\nfree\nold\nmore\n0\n0\n",
    );
}

#[test]
fn no_temporary_name_stays_in_an_append_only_directory() {
    prints(
        "append-only-directory",
        r#"
cd "$1"; mkdir logs; echo old > logs/log; chattr +a logs 2> /dev/null || { echo not here; exit; }
"$HUSK" run --memory 64M -- sh -c 'echo precious > logs/new; echo more >> logs/log; echo x > free' \
    > /dev/null 2> "$2/said"
echo "status $?"; cat free logs/log; ls -A logs; grep -c "logs/new: .*append-only" "$2/said"
chattr -a logs; grep -rl precious "$XDG_STATE_HOME" "$1" | wc -l
"#,
        "status 125\nx\nold\nmore\nlog\n1\n1\n",
    );
}

#[test]
fn a_directory_that_is_replaced_meanwhile_is_a_conflict_and_both_are_kept() {
    prints(
        "replaced",
        r#"
cd "$1"; mkdir sub; echo old > sub/file; "$HUSK" up hard-replaced --memory 64M --overlay "$1"
"$HUSK" exec hard-replaced -- sh -c 'echo precious > sub/file; echo new > other'
mv sub aside; mkdir sub; echo theirs > sub/file; "$HUSK" down hard-replaced 2> "$2/said"
echo "status $?"; cat other aside/file sub/file
grep -rl precious "$1" "$XDG_STATE_HOME" | wc -l; grep -c sub "$2/said"
"#,
        "status 125\nnew\nold\ntheirs\n1\n1\n",
    );
}

/// A file that is longer than the image: its holes take no room, its bytes are read on the host.
#[test]
fn a_file_longer_than_the_image_is_read_and_changed_as_far_as_there_is_room() {
    prints(
        "longer",
        r#"
cd "$1"; truncate -s 3G holes; echo end >> holes; head -c 200M /dev/zero | tr '\0' x > bytes
sum=$(md5sum < bytes)
"$HUSK" run --memory 96M -- sh -c 'echo more >> holes; printf y | dd of=holes conv=notrunc bs=1 \
    seek=1000000000 2> /dev/null; tail -c 9 holes; wc -c < bytes
    { echo more >> bytes; } 2> /dev/null || echo full; echo still > works; cat works' 2> "$2/said"
echo "status $?"; grep -Evc 'fsck: |another image overlays' "$2/said"
grep -c 'full: no room for more bytes' "$2/said"
tail -c 9 holes; stat -c %s holes; [ "$sum" = "$(md5sum < bytes)" ] && echo kept; cat works
"#,
        "end\nmore\n209715200\nfull\nstill\nstatus 0\n1\n1\nend\nmore\n3221225481\nkept\n\
         still\n",
    );
}

/// Times that lie ahead, as after a clock was set back: what is newer is not taken for older.
#[test]
fn files_with_times_in_the_future_are_changed_like_any_other() {
    prints(
        "future",
        r#"
cd "$1"; for f in inside outside both; do echo old > $f; touch -d 2199-01-01 $f; done
touch -d 2199-01-01 .; "$HUSK" up hard-future --memory 64M --overlay "$1" 2> /dev/null
"$HUSK" exec hard-future -- sh -c 'cat * > /dev/null; echo ours > inside; echo ours > both
    echo new > new; touch -d 2198-01-01 new'
echo theirs > outside; echo theirs > both; touch -d 2199-01-01 both outside
"$HUSK" exec hard-future -- cat outside
"$HUSK" sync hard-future 2> /dev/null; echo "status $?"; cat inside outside both new both.husk-*
stat -c %y new | cut -c1-10
"$HUSK" exec hard-future -- sh -c 'echo again > inside; touch -d 2001-01-01 inside new'
"$HUSK" down hard-future 2> /dev/null; cat inside; stat -c %y inside new | cut -c1-10
"#,
        "theirs\nstatus 125\nours\ntheirs\ntheirs\nnew\nours\n2198-01-01\nagain\n2001-01-01\n\
         2001-01-01\n",
    );
}

/// Natively it can do to files of others what their modes allow, and so in an image.
#[test]
fn who_is_root_of_a_user_namespace_alone_has_an_owners_rights_over_files_as_on_linux() {
    prints(
        "namespace-root",
        r#"
[ "$(id -u)" = 0 ] || { echo not here; exit; }
home="$2/h"
as() { setpriv --reuid 1001 --regid 1001 --clear-groups env HOME="$home" unshare -r "$@"; }
as true || { echo not here; exit; }
work='cat other; echo more >> other; echo more >> mine; rm -f gone; id -u; ls'
for way in native husk; do
  mkdir -p "$1/$way" "$home"; cd "$1/$way"; echo secret > other; echo mine > mine; echo gone > gone
  chown 1000 other gone; chmod 600 other gone
  chown 1001 . mine "$home" "$2"; chmod 755 . "$1" "$2"
  case $way in
    native) as bash -c "$work" 2> /dev/null;;
    husk) as "$HUSK" run --memory 64M -- bash -c "$work" 2> "$2/said";;
  esac
  echo "status $?"; stat -c '%n %u %a %s' *
done > "$2/all"
half=$(($(wc -l < "$2/all") / 2))
head -n $half "$2/all" | cmp - <(tail -n $half "$2/all") && echo same; grep -c gone "$2/all"
"#,
        "same\n0\n",
    );
}

/// Linux refuses the removal at once; here it is told at the write-back, and the host keeps all.
#[test]
fn what_root_of_a_user_namespace_removes_from_directories_of_others_is_told_and_stays() {
    prints(
        "namespace-others",
        r#"
[ "$(id -u)" = 0 ] || { echo not here; exit; }
mkdir "$2/h" "$1/theirs"; cd "$1"; echo x > theirs/x; chown 1000 theirs; chown 1001 . "$2" "$2/h"
chmod 755 . "$2"
as() { setpriv --reuid 1001 --regid 1001 --clear-groups env HOME="$2/h" unshare -r "${@:3}"; }
as "$1" "$2" true || { echo not here; exit; }
as "$1" "$2" "$HUSK" run --memory 64M -- sh -c 'rm theirs/x; echo new > new' 2> "$2/said"
echo "status $?"; ls theirs new; grep -c 'theirs/x: permission denied' "$2/said"
"#,
        "status 125\nnew\n\ntheirs:\nx\n1\n",
    );
}

/// It comes when temporary names are there: what is below it stays as it was, and all is kept.
#[test]
fn what_is_mounted_over_a_directory_in_the_middle_of_a_write_back_gets_nothing() {
    prints(
        "mounted-midway",
        r#"
unshare -rm true 2> /dev/null || { echo not here; exit; }
cat > "$2/work" <<'EOF'
cd "$1"; mkdir a z; for n in $(seq 2000); do echo old > a/$n; done; echo old > z/file
"$HUSK" run --memory 64M -- \
    bash -c 'for n in a/* z/file; do echo newer > $n; done; echo new > z/n' \
    > /dev/null 2> "$2/said" &
until ls -A a | grep -q husk-tmp || ! kill -0 $! 2> /dev/null; do :; done
mount -t tmpfs none z; wait $!; status=$?
ls -A z | wc -l; umount z
# Whatever came first: all is new here, or the host's is there and the image's is saved.
found=$(grep -rl '^newer$' z "$XDG_STATE_HOME" 2> /dev/null | wc -l)
[ "$found" -ge 1 ] && echo kept; cat a/* | sort | uniq -c | tr -s ' '
[ $status = 0 ] && [ "$(cat z/file)" = newer ] || [ $status = 125 ] && echo told
EOF
unshare -rm bash -u "$2/work" "$1" "$2"
"#,
        "0\nkept\n 2000 newer\ntold\n",
    );
}

/// A user who is not root can neither link nor read all that is in a directory of that user's own.
#[test]
fn what_others_own_is_moved_as_far_as_it_can_be_and_holds_up_nothing_else() {
    prints(
        "of-others",
        r#"
[ "$(id -u) $(cat /proc/sys/fs/protected_hardlinks)" = "0 1" ] || { echo not here; exit; }
cd "$1"; mkdir -m 755 tree tree/pub; mkdir -m 700 tree/private
for file in plain pub/in private/in; do
    echo root > tree/$file; touch -d @1000000000 tree/$file
done
chmod 640 tree/pub/in; chgrp 65534 tree/pub/in; chown 65534 . tree "$2" "$XDG_STATE_HOME"; cd tree
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=$2"
$nobody "$HUSK" up of-others --memory 64M
change='mv plain moved; mv pub new; mv private other; echo own > own'
$nobody "$HUSK" exec of-others -- sh -c "$change"
for command in sync down; do
    $nobody "$HUSK" $command of-others 2> "$2/said"; echo "status $?"; cat own
    grep -q private "$2/said" && cat private/in moved new/in; stat -c '%a %Y' moved new/in
    [ $command = down ] || { grep -c 'this user owns it now' "$2/said"; cat plain 2> /dev/null; }
done
"#,
        "status 125\nown\nroot\nroot\nroot\n644 1000000000\n640 1000000000\n1\n\
         status 125\nown\nroot\nroot\nroot\n644 1000000000\n640 1000000000\n",
    );
}

/// A file of the same file system is mounted over one of the tree: Linux renames and removes
/// neither, with EBUSY, and what is appended or changed otherwise reaches the mounted one.
#[test]
fn a_file_that_is_mounted_over_another_one_is_neither_replaced_nor_removed() {
    prints(
        "bound",
        r#"
unshare -m true 2> /dev/null || { echo not here; exit; }
unshare -m bash -uc '
cd "$1"; mkdir dir
for name in written removed moved onto grown chmod free dir/in; do
    echo "below $name" > "$name"; echo "over $name" > "$2/${name##*/}"
    [ $name = free ] || mount --bind "$2/${name##*/}" "$name" 2> /dev/null || exit 9
done
"$HUSK" run --memory 64M -- sh -c "
    echo image > written; rm removed; mv moved away; echo image > new; mv new onto
    echo more >> grown; chmod 600 chmod; echo image > free; mv dir other" > "$2/said" 2>&1
echo "status $?"; grep -c "device or resource busy" "$2/said"
umount written removed moved onto grown chmod dir/in 2> /dev/null || umount other/in
grep . written removed moved onto grown chmod free dir/in 2> /dev/null
cat written.husk-* onto.husk-* away; stat -c %a chmod "$2/chmod"
cd "$2"; grep . written removed moved onto grown chmod in; cd "$1"; find . -name ".husk-tmp*"
' bash "$1" "$2" || echo not here
"#,
        "status 125\n5\nwritten:below written\nremoved:below removed\nmoved:below moved\n\
         onto:below onto\ngrown:below grown\nchmod:below chmod\nfree:image\ndir/in:below dir/in\n\
         image\nimage\nover moved\n644\n600\nwritten:over written\nremoved:over removed\n\
         moved:over moved\nonto:over onto\ngrown:over grown\ngrown:more\nchmod:over chmod\n\
         in:over dir/in\n",
    );
}

/// The same where the mount comes while an image is up: a refresh shows it, as Linux would, and
/// what the image has changed is a conflict.
#[test]
fn a_file_that_is_mounted_over_another_one_meanwhile_is_seen_and_stays() {
    prints(
        "bound-later",
        r#"
unshare -m true 2> /dev/null || { echo not here; exit; }
unshare -m bash -uc '
cd "$1"; for name in seen changed removed; do
    echo "below $name" > $name; echo "over $name" > "$2/$name"
done
"$HUSK" up hard-bound --memory 64M --overlay "$1" 2> /dev/null
"$HUSK" exec hard-bound -- sh -c "cat seen removed > /dev/null; echo image > changed"
for name in seen changed removed; do
    mount --bind "$2/$name" $name 2> /dev/null || { "$HUSK" down hard-bound --discard; exit 9; }
done
"$HUSK" refresh hard-bound > "$2/said" 2>&1; echo "status $?"
grep -c "conflict: .*changed" "$2/said"
"$HUSK" exec hard-bound -- sh -c "cat seen changed; rm removed"
"$HUSK" down hard-bound > "$2/said" 2>&1; echo "status $?"
grep -c "removed: device or resource busy" "$2/said"
cat seen changed removed "$2/seen" "$2/changed" "$2/removed" changed.husk-*
umount seen changed removed; cat seen changed removed
' bash "$1" "$2" || echo not here
"#,
        "status 125\n1\nover seen\nimage\nstatus 125\n1\nover seen\nover changed\nover removed\n\
         over seen\nover changed\nover removed\nimage\nbelow seen\nbelow changed\nbelow removed\n",
    );
}
