//! What tools keep beside their files, used on both sides of a write-back: git's split index, and
//! what is racy to it, cargo's fingerprints, npm's hidden lock file, Python's caches, SQLite beside
//! a reader, and swap files of vim. Nothing stale is believed, and nothing made again without need.

use std::path::Path;

use husk_tests::against_native;

use crate::{Images, shown, text};

fn on_host(images: &Images, script: &str) -> String {
    let output = images.command("bash", &["-euc", script]).output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

const REPOSITORY: &str = "
export GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main .
git config user.email who@example.org
git config user.name Who
for n in $(seq 20); do echo $n > file-$n; done
touch -d @1000000000 file-*
git add .
git commit -qm first
";
const CLEAN: &str = "git diff-index --quiet HEAD || echo dirty; git status --short; \
    git fsck --strict; ls -A .git | grep husk || true";

/// A change within the tick in which the index was written, with the same length, is seen by git on
/// the side where it was made and on the other (git's own test t0010).
#[test]
fn what_is_racy_to_git_is_seen_across_a_write_back_too() {
    if against_native() {
        return;
    }
    let first = "rm -f .git/index; echo frotz > infocom; git update-index --add infocom; \
        echo xyzzy > infocom; git diff-files -p | grep -c '^+xyzzy'";
    let second = "echo xyzzy > cornerstone; git update-index --add cornerstone; \
        git diff-files -p | grep -c '^+xyzzy'";
    let images = Images::new("sides-racy");
    on_host(&images, REPOSITORY);
    for trial in 0..5 {
        images.up("ci");
        assert_eq!(images.script("ci", first), "1\n", "trial {trial}, inside");
        images.down("ci");
        assert_eq!(on_host(&images, second), "1\n", "trial {trial}, outside");
        assert_eq!(on_host(&images, first), "1\n", "trial {trial}, outside");
        images.up("ci");
        assert_eq!(images.script("ci", second), "1\n", "trial {trial}, inside");
        images.done(&["sync", "ci"]);
        let seen = "git diff-files -p | grep -c '^+xyzzy'";
        assert_eq!(on_host(&images, seen), "1\n", "trial {trial}, after a sync");
        assert_eq!(images.script("ci", seen), "1\n", "trial {trial}, after a sync");
        images.down("ci");
    }
}

#[test]
fn a_split_index_is_whole_on_both_sides() {
    if against_native() {
        return;
    }
    let images = Images::new("sides-split");
    on_host(&images, REPOSITORY);
    on_host(&images, "git config core.splitIndex true; git update-index --split-index");
    images.up("ci");
    for n in 1..4 {
        images.script("ci", &format!("echo {n} >> file-{n}; git commit -qam change-{n}"));
        assert_eq!(images.done(&["sync", "ci"]), "");
        // Looks that write nothing.
        let look = "git diff-index --quiet HEAD; git diff-files --quiet; git fsck --strict";
        assert_eq!(on_host(&images, look), "");
    }
    images.script("ci", "echo 4 >> file-4; echo new > new; git add new; git commit -qam four");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, &format!("git diff-files --quiet; {CLEAN}")), "");
    assert_eq!(on_host(&images, "git log --oneline | wc -l; ls .git/shared* | wc -l"), "5\n1\n");
}

/// The same repository with most of its index in another file.
fn split(name: &str) -> Images {
    let images = Images::new(name);
    on_host(&images, REPOSITORY);
    on_host(
        &images,
        "git config core.splitIndex true; git config splitIndex.maxPercentChange 100
         git update-index --split-index",
    );
    images
}

