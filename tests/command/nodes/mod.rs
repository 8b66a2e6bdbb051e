//! `husk run --nodes`: programs on several nodes make what they make on one, and what is not served
//! there is refused.

mod deaths;
mod leases;
mod locks;
mod maps;
mod passed;
mod techniques;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use husk_tests::case::age;
use husk_tests::husk::{binary, husk};
use husk_tests::tree::Tree;
use husk_tests::{Case, Length, Outcome, Run, Scratch, against_native, process};
use serde_json::Value;

use crate::{run, said};

/// How long anything here may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Files of the project that is built.
const FILES: u32 = 24;
/// Agents of a run that are killed: far fewer than are replaced.
pub const AGENTS: u32 = 40;
/// Runs a command on node 1, by way of a shell on node 0. Natively that changes nothing.
const ON_NODE_1: &str = "HUSK_NODE=1 exec \"$@\"";

fn refused(arguments: &[&str]) -> String {
    let scratch = Scratch::new("nodes-refused");
    let work = scratch.fresh("work");
    let mut command = Command::new(binary());
    command.arg("run").args(arguments).args(["--", "true"]);
    let outcome = run(&scratch, &work, command);
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
    let [line] = said(&outcome)[..] else { panic!("one line: {}", outcome.shown()) };
    line.to_owned()
}

#[test]
fn numbers_of_nodes_out_of_range_and_too_little_memory_are_refused_with_a_line() {
    if against_native() {
        return;
    }
    for wrong in ["0", "17", "1000"] {
        assert!(refused(&["--nodes", wrong]).contains("choose --nodes 1 to 16"), "{wrong}");
    }
    assert!(refused(&["--nodes", "x"]).contains("choose 1 to 16"));
    let line = refused(&["--nodes", "4", "--memory", "100M"]);
    assert!(line.contains("choose --memory 128M or more"), "{line}");
    assert!(refused(&["--nodes", "2", "--read-only-outside"]).contains("--read-only-outside"));
}

#[test]
fn a_node_that_is_none_is_refused_at_the_start_and_by_each_exec() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-wrong");
    for (nodes, wrong) in [("2", "2"), ("2", "x"), ("2", ""), ("1", "1"), ("3", "-1")] {
        let work = scratch.fresh("work");
        let mut command = husk(&["--nodes", nodes], &["touch", "made"]);
        command.env("HUSK_NODE", wrong);
        let outcome = run(&scratch, &work, command);
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        let [line] = said(&outcome)[..] else { panic!("one line: {}", outcome.shown()) };
        assert!(line.contains(&format!("HUSK_NODE={wrong}")), "{line}");
        assert!(!work.join("made").exists(), "nothing has run");
    }
    let script = "
for node in 2 65536 4294967296 1x ''; do HUSK_NODE=$node touch \"made$node\"; echo $?; done
HUSK_NODE=1 touch good
";
    let work = scratch.fresh("work");
    let outcome = run(&scratch, &work, husk(&["--nodes", "2"], &["sh", "-c", script]));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "126\n".repeat(5), "{}", outcome.shown());
    let lines = said(&outcome);
    let refused = lines.iter().filter(|line| line.contains("HUSK_NODE is ")).count();
    assert_eq!(refused, 5, "one line each: {lines:?}");
    assert!(
        lines.iter().any(|line| line.ends_with("HUSK_NODE is 1x; set it to 0 to 1, or unset it"))
    );
    let made: Vec<_> = fs::read_dir(&work).expect("a directory").flatten().collect();
    assert_eq!(made.len(), 1, "only what names a node runs: {made:?}");
}

#[test]
fn a_write_back_that_somebody_was_killed_in_keeps_nothing_from_another_node() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-noted");
    let (work, state) = (scratch.fresh("work"), scratch.fresh("state"));
    let notes = state.join("husk/write-back");
    fs::create_dir_all(&notes).expect("a directory");
    fs::write(notes.join("somebody-s.manifest"), "{}").expect("a file");
    let mut command = husk(&["--nodes", "2"], &["sh", "-c", "HUSK_NODE=1 touch there"]);
    command.env("XDG_STATE_HOME", &state);
    let outcome = run(&scratch, &work, command);
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert!(work.join("there").exists());
}

