//! What comes back to the host, and what does not.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use husk_tests::tree::Tree;
use husk_tests::{Outcome, Run, Scratch, against_native, husk};

use crate::{LIMIT, as_nobody, give_to_nobody, run, said};

#[test]
fn discard_leaves_the_host_as_it_was() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("discard");
    let work = scratch.fresh("work");
    fs::write(work.join("file"), "precious\n").expect("a file");
    let before = Tree::read(&work, None);
    let script = "echo lost > file; mkdir d; echo x > d/x; rm file; ls";
    let outcome = run(&scratch, &work, husk(&["--discard"], &["bash", "-euc", script]));
    assert_eq!(outcome.stdout, b"d\n", "{}", outcome.shown());
    let changed = before.differences(&Tree::read(&work, None), &before, &|_: &Path| false);
    assert!(changed.is_empty(), "{changed:?}");
}

/// The directory becomes another user's meanwhile: one of the user's own would be unlocked.
#[test]
fn an_overlay_that_takes_nothing_is_told_in_one_line_with_a_remedy() {
    if against_native() || !rustix::process::getuid().is_root() {
        return;
    }
    let scratch = Scratch::new("takes");
    let work = scratch.fresh("work");
    let tree = work.join("tree");
    fs::create_dir(&tree).expect("a directory");
    [&work, &tree].into_iter().for_each(|path| give_to_nobody(path));
    // The outer directory is the host's: there both sides meet.
    let inner = "echo text > made; cd ..; echo > started; until [ -e go ]; do sleep 0.01; done";
    let inner = husk(&[], &["sh", "-c", inner]);
    let outer = "(cd tree && exec \"$@\") & until [ -e started ]; do sleep 0.01; done
        chown 0 tree; echo > go; wait $!";
    let inner = as_nobody(&inner);
    let mut command = Command::new("bash");
    command.args(["-c", outer, "bash"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    let whole = said(&outcome).into_iter().filter(|line| line.contains("the whole overlay"));
    let whole: Vec<_> = whole.collect();
    let right = whole.len() == 1
        && whole[0].contains(&format!("{}, the whole overlay", tree.display()))
        && whole[0].contains("permission denied; let this user write to it");
    assert!(right, "{}", outcome.shown());
}

/// What `husk run` itself reads is a file of the image, too.
#[test]
fn standard_input_is_changed_in_the_image_alone() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("stdin");
    let work = scratch.fresh("work");
    fs::write(work.join("file"), "one\ntwo\n").expect("a file");
    let before = Tree::read(&work, None);
    let script = "read -r _; echo three >> file; cat; chmod 600 /dev/stdin; stat -c %a file;
        : > /proc/self/fd/0; stat -c %s file";
    let outcome = run(&scratch, &work, redirected("< file", script));
    assert_eq!(outcome.stdout, b"two\nthree\n600\n0\n", "{}", outcome.shown());
    let changed = before.differences(&Tree::read(&work, None), &before, &|_: &Path| false);
    assert!(changed.is_empty(), "{changed:?}");
}

/// A message carries a descriptor of a host file, which has lost its name by the time it arrives.
#[test]
fn a_descriptor_that_comes_back_changes_no_file_of_the_host() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("back");
    let work = scratch.fresh("work");
    for name in ["gone", "moved", "replaced"] {
        fs::write(work.join(name), "precious\n").expect("a file");
    }
    let before = Tree::read(&work, None);
    let script = "
import os, socket
here, there = socket.socketpair()
for name in ['gone', 'moved', 'replaced']:
    fd = os.open(name, os.O_RDONLY)
    socket.send_fds(here, [b'x'], [fd])
    if name == 'gone': os.unlink(name)
    else: os.rename(name, 'other')
    if name == 'replaced': open(name, 'w').close()
    came, = socket.recv_fds(there, 1, 1)[1]
    os.fchmod(came, 0o640)
    os.utime(came, (1, 2))
    with open(f'/proc/self/fd/{came}', 'r+') as file: file.write('LEAK')
    print(os.read(came, 100))
";
    let outcome = run(&scratch, &work, husk(&["--discard"], &["python3", "-c", script]));
    let expected = "b'LEAKious\\n'\n".repeat(3);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
    let changed = before.differences(&Tree::read(&work, None), &before, &|_: &Path| false);
    assert!(changed.is_empty(), "{changed:?}");
}

