//! A command that `husk exec` starts is its caller's, as if the caller had started it itself.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;

use crate::{Images, shown, text, until};

/// What a process was given by who started it. Its status is read at once: `read` goes back to the
/// end of each line, and a line is lost where one before it has become shorter meanwhile, as that
/// of the queued signals (`SigQ`), which counts those of all processes of the user.
const GIVEN: &str = r#"
echo "in $(pwd) mask $(umask) files $(ulimit -n) core $(ulimit -c) size $(ulimit -f) A=$A"
mapfile -t lines < /proc/self/status
for line in "${lines[@]}"; do case $line in
    Sig[BI]*) echo "${line%%:*} $((0x${line##*[[:space:]]} & 0x7fffffff))";; esac; done
read -r _ _ _ _ group session terminal _ < /proc/self/stat
echo "group $group session $session terminal $terminal"
for fd in 0 1 2 3 4 7 63 64 200; do if [ -e /proc/self/fd/$fd ]; then echo "$fd is open"; fi; done
cat
exit 7
"#;

/// Odd circumstances, each set by a shell that then becomes the command.
const CIRCUMSTANCES: &[&str] = &[
    "true",
    "umask 077; ulimit -c 0; ulimit -n 200; export A='x y'",
    "trap '' PIPE INT; cd sub",
    "ulimit -f 4096; exec 3< /dev/null 7> /dev/null",
    "exec 63< /dev/null 64< /dev/null 200< /dev/null",
    "exec 0<&-",
    "umask 0777",
];

/// `husk exec`, as it is understood before the C library has started, and as only the whole command
/// understands it.
const NARROW: &[&str] = &["exec", "ci", "--"];
const LONG: &[&str] = &["exec", "--", "ci"];

/// The call by which it becomes the runtime without another exec, where the host has that.
const SETTLED: &str = "prctl(PR_SET_MM, PR_SET_MM_MAP,";

/// Runs `prelude` in a shell that then becomes `husk WAY ARGV`, or ARGV itself.
fn started(images: &Images, way: Option<&[&str]>, prelude: &str, argv: &[&str]) -> Output {
    let script = format!("{prelude}; exec \"$@\"");
    let mut words = vec!["-c", &script, "bash"];
    if let Some(way) = way {
        words.push(binary().to_str().expect("a plain path"));
        words.extend(way);
    }
    words.extend(argv);
    let mut command = images.command("bash", &words);
    command.stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
    let mut input = child.stdin.take().expect("a pipe");
    // Who has closed it does not read.
    let _ = std::io::Write::write_all(&mut input, b"typed\n");
    drop(input);
    child.wait_with_output().expect("its output")
}

#[test]
fn a_command_has_what_its_caller_gave_it() {
    if against_native() {
        return;
    }
    let images = Images::new("given");
    std::fs::create_dir(images.work.join("sub")).expect("a directory");
    images.up("ci");
    for prelude in CIRCUMSTANCES {
        let of = |way| started(&images, way, prelude, &["bash", "-c", GIVEN]);
        let native = of(None);
        let lines = |output: &Output| -> Vec<String> {
            let text = text(&output.stdout);
            // Each `timeout` has a group of its own.
            text.lines().filter(|line| !line.starts_with("group")).map(str::to_owned).collect()
        };
        for way in [NARROW, LONG] {
            let tested = of(Some(way));
            assert_eq!(lines(&tested), lines(&native), "{prelude} {way:?}\n{}", shown(&tested));
            assert_eq!(native.status.code(), tested.status.code(), "{prelude} {way:?}");
        }
    }
    images.down("ci");
}