/// A C project of so many files, whose Makefile compiles with `compiler`. The script `cc.sh` is one
/// that notes which region it has.
pub fn project(work: &Path, files: u32, compiler: &str) {
    let write = |name: &str, text: String| fs::write(work.join(name), text).expect("a file");
    fs::create_dir(work.join("src")).expect("a directory");
    let declared: String = (0..files).map(|n| format!("int f{n}(int);\n")).collect();
    write("src/all.h", format!("#include <stdio.h>\n#include <string.h>\n{declared}"));
    for n in 0..files {
        let body = format!("char b[64]; sprintf(b, \"%d\", x * {n} + 1); return (int)strlen(b);");
        write(
            &format!("src/f{n}.c"),
            format!("#include \"all.h\"\nint f{n}(int x) {{ {body} }}\n"),
        );
    }
    let calls: String = (0..files).map(|n| format!("s += f{n}({n});")).collect();
    let body = format!("int s = 0; {calls} printf(\"%d\\n\", s); return 0;");
    write("src/main.c", format!("#include \"all.h\"\nint main(void) {{ {body} }}\n"));
    write(
        "cc.sh",
        "head -c 26 /proc/self/environ | cut -d: -f3 >> \"$WHERE\"; exec cc \"$@\"\n".to_owned(),
    );
    let rules = "objects := $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))\n\
        all: build/program build/list\n\
        build/program: $(objects)\n\tCC -o $@ $^\n\t./$@ > build/said\n\
        build/%.o: src/%.c src/all.h | build\n\tCC -O1 -c -o $@ $<\n\
        build:\n\tmkdir -p build\n\
        build/list: $(objects)\n\tls build/*.o | sort > $@.new && mv $@.new $@ && echo x >> $@\n";
    write("Makefile", rules.replace("CC", compiler));
    age(work);
}

#[test]
fn make_runs_jobs_on_both_nodes_and_makes_what_it_makes_on_one() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-make");
    let mut made = Vec::new();
    for nodes in ["1", "2", "3"] {
        let work = scratch.fresh("work");
        project(&work, FILES, "sh cc.sh");
        let input = Tree::read(&work, None);
        let place = scratch.path().join(format!("where-{nodes}"));
        let mut command = husk(&["--nodes", nodes], &["make", "-j4", "-s"]);
        command.env("WHERE", &place);
        let outcome = run(&scratch, &work, command);
        assert!(outcome.status.success(), "{nodes}: {}", outcome.shown());
        assert!(said(&outcome).is_empty(), "{nodes}: {}", outcome.shown());
        let mut regions: Vec<_> =
            fs::read_to_string(&place).expect("jobs").lines().map(str::to_owned).collect();
        assert_eq!(regions.len(), FILES as usize + 2, "{nodes}: {regions:?}");
        regions.sort_unstable();
        regions.dedup();
        // Descriptors of regions of other nodes lie below that of the first. On a busy machine the
        // first of three may get none: others have more room.
        let expected = match nodes {
            "1" => 1..=1,
            "2" => 2..=2,
            _ => 1..=2,
        };
        assert!(expected.contains(&regions.len()), "{nodes} nodes: {regions:?}");
        made.push((Tree::read(&work, Some((outcome.started, outcome.ended))), input));
    }
    let [(one, _), others @ ..] = &made[..] else { panic!("three trees") };
    for (other, input) in others {
        assert_eq!(one.differences(other, input, &|_| false), Vec::<String>::new());
    }
}

/// On how many nodes the jobs of a build run.
fn spread(scratch: &Scratch, options: &[&str]) -> usize {
    let work = scratch.fresh("work");
    project(&work, FILES, "sh cc.sh");
    let place = scratch.path().join("where");
    let mut command = husk(options, &["make", "-j4", "-s"]);
    command.env("WHERE", &place);
    let outcome = run(scratch, &work, command);
    assert!(outcome.status.success(), "{}", outcome.shown());
    let text = fs::read_to_string(&place).expect("jobs");
    fs::remove_file(&place).expect("it was there");
    let mut regions: Vec<_> = text.lines().collect();
    regions.sort_unstable();
    regions.dedup();
    regions.len()
}

