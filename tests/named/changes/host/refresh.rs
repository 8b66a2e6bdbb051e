//! What programs outside change below an overlay: seen as a whole, when it is opened or asked for.

use std::fs;
use std::process::Stdio;

use husk_tests::against_native;

use crate::{Images, shown, text, until};

pub fn on_host(images: &Images, script: &str) -> String {
    let output = images.command("bash", &["-euc", script]).output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

pub fn refreshed(images: &Images, more: &[&str]) -> serde_json::Value {
    let output = images.husk(&[&["refresh", "ci", "--json"], more].concat());
    serde_json::from_str(&text(&output.stdout)).unwrap_or_else(|_| panic!("{}", shown(&output)))
}

/// All that a tree shows. The numbers of what is replaced on the host are other ones.
const SHOWN: &str = "find . -mindepth 1 -printf '%P %y %m %s %T@ %C@ %i %l ' \\( -type f -exec \
    md5sum {} \\; -o -printf '\\n' \\) | LC_ALL=C sort; ls -A1 . in";

const BEFORE: &str = "mkdir -p in/deep gone/below; echo 1 > longer; echo 1 > in/replaced;
    echo 1 > removed; echo 1 > gone/below/file; ln -s longer link; echo 1 > kind; echo 1 > mode;
    echo 1 > in/deep/file; ln -s longer becomes";
const CHANGED: &str = "echo 'the host has made it longer' >> longer; rm removed kind becomes;
    echo replaced > in/new; mv in/new in/replaced; rm -r gone; ln -sfn mode link; mkdir kind;
    echo below > kind/below; chmod 600 mode; echo came > in/deep/came; mkdir made; echo x > made/x;
    echo a file > becomes; touch -d @1000000000 in/deep/file";

#[test]
fn a_refreshed_image_shows_what_the_host_has() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh");
    on_host(&images, BEFORE);
    images.up("ci");
    assert_eq!(images.script("ci", SHOWN), on_host(&images, SHOWN));
    on_host(&images, CHANGED);
    let told = refreshed(&images, &[]);
    assert_eq!((&told["conflicts"], &told["failures"]), (&[(); 0][..].into(), &[(); 0][..].into()));
    assert_eq!(images.script("ci", SHOWN), on_host(&images, SHOWN), "{told}");
    let again = refreshed(&images, &[]);
    let nothing = ["renewed", "added", "removed"].map(|what| again[what].as_u64());
    assert_eq!(nothing, [Some(0); 3], "{again}");
    // What was taken in is the host's: the image has nothing to write.
    let before = on_host(&images, SHOWN);
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, SHOWN), before);
}

/// A `husk refresh --follow` that has begun; what it says is in `follow.out` and `follow.err`.
pub fn follow(images: &Images) -> std::process::Child {
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let file = |name: &str| fs::File::create(images.scratch.path().join(name)).expect("a file");
    let mut command = images.command(husk, &["refresh", "--follow", "--json", "ci"]);
    command.stdout(file("follow.out")).stderr(file("follow.err"));
    let child = command.spawn().expect("timeout starts");
    until("it follows", || followed(images, "follow.err").contains("following the host in"));
    child
}

fn followed(images: &Images, file: &str) -> String {
    fs::read_to_string(images.scratch.path().join(file)).unwrap_or_default()
}