/// An image that drops its changes, its script in bash, its input or output redirected outside.
fn redirected(how: &str, script: &str) -> Command {
    let inside = husk(&["--discard"], &["bash", "-euc", script]);
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec \"$0\" \"$@\" {how}")]).arg(inside.get_program());
    command.args(inside.get_args());
    command
}

#[test]
fn an_output_of_husk_run_is_the_hosts() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("stdout");
    let work = scratch.fresh("work");
    let outcome =
        run(&scratch, &work, redirected("> log", "echo one; read -r line < log; echo $line"));
    let log = fs::read_to_string(work.join("log")).expect("a log");
    assert_eq!(log, "one\none\n", "{}", outcome.shown());
}

/// By its name as by the descriptor: `cat` and `cp` notice, what is read and measured is what was
/// written, and who moves it copies.
#[test]
fn an_output_of_husk_run_is_known_by_its_name() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("output");
    let work = scratch.fresh("work");
    fs::write(work.join("in"), "given\n").expect("a file");
    let script = "echo one; ! cat log || exit 3; ! cp log /dev/stdout || exit 4
        test log -ef /dev/stdout; cat
        stat -c %s log >&2; echo two >> log; tail -n 1 log >&2; echo three
        mv log old; cat old >&2";
    let outcome = run(&scratch, &work, redirected("< in > log", script));
    assert_eq!(outcome.status.code(), Some(0), "{}", outcome.shown());
    let log = fs::read_to_string(work.join("log")).expect("a log");
    assert_eq!(log, "one\ngiven\nthree\n", "{}", outcome.shown());
    let said = "cat: log: input file is output file\n\
                cp: 'log' and '/dev/stdout' are the same file\n\
                10\ntwo\none\ngiven\nthree\n";
    assert_eq!(outcome.stderr, said, "{}", outcome.shown());
}

#[test]
fn a_mount_is_memory_and_nothing_of_it_stays() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("mount");
    let (work, mount) = (scratch.fresh("work"), scratch.fresh("mount"));
    fs::write(mount.join("covered"), "host\n").expect("a file");
    let path = mount.to_str().expect("a plain path");
    let script = "cd \"$1\"; ls; echo x > new; ls; stat -f -c %T . > /dev/null; cat new";
    let command = husk(&["--mount", path], &["bash", "-euc", script, "bash", path]);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"new\nx\n", "{}", outcome.shown());
    let names: Vec<_> = fs::read_dir(&mount).expect("the directory").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(fs::read(mount.join("covered")).expect("a file"), b"host\n");
}

/// None of it may be read byte by byte, which would take hours.
#[test]
fn a_file_of_terabytes_that_are_holes_is_written_back_by_what_it_holds() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("terabytes");
    let work = scratch.fresh("work");
    let scripts = [
        "truncate -s 2T grown; echo one >> grown; cp --sparse=always /dev/null n",
        "echo two >> grown; truncate -s 3T n; echo three >> n",
        "printf in-place | dd of=grown bs=1 seek=1T conv=notrunc status=none",
    ];
    for script in scripts {
        let outcome = run(&scratch, &work, husk(&["--memory", "64M"], &["bash", "-euc", script]));
        assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    }
    let grown = fs::File::open(work.join("grown")).expect("a file");
    let (mut end, mut middle) = ([0; 8], [0; 8]);
    grown.read_exact_at(&mut end, 2 << 40).expect("bytes");
    grown.read_exact_at(&mut middle, 1 << 40).expect("bytes");
    assert_eq!((&end, &middle), (b"one\ntwo\n", b"in-place"));
    let sizes = ["grown", "n"].map(|name| {
        let metadata = fs::metadata(work.join(name)).expect("a file");
        assert!(metadata.blocks() < 1000, "holes stay holes: {metadata:?}");
        metadata.len()
    });
    assert_eq!(sizes, [(2 << 40) + 8, (3 << 40) + 6]);
}

/// Lets a program that reads a line go on; how it ended.
fn gone_on(mut run: Run) -> Outcome {
    let mut input = run.stdin().expect("a pipe");
    input.write_all(b"\n").expect("it reads");
    drop(input);
    run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"))
}

