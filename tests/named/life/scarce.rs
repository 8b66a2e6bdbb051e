//! What a host does not give, or gives in another form: no room in /dev/shm, no locked memory, less
//! memory than was asked for, another version's image. One line each, or none where nothing is
//! missing; and nothing is lost.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::getuid;

use crate::{Images, refusal, shown, text, until};

/// Fills a /dev/shm of its own to the last byte and the last name, and works in images over it.
const FULL: &str = r#"
mount -t tmpfs -o size=64k,nr_inodes=64 shm /dev/shm
head -c 1M /dev/zero > /dev/shm/bytes 2> /dev/null && exit 11
names=0; while : > /dev/shm/name$names; do names=$((names + 1)); done 2> /dev/null
[ "$names" -gt 32 ] && ! echo x 2> /dev/null > /dev/shm/name0 || exit 12
cd "$WORK"
"$HUSK" up ci --memory 64M --overlay "$WORK"
"$HUSK" exec ci -- bash -euc '
    seq 300000 > big; mkfifo fifo; cat fifo > told & echo through > fifo; wait; rm fifo
    cksum < big; cat told; seq 300000 | cksum'
"$HUSK" exec ci -- python3 -c '
import os, socket
one, two = socket.socketpair()
socket.send_fds(one, [b"x"], [os.open("big", os.O_RDWR)])
print(os.fstat(socket.recv_fds(two, 1, 1)[1][0]).st_size)
listener = socket.socket(socket.AF_UNIX); listener.bind("name"); listener.listen()
caller = socket.socket(socket.AF_UNIX); caller.connect("name"); print("met"); os.unlink("name")'
"$HUSK" sync ci
cksum < big
"$HUSK" down ci
"$HUSK" run --memory 64M --overlay "$WORK" -- sh -c 'cat told; rm big'
ls
"#;

#[test]
fn a_full_dev_shm_is_in_nobodys_way() {
    if against_native() {
        return;
    }
    let images = Images::new("full-shm");
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let mut command = images.command("unshare", &[user, "bash", "-euc", FULL]);
    let output = command.env("WORK", &images.work).env("HUSK", binary()).output();
    let output = output.expect("unshare");
    assert!(output.status.success(), "{}", shown(&output));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 8, "{}", shown(&output));
    assert!(lines[0] == lines[2] && lines[0] == lines[5], "{said}");
    let size = (1..=300_000u32).map(|n| n.to_string().len() + 1).sum::<usize>().to_string();
    assert_eq!(lines[1..5], ["through", lines[0], &size, "met"], "{said}");
    assert_eq!(lines[6..], ["through", "told"], "{said}");
    let others = text(&output.stderr).replace("husk: fsck: clean\n", "");
    assert_eq!(others, "");
}

/// As many open files as an image has tables for, by processes that keep them: who was one too many
/// has been told by its call, in a word that fits many causes.
const CROWD: &str = r#"
import os, time
one, other = os.pipe()
for number in range(400):
    pid = os.fork()
    if pid == 0:
        told = b"."
        try:
            for n in range(1000):
                os.open("held", os.O_RDWR | os.O_CREAT)
        except OSError:
            told = b"!"
        os.write(other, told)
        time.sleep(1000)
    if os.read(one, 1) == b"!":
        break
print("crowded", flush=True)
time.sleep(1000)
"#;

#[test]
fn what_an_image_has_no_room_for_is_said_with_what_helps() {
    if against_native() {
        return;
    }
    let images = Images::new("no-room");
    images.up("ci");
    let said = |what: &str| {
        let line = format!("the image is full: no room for more {what}");
        images.done(&["ls"]).contains(&line) && images.done(&["stat", "ci"]).contains(&line)
    };
    // Said each time it begins, and not as long as it lasts.
    let told = |what: &str| {
        let log = fs::read_to_string(images.place("ci").join("log")).expect("a log");
        log.matches(&format!("the image is full: no room for more {what}; ")).count()
    };
    assert!(!images.done(&["ls"]).contains("full"));
    images.script("ci", "head -c 80M /dev/zero > big 2> /dev/null || true; test -s big");
    until("bytes are missing", || said("bytes; remove files, or make it with more --memory"));
    assert!(images.done(&["top", "ci", "--once", "--interval", "0.1"]).contains("FULL"));
    // Whoever writes it looks now and then.
    until("missing bytes are in the log", || told("bytes") > 0);
    images.script("ci", "rm big");
    until("there is room", || !images.done(&["ls"]).contains("the image is full"));
    let husk = binary().to_str().expect("a plain path");
    let mut crowd = images.command(husk, &["exec", "ci", "--", "python3", "-c", CROWD]);
    let mut crowd = crowd.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("husk");
    until("tables are full", || said("processes and open files; end some, or make it with"));
    until("that is in the log", || told("processes and open files") > 0);
    assert_eq!((told("bytes"), told("processes and open files")), (1, 1));
    let down = images.husk(&["down", "ci", "--force"]);
    assert!(down.status.success(), "{}", shown(&down));
    crowd.wait().expect("its end");
}

/// Whoever may lock no memory: an ordinary user, for root may always.
struct Ordinary<'a> {
    images: &'a Images,
    place: PathBuf,
}