#[test]
fn a_followed_image_shows_what_the_host_has_and_its_end_ends_that() {
    if against_native() {
        return;
    }
    let images = Images::new("follow");
    on_host(&images, BEFORE);
    images.up("ci");
    assert_eq!(images.script("ci", SHOWN), on_host(&images, SHOWN));
    let mut child = follow(&images);
    on_host(&images, CHANGED);
    until("all is seen", || images.script("ci", SHOWN) == on_host(&images, SHOWN));
    // Another directory takes the name of one that is followed.
    on_host(&images, "mkdir other; echo 1 > other/first; mv in before; mv other in");
    let names = "find . -printf '%P %y %m %s %l\\n' | LC_ALL=C sort";
    until("the other is seen", || images.script("ci", names) == on_host(&images, names));
    on_host(&images, "echo 2 > in/second; echo longer >> before/deep/file");
    until("what is in it is seen", || images.script("ci", names) == on_host(&images, names));
    images.script("ci", "echo inside > longer");
    on_host(&images, "echo outside > longer");
    let told = "longer: changed on the host and in the image";
    until("a conflict is told", || followed(&images, "follow.out").contains(told));
    images.done(&["down", "ci", "--discard"]);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn what_an_image_writes_back_is_no_edit_of_the_host() {
    if against_native() {
        return;
    }
    let images = Images::new("follow-sync");
    on_host(&images, "mkdir a b; for i in $(seq 40); do echo host > a/$i; echo host > b/$i; done");
    images.up("ci");
    images.script("ci", "ls a b | wc -l");
    let mut child = follow(&images);
    for round in 0..8 {
        let inside = format!(
            "for i in $(seq 40); do echo image {round} > a/$i; echo {round} > a/new-{round}-$i; done
             rm -f a/new-$(({round} - 1))-*; mv a/1 a/moved; mv a/moved a/1"
        );
        images.script("ci", &inside);
        let outside = format!(
            "for i in $(seq 40); do echo host {round} > b/$i; done; echo x > b/made-{round}"
        );
        on_host(&images, &outside);
        images.done(&["sync", "ci"]);
    }
    let script = "cd b; cat $(ls | sort); cd ../a; cat $(ls | sort)";
    until("all is seen", || images.script("ci", script) == on_host(&images, script));
    // The end is a write-back, too.
    images.script("ci", "for i in $(seq 40); do echo last > a/$i; done; rm a/new-*");
    assert_eq!(images.down("ci"), "");
    assert!(child.wait().expect("it ends").success());
    let told = followed(&images, "follow.out");
    let lines = told.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    let all: Vec<serde_json::Value> = lines.collect();
    assert!(!all.is_empty(), "{told}");
    let quiet = |one: &serde_json::Value| one["conflicts"].as_array().is_some_and(Vec::is_empty);
    assert!(all.iter().all(quiet), "{told}");
    assert_eq!(followed(&images, "follow.err").lines().count(), 1);
}

#[test]
fn what_was_taken_in_is_changed_and_removed_without_a_conflict() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-then");
    on_host(&images, "echo 1 > a; echo 1 > b; echo 1 > c; mkdir d; echo 1 > d/e");
    images.up("ci");
    images.script("ci", "ls . d");
    on_host(&images, "echo host >> a; rm b; echo new > n; echo host > d/e");
    refreshed(&images, &[]);
    on_host(&images, "echo again > b");
    refreshed(&images, &[]);
    images.script("ci", "echo image >> a; rm b n; echo image >> d/e; mv c moved");
    assert_eq!(images.down("ci"), "");
    let after = on_host(&images, "ls; cat a d/e");
    assert_eq!(after, "a\nd\nmoved\n1\nhost\nimage\nhost\nimage\n");
}