#[test]
fn policies_of_placement_hold_for_nodes() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-policies");
    for (policy, nodes) in [("stay", 1), ("random", 2), ("round-robin", 2)] {
        let on = spread(&scratch, &["--nodes", "2", "--place", policy]);
        assert_eq!(on, nodes, "{policy}");
    }
}

#[test]
fn random_sequences_of_file_calls_on_another_node_are_answered_as_linux_does() {
    let script = include_str!("../../programs/sources/conformance/sequence.py");
    for seed in ["1", "2", "3", "4", "5", "6"] {
        println!("seed {seed}");
        let argv = ["sh", "-c", ON_NODE_1, "sh", "python3", "-c", script, seed, "1500"];
        Case::new("nodes-sequence", Length::Once, &argv).options(&["--nodes", "2"]).check();
    }
}

#[test]
fn pipes_statuses_signals_directories_and_masks_go_over_nodes() {
    let script = "
seq 200000 | HUSK_NODE=1 sort -rn | head -3
HUSK_NODE=1 seq 100000 | HUSK_NODE=1 tail -1 | cat
HUSK_NODE=1 sh -c 'exit 7'; echo $?
HUSK_NODE=1 sh -c 'kill -TERM $$'; echo $?
mkdir -p deep/er; cd deep/er; umask 077
HUSK_NODE=1 sh -c 'pwd | sed s,.*deep,deep,; umask; echo x > private; cat private'
HUSK_NODE=1 sh -c 'cat <<X
here
X
exec 5<>gone; rm gone; echo unlinked >&5; wc -c </dev/fd/5'
HUSK_NODE=1 sh -c 'echo one >> log'; echo two >> log; HUSK_NODE=1 sh -c 'echo three >> log'
cat log; ls -l private | cut -c1-10
HUSK_NODE=1 sleep 300 & sleep 0.1; kill $!; wait $!; echo $?
printf '#!/bin/sh\\necho script $1\\n' > run.sh; chmod 755 run.sh; HUSK_NODE=1 ./run.sh a
";
    Case::new("nodes-pipes", Length::Once, &["bash", "-c", script])
        .options(&["--nodes", "2"])
        .check();
}

#[test]
fn what_another_node_does_not_serve_is_refused_with_an_errno() {
    if against_native() {
        return;
    }
    let script = "
import errno, mmap, os, socket
def told(what, call):
    try:
        call(); print(what, 'served')
    except OSError as error:
        print(what, errno.errorcode[error.errno])
fd = os.open('file', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 5000)
told('mkfifo', lambda: os.mkfifo('fifo'))
told('socket', lambda: socket.socket(socket.AF_UNIX).bind('socket'))
told('tmpfile', lambda: os.open('.', os.O_TMPFILE | os.O_RDWR))
told('private', lambda: mmap.mmap(fd, 5000, access=mmap.ACCESS_COPY))
print(bytes(mmap.mmap(fd, 5000, access=mmap.ACCESS_READ)) == b'x' * 5000)
";
    let scratch = Scratch::new("nodes-unserved");
    let work = scratch.fresh("work");
    let argv = ["sh", "-c", ON_NODE_1, "sh", "python3", "-c", script];
    let outcome = run(&scratch, &work, husk(&["--nodes", "2"], &argv));
    let expected = "mkfifo EPERM\nsocket EPERM\ntmpfile ENOTSUP\n\
        private served\nTrue\n";
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
}