#[test]
fn a_refresh_of_a_split_index_outside_takes_nothing_from_commits_inside() {
    if against_native() {
        return;
    }
    let images = split("sides-split-refresh");
    images.up("ci");
    // The second time the image has made a base of its own.
    for (n, before) in [(1, "true"), (2, "git update-index --split-index"), (3, "true")] {
        images.script("ci", &format!("echo {n} >> file-{n}; git commit -qam change-{n}; {before}"));
        assert_eq!(images.done(&["sync", "ci"]), "", "{n}");
        on_host(&images, &format!("touch -d @100000050{n} file-20; git status --short"));
        images.script("ci", &format!("echo {n} >> file-4; git commit -qam again-{n}; {before}"));
    }
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, &format!("git status --short; {CLEAN}")), "");
    assert_eq!(on_host(&images, "git log --oneline | wc -l; ls .git/shared* | wc -l"), "7\n3\n");
}

#[test]
fn of_two_changed_split_indexes_the_newer_counts_and_both_are_whole() {
    if against_native() {
        return;
    }
    let images = split("sides-split-both");
    images.up("ci");
    images.script("ci", "echo 1 >> file-1; git commit -qam change-1");
    images.done(&["sync", "ci"]);
    on_host(&images, "echo staged >> file-2; git add file-2; touch -d @1000000000 .git/index");
    images.script("ci", "echo 3 >> file-3; git commit -qam change-3");
    let output = images.husk(&["sync", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains(".git/index changed on the host meanwhile"), "{said}");
    // Nothing is reversed, and what was staged is in the index that was kept.
    let kept = "git fsck --strict --no-dangling; git log --oneline | wc -l; git status --short
        GIT_INDEX_FILE=$(ls .git/index.husk-*) git diff --cached --name-only HEAD~1";
    assert_eq!(on_host(&images, kept), "3\n M file-2\nfile-2\n");
    assert_eq!(images.done(&["down", "ci", "--discard"]), "");
}

/// Python's sources and what it has compiled of them.
#[test]
fn what_python_has_compiled_is_used_on_the_other_side_and_not_believed_once_its_source_changed() {
    if against_native() {
        return;
    }
    let images = Images::new("sides-python");
    on_host(&images, "echo 'said = 1' > husked.py; touch -d @1000000000 husked.py");
    images.up("ci");
    let run = "unset PYTHONDONTWRITEBYTECODE; \
        python3 -v -c 'import husked; print(husked.said)' 2> log; \
        grep -c 'husked.*matches' log || true; grep -c 'code.*/husked.py$' log || true";
    assert_eq!(images.script("ci", run), "1\n0\n1\n");
    images.script("ci", "python3 -m venv --without-pip .venv");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, run), "1\n1\n0\n");
    let prefix = ".venv/bin/python -c 'import sys; print(sys.prefix)'";
    assert_eq!(on_host(&images, prefix), format!("{}\n", images.work.join(".venv").display()));
    images.up("ci");
    assert_eq!(images.script("ci", run), "1\n1\n0\n");
    assert_eq!(images.script("ci", prefix), on_host(&images, prefix));
    on_host(&images, "echo 'said = 2' > husked.py");
    images.done(&["refresh", "ci"]);
    assert_eq!(images.script("ci", run), "2\n0\n1\n");
    images.down("ci");
    assert_eq!(on_host(&images, run), "2\n1\n0\n");
}