#[test]
fn what_both_have_changed_is_a_conflict_at_once_and_stays_on_both_sides() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-both");
    on_host(&images, "mkdir in; for name in both gone mine in/both; do echo 1 > $name; done");
    images.up("ci");
    images.script(
        "ci",
        "for f in both gone in/both; do echo image >> $f; done; rm mine; echo i > new",
    );
    on_host(&images, "for f in both mine in/both; do echo host >> $f; done; rm gone; echo h > new");
    let output = images.husk(&["refresh", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let mut lines: Vec<_> =
        said.lines().filter_map(|l| l.strip_prefix("husk: conflict: ")).collect();
    lines.sort_unstable();
    let work = images.work.display();
    let expected = [
        format!("{work}/both: changed on the host and in the image"),
        format!("{work}/gone: removed on the host, changed in the image"),
        format!("{work}/in/both: changed on the host and in the image"),
        format!("{work}/mine: changed on the host, removed in the image"),
        format!("{work}/new: made on the host and in the image"),
    ];
    assert_eq!(lines, expected);
    let look = "cat both new in/both; ls";
    assert_eq!(images.script("ci", look), "1\nimage\ni\n1\nimage\nboth\ngone\nin\nnew\n");
    // Of a part of the tree, what is in it is told.
    let told = refreshed(&images, &[images.work.join("in").to_str().expect("a plain path")]);
    assert_eq!(told["conflicts"].as_array().map(Vec::len), Some(1), "{told}");
    images.done(&["down", "ci", "--discard"]);
}

/// Each kind of change that an image makes, and each that the host makes of it after a sync.
const IN_IMAGE: &str = "for f in edit replace gone away mode late; do echo image >> $f; done
    ln edit linked; mkdir -p made/deep new/d; echo m > made/deep/file; echo m > made/other
    echo n > new/d/file; rm removed; mv moved there; ln -s edit link; echo new > made/gone
    mv whole moved-whole; echo more >> moved-whole/a";
const ON_HOST: &str = "for f in edit mode made/deep/file; do echo host >> $f; done
    chmod 600 mode; echo longer than before > n; mv n replace; rm gone made/gone; mv away elsewhere
    rm -r new; echo new > made/deep/came; echo again > removed;
    ln -sfn mode link; rm late; mkdir late; echo 1 > late/in; echo c > moved-whole/c";
const FILES: &str = "removed moved edit replace gone away mode late";

fn synced(name: &str) -> Images {
    let images = Images::new(name);
    let made = format!("for f in {FILES}; do echo base > $f; done; mkdir whole; echo a > whole/a");
    on_host(&images, &format!("{made}; cp whole/a whole/b"));
    images.up("ci");
    images.script("ci", "ls -lR > /dev/null");
    images.script("ci", IN_IMAGE);
    assert_eq!(images.done(&["sync", "ci"]), "");
    images
}

/// Names, kinds, sizes, times and bytes.
const SEEN: &str = "find . -mindepth 1 \\( -type d -printf '%P %y\\n' -o -printf '%P %y %m %s %T@ \
    %n %l ' \\( -type f -exec md5sum {} \\; -o -printf '\\n' \\) \\) | LC_ALL=C sort";

#[test]
fn what_the_host_changes_after_a_sync_is_taken_in() {
    if against_native() {
        return;
    }
    let images = synced("refresh-after");
    on_host(&images, ON_HOST);
    let told = refreshed(&images, &[]);
    assert_eq!((&told["conflicts"], &told["failures"]), (&[(); 0][..].into(), &[(); 0][..].into()));
    assert_eq!(images.script("ci", SEEN), on_host(&images, SEEN), "{told}");
    let again = refreshed(&images, &[]);
    let nothing = ["renewed", "added", "removed"].map(|what| again[what].as_u64());
    assert_eq!(nothing, [Some(0); 3], "{again}");
    // It is the host's now, and the image's to change.
    let before = on_host(&images, SEEN);
    assert_eq!(images.done(&["sync", "ci"]), "");
    assert_eq!(on_host(&images, SEEN), before);
    images.script(
        "ci",
        "for f in edit replace mode made/deep/came removed there; do echo more >> $f; done
         rm made/deep/file late/in; echo x > gone; echo x > new; rm moved-whole/c",
    );
    assert_eq!(images.script("ci", "cat edit linked | grep -c more"), "2\n");
    let inside = images.script("ci", SEEN);
    assert_eq!(images.done(&["sync", "ci"]), "");
    assert_eq!(on_host(&images, SEEN), inside);
    on_host(&images, "echo once more >> edit; rm gone new");
    assert_eq!(refreshed(&images, &[])["conflicts"], serde_json::json!([]));
    assert_eq!(images.script("ci", SEEN), on_host(&images, SEEN));
    let before = on_host(&images, SEEN);
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, SEEN), before);
}

#[test]
fn a_followed_image_takes_in_what_the_host_changes_after_a_sync() {
    if against_native() {
        return;
    }
    let images = synced("follow-after");
    let mut child = follow(&images);
    on_host(&images, ON_HOST);
    until("all is seen", || images.script("ci", SEEN) == on_host(&images, SEEN));
    on_host(&images, "echo later >> made/deep/file; echo later > made/deep/later");
    until("what is in it is seen", || images.script("ci", SEEN) == on_host(&images, SEEN));
    images.done(&["down", "ci", "--discard"]);
    assert!(child.wait().expect("it ends").success());
    assert!(!followed(&images, "follow.out").contains("conflicts\":[\""));
}