/// What `husk nodes` lists of `run`.
pub fn nodes(scratch: &Scratch, run: &Run) -> Vec<Value> {
    let mut command = Command::new(binary());
    command.env("HUSK_IMAGES", images(scratch)).args(["nodes", "--json", &run.pid().to_string()]);
    let output = command.output().expect("husk nodes");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Where the images of a test are.
pub fn images(scratch: &Scratch) -> PathBuf {
    scratch.path().join("images")
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Children of `of` that call themselves `name`.
pub fn children(of: i32, name: &str) -> Vec<i32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let numbers = children.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    let called = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    numbers.filter(called).collect()
}

fn sleeper(scratch: &Scratch, nodes: &str) -> Run {
    let work = scratch.fresh("work");
    let argv = ["sh", "-c", "HUSK_NODE=1 sleep 1000 & wait"];
    let mut command = husk(&["--nodes", nodes, "--discard"], &argv);
    command.env("HUSK_IMAGES", images(scratch));
    Run::start(command, &work, scratch.path())
}

/// `husk nodes` says what the programs of each node use and ask of the first one.
#[test]
fn nodes_are_listed_with_their_load_and_their_requests() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-load");
    let work = scratch.fresh("work");
    let asks = "HUSK_NODE=1 exec perl -e 'while (1) { mkdir \"d\"; rmdir \"d\" }'";
    let mut command = husk(&["--nodes", "2", "--discard"], &["sh", "-c", asks]);
    command.env("HUSK_IMAGES", images(&scratch));
    let running = Run::start(command, &work, scratch.path());
    let rows = until("requests", || {
        let rows = nodes(&scratch, &running);
        let asked = rows.get(1).and_then(|row| row["requests"].as_u64());
        asked.is_some_and(|asked| asked > 10).then_some(rows)
    });
    let again = until("more of them, by a program that runs", || {
        let rows = nodes(&scratch, &running);
        let is_above = |name: &str| rows.get(1)?[name].as_f64().map(|value| value > 0.0);
        (is_above("requests_per_s")? && is_above("load")?).then_some(rows)
    });
    assert!(again[1]["requests"].as_u64() > rows[1]["requests"].as_u64(), "{again:?}");
    for row in [&rows[0], &again[0]] {
        assert_eq!(
            (row["requests"].as_u64(), row["requests_per_s"].as_f64()),
            (Some(0), Some(0.0))
        );
    }
    let mut table = Command::new(binary());
    table.env("HUSK_IMAGES", images(&scratch)).args(["nodes", &running.pid().to_string()]);
    let table = table.output().expect("husk nodes").stdout;
    let table = String::from_utf8_lossy(&table).into_owned();
    let asked = table.lines().nth(2).and_then(|line| line.split_ascii_whitespace().nth(7));
    assert!(asked.and_then(|asked| asked.parse::<u64>().ok()) > Some(10), "{table}");
    let program = again[1]["processes"][0].as_i64().expect("it runs") as i32;
    assert!(process::kill(program), "it ran until then");
    let outcome = running.wait(PATIENCE).expect("it ends");
    assert!(!outcome.status.success(), "{}", outcome.shown());
}

/// `husk ps` of a run shows all its programs, each once with its node, and no agent; `husk kill`
/// reaches those on another node.
fn processes_have_their_nodes(scratch: &Scratch, running: &Run) {
    let pid = running.pid().to_string();
    let told = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.env("HUSK_IMAGES", images(scratch)).args(arguments);
        command.output().expect("husk").stdout
    };
    let rows: Vec<Value> =
        serde_json::from_slice(&told(&["ps", "--json", &pid])).expect("a document");
    let mut found: Vec<_> =
        rows.iter().map(|row| (row["name"].as_str().expect("a name"), &row["node"])).collect();
    found.sort_unstable_by_key(|row| row.0);
    assert_eq!(found, [("sh", &Value::from(0)), ("sleep", &Value::from(1))], "{rows:?}");
    let table = String::from_utf8(told(&["ps", &pid])).expect("text");
    assert!(table.lines().next().is_some_and(|head| head.contains(" NODE ")), "{table}");
    let sleep = rows.iter().find(|row| row["name"] == "sleep").expect("it was there");
    told(&["kill", &pid, &sleep["pid"].to_string(), "-s", "KILL"]);
    // Its shell takes its status.
    let at_host = PathBuf::from(format!("/proc/{}", sleep["pid"]));
    until("the end of the program on node 1", || (!at_host.exists()).then_some(()));
}

#[test]
fn programs_of_two_nodes_share_the_offset_of_a_file_that_was_handed_down() {
    let script = "
exec 3>file
echo a >&3; HUSK_NODE=1 sh -c 'echo b >&3'; echo c >&3
(echo d; HUSK_NODE=1 sh -c 'echo e; HUSK_NODE=1 echo f') > grouped; cat grouped
exec 3<file
read x <&3; echo $x; HUSK_NODE=1 sh -c 'read x <&3; echo $x'; read x <&3; echo $x
(echo g; HUSK_NODE=1 sh -c 'echo h'; echo i) >> file; cat file
";
    Case::new("nodes-offset", Length::Once, &["bash", "-c", script])
        .options(&["--nodes", "2"])
        .check();
}

