//! The Debian packages that the tests use: which are missing, and their installation.
//!
//! ```text
//!   NEEDS ─► what is not there ─► none: go on
//!                  ├─ told to (--yes, CI), or asked on a terminal and allowed ─► apt-get
//!                  └─ else: one line, with what to type
//! ```
//!
//! Invariants
//! 1. Nothing is installed unasked, unless `--yes` or the variable `CI` says so.
//! 2. Nothing is ever removed.

use crate::command;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest time to read the lists of packages, and to install them.
const UPDATE_LIMIT: Duration = Duration::from_secs(120);
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// What the tests use, as `command:package` where a package has another name than its command. A
/// path begins with `/`; a `*` in it stands for any one name.
const NEEDS: &str = "
    gcc cc:gcc c++:g++ make ar:binutils git python3 go:golang-go tar sqlite3 strace ps:procps
    script:bsdutils setpriv:util-linux bash fusermount3:fuse3 find:findutils diff:diffutils patch
    sed awk:mawk perl stress-ng fio dbench ab:apache2-utils apache2 cmake ninja:ninja-build gdb
    gzip javac:default-jdk-headless ip:iproute2 lighttpd memcached musl-gcc:musl-tools clang dash
    g++ npm wrk nginx:nginx-light node:nodejs pbzip2 pgrep:procps redis-server
    redis-cli:redis-tools rsync tmux vim xz:xz-utils zstd zsh fish jq getfattr:attr getfacl:acl
    ssh:openssh-client /usr/sbin/sshd:openssh-server
    /usr/include/stdio.h:libc6-dev /usr/lib/postgresql/*/bin/initdb:postgresql
    /usr/lib/python3*/ensurepip/__init__.py:python3-venv
    /usr/lib/python3*/test/test_os.py:libpython3.11-testsuite";

/// Sees to it that all of them are there; `yes`: without a question.
pub fn complete(yes: bool) -> Result<()> {
    let missing = missing(NEEDS);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.into_iter().collect::<Vec<_>>().join(" ");
    let typed = format!("apt-get install --no-install-recommends {list}");
    if !is_there("apt-get") {
        bail!("the tests need what Debian calls: {list}; install it, then run this again");
    }
    let told = yes || std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    if !told && !allowed(&list)? {
        bail!("the tests need packages that are missing; type: {typed} (or add --yes)");
    }
    println!("installing: {list}");
    apt(&["update"], UPDATE_LIMIT, &typed)?;
    let words = ["-y", "--no-install-recommends", "install"];
    let words: Vec<&str> = words.into_iter().chain(list.split(' ')).collect();
    apt(&words, INSTALL_LIMIT, &typed)
}

/// The packages of what is not there.
fn missing(needs: &str) -> BTreeSet<&str> {
    let needs = needs.split_whitespace().map(|need| need.split_once(':').unwrap_or((need, need)));
    needs.filter(|(what, _)| !is_there(what)).map(|(_, package)| package).collect()
}

/// Whether there is such a command or such a file.
fn is_there(what: &str) -> bool {
    match what.strip_prefix('/') {
        Some(path) => is_below(Path::new("/"), path),
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let runs = |file: std::fs::Metadata| file.is_file() && file.mode() & 0o111 != 0;
            // Where an ordinary user's PATH does not lead, but Debian puts servers.
            let mut places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
            places.any(|place| place.join(what).metadata().is_ok_and(runs))
        }
    }
}

/// Whether `path`, which may have a `*` in its names, is below a directory.
fn is_below(directory: &Path, path: &str) -> bool {
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let Some((before, behind)) = name.split_once('*') else {
        let here = directory.join(name);
        return if rest.is_empty() { here.exists() } else { is_below(&here, rest) };
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut fits = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.len() >= before.len() + behind.len()
            && name.starts_with(before)
            && name.ends_with(behind)
    });
    fits.any(|entry| rest.is_empty() || is_below(&entry.path(), rest))
}

/// Asks on the terminal, if there is one.
fn allowed(list: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    eprint!("The tests need packages that are missing: {list}\nInstall them with apt-get? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Runs apt-get as root, or through a sudo that does not ask.
fn apt(words: &[&str], limit: Duration, typed: &str) -> Result<()> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.args(["-n", "env"]);
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]).args(words);
    let ended = command::run(command, limit)?;
    if !ended.passed {
        let last = ended.text.lines().rfind(|line| !line.is_empty()).unwrap_or("no reason given");
        bail!("apt-get failed ({last}); type as root: {typed}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_missing() {
        let directory = std::env::temp_dir().join(format!("husk-needs-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("lib/python3.11")).expect("a directory");
        std::fs::write(directory.join("lib/python3.11/it"), "").expect("a file");
        let at = directory.to_str().expect("a plain path");
        let needs = format!(
            "sh no-such-command:package no-such:package no-such-name /etc/passwd:base
             {at}/lib/python3*/it:there {at}/lib/python3*/other:other {at}/l*c/it:none"
        );
        let found: Vec<_> = missing(&needs).into_iter().collect();
        assert_eq!(found, ["no-such-name", "none", "other", "package"]);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