#[test]
fn what_the_image_changes_again_after_a_sync_or_has_open_for_writing_is_a_conflict() {
    if against_native() {
        return;
    }
    use std::io::{BufRead, BufReader, Write};
    let images = Images::new("refresh-again");
    on_host(&images, "for f in again mode moved open read gone; do echo base > $f; done");
    images.up("ci");
    images
        .script("ci", "for f in again mode open read gone; do echo image >> $f; done; mv moved to");
    assert_eq!(images.done(&["sync", "ci"]), "");
    // Of the same length and time as what was written back.
    images.script(
        "ci",
        "for f in again gone; do t=$(stat -c @%.9Y $f); printf IMAGE | dd of=$f bs=1 seek=5 \
         conv=notrunc status=none; touch -d $t $f; done; chmod 640 mode",
    );
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let script = "exec 3>>open 4<read; echo ready; read line; echo last >&3; cat <&4";
    let mut command = images.command(husk, &["exec", "ci", "--", "bash", "-c", script]);
    let mut writer =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(writer.stdout.take().expect("its output")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    on_host(&images, "for f in again mode open read to; do echo host >> $f; done; rm gone");
    let told = refreshed(&images, &[]);
    let mut lines: Vec<_> = told["conflicts"].as_array().expect("a list").iter().collect();
    lines.sort_unstable_by_key(|line| line.to_string());
    let work = images.work.display();
    let expected = [
        format!("{work}/again: changed on the host and in the image"),
        format!("{work}/gone: removed on the host, changed in the image"),
        format!("{work}/mode: changed on the host and in the image"),
        format!("{work}/open: changed on the host, open for writing in the image"),
    ];
    assert_eq!(lines, expected.iter().collect::<Vec<_>>());
    writer.stdin.take().expect("its input").write_all(b"\n").expect("it reads");
    let rest: Vec<_> = said.map(|line| line.expect("text")).collect();
    assert_eq!(rest, ["base", "image"], "who has a file open keeps it");
    assert!(writer.wait().expect("it ends").success());
    let all = "cat again gone mode open read to";
    let kept = "base\nIMAGE\nbase\nIMAGE\nbase\nimage\nbase\nimage\nlast\nbase\nimage\nhost\n\
                base\nhost\n";
    assert_eq!(images.script("ci", all), kept);
    images.done(&["down", "ci", "--discard"]);
}

#[test]
fn a_file_that_was_opened_for_writing_is_a_conflict_even_if_nothing_was_written() {
    if against_native() {
        return;
    }
    use std::io::{BufRead, BufReader, Write};
    let images = Images::new("refresh-opened");
    on_host(&images, "for f in closed open; do echo base > $f; done");
    images.up("ci");
    images.script("ci", ": 3<> closed");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let script = "exec 3<>open; echo ready; read line; cat <&3; stat -Lc %s /dev/fd/3";
    let mut command = images.command(husk, &["exec", "ci", "--", "bash", "-c", script]);
    let mut opener =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(opener.stdout.take().expect("its output")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    on_host(&images, "for f in closed open; do echo of the host >> $f; done");
    let conflicts = || {
        let told = refreshed(&images, &[]);
        let told = told["conflicts"].as_array().expect("a list").iter();
        let mut lines: Vec<_> = told.map(|line| line.as_str().expect("text").to_owned()).collect();
        lines.sort_unstable();
        lines
    };
    let line =
        |name| format!("{}/{name}: changed on the host and in the image", images.work.display());
    assert_eq!(conflicts(), [line("closed"), line("open")]);
    opener.stdin.take().expect("its input").write_all(b"\n").expect("it reads");
    let rest: Vec<_> = said.map(|line| line.expect("text")).collect();
    assert_eq!(rest, ["base", "5"], "bytes and size are those of one moment");
    assert!(opener.wait().expect("it ends").success());
    assert_eq!(conflicts(), [line("closed"), line("open")], "also after it is closed");
    images.done(&["cp", "closed", "ci:closed"]);
    assert_eq!(images.script("ci", "cat closed"), "base\nof the host\n");
    assert_eq!(conflicts(), [line("open")]);
    images.done(&["down", "ci", "--discard"]);
}

#[test]
fn git_on_both_sides_of_a_sync_sees_what_the_other_has_done() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-git");
    let set = "export HOME=$PWD/.. GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
        GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0;";
    on_host(&images, &format!("{set} git init -q .; echo 1 > f; git add f; git commit -qm 1"));
    images.up("ci");
    images.script("ci", &format!("{set} git status --short; echo 2 > f; git commit -qam 2"));
    assert_eq!(images.done(&["sync", "ci"]), "");
    let outside = "git gc -q; git checkout -q HEAD~1; echo 3 > g; git add g; git commit -qm 3";
    on_host(&images, &format!("{set} {outside}"));
    let told = refreshed(&images, &[]);
    assert_eq!(told["conflicts"], serde_json::json!([]), "{told}");
    let look = format!("{set} git status --short; git log --oneline; git fsck 2>&1; ls; cat f");
    assert_eq!(images.script("ci", &look), on_host(&images, &look));
    images.script("ci", &format!("{set} echo 4 > g; git commit -qam 4"));
    assert_eq!(images.down("ci"), "");
    let all =
        on_host(&images, &format!("{set} git fsck 2>&1; git status --short; git log --format=%s"));
    assert_eq!(all, "4\n3\n1\n");
}

#[test]
fn what_a_sync_has_written_is_no_change_of_the_host() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-synced");
    on_host(&images, "echo 1 > a; echo 1 > b");
    images.up("ci");
    images.script("ci", "echo image >> a; mv b c; echo image > new");
    images.done(&["sync", "ci"]);
    let told = refreshed(&images, &[]);
    assert_eq!(told["conflicts"], serde_json::json!([]), "{told}");
    assert_eq!(images.script("ci", "cat a c new; ls"), "1\nimage\n1\nimage\na\nc\nnew\n");
    assert_eq!(images.down("ci"), "");
}