#[test]
fn each_node_is_listed_with_its_programs_and_an_image_of_one_starts_no_agent() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-listed");
    let running = sleeper(&scratch, "2");
    let rows = until("a program on node 1", || {
        let rows = nodes(&scratch, &running);
        let on = |node: usize| rows.get(node)?["processes"].as_array().map(Vec::len);
        (on(0) == Some(1) && on(1) == Some(1)).then_some(rows)
    });
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[1]["up"], true, "{rows:?}");
    assert_eq!(children(running.pid(), "husk: home").len(), 1);
    processes_have_their_nodes(&scratch, &running);
    process::kill(running.pid());
    drop(running);
    let single = sleeper(&scratch, "1");
    until("a program", || (!children(single.pid(), "sh").is_empty()).then_some(()));
    assert!(children(single.pid(), "husk: home").is_empty());
    // With its programs: they would outlive it.
    drop(single);
}

#[test]
fn an_agent_that_is_killed_is_replaced_and_a_build_goes_on() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-killed");
    let work = scratch.fresh("work");
    let script = "
for n in $(seq 300); do
    HUSK_NODE=1 sh -c \"test -e Makefile; cat a.txt > /dev/null; echo $n\" || exit 1
done";
    fs::write(work.join("a.txt"), "text\n").expect("a file");
    let mut running =
        Run::start(husk(&["--nodes", "2"], &["sh", "-c", script]), &work, scratch.path());
    let mut killed = 0;
    while killed < 5 && !running.ended() {
        for agent in children(running.pid(), "husk: home") {
            killed += u32::from(process::kill(agent));
        }
        std::thread::sleep(LOOK);
    }
    let outcome: Outcome = running.wait(PATIENCE * 2).expect("it ends");
    assert!(outcome.status.success() && killed > 0, "{killed}: {}", outcome.shown());
    assert_eq!(String::from_utf8_lossy(&outcome.stdout).lines().count(), 300);
}

/// Changes of names, bytes and attributes, each of which fails if it is made twice or not at all.
const CHANGES: &str = r#"
import os, sys
me, turns = sys.argv[1], int(sys.argv[2])
log = os.open("log", os.O_WRONLY | os.O_APPEND)
for n in range(turns):
    d, f, g = (f"{me}.{what}" for what in "dfg")
    os.mkdir(d)
    made = os.open(d + "/" + f, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o400)
    assert os.write(made, b"x" * 10000) == 10000
    os.close(made)
    os.link(d + "/" + f, g)
    os.rename(g, d + "/" + g)
    os.chmod(d + "/" + f, 0o600)
    os.truncate(d + "/" + f, 9000)
    os.setxattr(d + "/" + g, "user.n", str(n).encode(), os.XATTR_CREATE)
    cut = os.open(d + "/" + g, os.O_TRUNC | os.O_WRONLY)
    os.close(cut)
    assert os.stat(d + "/" + f).st_nlink == 2
    os.symlink("to", g)
    os.unlink(g)
    os.unlink(d + "/" + f)
    os.unlink(d + "/" + g)
    os.rmdir(d)
    line = f"{me} {n}\n".encode()
    assert os.write(log, line) == len(line)
"#;

#[test]
fn each_change_is_made_once_whenever_the_agent_is_killed() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-once");
    let work = scratch.fresh("work");
    fs::write(work.join("changes.py"), CHANGES).expect("a file");
    let script = "
: > log
for me in a b c; do HUSK_NODE=1 python3 changes.py $me 300 & all=\"$all $!\"; done
for one in $all; do wait $one || exit 1; done
sort log | uniq -c | awk '$1 != 1' >&2; wc -l < log; ls";
    let mut running =
        Run::start(husk(&["--nodes", "2"], &["bash", "-c", script]), &work, scratch.path());
    let mut killed = 0;
    while killed < AGENTS && !running.ended() {
        for agent in children(running.pid(), "husk: home") {
            killed += u32::from(process::kill(agent));
        }
        std::thread::sleep(LOOK * 2);
    }
    let outcome: Outcome = running.wait(PATIENCE * 2).expect("it ends");
    assert!(outcome.status.success() && killed > 4, "{killed}: {}", outcome.shown());
    let seen = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(seen, "900\nchanges.py\nlog\n", "{killed}: {}", outcome.shown());
}