/// The host's file changes while the image holds a change of its own: neither is lost.
#[test]
fn a_conflict_is_reported_and_both_versions_are_kept() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("conflict");
    let work = scratch.fresh("work");
    fs::write(work.join("file"), "both began with this\n").expect("a file");
    let script = "echo image >> file; echo ready; read -r _";
    let mut run = Run::start_piped(husk(&[], &["bash", "-c", script]), &work, scratch.path());
    crate::memory::fsck::ready(&mut run, "ready");
    fs::write(work.join("file"), "the host's, and longer than before\n").expect("a file");
    let outcome = gone_on(run);
    let shown = outcome.shown();
    assert!(said(&outcome).iter().any(|line| line.contains("file")), "not reported: {shown}");
    let host = fs::read_to_string(work.join("file")).expect("the host's file");
    assert_eq!(host, "the host's, and longer than before\n");
    let kept = fs::read_dir(&work).expect("the directory").flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|text| text == "both began with this\nimage\n")
    });
    assert!(kept, "the image's version is gone: {shown}");
}

/// The host removes a directory while the image moves files of the host into it, unmodified: they
/// go to a directory beside, as what the image has made there does.
#[test]
fn what_was_moved_into_a_directory_that_the_host_removes_is_kept_beside_it() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("moved-in");
    let work = scratch.fresh("work");
    for path in ["into/deep", "into/dir", "tree/listed", "unseen"] {
        fs::create_dir_all(work.join(path)).expect("a directory");
    }
    for name in [
        "file",
        "other",
        "into/there",
        "into/gone",
        "into/dir/c",
        "into/deep/there",
        "tree/listed/a",
        "unseen/b",
    ] {
        fs::write(work.join(name), format!("{name}\n")).expect("a file");
    }
    let script = "ls tree/listed > seen; mv file into; mv other into/deep; mv tree unseen into
        mv into/gone into/renamed; mv into/dir into/deep; echo made > into/made
        echo ready; read -r _";
    let mut run = Run::start_piped(husk(&[], &["bash", "-c", script]), &work, scratch.path());
    crate::memory::fsck::ready(&mut run, "ready");
    fs::remove_dir_all(work.join("into")).expect("the host removes it");
    let outcome = gone_on(run);
    let shown = outcome.shown();
    assert_eq!(said(&outcome).len(), 1, "{shown}");
    assert!(said(&outcome)[0].contains("into was removed on the host meanwhile"), "{shown}");
    let aside = fs::read_dir(&work).expect("the directory").flatten().map(|entry| entry.path());
    let aside: Vec<_> =
        aside.filter(|path| path.to_string_lossy().contains("/into.husk-")).collect();
    assert_eq!(aside.len(), 1, "{shown}");
    let read = |name: &str| fs::read_to_string(aside[0].join(name)).unwrap_or_default();
    let all = ["file", "deep/other", "made", "tree/listed/a", "unseen/b"];
    let expected = ["file\n", "other\n", "made\n", "tree/listed/a\n", "unseen/b\n"];
    assert_eq!(all.map(read), expected, "{shown}");
    for name in ["there", "deep/there", "renamed", "deep/dir"] {
        assert!(!aside[0].join(name).exists(), "{name} had been the host's to remove");
    }
    for name in ["file", "other", "tree", "unseen"] {
        assert!(!work.join(name).exists(), "{name} was moved");
    }
}

#[test]
fn what_cannot_be_overlaid_cannot_be_discarded() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("discard-root");
    let outcome = run(&scratch, Path::new("/"), husk(&["--discard"], &["true"]));
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
    assert_eq!(said(&outcome).len(), 1, "{}", outcome.shown());
    let outcome = run(&scratch, Path::new("/"), husk(&[], &["true"]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert!(said(&outcome)[0].contains("changes go to the host"), "{}", outcome.shown());
}

#[test]
fn the_current_directory_may_lie_below_tmp() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("below-tmp");
    let work = Path::new("/tmp").join(format!("husk-test-{}", std::process::id()));
    fs::create_dir(&work).expect("a directory below /tmp");
    fs::write(work.join("input"), "from the host\n").expect("a file");
    let script =
        "cat input > output; echo private > /tmp/husk-test-private; ls -d /tmp/husk-test-private";
    let outcome = run(&scratch, &work, husk(&[], &["bash", "-euc", script]));
    let output = fs::read(work.join("output"));
    let leaked = Path::new("/tmp/husk-test-private").exists();
    fs::remove_dir_all(&work).expect("removing it");
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(output.expect("the output"), b"from the host\n");
    assert!(!leaked, "the image's /tmp is not private");
}