/// A reader that goes on, and says what it sees each time it is asked.
const READER: &str = "
import mmap, os, sys
fd = os.open('file', os.O_RDONLY)
mapped = mmap.mmap(fd, 4, prot=mmap.PROT_READ)
print('ready', flush=True)
sys.stdin.readline()
print(os.pread(fd, 99, 0).decode(), os.fstat(fd).st_size, mapped[:4], flush=True)
";

#[test]
fn open_descriptors_and_mappings_go_on() {
    if against_native() {
        return;
    }
    use std::io::{BufRead, BufReader, Write};
    let images = Images::new("refresh-open");
    fs::write(images.work.join("file"), "old!").expect("a file");
    images.up("ci");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let mut command = images.command(husk, &["exec", "ci", "--", "python3", "-c", READER]);
    let mut reader =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(reader.stdout.take().expect("its output")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    // A new file takes the name: who has the old one open keeps it.
    on_host(&images, "echo -n 'new and longer' > other; mv other file");
    refreshed(&images, &[]);
    reader.stdin.take().expect("its input").write_all(b"\n").expect("it reads");
    let seen = said.next().expect("a line").expect("text");
    assert_eq!(seen, "old! 4 b'old!'");
    assert!(reader.wait().expect("it ends").success());
    assert_eq!(images.script("ci", "cat file; stat -c %s file"), "new and longer14\n");
    images.down("ci");
}

#[test]
fn who_opens_a_file_that_the_host_has_changed_sees_all_of_it_without_a_refresh() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-opened");
    on_host(&images, "echo first > file; echo first > ours; echo first > copied");
    images.up("ci");
    images.script("ci", "ls -l");
    on_host(
        &images,
        "echo longer than before > file; echo host > ours; echo much longer > x; mv x copied",
    );
    let script = "
import os
fd = os.open('file', os.O_RDONLY)
print(os.fstat(fd).st_size, os.stat('file').st_size, len(os.read(fd, 99)))
";
    let look = format!("python3 -c \"{script}\"; stat -c '%y %z' file; cp copied copy; cat copy");
    let seen = images.script("ci", &look);
    let times = on_host(&images, "stat -c '%y %z' file");
    assert_eq!(seen, format!("19 19 19\n{times}much longer\n"));
    // What a change begins with is what the host has: no conflict, nothing is lost.
    images.script("ci", "echo image >> ours");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "cat ours"), "host\nimage\n");
}

#[test]
fn a_file_that_was_opened_before_a_refresh_has_the_hosts_number_after_it() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-number");
    on_host(&images, "echo first > file; echo first > ours");
    images.up("ci");
    images.script("ci", "ls -l");
    on_host(&images, "for i in file ours; do echo second > new; mv new $i; done");
    images.script("ci", "cat file ours; echo image >> ours");
    let told = refreshed(&images, &[]);
    assert_eq!(told["conflicts"], serde_json::json!([]), "{told}");
    let number = "stat -c %i file";
    assert_eq!(images.script("ci", number), on_host(&images, number));
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "cat ours"), "second\nimage\n");
}

#[test]
fn what_was_written_back_and_then_removed_in_the_image_is_a_conflict_only_if_the_host_changed_it() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-removed");
    on_host(&images, "echo 1 > a; echo 1 > b");
    images.up("ci");
    images.script("ci", "echo image >> a; echo image > new; mv new b");
    images.done(&["sync", "ci"]);
    images.script("ci", "rm a b");
    let told = refreshed(&images, &[]);
    assert_eq!(told["conflicts"], serde_json::json!([]), "{told}");
    on_host(&images, "echo host >> b");
    let told = refreshed(&images, &[]);
    let conflicts = told["conflicts"].as_array().expect("a list");
    assert!(conflicts.len() == 1 && conflicts[0].as_str().unwrap().contains("/b: "), "{told}");
    images.done(&["down", "ci", "--discard"]);
}

#[test]
fn what_cannot_be_refreshed_is_said_in_a_line() {
    if against_native() {
        return;
    }
    let images = Images::new("refresh-not");
    images.up("ci");
    assert!(images.refused(&["refresh", "ci", "/usr"], 125).contains("is in none of its overlays"));
    assert!(images.refused(&["refresh", "nobody"], 125).contains("nobody"));
    images.down("ci");
}