impl Ordinary<'_> {
    fn new(images: &Images) -> Ordinary<'_> {
        let place = std::env::temp_dir().join(format!("husk-ordinary-{}", std::process::id()));
        fs::create_dir(&place).expect("a directory");
        fs::create_dir(place.join("work")).expect("a directory");
        // Where ours lies they may not be let in.
        fs::copy(binary(), place.join("command")).expect("the command");
        if getuid().is_root() {
            for path in [&place, &place.join("work")] {
                chown(path, Some(65534), Some(65534)).expect("given away");
            }
        }
        Ordinary { images, place }
    }

    fn script(&self, script: &str) -> Output {
        let shell = ["bash", "-euc", script, "../command"];
        let mut command = match getuid().is_root() {
            true => {
                let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
                self.images.command("setpriv", &[&user[..], &shell].concat())
            }
            false => self.images.command(shell[0], &shell[1..]),
        };
        command.current_dir(self.place.join("work"));
        command.env("HUSK_IMAGES", self.place.join("husk")).env("HOME", &self.place);
        command.output().expect("a shell")
    }
}

impl Drop for Ordinary<'_> {
    fn drop(&mut self) {
        // Whatever a failed test has left.
        self.script("\"$0\" down ci --discard --force 2> /dev/null || true");
        let _ = fs::remove_dir_all(&self.place);
    }
}

#[test]
fn who_may_lock_no_memory_has_images_as_others() {
    if against_native() {
        return;
    }
    let images = Images::new("memlock");
    let ordinary = Ordinary::new(&images);
    let script = r#"
        ulimit -l 0; [ "$(ulimit -l)" = 0 ]
        python3 -c 'import ctypes; page = ctypes.create_string_buffer(9)
print(ctypes.CDLL(None).mlock(page, 9))'
        "$0" up ci --memory 64M
        "$0" exec ci -- bash -c 'ulimit -l; seq 300000 > big
            for n in 1 2 3; do (wc -l < big); done'
        "$0" run --memory 64M -- sh -c 'ulimit -l; echo x > small'
        "$0" down ci
        wc -l < big; cat small"#;
    let output = ordinary.script(script);
    assert!(output.status.success(), "{}", shown(&output));
    let lines = "-1\n0\n300000\n300000\n300000\n0\n300000\nx\n";
    assert_eq!(text(&output.stdout), lines, "{}", shown(&output));
    // The second one is told of the first.
    let said = crate::without_plan(&text(&output.stderr)).replace("husk: fsck: clean\n", "");
    assert!(said.starts_with("husk: note: another image") && said.lines().count() == 1, "{said}");
}

#[test]
fn more_memory_than_the_host_has_is_refused_with_what_there_is() {
    if against_native() {
        return;
    }
    let images = Images::new("too-large");
    let facts = fs::read_to_string("/proc/meminfo").expect("facts");
    let kib = |name: &str| -> u64 {
        let line = facts.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    };
    let most_mib = (kib("MemTotal:") + kib("SwapTotal:")) >> 10;
    let asked = format!("{}M", most_mib + 1);
    for arguments in [&["up", "ci", "--memory", &asked][..], &["run", "--memory", &asked, "true"]] {
        let said = images.refused(arguments, 125);
        // Where a host has more than any image may hold, that is the limit.
        let most = said.contains(&format!("choose --memory 32M to {most_mib}M"));
        assert!(most || said.contains("too large"), "{said}");
    }
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
    // What is promised is not taken.
    let half = format!("{}M", most_mib / 2);
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", &half, "--overlay", work]);
    assert_eq!(images.script("ci", "echo fine"), "fine\n");
    images.down("ci");
}

/// Who stands between the commands and the supervisor and gives them another version.
struct Between(Child);

impl Between {
    fn begin(images: &Images, name: &str) -> Between {
        let place = images.place(name);
        let script = include_str!("../sources/older.py");
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(&place).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "stands\n");
        Between(child)
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_image_of_another_version_is_listed_and_taken_down_and_not_entered() {
    if against_native() {
        return;
    }
    let images = Images::new("versions");
    images.up("ci");
    images.script("ci", "echo kept > kept");
    let between = Between::begin(&images, "ci");
    let file = images.work.join("kept");
    let (file, inside) = (file.to_str().expect("a plain path"), "ci:kept");
    for (arguments, status) in [
        (&["exec", "ci", "--", "true"][..], 125),
        (&["exec", "--place", "host", "ci", "true"], 125),
        (&["ps", "ci"], 125),
        (&["kill", "ci", "1"], 125),
        (&["sync", "ci"], 125),
        (&["stat", "ci"], 125),
        (&["top", "ci", "--once"], 125),
        (&["trace", "ci"], 125),
        (&["cp", inside, file], 125),
        (&["fsck", "ci"], 2),
    ] {
        let said = refusal(&images.husk(arguments), status);
        assert!(
            said.contains("the image runs husk 0.") && said.contains("this is 9.9.9"),
            "{said}"
        );
    }
    assert_eq!(images.row("ci")["state"], "up");
    images.down("ci");
    assert_eq!(fs::read(file).expect("written back"), b"kept\n");
    drop(between);
}