/// A tree as Go's module cache has them, changed in the image by its owner, an ordinary user:
/// afterwards the host has what it would have without Husk, modes included.
#[track_caller]
fn unwritable_tree_as_natively(name: &str, script: &str) {
    let tree = "mkdir -p gm/sub; echo f > gm/f; echo g > gm/sub/g; \
                chmod 444 gm/f; chmod 555 gm/sub gm";
    tree_as_natively(name, tree, script, ":");
}

/// The same with any tree; `after` is run natively behind both, before they are compared.
#[track_caller]
fn tree_as_natively(name: &str, tree: &str, script: &str, after: &str) {
    if against_native() {
        return;
    }
    let scratch = Scratch::new(name);
    // Below /tmp: the scratch directories may lie where an ordinary user cannot look.
    let shared = Path::new("/tmp").join(format!("husk-test-{name}-{}", std::process::id()));
    fs::create_dir(&shared).expect("a directory below /tmp");
    let (expected, work) = (shared.join("native"), shared.join("work"));
    fs::create_dir(&expected).and_then(|()| fs::create_dir(&work)).expect("directories");
    let plain = |script: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-euc", script]);
        command
    };
    for directory in [&expected, &work] {
        give_to_nobody(directory);
        let made = run(&scratch, directory, as_nobody(&plain(tree)));
        assert!(made.status.success(), "{}", made.shown());
    }
    let native = run(&scratch, &expected, as_nobody(&plain(script)));
    assert!(native.status.success(), "{}", native.shown());
    let outcome = run(&scratch, &work, as_nobody(&husk(&[], &["sh", "-euc", script])));
    for directory in [&expected, &work] {
        let opened = run(&scratch, directory, as_nobody(&plain(after)));
        assert!(opened.status.success(), "{}", opened.shown());
    }
    let (listed, natively) = (listing(&work), listing(&expected));
    fs::remove_dir_all(&shared).expect("removing it");
    assert!(said(&outcome).iter().all(|line| !line.contains("overlaid")), "{}", outcome.shown());
    assert_eq!(listed, natively, "{}", outcome.shown());
    assert!(outcome.status.success(), "{}", outcome.shown());
}

/// Paths, modes and contents of all that is below `root`.
fn listing(root: &Path) -> Vec<(String, u32, String)> {
    let (mut open, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().expect("it is there"));
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            let text = fs::read_to_string(&path).unwrap_or_default();
            found.push((name, metadata.mode(), text));
            if metadata.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn an_unwritable_tree_of_ours_is_removed() {
    unwritable_tree_as_natively("unwritable-removed", "chmod -R u+w gm; rm -rf gm");
}

#[test]
fn an_unwritable_tree_of_ours_is_moved() {
    unwritable_tree_as_natively("unwritable-moved", "mv gm gm2");
}

#[test]
fn files_of_an_unwritable_tree_are_removed_and_rewritten() {
    let script = "chmod -R u+w gm; rm gm/f; echo new > gm/sub/g";
    unwritable_tree_as_natively("unwritable-rewritten", script);
}

#[test]
fn changes_in_a_directory_that_cannot_be_listed_come_back() {
    let script = "mv gm/f f; rm gm/h; echo new > gm/k; echo k > gm/n; mkdir gm/d; echo q > gm/d/q";
    let tree = "mkdir gm; echo f > gm/f; echo h > gm/h; echo k > gm/k; echo s > gm/s; chmod 300 gm";
    tree_as_natively("unlisted", tree, script, "chmod 700 gm");
}

#[test]
fn a_directory_may_be_writable_for_a_moment_only() {
    let script = "chmod u+w gm; mv gm/f gm/f2; echo k > gm/k; chmod 555 gm";
    unwritable_tree_as_natively("unwritable-again", script);
}

/// A file a gigabyte long with two blocks of data goes into a small image and comes back.
#[test]
fn holes_stay_holes_on_the_way_in_and_back() {
    if against_native() {
        return;
    }
    const LENGTH: u64 = 1 << 30;
    let scratch = Scratch::new("holes");
    let work = scratch.fresh("work");
    let file = fs::File::create(work.join("old")).expect("a file");
    file.write_all_at(b"middle", LENGTH / 2).expect("a write");
    file.set_len(LENGTH).expect("a length");
    let script = "
import os
fd = os.open('old', os.O_RDWR)
os.pwrite(fd, b'end', 1 << 30)
print(os.fstat(fd).st_blocks < 100, os.pread(fd, 6, 1 << 29), os.pread(fd, 3, 4096))
open('made', 'w').truncate(1 << 30)
";
    let command = husk(&["--memory", "64M"], &["python3", "-c", script]);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.stdout, b"True b'middle' b'\\x00\\x00\\x00'\n", "{}", outcome.shown());
    for (name, length) in [("old", LENGTH + 3), ("made", LENGTH)] {
        let found = fs::metadata(work.join(name)).expect("the file");
        assert_eq!(found.len(), length, "{name}");
        assert!(found.blocks() < 1000, "{name} has {} blocks", found.blocks());
    }
    let (mut middle, mut end) = ([0; 6], [0; 3]);
    let file = fs::File::open(work.join("old")).expect("the file");
    file.read_exact_at(&mut middle, LENGTH / 2).expect("a read");
    file.read_exact_at(&mut end, LENGTH).expect("a read");
    assert_eq!((&middle, &end), (b"middle", b"end"));
}