/// Questions to the processor, which a start of the C library asks, cost a virtual machine more
/// than all else that `husk exec` does.
#[test]
fn a_command_is_started_before_the_c_library_of_husk_is() {
    if against_native() {
        return;
    }
    let images = Images::new("narrow");
    images.up("ci");
    let calls = |way: &[&str], prelude: &str| {
        let log = images.work.join("calls");
        let husk = binary().to_str().expect("a plain path");
        let traced = format!("{prelude}; exec strace -o {} \"$@\"", log.display());
        let words = [&["-c", &traced, "bash", husk], way, &["true"]].concat();
        let output = images.command("bash", &words).output().expect("bash starts");
        assert!(output.status.success(), "{}", shown(&output));
        let text = std::fs::read_to_string(log).expect("the calls");
        let (settled, executed) = (text.find(SETTLED), text.find("execve(\"/proc/self/fd/"));
        let end = settled.or(executed).expect("it becomes the runtime");
        (text[..end].to_owned(), executed.is_some())
    };
    let of_the_c_library = |calls: &str| calls.contains("arch_prctl") || calls.contains("brk(0x");
    for prelude in ["true", "exec 20< /dev/null 300> /dev/null 21<&0"] {
        let (narrow, executed) = calls(NARROW, prelude);
        assert!(!of_the_c_library(&narrow) && !executed, "{prelude}: {narrow}");
    }
    let (long, executed) = calls(LONG, "true");
    assert!(of_the_c_library(&long) && executed, "{long}");
    // Too many descriptors, or a directory whose name is not plain: the whole command does it.
    for prelude in [
        "for n in {20..99}; do eval \"exec $n< /dev/null\"; done",
        "mkdir -p 'odd\"name'; cd 'odd\"name'",
    ] {
        let (turned, _) = calls(NARROW, prelude);
        assert!(turned.contains("recvmsg") && of_the_c_library(&turned), "{prelude}: {turned}");
    }
    images.down("ci");
}

/// Where the narrow way puts the runtime in its own place, nothing of it is left.
#[test]
fn a_command_finds_the_memory_that_an_exec_leaves() {
    if against_native() {
        return;
    }
    let images = Images::new("settled");
    images.up("ci");
    // As another process sees it: its own are shown without the runtime.
    let maps = |way: &[&str]| {
        let output = images.husk(&[way, &["sh", "-c", "cat /proc/$$/maps; :"]].concat());
        assert!(output.status.success(), "{}", shown(&output));
        text(&output.stdout)
    };
    // Addresses of the runtime, kinds of what lies at random places.
    let kept = |maps: &str| -> Vec<String> {
        let all = maps.lines().filter_map(|line| {
            let mut parts = line.split_whitespace();
            let (range, rights, name) = (parts.next()?, parts.next()?, parts.nth(3)?);
            match name {
                "/memfd:husk-runtime" => Some(format!("{range} {rights} {name}")),
                "[heap]" | "[stack]" | "[vdso]" => Some(format!("{rights} {name}")),
                _ => None,
            }
        });
        all.collect()
    };
    let (narrow, long) = (maps(NARROW), maps(LONG));
    assert_eq!(kept(&narrow), kept(&long), "{narrow}\n{long}");
    assert!(kept(&narrow).len() >= 3, "{narrow}");
    let husk = std::fs::canonicalize(binary()).expect("its path");
    let husk = husk.to_str().expect("a plain path");
    assert!(!narrow.contains(husk) && !narrow.contains("rwxp"), "{narrow}");
    let address = |of: &str| {
        let line = narrow.lines().find(|line| line.contains(of)).expect("it is mapped");
        u64::from_str_radix(line.split('-').next().expect("an address"), 16).expect("hexadecimal")
    };
    let apart = address("[heap]").checked_sub(address("r-xp")).expect("it lies behind the runtime");
    assert!(apart < 2 << 30, "{narrow}");
    // Who looks from outside sees the command, and its variables.
    // Without `timeout`, which would be another process.
    let mut command = Command::new(binary());
    command.args(NARROW).args(["sleep", "1000"]);
    command.env("HUSK_IMAGES", images.all()).env("TOLD", "x");
    let mut sleeper = command.spawn().expect("husk");
    let seen = |file: &str| {
        let path = format!("/proc/{}/{file}", sleeper.id());
        std::fs::read_to_string(path).unwrap_or_default()
    };
    until("it is called what it is", || seen("comm") == "sleep\n");
    assert_eq!(seen("cmdline"), ["sleep", "1000", ""].join("\0"));
    let variables = seen("environ");
    assert!(variables.split('\0').any(|entry| entry == "TOLD=x"), "{variables}");
    assert!(!variables.contains("HUSK_EXEC"), "{variables}");
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("its end");
    images.down("ci");
}

