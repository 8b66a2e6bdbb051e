//! `husk run --root home`: programs on another host see this host's files, also where that one has
//! none of them.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use husk_tests::husk::binary;
use husk_tests::tree::Tree;
use husk_tests::{Outcome, Run, Scratch, against_native, process};

use super::host::{Host, until};
use super::{FILES, programs};
use crate::nodes::project;
use crate::{LIMIT, run, said};

/// Hides the compiler, its parts and the headers of the other host.
pub const BARE: &str = "for p in /usr/lib/gcc /usr/libexec/gcc /usr/include; do
[ ! -d $p ] || mount -t tmpfs none $p || exit 1; done
for p in cc gcc as ld; do p=$(readlink -f /usr/bin/$p); mount --bind /dev/null $p || exit 1; done
cp /etc/passwd /run; echo 'there:x:7777:7777::/:/bin/sh' >>/run/passwd
mount --bind /run/passwd /etc/passwd";

/// Runs its first program on the other host as soon as that may be.
const FIRST: &str = "exec </dev/null; HUSK_NODE=1 cc -dumpversion >version; rm version;";

#[test]
fn a_host_without_a_compiler_builds_with_the_one_of_home_and_makes_the_same_bytes() {
    let Some(mut host) = Host::new("hosts-room") else { return };
    host.serve(BARE);
    let mut made = Vec::new();
    for on in [false, true] {
        let work = host.scratch.fresh("work");
        project(&work, FILES, "cc");
        let input = Tree::read(&work, None);
        let (options, first): (&[&str], _) =
            if on { (&["--on", "h", "--root", "home"], FIRST) } else { (&[], "") };
        let script = format!("{first} exec make -j4 -s");
        let outcome = run(&host.scratch, &work, host.command(options, &["bash", "-c", &script]));
        assert!(outcome.status.success() && outcome.stdout.is_empty(), "{}", outcome.shown());
        if on {
            assert!((2..=FILES).contains(&programs(&outcome)), "{}", outcome.shown());
            host.nothing_is_left();
        }
        made.push((Tree::read(&work, Some((outcome.started, outcome.ended))), input));
    }
    let [(one, _), (two, input)] = &made[..] else { panic!("two trees") };
    assert_eq!(one.differences(two, input, &|_| false), Vec::<String>::new());
}