/// Names, attributes and bytes of the home's files are looked at in its memory, without a message:
/// they are there while the agent, which answers messages, is stopped.
#[test]
fn who_only_looks_needs_no_agent_of_the_home() {
    if against_native() {
        return;
    }
    let script = "
mkdir dir; echo two lines > file; echo of bytes >> file; ln -s file link; mkfifo \"$0/go\"
touch -d @1000 file; exec 3<file 4<>\"$0/go\"; read -r line <&3; echo \"$line\" > \"$0/begun\"
read -r line <&4
[ -d dir ] && [ -L link ] && [ -f link ] && [ ! -e none ] && [ -s file ] && [ ! -w dir/none ] &&
    read -r line <&3 && echo \"$line\" > \"$0/seen\"
read -r line <&4";
    beside_a_stopped_agent("nodes-looks", script, "two lines\n", "of bytes\n");
}

/// Short requests are asked in memory: where the agent's socket is gone, who has asked before goes
/// on, and is answered.
#[test]
fn requests_are_asked_in_memory_and_not_by_the_socket() {
    if against_native() {
        return;
    }
    let script = r#"
begins='my ($told) = @ARGV; sub say { open F, ">", "$told/$_[0]"; print F $_[1]; close F }
sub made { open F, ">", $_[0] or die $!; print F $_[1]; close F or die $! }
open GO, "+<", "$told/go"; made("first", "one"); say("begun", "begun\n"); my $line = <GO>;
mkdir "dir" or die $!; made("dir/file", "two"); rename "dir/file", "moved" or die $!;
chmod 0600, "moved"; unlink "first" or die $!; symlink "moved", "link" or die $!;
utime 7, 7, "moved"; my @facts = stat "link"; open F, "<", "link"; my $text = <F>;
say("seen", sprintf("%o %d %s\n", $facts[2], $facts[9], $text)); $line = <GO>'
mkfifo "$0/go"; exec perl -e "$begins" "$0""#;
    let away = |socket: &Path| {
        fs::rename(socket, socket.with_extension("away")).expect("nobody else moves it");
    };
    let back = |socket: &Path| {
        fs::rename(socket.with_extension("away"), socket).expect("nobody else moves it");
    };
    let socket = std::cell::OnceCell::new();
    let seen = "100600 7 two\n";
    beside_an_agent(
        ("nodes-slots", ""),
        script,
        ("begun\n", seen),
        &|agent| {
            let path = socket.get_or_init(|| socket_of(agent));
            away(path);
        },
        &|_| back(socket.get().expect("it was moved")),
    );
}

/// Where the process listens that has its socket as standard output.
pub fn socket_of(agent: i32) -> PathBuf {
    let open = fs::read_link(format!("/proc/{agent}/fd/1")).expect("its socket");
    let open = open.to_string_lossy().into_owned();
    let inode = open.trim_start_matches("socket:[").trim_end_matches(']');
    let all = fs::read_to_string("/proc/net/unix").expect("all sockets");
    let of = |line: &str| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        (words.get(6) == Some(&inode)).then(|| words.get(7).map(PathBuf::from)).flatten()
    };
    all.lines().find_map(of).expect("a path")
}

/// A script on the second node, which gets a directory outside the image: there it says first what
/// has `begun`, then, while the agent of the home is stopped, what it has `seen`. It reads a line
/// of its FIFO `go` before each next step.
pub fn beside_a_stopped_agent(name: &str, script: &str, begun: &str, seen_then: &str) -> Outcome {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = |agent, signal| {
        kill_process(Pid::from_raw(agent).expect("a number"), signal).expect("it lives");
    };
    let stop = |agent| signal(agent, Signal::STOP);
    let go_on = |agent| signal(agent, Signal::CONT);
    beside_an_agent((name, ""), script, (begun, seen_then), &stop, &go_on)
}

