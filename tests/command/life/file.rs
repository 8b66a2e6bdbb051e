//! The command is one file that needs no other.

use std::fs;
use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Scratch, against_native};

use crate::run;

/// Functions of the C library that look for modules of its own at run time: in a static program
/// they would need the very version it was built with.
const BY_MODULES: [&str; 6] =
    ["getaddrinfo", "getpwnam_r", "getpwuid_r", "getgrgid_r", "gethostbyname_r", "initgroups"];

/// What `program ARGUMENTS` says of the command, on either output.
fn said_of_the_command(program: &str, arguments: &[&str]) -> String {
    let mut asked = Command::new(program);
    let told = asked.args(arguments).arg(binary()).output().expect("it is there");
    String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned()
}

#[test]
fn the_command_needs_no_shared_library() {
    let told = said_of_the_command("ldd", &[]);
    assert!(told.contains("not a dynamic executable"), "{told}");
    let told = said_of_the_command("readelf", &["--program-headers"]);
    assert!(told.contains("LOAD") && !told.contains("INTERP"), "{told}");
}

#[test]
fn the_command_asks_nothing_that_the_c_library_has_modules_for() {
    let told = said_of_the_command("nm", &["--defined-only"]);
    let defined: Vec<&str> = told.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert!(defined.contains(&"main"), "these are not its symbols: {told}");
    for name in BY_MODULES {
        assert!(!defined.contains(&name), "{name} is in the command");
    }
}

/// A host with nothing on it but a program: no shell, no library, no configuration, no /etc.
const ALONE: &str = r#"
cd "$ROOT"; mkdir proc dev tmp tree
mount --rbind /proc proc; mount --rbind /dev dev
in_it() { env -i /usr/sbin/chroot . "$@"; }
in_it /husk --version > /dev/null
in_it /husk check > /dev/null
in_it /husk run --memory 64M --overlay /tree -- /program run
in_it /husk up ci --memory 64M --overlay /tree
in_it /husk exec ci -- /program exec
in_it /husk cp ci:/tree/exec /copied
in_it /husk down ci
cat tree/run tree/exec copied; ls tree
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int count, char **words)
{
    char path[64], status = 1;
    if (count > 2)
        return printf("%s: again\n", words[1]) < 0;
    snprintf(path, sizeof path, "/tree/%s", words[1]);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "made by %s\n", words[1]) < 0 || fclose(file))
        return 1;
    if (fork() == 0)
        return execl("/program", "program", words[1], "again", NULL);
    int ended;
    return wait(&ended) < 0 || ended;
}
"#;

#[test]
fn one_file_is_all_it_needs() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("alone");
    let root = scratch.fresh("root");
    fs::copy(binary(), root.join("husk")).expect("the command");
    let source = scratch.path().join("program.c");
    fs::write(&source, PROGRAM).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-o"]).arg(root.join("program")).arg(&source);
    assert!(compiler.status().expect("cc starts").success());
    let user = if rustix::process::getuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([user, "bash", "-euc", ALONE]).env("ROOT", &root);
    let outcome = run(&scratch, &scratch.fresh("work"), command);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let made = "made by run\nmade by exec\nmade by exec\nexec\nrun\n";
    assert_eq!(said, format!("run: again\nexec: again\n{made}"), "{}", outcome.shown());
    assert!(outcome.status.success(), "{}", outcome.shown());
}
