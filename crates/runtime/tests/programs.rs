//! Real programs under the runtime alone do what they do on Linux.

mod support;

use std::process::Command;
use support::{compiled, finish, same, scratch, status, under_runtime};

/// Longest run of one program, seconds.
const LIMIT_S: u64 = 60;

#[test]
fn shells_pipe_substitute_trap_and_control_jobs() {
    let script = r#"
        echo one | cat; x=$(echo two); echo $x; (echo three; exit 3); echo $?
        trap 'echo trapped' USR1; kill -USR1 $$; cat <<< four
        sleep 5 & kill %1; wait %1; echo $?
        for i in 1 2 3 4 5; do echo $i; done | sort -r | head -2
        set -m; { true & wait; } 2> /dev/null; exec sh -c 'echo five; exit 9'
    "#;
    same(&["/bin/bash", "-c", script], LIMIT_S);
}

#[test]
fn compilers_start_their_passes_and_link() {
    let out = scratch().join("by-gcc");
    let source = scratch().join("seven.c");
    std::fs::write(&source, "int main(void) { return 7; }\n").expect("writes");
    let (out, source) = (out.to_str().expect("text"), source.to_str().expect("text"));
    let built = finish(under_runtime(&["gcc", "-O2", "-o", out, source]), LIMIT_S);
    assert_eq!(status(&built), 0, "{}", String::from_utf8_lossy(&built.stderr));
    assert_eq!(status(&finish(under_runtime(&[out]), LIMIT_S)), 7);
}

#[test]
fn signals_hold_what_linux_promises() {
    let program = compiled("storm");
    same(&[program.to_str().expect("text")], LIMIT_S);
}

#[test]
fn every_shape_of_clone_and_exec_works() {
    let program = compiled("shapes");
    let output = finish(under_runtime(&[program.to_str().expect("text"), "ours"]), LIMIT_S);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    assert_eq!(status(&output), 0);
}

#[test]
fn python_runs_threads_children_and_timers() {
    let script = r#"
import subprocess, threading, signal, time, os
print(subprocess.run(["echo", "sub"], capture_output=True).stdout)
done = []
threads = [threading.Thread(target=lambda i=i: done.append(i)) for i in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(done))
hits = []
signal.signal(signal.SIGALRM, lambda *a: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
end = time.time() + 20
while len(hits) < 10 and time.time() < end: time.sleep(0.05)
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(hits) >= 10, os.system("exit 3") >> 8)
print(subprocess.run("kill -9 $$", shell=True).returncode)
"#;
    same(&["/usr/bin/python3", "-c", script], LIMIT_S);
}

#[test]
fn scripts_find_their_interpreters() {
    use std::os::unix::fs::PermissionsExt;
    let inner = scratch().join("inner.sh");
    let outer = scratch().join("outer.sh");
    let write = |path: &std::path::Path, text: String| {
        std::fs::write(path, text).expect("writes");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("mode");
    };
    write(&inner, "#!/bin/sh -e\necho \"$@\"\n".into());
    write(&outer, format!("#!{} two words\n", inner.display()));
    let run = format!("{} three", outer.display());
    same(&["/bin/sh", "-c", &run], LIMIT_S);
    let direct = finish(under_runtime(&[outer.to_str().expect("text"), "three"]), LIMIT_S);
    let expected = format!("two words {} three\n", outer.display());
    assert_eq!(String::from_utf8_lossy(&direct.stdout), expected);
}

#[test]
fn what_cannot_start_says_so_in_one_line() {
    let cut = scratch().join("cut");
    let text = scratch().join("text");
    let program = std::fs::read("/bin/true").expect("reads");
    std::fs::write(&cut, &program[..100]).expect("writes");
    std::fs::write(&text, "x\n").expect("writes");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&cut, PermissionsExt::from_mode(0o755)).expect("mode");
    let cases = [("nosuchprogram", 127), ("/nowhere/x", 127), ("/tmp", 126)];
    let files = [(cut.to_str().expect("text"), 126), (text.to_str().expect("text"), 126)];
    for (name, expected) in cases.into_iter().chain(files) {
        let output = finish(under_runtime(&[name]), LIMIT_S);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), expected, "{name}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("husk: ") && message.contains(name), "{message}");
    }
}

#[test]
fn without_a_hand_over_it_explains_itself() {
    let mut bare = Command::new(support::runtime());
    bare.env_clear();
    let output = finish(bare, LIMIT_S);
    assert_eq!(status(&output), 125);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}