/// `cargo build` inside and outside, in turn.
#[test]
fn cargo_builds_nothing_again_that_the_other_side_has_built_and_believes_nothing_stale() {
    let Some(cargo) = std::env::var_os("CARGO").filter(|_| !against_native()) else { return };
    let tools = Path::new(&cargo).parent().expect("a directory").display().to_string();
    let images = Images::new("sides-cargo");
    let build = format!(
        "export PATH={tools}:$PATH CARGO_HOME=$PWD/.cargo CARGO_TERM_COLOR=never; \
         unset RUSTC_WRAPPER; cargo build --offline -v 2>&1 | grep -oE '(Fresh|Compiling|Dirty) \
         [a-z]+' || true; target/debug/app"
    );
    on_host(
        &images,
        "mkdir -p src lib/src; printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\n\
         edition = \"2021\"\\n[dependencies]\\nlib = { path = \"lib\" }\\n[workspace]\\n' \
         > Cargo.toml
         printf '[package]\\nname = \"lib\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' \
         > lib/Cargo.toml
         echo 'pub fn said() -> u32 { 1 }' > lib/src/lib.rs
         echo 'fn main() { println!(\"{}\", lib::said()) }' > src/main.rs",
    );
    let work = images.work.to_str().expect("a plain path");
    images.done(&["up", "ci", "--memory", "256M", "--overlay", work]);
    let fresh = "Fresh lib\nFresh app\n1\n";
    assert_eq!(images.script("ci", &build), "Compiling lib\nCompiling app\n1\n");
    assert_eq!(images.script("ci", &build), fresh);
    assert_eq!(images.done(&["sync", "ci"]), "");
    assert_eq!(on_host(&images, &build), fresh);
    // The host edits, the image builds; the image edits, the host builds.
    on_host(&images, "echo 'pub fn said() -> u32 { 2 }' > lib/src/lib.rs");
    images.done(&["refresh", "ci"]);
    let built = images.script("ci", &build);
    assert!(built.contains("Compiling lib") && built.ends_with("\n2\n"), "{built}");
    images.script("ci", "echo 'pub fn said() -> u32 { 3 }' > lib/src/lib.rs");
    assert_eq!(images.down("ci"), "");
    let built = on_host(&images, &build);
    assert!(built.contains("Compiling lib") && built.ends_with("\n3\n"), "{built}");
    images.done(&["up", "ci", "--memory", "256M", "--overlay", work]);
    assert_eq!(images.script("ci", &build), "Fresh lib\nFresh app\n3\n");
    assert_eq!(images.down("ci"), "");
}

/// npm believes `node_modules/.package-lock.json` if nothing in the tree is newer.
#[test]
fn the_hidden_lock_file_of_npm_is_no_older_than_what_it_describes() {
    if against_native() {
        return;
    }
    let images = Images::new("sides-npm");
    let npm = "export npm_config_cache=$PWD/../npm npm_config_offline=true npm_config_audit=false \
        npm_config_fund=false npm_config_update_notifier=false";
    on_host(
        &images,
        &format!(
            "{npm}; mkdir ../one ../two; for n in 1 2; do
             printf '{{\"name\":\"dep\",\"version\":\"%s.0.0\",\"main\":\"m.js\"}}' $n \
             > ../one/package.json; echo \"module.exports = $n\" > ../one/m.js
             (cd ../one && npm pack --silent --pack-destination ..) > /dev/null; done
             echo '{{\"name\":\"app\",\"version\":\"1.0.0\"}}' > package.json"
        ),
    );
    let look = "test -z \"$(find node_modules -newer node_modules/.package-lock.json \
        ! -path '*/.bin*')\" && node -p 'require(\"dep\")'";
    let work = images.work.to_str().expect("a plain path");
    let up = ["up", "ci", "--memory", "128M", "--overlay", work];
    for n in [1, 2] {
        images.done(&up);
        let install =
            format!("{npm}; cp ../dep-{n}.0.0.tgz .; npm install --silent ./dep-{n}.0.0.tgz");
        images.script("ci", &install);
        assert_eq!(images.script("ci", look), format!("{n}\n"), "inside");
        assert_eq!(images.down("ci"), "");
        assert_eq!(on_host(&images, look), format!("{n}\n"), "outside");
    }
    on_host(&images, &format!("{npm}; npm ls --silent"));
}

