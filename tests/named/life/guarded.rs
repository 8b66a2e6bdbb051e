//! A `husk run` that is killed: its image stays under a name, and nothing a program was told is
//! done is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use husk_tests::against_native;
use husk_tests::husk::binary;

use crate::{Images, shown, text, until};

/// `husk run` in the work directory by a script that knows it as `run`.
fn script(images: &Images, script: &str) -> (String, String) {
    let run = r#"run() { "$HUSK" run --memory 64M -- "$@"; }
# In the image: waits until the guard of this run has its memory.
export GUARDED='until ls -l $(grep -lsxaz "husk: run-$PPID" /proc/[0-9]*/cmdline |
  sed "s/cmdline/fd/") 2> /dev/null | grep -q husk-region; do :; done'
named() { for n in $(seq 2000); do name=$("$HUSK" ls --names); [ -z "$name" ] || return 0
  sleep 0.01; done; }
"#;
    let mut command = images.command("bash", &["-uc", &format!("{run}{script}")]);
    let output = command.env("HUSK", binary()).output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_image_of_a_killed_run_stays_under_a_name_and_has_all_that_was_done() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded");
    fs::write(images.work.join("old"), "old\n").expect("a file");
    fs::write(images.work.join("gone"), "old\n").expect("a file");
    let (told, said) = script(
        &images,
        r#"run sh -c 'echo new > made; echo new >> old; rm gone; eval "$GUARDED"; kill -9 $PPID'
echo $?
ls; named; "$HUSK" diff "$name" --name-only | sort; "$HUSK" down "$name" > /dev/null 2>&1; echo $?
cat made old; ls; "$HUSK" ls --names"#,
    );
    let expected = "137\ngone\nold\n";
    let after = "0\nnew\nold\nnew\nmade\nold\n";
    assert!(told.starts_with(expected) && told.ends_with(after), "{told}{said}");
    let names = told.trim_start_matches(expected).trim_end_matches(after);
    assert!(["gone", "made", "old"].iter().all(|name| names.contains(name)), "{told}");
    let line = said.lines().find(|line| line.contains("was killed: image run-"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("`husk down run-") && line.contains("`husk diff run-"), "{line}");
}

/// What has a name and does not listen yet is waited for: between the two lies a moment.
#[test]
fn an_image_that_is_listed_is_reached() {
    if against_native() {
        return;
    }
    let images = Images::new("listed");
    let place = images.place("late");
    fs::create_dir_all(&place).expect("its place");
    for path in [&images.all(), &place] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
    let lock = fs::File::create(place.join("lock")).expect("a lock");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("it is ours");
    let mut command = std::process::Command::new(binary());
    command.args(["ps", "late"]).env("HUSK_IMAGES", images.all());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    // Number of the call it waits in: clock_nanosleep.
    let state = format!("/proc/{}/syscall", child.id());
    let sleeps = || fs::read_to_string(&state).is_ok_and(|state| state.starts_with("230 "));
    until("it waits, or ends", || sleeps() || child.try_wait().expect("a status").is_some());
    assert!(child.try_wait().expect("a status").is_none(), "it did not wait");
    let listener = std::os::unix::net::UnixListener::bind(place.join("socket")).expect("a socket");
    drop(listener.accept().expect("it comes"));
    let said = text(&child.wait_with_output().expect("its status").stderr);
    assert!(!said.contains("just starting"), "{said}");
    drop((lock, listener));
    fs::remove_dir_all(&place).expect("it goes");
}

/// Each process of the run is killed in turn: first its guard, twice, then itself.
#[test]
fn a_guard_that_is_killed_is_replaced() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded-again");
    let (told, said) = script(
        &images,
        r#"run sh -c 'echo new > made; for round in 1 2; do eval "$GUARDED"
    guard=$(grep -lsxaz "husk: run-$PPID" /proc/[0-9]*/cmdline | cut -d/ -f3)
    kill -9 $guard; while [ -e /proc/$guard ]; do :; done; done
    eval "$GUARDED"; kill -9 $PPID'
echo $?; ls; named; "$HUSK" down "$name" > /dev/null 2>&1; echo $?; cat made"#,
    );
    assert_eq!(told, "137\n0\nnew\n", "{said}");
    assert_eq!(said.matches("was killed: image run-").count(), 1, "{said}");
}