/// What has a path on the host is there; one line tells of the rest, and how to get it.
#[test]
fn what_lies_deeper_than_a_path_is_long_is_told_saved_and_restored() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("too-deep");
    let (work, state) = (scratch.fresh("work"), scratch.fresh("state"));
    let script = "import os
for _ in range(60): os.mkdir('d' * 200); os.chdir('d' * 200)
os.mkdir('empty', 0o750)
open('low', 'w').write('kept')";
    let mut command = husk(&[], &["python3", "-c", script]);
    command.env("XDG_STATE_HOME", &state);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.code(), 125, "{}", outcome.shown());
    let lines = said(&outcome);
    assert!(lines.len() == 1 && lines[0].len() < 1500, "{}", outcome.shown());
    let (shown, path) = lines[0].rsplit_once("; saved as ").expect("it is told where");
    let told = shown.contains(&format!("{}/low", "d".repeat(200)));
    assert!(told && shown.contains("file name too long"), "{shown}");
    assert_eq!(fs::read(path).expect("the file"), b"kept");
    assert!(work.join("d".repeat(200)).is_dir());
    let id = shown.split_once("`husk rescue restore ").expect("what to type").1;
    let id = id.split('`').next().expect("a name");
    let rescue = |more: &[&str]| {
        let mut command = std::process::Command::new(husk_tests::husk::binary());
        command.args(["rescue", "restore", id]).args(more).env("XDG_STATE_HOME", &state);
        let output = command.output().expect("husk");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (status, said) = rescue(&["/etc/passwd"]);
    let is_one = said.lines().count() == 1 && said.contains("cannot restore /etc/passwd");
    assert!(status == Some(125) && is_one && said.contains("husk rescue show"), "{said}");
    assert_eq!(rescue(&[]), (Some(0), "1 file restored\n".to_owned()));
    let look = "import os
for _ in range(60): os.chdir('d' * 200)
print(open('low').read(), oct(os.stat('empty').st_mode))";
    let output =
        std::process::Command::new("python3").args(["-c", look]).current_dir(&work).output();
    let output = output.expect("python3");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kept 0o40750\n");
}

/// The write-back's own notes lie in `~/.local/state`.
#[test]
fn a_home_directory_gets_a_new_directory_that_the_write_back_needs_too() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("own-notes");
    let home = scratch.fresh("home");
    let script = "mkdir -p ~/.local/bin; echo tool > ~/.local/bin/tool; echo other > ~/other";
    let mut command = husk(&[], &["sh", "-euc", script]);
    command.env("HOME", &home).env_remove("XDG_STATE_HOME");
    let outcome = run(&scratch, &home, command);
    assert!(outcome.code() == 0 && !outcome.stderr.contains("conflict"), "{}", outcome.shown());
    for (name, text) in [(".local/bin/tool", "tool\n"), ("other", "other\n")] {
        assert_eq!(fs::read_to_string(home.join(name)).expect(name), text);
    }
}