#[test]
fn without_the_option_nothing_runs_on_a_host_that_has_not_the_same_program() {
    let Some(mut host) = Host::new("hosts-noroom") else { return };
    host.serve(BARE);
    let work = host.scratch.fresh("work");
    fs::write(work.join("a.c"), "int main(void) { return 0; }\n").expect("a file");
    let script = "exec </dev/null; HUSK_NODE=1 cc -c a.c";
    let outcome = run(&host.scratch, &work, host.command(&["--on", "h"], &["bash", "-c", script]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(programs(&outcome), 0, "{}", outcome.shown());
    assert!(outcome.stderr.contains("does not have the same program"), "{}", outcome.shown());
}

/// Runs a script in an image with a room on `h`.
fn in_room(host: &Host, script: &str) -> Outcome {
    let work = host.scratch.fresh("work");
    fs::write(work.join("a.c"), "#include <stdio.h>\nint main(void) { return 0; }\n").unwrap();
    let script = format!("exec </dev/null; {script}");
    run(
        &host.scratch,
        &work,
        host.command(&["--on", "h", "--root", "home"], &["sh", "-c", &script]),
    )
}

#[test]
fn a_program_there_sees_the_files_of_home_and_cannot_change_them() {
    let Some(mut host) = Host::new("hosts-seen") else { return };
    host.serve(BARE);
    let outside = host.scratch.fresh("outside");
    fs::write(outside.join("private"), "x").expect("a file");
    fs::set_permissions(outside.join("private"), Permissions::from_mode(0o600)).expect("a mode");
    let outside = outside.display();
    let script = format!(
        "HUSK_NODE=1 cksum </dev/null /etc/passwd /usr/bin/as /usr/include/stdio.h
HUSK_NODE=1 perl -e 'print readlink(\"/proc/self/exe\"), \"\\n\"'
HUSK_NODE=1 perl -e 'open F, \">/usr/made\" or print \"$!\\n\"'
HUSK_NODE=1 perl -e 'open F, \">{outside}/made\" or print \"$!\\n\"'
HUSK_NODE=1 cat {outside}/private 2>&1
HUSK_NODE=1 cat {outside}/none 2>&1; HUSK_NODE=1 ls /; HUSK_NODE=1 ls {outside}
echo bytes >made; HUSK_NODE=1 cat made; HUSK_NODE=1 perl -e 'open F, \">/tmp/husk-room\" or die'
rm /tmp/husk-room"
    );
    let outcome = in_room(&host, &script);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(programs(&outcome), 10, "{}", outcome.shown());
    for (path, bytes) in [("passwd", "/etc/passwd"), ("as", "/usr/bin/as")] {
        let size = fs::metadata(bytes).expect("a file").len();
        let line = said.lines().find(|line| line.ends_with(path)).expect("a line");
        assert!(line.contains(&format!(" {size} ")), "{line}");
    }
    let perl = fs::canonicalize("/usr/bin/perl").expect("a path");
    for wanted in [
        &format!("{}\n", perl.display())[..],
        "Read-only file system\nRead-only file system\n",
        "private: Permission denied\n",
        "none: No such file or directory\n",
        "\nusr\nvar\n",
        "\nprivate\nbytes\n",
    ] {
        assert!(said.contains(wanted), "{wanted}: {}", outcome.shown());
    }
    host.nothing_is_left();
}

#[test]
fn what_changes_at_home_is_seen_there_and_what_was_opened_before_stays() {
    let Some(host) = Host::new("hosts-change") else { return };
    let outside = host.scratch.fresh("outside");
    let path = outside.join("file").display().to_string();
    let script = format!(
        "echo old >{path}; HUSK_NODE=1 cat {path}
HUSK_NODE=1 perl -e 'open F, \"{path}\"; mkdir \"opened\"; until (-e \"over\") {{ \
select undef, undef, undef, 0.1 }} print \"kept \", <F>' &
until [ -e opened ]; do sleep 0.1; done
echo changed >{path}; until HUSK_NODE=1 grep changed {path}; do sleep 0.1; done
rm {path}; while HUSK_NODE=1 ls {path}; do sleep 0.1; done 2>/dev/null >&2; echo gone
mkdir {path}; until HUSK_NODE=1 perl -e 'exit 1 unless -d \"{path}\"'; do sleep 0.1; done
echo directory; mkdir over; wait"
    );
    let outcome = in_room(&host, &script);
    assert_eq!(outcome.stdout, b"old\nchanged\ngone\ndirectory\nkept old\n", "{}", outcome.shown());
}

/// Whether files were sent for one compile there.
fn sends(host: &Host) -> bool {
    let outcome = in_room(host, "HUSK_NODE=1 cc -O1 -c a.c");
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(programs(&outcome), 1, "{}", outcome.shown());
    host.nothing_is_left();
    outcome.stderr.contains("KiB of files")
}

#[test]
fn files_are_sent_once_and_again_if_the_cache_was_tampered_with() {
    let Some(mut host) = Host::new("hosts-cache") else { return };
    host.serve(BARE);
    let files = host.home.join(".cache/husk/files");
    assert!(sends(&host) && !sends(&host));
    let mut largest: Vec<_> = fs::read_dir(&files).unwrap().map(|file| file.unwrap()).collect();
    largest.sort_by_key(|file| file.metadata().unwrap().len());
    let path = largest.last().expect("a file").path();
    let whole = fs::read(&path).expect("bytes");
    let mut wrong = whole.clone();
    wrong[whole.len() / 2] ^= 1;
    fs::write(&path, &wrong).expect("a change");
    assert!(sends(&host), "another byte");
    assert!(fs::read(&path).expect("bytes") == whole);
    fs::write(&path, "short").expect("a change");
    assert!(sends(&host) && fs::read(&path).expect("bytes") == whole, "it is short");
    fs::write(files.join("index"), "{").expect("a change");
    sends(&host);
    assert!(fs::read(&path).expect("bytes") == whole, "what was known is asked for again");
}

#[test]
fn where_nothing_can_be_kept_programs_run_all_the_same_and_a_line_says_why() {
    let Some(mut host) = Host::new("hosts-full") else { return };
    let files = host.home.join(".cache/husk/files").display().to_string();
    for (mount, told) in [
        (
            format!("mkdir -p {files}; mount -t tmpfs -o size=1m,mode=700 none {files}"),
            "no space left",
        ),
        (format!("mkdir -p {files}; mount -t tmpfs -o mode=777 none {files}"), "ermission denied"),
        (format!("mkdir -p {files}; mount -t tmpfs -o mode=700,noexec none {files}"), ""),
    ] {
        host.serve(&format!("{BARE}\n{mount}"));
        let outcome = in_room(&host, "HUSK_NODE=1 cc -O1 -c a.c && HUSK_NODE=0 sleep 6");
        assert!(outcome.status.success(), "{}", outcome.shown());
        assert_eq!(programs(&outcome), 1, "{}", outcome.shown());
        let kept = "husk: h keeps no files of this host for later: ";
        let lines = said(&outcome);
        let line = lines.iter().find_map(|line| line.strip_prefix(kept));
        assert_eq!(line.is_some(), !told.is_empty(), "{}", outcome.shown());
        assert!(line.unwrap_or_default().contains(told), "{}", outcome.shown());
    }
}

#[test]
fn the_cache_there_may_lie_below_a_directory_that_is_each_host_s_own() {
    let Some(host) = Host::new("hosts-tmpcache") else { return };
    let place = host.scratch.path().file_name().expect("a name").to_owned();
    for own in ["/tmp", "/var/tmp"] {
        let cache = Path::new(own).join(&place);
        fs::create_dir(&cache).expect("a directory");
        let _ = fs::remove_file(host.home.join(".cache"));
        symlink(&cache, host.home.join(".cache")).expect("a link");
        let outcome = in_room(&host, "HUSK_NODE=1 cc -O1 -c a.c");
        let is_used = cache.join("husk/files").is_dir();
        fs::remove_dir_all(&cache).expect("a directory");
        assert!(outcome.status.success() && is_used, "{own}: {}", outcome.shown());
        assert_eq!(programs(&outcome), 1, "{own}: {}", outcome.shown());
        host.nothing_is_left();
    }
}

#[test]
fn where_a_room_or_its_guest_is_killed_programs_end_as_killed_and_others_run_at_home() {
    let Some(host) = Host::new("hosts-nokeeper") else { return };
    for victim in ["room", "guest"] {
        let work = host.scratch.fresh("work");
        let script = "exec </dev/null; HUSK_NODE=1 sleep 300; echo $?; perl -e 'print 7'";
        let command = host.command(&["--on", "h", "--root", "home"], &["sh", "-c", script]);
        let run = Run::start(command, &work, host.scratch.path());
        // Not one that is being started, which comes to nothing otherwise.
        let sleeps = |pid| {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall"));
            call.is_ok_and(|call| call.starts_with("230 "))
        };
        until("its process there", || host.exactly("sleep 300").is_some_and(sleeps));
        let pid = if victim == "room" { host.process("husk: room") } else { host.guest() };
        assert!(process::kill(pid.expect("a process")));
        let outcome = run.wait(LIMIT).unwrap_or_else(|hang| panic!("{hang}"));
        assert_eq!(outcome.stdout, b"137\n7", "{victim}: {}", outcome.shown());
        assert!(outcome.stderr.contains("husk: h is lost"), "{victim}: {}", outcome.shown());
        host.nothing_is_left();
    }
}

/// Its end is seen there before that of the room.
#[test]
fn a_program_whose_room_is_killed_while_it_is_started_ends_as_killed() {
    let Some(host) = Host::new("hosts-starting") else { return };
    let work = host.scratch.fresh("work");
    let script = "exec </dev/null; HUSK_NODE=1 sleep 300; echo $?; perl -e 'print 7'";
    let script = format!("HUSK_NODE=1 nice </dev/null; read go; {script}");
    let mut command = host.command(&["--on", "h", "--root", "home"], &["sh", "-c", &script]);
    command.current_dir(&work).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("an image");
    // All but that program has been asked for.
    let mut first = [0; 2];
    let mut said = run.stdout.take().expect("a pipe");
    said.read_exact(&mut first).expect("it runs there");
    let keeper = host.process("husk: room").expect("a room");
    // Nobody is told that it has ended as long as this is open.
    let output = format!("/proc/{keeper}/fd/1");
    let output = fs::File::options().write(true).open(output).expect("its output");
    let stopped = Command::new("kill").args(["-STOP", &keeper.to_string()]).status();
    assert!(stopped.expect("kill").success());
    run.stdin.take().expect("a pipe").write_all(b"go\n").expect("it reads");
    until("its process there", || host.exactly("sleep 300").is_some());
    assert!(process::kill(keeper));
    until("its end", || host.exactly("sleep 300").is_none());
    drop(output);
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("its output");
    let ended = run.wait_with_output().expect("its end");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(rest, "137\n7", "{errors}");
    assert!(errors.contains("husk: h is lost") && !errors.contains("check the"), "{errors}");
    host.nothing_is_left();
}

/// The number of the FUSE connection whose mount a process sees.
fn connection(pid: u32) -> Option<String> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - fuse husk-room"))?;
    mount.split(' ').nth(2)?.strip_prefix("0:").map(str::to_owned)
}

/// Ends a FUSE connection, so that a test that fails leaves nothing behind.
fn abort(connection: &str) {
    let place = "/sys/fs/fuse/connections";
    let script = format!("mount -t fusectl none {place}; echo 1 >{place}/{connection}/abort");
    let _ = Command::new("unshare").args(["-m", "sh", "-c", &script]).status();
}

#[test]
fn a_keeper_that_is_killed_while_it_waits_for_home_ends() {
    if against_native() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let scratch = Scratch::new("hosts-killed");
    let mut keeper = Command::new(binary());
    keeper.arg0("husk: room").arg(scratch.fresh("room"));
    keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = keeper.spawn().expect("a keeper");
    // It asks for the root directory, and nobody answers.
    let mut first = [0];
    keeper.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("a question");
    let connection = connection(keeper.id()).expect("a file system");
    keeper.kill().expect("a process");
    let mut status = None;
    for _ in 0..1000 {
        status = keeper.try_wait().expect("a status");
        if status.is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    if status.is_none() {
        abort(&connection);
        let _ = keeper.wait();
    }
    assert_eq!(status.and_then(|status| status.signal()), Some(9), "{status:?}");
}

#[test]
fn a_host_that_cannot_show_files_is_refused_in_one_line() {
    let Some(mut host) = Host::new("hosts-nofuse") else { return };
    host.serve("mount --bind /dev/null /dev/fuse");
    let work = host.scratch.fresh("work");
    let command = host.command(&["--on", "h", "--root", "home"], &["touch", "made"]);
    let outcome = run(&host.scratch, &work, command);
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
    let lines = said(&outcome);
    let line = lines.last().expect("a line");
    assert!(line.contains("it cannot show files of home (FUSE: "), "{line}");
    host.nothing_is_left();
}

#[test]
fn who_may_not_mount_there_has_a_room_in_a_namespace_of_users() {
    let Some(mut host) = Host::new("hosts-users") else { return };
    let place = host.scratch.path().display().to_string();
    host.serve(&format!(
        "{BARE}\nexec setpriv --bounding-set=-sys_admin /usr/sbin/sshd -D -f {place}/sshd_config \
         -E {place}/log"
    ));
    let outcome = in_room(&host, "HUSK_NODE=1 cc -O1 -c a.c; HUSK_NODE=1 cat /etc/passwd");
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert_eq!(programs(&outcome), 2, "{}", outcome.shown());
    assert_eq!(outcome.stdout, fs::read("/etc/passwd").expect("a file"), "{}", outcome.shown());
    host.nothing_is_left();
}