/// The same in an image `without` a technique, where `begin` and `end` do something to the agent.
pub fn beside_an_agent(
    (name, without): (&str, &str),
    script: &str,
    (begun, seen_then): (&str, &str),
    begin: &dyn Fn(i32),
    end: &dyn Fn(i32),
) -> Outcome {
    let scratch = Scratch::new(name);
    let work = scratch.fresh("work");
    // Outside the image.
    let told = scratch.fresh("told");
    let path = told.to_str().expect("a plain path");
    let argv = ["sh", "-c", "HUSK_NODE=1 exec bash -c \"$0\" \"$1\"", script, path];
    let mut command = husk(&["--nodes", "2"], &argv);
    command.env("HUSK_WITHOUT", without);
    let running = Run::start(command, &work, scratch.path());
    let said =
        |name: &str| fs::read_to_string(told.join(name)).ok().filter(|text| !text.is_empty());
    assert_eq!(until("the first line", || said("begun")), begun);
    let agents = children(running.pid(), "husk: home");
    let [agent] = agents[..] else { panic!("one agent: {agents:?}") };
    begin(agent);
    fs::write(told.join("go"), "\n").expect("it is read");
    let seen = until("what is seen", || said("seen"));
    end(agent);
    fs::write(told.join("go"), "\n").expect("it is read");
    assert_eq!(seen, seen_then);
    let outcome = running.wait(PATIENCE).expect("it ends");
    assert!(outcome.status.success(), "{}", outcome.shown());
    outcome
}

/// Makes changes by turns on both nodes: whoever is told by a pipe sees what the other one sees.
const TOLD: &str = r#"
import os, subprocess, sys
ROUNDS = 400
def state():
    found = []
    for name in ("a", "b", "dir/c", "dir"):
        try: s = os.lstat(name); found.append((name, oct(s.st_mode), s.st_size, s.st_nlink))
        except FileNotFoundError: found.append((name, None))
    names = sorted(os.listdir("dir")) if os.path.isdir("dir") else None
    try:
        with open("a", "rb") as file: text = file.read()
    except FileNotFoundError: text = None
    return repr((found, names, text, os.readlink("link") if os.path.islink("link") else None))
def write(name, how, text):
    with open(name, how) as file: file.write(text)
def change(n):
    step = n // 2 % 10
    if step == 0: write("a", "w", str(n))
    if step == 1: os.chmod("a", 0o600 | n & 0o77)
    if step == 2: os.rename("a", "b") if n % 2 == 0 else os.rename("b", "a")
    if step == 3: os.link("a", "b") if n % 2 == 0 else write("a", "a", "one")
    if step == 4: write("a", "a", "x" * n)
    if step == 5: os.mkdir("dir") if n % 2 == 0 else write("dir/c", "w", "c")
    if step == 6: os.rename("dir/c", "c") if n % 2 == 0 else os.symlink("c%d" % n, "link")
    if step == 7: os.truncate("b", n % 7)
    if step == 8: os.unlink("c") if n % 2 == 0 else os.unlink("link")
    if step == 9: os.rmdir("dir") if n % 2 == 0 else (os.unlink("a"), os.unlink("b"))
def turn(mine, tell, hear):
    for n in range(ROUNDS):
        if n % 2 == mine:
            change(n)
            tell.write(state() + "\n"); tell.flush()
            assert hear.readline() == "same\n", n
        else:
            there, here = hear.readline(), state() + "\n"
            tell.write("same\n" if here == there else "other\n"); tell.flush()
            assert here == there, (n, here, there)
if len(sys.argv) > 1:
    turn(1, sys.stdout, sys.stdin)
else:
    other = subprocess.Popen([sys.executable, "-c", os.environ["SCRIPT"], "1"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "HUSK_NODE": "1"})
    turn(0, other.stdin, other.stdout)
    print(other.wait())
"#;

#[test]
fn a_change_is_seen_on_the_other_node_by_who_is_told_of_it() {
    let shell = "SCRIPT=$0 exec python3 -c \"$0\"";
    Case::new("nodes-told", Length::Once, &["sh", "-c", shell, TOLD])
        .options(&["--nodes", "2"])
        .check();
}

/// What `husk ls` says of the image `name`.
pub fn listed(scratch: &Scratch, name: &Value) -> Option<Value> {
    let mut command = Command::new(binary());
    command.env("HUSK_IMAGES", images(scratch)).args(["ls", "--json"]);
    let output = command.output().expect("husk ls");
    let all: Value = serde_json::from_slice(&output.stdout).expect("a document");
    all.as_array()?.iter().find(|row| row["name"] == *name).cloned()
}

#[test]
fn a_node_that_is_killed_ends_its_programs_for_their_parents_and_the_rest_goes_on() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-death");
    let work = scratch.fresh("work");
    let script = "