/// A reader on the host has the database, its log and its shared memory open all the time.
#[test]
fn a_reader_of_sqlite_on_the_host_and_who_comes_after_it_see_whole_databases() {
    if against_native() {
        return;
    }
    let images = Images::new("sides-sqlite");
    let reader = "
import sqlite3, sys
base = sqlite3.connect('data', isolation_level=None)
def look(): print(base.execute('select count(*), sum(n) from t').fetchone(), flush=True)
look()
for line in sys.stdin: look()
";
    on_host(
        &images,
        "sqlite3 data 'pragma journal_mode = wal; create table t (n);
         with recursive c(n) as (values(1) union all select n + 1 from c where n < 1000)
         insert into t select n from c;' > /dev/null",
    );
    std::fs::write(images.scratch.path().join("reader.py"), reader).expect("a file");
    // Its own log is not empty while it is open: what it has added is in there.
    let script = "mkfifo ../go; python3 ../reader.py < ../go > ../seen & exec 3> ../go
        until [ -s ../seen ]; do :; done
        \"$HUSK\" up ci --memory 64M
        \"$HUSK\" exec ci -- sqlite3 data 'update t set n = n + 1; insert into t values (7)'
        echo >&3; \"$HUSK\" sync ci; echo >&3
        \"$HUSK\" exec ci -- sqlite3 data 'update t set n = n + 1; insert into t values (7)'
        \"$HUSK\" down ci 2> ../said; sqlite3 data 'select count(*), sum(n) from t'
        echo >&3; exec 3>&-; wait; cat ../seen
        sqlite3 data 'pragma integrity_check; select count(*), sum(n) from t'; ls";
    let mut command = images.command("bash", &["-euc", script]);
    command.env("HUSK", husk_tests::husk::binary());
    let output = command.output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    let after = "1002|502515\n";
    let seen = "(1000, 500500)\n".repeat(4);
    assert_eq!(
        text(&output.stdout),
        format!("{after}{seen}ok\n{after}data\n"),
        "{}",
        shown(&output)
    );
}

/// Somebody edits on the host what the image changes: both are there in the end.
#[test]
fn what_vim_has_not_saved_is_recovered_on_the_side_where_it_was_edited_and_on_the_other() {
    if against_native() {
        return;
    }
    let images = Images::new("sides-vim");
    on_host(&images, "echo first > file; echo first > other");
    // Killed with a change that is in its swap file alone.
    let edit = |name: &str, line: &str| {
        format!(
            "vim -u NONE -i NONE -es {name} -c 'normal o{line}' -c preserve -c '!kill -9 $PPID' \
             > /dev/null 2>&1 || true; ls -A"
        )
    };
    let recover = |name: &str| {
        format!(
            "vim -u NONE -i NONE -es -r {name} -c 'w! ../back' -c 'qa!' > /dev/null 2>&1 || true; \
             cat ../back; rm ../back"
        )
    };
    images.up("ci");
    let names = images.script("ci", &edit("file", "inside"));
    assert_eq!(names, ".file.swp\nfile\nother\n");
    assert_eq!(on_host(&images, &edit("other", "outside")), ".other.swp\nfile\nother\n");
    images.script("ci", "echo changed inside >> other");
    assert_eq!(images.down("ci"), "");
    assert_eq!(
        on_host(&images, "ls -A; cat other"),
        ".file.swp\n.other.swp\nfile\nother\n\
        first\nchanged inside\n"
    );
    assert_eq!(on_host(&images, &recover("file")), "first\ninside\n");
    assert!(on_host(&images, &recover("other")).contains("outside\n"));
}

#[test]
fn a_name_that_has_gone_outside_is_in_nobodys_way() {
    if against_native() {
        return;
    }
    let images = Images::new("sides-gone");
    for name in ["open", "directory", "fifo", "changed"] {
        std::fs::write(images.work.join(name), "locked\n").expect("a file");
    }
    images.up("ci");
    images.script("ci", "ls; echo more >> changed");
    for name in ["open", "directory", "fifo", "changed"] {
        std::fs::remove_file(images.work.join(name)).expect("it was there");
    }
    images.script(
        "ci",
        "python3 -c \"import os; os.write(os.open('open', os.O_CREAT | os.O_EXCL | os.O_WRONLY), \
         b'mine')\"; mkdir directory; mkfifo fifo; ! mkdir changed 2> /dev/null; rm changed",
    );
    images.down("ci");
    assert_eq!(std::fs::read_to_string(images.work.join("open")).expect("new"), "mine");
    assert!(images.work.join("directory").is_dir() && images.work.join("fifo").exists());
}