#[test]
fn a_run_whose_image_cannot_be_kept_says_so_on_a_terminal() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded-none");
    let driver = husk_tests::husk::workspace().join("tests/named/sources/answers.py");
    let (driver, husk) = (driver.to_str().expect("plain"), binary().to_str().expect("plain"));
    let run = ["run", "--memory", "64M", "--nodes", "2", "--", "true"];
    let on_terminal = [&[driver, "[]", husk], &run[..]].concat();
    let said = text(&images.command("python3", &on_terminal).output().expect("python3").stdout);
    let note = "if this process is killed, its image is lost: no guard keeps one with --nodes";
    assert!(said.contains(note) && said.ends_with("exit 0\n"), "{said}");
    assert!(!text(&images.husk(&run).stderr).contains(note));
}

#[test]
fn programs_of_a_killed_run_go_on_in_its_image() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded-programs");
    let (told, said) = script(
        &images,
        r#"mkfifo go
run sh -c 'trap "" HUP; eval "$GUARDED"; kill -9 $PPID; cat go; echo late > late' > out &
named; "$HUSK" ps "$name" | grep -c 'sh\|cat'; echo > go; wait
until "$HUSK" exec "$name" -- test -s late; do :; done
"$HUSK" down "$name" --force > /dev/null 2>&1; cat late"#,
    );
    assert!(told.ends_with("late\n"), "{told}{said}");
    assert_ne!(told.lines().next(), Some("0"), "{told}{said}");
}

/// Temporary names are there, and no manifest that is ready: the host has all that it had.
#[test]
fn a_run_killed_before_its_write_back_is_noted_keeps_its_image() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded-early");
    let (told, said) = script(
        &images,
        r#"for n in $(seq 3000); do echo old > $n; done
"$HUSK" run --memory 64M -- bash -c 'eval "$GUARDED"; for n in *; do echo newer > $n; done' \
    2> "$HUSK_IMAGES.said" &
until ls -A | grep -q husk-tmp || ! kill -0 $! 2> /dev/null; do :; done
kill -9 $!; wait $!; echo $?
"$HUSK" recover --json | grep -q half && { "$HUSK" recover forward; cat * | sort -u; exit 0; }
named; cat [0-9]* | sort -u; "$HUSK" down "$name" > /dev/null 2>&1; echo $?
cat [0-9]* | sort -u; ls -A | wc -l"#,
    );
    let early = "137\nold\n0\nnewer\n3000\n";
    assert!(told == early || told.ends_with("newer\n"), "{told}{said}");
}

#[test]
fn the_guard_of_a_run_ends_with_it() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded-ends");
    let (told, said) = script(&images, r#"run sh -c 'echo $PPID; eval "$GUARDED"; echo there'"#);
    let number = told.lines().next().unwrap_or_else(|| panic!("{said}")).to_owned();
    assert!(told.ends_with("there\n"), "{told}{said}");
    let name = format!("husk: run-{number}");
    let runs = |entry: fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words.starts_with(name.as_bytes())
    };
    until("the guard has ended", || !fs::read_dir("/proc").expect("/proc").flatten().any(runs));
    assert_eq!(images.done(&["ls", "--names"]), "");
}

/// Nothing of it would be kept: no process is started for it.
#[test]
fn a_run_that_drops_its_changes_has_no_guard() {
    if against_native() {
        return;
    }
    let images = Images::new("guarded-not");
    let script = "\"$HUSK\" run --discard --memory 64M -- sh -c 'kill -9 $PPID'; echo $?";
    let mut command = images.command("bash", &["-uc", script]);
    let output = command.env("HUSK", binary()).output().expect("bash");
    assert_eq!(text(&output.stdout), "137\n", "{}", shown(&output));
    assert!(!text(&output.stderr).contains("was killed: image"), "{}", shown(&output));
    assert_eq!(images.done(&["ls", "--names"]), "");
}