echo before > kept
HUSK_NODE=1 sh -c 'echo there > made; exec sleep 1000'; echo $?
HUSK_NODE=1 /usr/bin/true; echo $?
sh -c 'cat made kept; echo after >> kept'; cat kept; mv made moved; ls";
    let mut command = husk(&["--nodes", "2"], &["sh", "-c", script]);
    command.env("HUSK_IMAGES", images(&scratch));
    let running = Run::start(command, &work, scratch.path());
    let (image, program) = until("a program on node 1", || {
        let rows = nodes(&scratch, &running);
        let row = rows.get(1)?;
        let program = row["processes"].as_array()?.first()?.as_i64()? as i32;
        let name = fs::read_to_string(format!("/proc/{program}/comm")).ok()?;
        (name.trim_end() == "sleep").then_some((row["image"].clone(), program))
    });
    let row = listed(&scratch, &image).expect("node 1 is listed");
    // Each would start the other again; one that is stopped does not.
    let supervisor = rustix::process::Pid::from_raw(row["pid"].as_i64().expect("a number") as i32);
    let stop = rustix::process::Signal::STOP;
    rustix::process::kill_process(supervisor.expect("a number"), stop).expect("it lives");
    for who in [&row["keeper"], &row["pid"]] {
        process::kill(who.as_i64().expect("a number") as i32);
    }
    process::kill(program);
    let outcome: Outcome = running.wait(PATIENCE).expect("it ends");
    assert!(outcome.status.success(), "{}", outcome.shown());
    let expected = "137\n126\nthere\nbefore\nbefore\nafter\nkept\nmoved\n";
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
    // What was asked for by name does not run elsewhere instead.
    let line = "husk: cannot run /usr/bin/true on node 1: it has ended or does not answer";
    let lines = said(&outcome);
    assert_eq!(lines.iter().filter(|said| said.starts_with(line)).count(), 1, "{lines:?}");
    assert_eq!(fs::read_to_string(work.join("kept")).expect("a file"), "before\nafter\n");
    assert_eq!(listed(&scratch, &image), None);
}

#[test]
fn the_other_nodes_end_with_a_run_that_is_killed() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-orphaned");
    let running = sleeper(&scratch, "2");
    let image = until("node 1", || {
        let rows = nodes(&scratch, &running);
        let up = rows.get(1).filter(|row| row["up"] == true)?;
        Some(up["image"].as_str()?.to_owned())
    });
    process::kill(running.pid());
    // Nobody will ask how it ended: nothing stays in the list.
    let image = Value::from(image);
    until("the end of node 1", || listed(&scratch, &image).is_none().then_some(()));
}

/// Jobs of three makes below one, of which two run on node 1, note when they begin and end.
#[test]
fn a_jobserver_hands_out_its_jobs_over_nodes() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("nodes-jobserver");
    let work = scratch.fresh("work");
    let whole = "all: a b c\na: ; +HUSK_NODE=1 $(MAKE) -f jobs N=a\n\
        b: ; +HUSK_NODE=0 $(MAKE) -f jobs N=b\nc: ; +HUSK_NODE=1 $(MAKE) -f jobs N=c\n";
    let jobs = "all: $(foreach n,1 2 3 4 5 6,job$(N)$(n))\n\
        job%: ; @echo begin $@ >> log; sleep 0.1; echo end $@ >> log\n";
    fs::write(work.join("Makefile"), whole).expect("a file");
    fs::write(work.join("jobs"), jobs).expect("a file");
    let outcome = run(&scratch, &work, husk(&["--nodes", "2"], &["make", "-s", "-j3"]));
    assert!(outcome.status.success(), "{}", outcome.shown());
    assert!(!outcome.stderr.contains("jobserver unavailable"), "{}", outcome.shown());
    let log = fs::read_to_string(work.join("log")).expect("written back");
    let (mut running, mut most) = (0, 0);
    for line in log.lines() {
        running += if line.starts_with("begin") { 1 } else { -1 };
        most = most.max(running);
    }
    assert_eq!((log.lines().count(), running), (36, 0), "{log}");
    // Each make below has a token of its own beside those that are handed out: never more.
    assert!((2..=3).contains(&most), "{most} at once: {log}");
}