#[test]
fn a_command_ends_as_it_ends_and_mistakes_have_their_statuses() {
    if against_native() {
        return;
    }
    let images = Images::new("statuses");
    let hidden = std::path::Path::new("/tmp").join(format!("husk-hidden-{}", std::process::id()));
    let removed = images.work.join("removed");
    for path in [&hidden, &removed] {
        std::fs::copy("/bin/true", path).expect("a program");
    }
    images.up("ci");
    let of = |argv: &[&str]| {
        let argv: Vec<_> = ["exec", "ci", "--"].into_iter().chain(argv.iter().copied()).collect();
        images.husk(&argv)
    };
    assert_eq!(of(&["true"]).status.code(), Some(0));
    assert_eq!(of(&["sh", "-c", "exit 42"]).status.code(), Some(42));
    let husk = binary().to_str().expect("a plain path");
    for (signal, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        // Without `timeout`, which translates.
        let mut command = Command::new(husk);
        command.args(["exec", "ci", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        let status = command.env("HUSK_IMAGES", images.all()).status().expect("it starts");
        assert_eq!(status.signal(), Some(number), "{signal}");
    }
    images.script("ci", "echo '#!/bin/sh' > plain; echo 'echo made' > made; chmod +x made");
    for (program, status, why) in [
        ("no-such-program", 127, "not found in PATH"),
        ("./absent", 127, "no such file"),
        ("./plain", 126, "permission denied"),
        ("/", 126, "permission denied"),
        ("", 127, "the name is empty"),
        ("make -j2", 127, "leave out the quotes"),
        ("./absent -x", 127, "leave out the quotes"),
    ] {
        let said = crate::refusal(&of(&[program]), status);
        assert!(said.contains(why), "{program}: {said}");
        // In the words of `husk run`, which sees what the host has.
        if status == 127 {
            assert_eq!(images.refused(&["run", "--memory", "64M", "--", program], 127), said);
        }
    }
    // One that only the host has, behind the image's own /tmp, and where the image has removed it.
    images.script("ci", "rm removed");
    for path in [&hidden, &removed] {
        let path = path.to_str().expect("a plain path");
        let said = crate::refusal(&of(&[path]), 127);
        assert!(said.contains("on the host, but not in the image") && said.contains("husk cp"));
    }
    std::fs::remove_file(&hidden).expect("it is the host's");
    // A program that is in the image alone.
    images.script("ci", "sed -i '1i #!/bin/sh' made");
    assert_eq!(text(&of(&["./made"]).stdout), "made\n");
    images.down("ci");
}

#[test]
fn a_set_user_id_program_runs_natively_with_a_note() {
    if against_native() {
        return;
    }
    let images = Images::new("exec-setuid");
    images.up("ci");
    let output = images.husk(&["exec", "ci", "--", "/bin/su", "--version"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(text(&output.stderr).contains("runs natively, outside the image"), "{output:?}");
    images.down("ci");
}

/// What a script of Python says, which is given these words.
fn said_by(images: &Images, script: &str, words: &[&str]) -> String {
    let argv: Vec<_> = ["-c", script].into_iter().chain(words.iter().copied()).collect();
    let output = images.command("python3", &argv).output().expect("python3 starts");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

#[test]
fn jobs_of_a_shell_stop_go_on_and_end_by_keys() {
    if against_native() {
        return;
    }
    let images = Images::new("jobs");
    images.up("ci");
    let script = include_str!("../sources/jobs.py");
    let husk = binary().to_str().expect("a plain path");
    let of = |prefix: &[&str]| said_by(&images, script, prefix);
    let native = of(&[]);
    assert!(native.contains("Stopped") && native.contains("status 130"), "{native}");
    assert_eq!(of(&[husk, "exec", "ci", "--"]), native);
    images.down("ci");
}

#[test]
fn a_suspended_shell_of_a_run_goes_back_to_the_shell_that_started_it() {
    if against_native() {
        return;
    }
    let images = Images::new("suspended");
    let script = include_str!("../sources/suspend.py");
    let husk = binary().to_str().expect("a plain path");
    let of = |prefix: &[&str]| said_by(&images, script, prefix);
    let native = of(&[]);
    assert!(native.contains("'back', '2'") && native.contains("148"), "{native}");
    assert_eq!(of(&[husk, "run", "--discard", "--"]), native);
}

#[test]
fn the_terminal_and_its_keys_are_the_commands() {
    if against_native() {
        return;
    }
    let images = Images::new("terminal");
    images.up("ci");
    let script = include_str!("../sources/terminal.py");
    let husk = binary().to_str().expect("a plain path");
    let of = |prefix: &[&str]| said_by(&images, script, prefix);
    let native = of(&[]);
    assert!(native.contains("INT") && native.contains("WINCH") && native.contains("exit 5"));
    assert_eq!(of(&[husk, "exec", "ci", "--"]), native);
    images.down("ci");
}

#[test]
fn programs_talk_to_each_other_in_an_image() {
    if against_native() {
        return;
    }
    let images = Images::new("talk");
    images.up("ci");
    images.script("ci", "mkfifo fifo");
    let husk = binary().to_str().expect("a plain path");
    let script = "\"$0\" exec ci -- sh -c 'echo over > fifo' & \"$0\" exec ci -- cat fifo; wait";
    let output = images.command("bash", &["-c", script, husk]).output().expect("bash");
    assert_eq!(text(&output.stdout), "over\n", "{}", shown(&output));
    // Locks hold between commands that were started apart.
    let script = "\"$0\" exec ci -- flock lock sh -c 'echo held > told; read -r _ < fifo' &
        until \"$0\" exec ci -- test -s told; do :; done
        \"$0\" exec ci -- flock -n lock true; echo $?
        \"$0\" exec ci -- sh -c 'echo > fifo'; wait";
    let output = images.command("bash", &["-c", script, husk]).output().expect("bash");
    assert_eq!(text(&output.stdout), "1\n", "{}", shown(&output));
    images.down("ci");
}

/// Whoever runs `husk exec` has no limit of cores: the host would make one, in its own directory.
#[test]
fn a_program_that_crashes_leaves_its_core_in_the_image_and_none_on_the_host() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
    let plain = !pattern.starts_with(['|', '@']) && !pattern.contains('/');
    let most = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    if against_native() || !plain || most.is_some_and(|bytes| bytes < 1 << 30) {
        return;
    }
    let images = Images::new("joins-core");
    images.up("ci");
    let script = "ulimit -S -c unlimited; \"$HUSK\" exec ci -- sh -c 'kill -ABRT $$'; echo $?; ls";
    let mut command = images.command("bash", &["-c", script]);
    let output = command.env("HUSK", husk_tests::husk::binary()).output().expect("bash");
    assert_eq!(text(&output.stdout), "134\n", "{}", shown(&output));
    let look = "ls | wc -l; head -c 4 core* | tail -c 3";
    assert_eq!(images.script("ci", look), "1\nELF");
    images.done(&["down", "ci", "--discard"]);
    assert_eq!(std::fs::read_dir(&images.work).expect("a directory").count(), 0);
}
