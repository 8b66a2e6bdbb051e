//! git inside and outside of an image, on one repository.

use husk_tests::against_native;

use crate::{Images, shown, text};

/// A repository with some files, all older than its index.
const REPOSITORY: &str = "
export GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main .
git config user.email who@example.org
git config user.name Who
git config protocol.file.allow always
mkdir dir
for n in $(seq 20); do echo $n > file-$n; echo $n > dir/file-$n; done
touch -d @1000000000 file-* dir/file-*
git add .
git commit -qm first
";

fn on_host(images: &Images, script: &str) -> String {
    let output = images.command("bash", &["-euc", script]).output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

fn repository(name: &str) -> Images {
    let images = Images::new(name);
    on_host(&images, REPOSITORY);
    images
}

/// What a prompt or an editor does outside: it finds a file touched, and writes the index anew.
const REFRESHED: &str = "touch -d @1000000500 file-20; before=$(stat -c %i .git/index);
    git status --short >&2; test $before != $(stat -c %i .git/index)";

/// Nothing is staged, nothing changed, and the index is known to say so without a refresh.
const CLEAN: &str = "git diff-index --quiet HEAD; git status --short; git diff-index --quiet HEAD;
    git fsck --strict; ls -A .git | grep husk || true";

#[test]
fn a_refresh_of_the_index_outside_takes_nothing_from_commits_inside() {
    if against_native() {
        return;
    }
    let images = repository("git-refresh");
    images.up("ci");
    for n in 1..4 {
        images.script("ci", &format!("echo {n} >> file-{n}; git commit -qam change-{n}"));
        assert_eq!(images.done(&["sync", "ci"]), "");
        // Of what was touched outside, git there has to look at the bytes once more.
        let clean = if n == 1 { CLEAN } else { &CLEAN[CLEAN.find(';').unwrap_or(0) + 1..] };
        assert_eq!(on_host(&images, clean), "", "after sync {n}");
        on_host(&images, &REFRESHED.replace("500", &format!("50{n}")));
    }
    images.script("ci", "echo 4 >> file-4; git commit -qam change-4");
    // Who looks knows what the index was like, and so does the next supervisor.
    images.kill_supervisor("ci");
    let seen: serde_json::Value =
        serde_json::from_str(&images.done(&["diff", "ci", "--json"])).expect("JSON");
    let conflicts =
        seen.as_array().expect("a list").iter().filter(|one| !one["conflict"].is_null());
    assert_eq!(conflicts.count(), 0, "{seen}");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "git status --short; git log --oneline | wc -l"), "5\n");
    assert_eq!(on_host(&images, "ls -A .git | grep husk || true; git fsck --strict"), "");
}

#[test]
fn the_index_that_the_image_has_seen_first_tells_a_refresh_outside_too() {
    if against_native() {
        return;
    }
    // The index is looked at before the first command that lists its directory goes on: the
    // refresh outside may come right behind it.
    for n in 0..6 {
        let images = repository(&format!("git-first-{n}"));
        images.up("ci");
        images.script("ci", "git status --short");
        on_host(&images, REFRESHED);
        images.script("ci", "echo 1 >> file-1; git commit -qam change-1");
        assert_eq!(images.down("ci"), "");
        assert_eq!(on_host(&images, "git status --short; git log --oneline | wc -l"), "2\n");
    }
}

#[test]
fn of_two_changed_indexes_the_newer_counts_and_the_other_is_kept_and_told_once() {
    if against_native() {
        return;
    }
    let images = repository("git-both");
    images.up("ci");
    images.script("ci", "echo 1 >> file-1; git commit -qam change-1");
    images.done(&["sync", "ci"]);
    on_host(&images, "echo staged >> file-2; git add file-2; touch -d @1000000000 .git/index");
    images.script("ci", "echo 3 >> file-3; git commit -qam change-3");
    let output = images.husk(&["sync", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let lines = said.lines().filter(|line| line.starts_with("husk: conflict: "));
    assert_eq!(lines.count(), 1, "{said}");
    assert!(said.contains(".git/index changed on the host meanwhile"), "{said}");
    // The work of both is there: the commit, and what was staged in the index that was kept.
    assert_eq!(
        on_host(&images, "git status --short file-1 file-3; git log --oneline | wc -l"),
        "3\n"
    );
    let staged = "GIT_INDEX_FILE=$(ls .git/index.husk-*) git diff --cached --name-only HEAD~1";
    assert_eq!(on_host(&images, staged), "file-2\n");
    images.script("ci", "echo 4 >> file-4; git commit -qam change-4");
    assert_eq!(images.done(&["sync", "ci"]), "");
    assert_eq!(images.down("ci"), "");
}

#[test]
fn a_write_back_replaces_no_index_that_git_outside_holds_locked() {
    if against_native() {
        return;
    }
    let images = repository("git-locked");
    images.up("ci");
    images.script("ci", "echo 1 >> file-1; git commit -qam change-1");
    on_host(&images, "touch .git/index.lock");
    let output = images.husk(&["sync", "ci"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let remedy = "if no git runs there: rm ";
    assert!(said.contains(remedy) && said.contains(".git/index.lock"), "{said}");
    on_host(&images, "rm .git/index.lock");
    assert_eq!(images.done(&["sync", "ci"]), "");
    assert_eq!(on_host(&images, CLEAN), "");
    // An end cannot be made up for: both are kept, and what is told brings all in order.
    images.script("ci", "echo 2 >> file-2; git commit -qam change-2");
    on_host(&images, "touch .git/index.lock");
    let output = images.husk(&["down", "ci"]);
    let said = text(&output.stderr);
    let line = said.lines().find(|line| line.contains(remedy)).expect("a line");
    on_host(&images, "rm .git/index.lock");
    let take = line.rsplit_once("take it: ").expect("what to type").1;
    assert_eq!(on_host(&images, &format!("{take}; git status --short; {CLEAN}")), "");
    assert_eq!(on_host(&images, "git log --oneline | wc -l"), "3\n");
}

#[test]
fn what_a_write_back_has_put_is_clean_to_git_without_a_refresh() {
    if against_native() {
        return;
    }
    for make in [
        "git init -q -b main .",
        "git init -q -b main --object-format=sha256 .",
        "git init -q -b main .; git config index.version 4",
        "git init -q -b main .; git config index.skipHash true",
    ] {
        let images = Images::new("git-written");
        on_host(&images, &REPOSITORY.replacen("git init -q -b main .", make, 1));
        images.up("ci");
        images.script(
            "ci",
            "export GIT_CONFIG_GLOBAL=/dev/null; git checkout -qb other; rm -r dir; \
             echo x > file-1; ln -s file-1 link; git add -A; git commit -qm other; \
             git checkout -q main; git worktree add -q wood other; git clone -q . inner",
        );
        assert_eq!(images.down("ci"), "");
        for tree in [".", "wood", "inner"] {
            let clean = format!("cd {tree}; git diff-files --quiet; {CLEAN}");
            let said = on_host(&images, &clean);
            let nested = if tree == "." { "?? inner/\n?? wood/\n" } else { "" };
            assert_eq!(said, nested, "{make}: {tree}");
        }
    }
}

#[test]
fn a_submodule_is_clean_to_git_after_a_write_back_too() {
    if against_native() {
        return;
    }
    let images = repository("git-submodule");
    images.up("ci");
    images.script(
        "ci",
        "export GIT_CONFIG_GLOBAL=/dev/null; git -c protocol.file.allow=always submodule add -q \
         $PWD/.git sub; git commit -qm sub",
    );
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, &format!("cd sub; git diff-files --quiet; {CLEAN}")), "");
    assert_eq!(on_host(&images, &format!("git diff-files --quiet; {CLEAN}")), "");
}

#[test]
fn a_file_that_is_racy_to_git_stays_so() {
    if against_native() {
        return;
    }
    let images = repository("git-racy");
    images.up("ci");
    // Changed within the tick in which the index was written, with the same length: only times
    // that stay as they are tell git to look.
    images.script(
        "ci",
        "echo 7 > racy; git add racy; touch -r .git/index racy; git update-index -q --refresh; \
         touch -r racy .git/index; echo 8 > racy; touch -r .git/index racy",
    );
    let inside = images.script("ci", "git diff --name-only");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "git diff --name-only"), inside);
    assert_eq!(inside, "racy\n");
}

#[test]
fn shared_memory_of_sqlite_is_no_conflict_and_an_empty_log_of_the_host_is_replaced() {
    if against_native() {
        return;
    }
    let images = Images::new("git-sqlite");
    on_host(&images, "sqlite3 data 'pragma journal_mode = wal; create table t (n);' > /dev/null");
    images.up("ci");
    // Killed with its log full: the log is what there is of the row.
    let crash = "sqlite3 data <<< 'insert into t values (42);\n.shell kill -9 $PPID' || true; ls";
    let seen = images.script("ci", crash);
    assert!(seen.contains("data-shm\ndata-wal\n"), "{seen}");
    on_host(&images, "touch data-shm data-wal");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "sqlite3 data 'select n from t'"), "42\n");
    assert_eq!(on_host(&images, "ls | grep husk || true"), "");
}

/// It packs objects and references, and removes the directories that are empty then.
#[test]
fn git_gc_outside_takes_nothing_from_commits_inside() {
    if against_native() {
        return;
    }
    let images = repository("git-gc");
    images.up("ci");
    let commit = |n: u32| format!("echo {n} >> file-{n}; git commit -qam change-{n}");
    let topic = format!("git checkout -qb topic; {}; git tag new", commit(2));
    images.script("ci", &format!("{}; {topic}", commit(1)));
    on_host(&images, "git gc -q; test ! -e .git/refs/heads/main");
    assert_eq!(images.down("ci"), "");
    assert_eq!(
        on_host(&images, "git status --short; git fsck --strict; ls -A .git | grep husk || true"),
        ""
    );
    let said = on_host(&images, "git log --format=%s new; git log --format=%s main");
    assert_eq!(said, "change-2\nchange-1\nfirst\nchange-1\nfirst\n");
    assert_eq!(on_host(&images, "find .git -name '*.husk-*'"), "");
}

/// The host has moved a branch and packed it: that is no packing alone.
#[test]
fn a_branch_that_both_have_moved_is_a_conflict_where_it_is_packed_too() {
    if against_native() {
        return;
    }
    let images = repository("git-both");
    images.up("ci");
    images.script("ci", "echo 1 >> file-1; git commit -qam inside");
    on_host(&images, "echo 2 >> file-2; git commit -qam outside; git pack-refs --all");
    let ended = images.husk(&["down", "ci"]);
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{told}");
    assert!(told.contains("refs/heads/main was removed on the host meanwhile"), "{told}");
    assert_eq!(on_host(&images, "git log -1 --format=%s"), "outside\n");
}

#[test]
fn what_git_has_only_refreshed_is_no_conflict_of_husk_refresh() {
    if against_native() {
        return;
    }
    let images = repository("git-refreshed");
    images.up("ci");
    for n in 1..4 {
        // Before the first sync and after each.
        images.script("ci", &format!("echo {n} >> file-{n}; git commit -qam change-{n}"));
        on_host(&images, &REFRESHED.replace("500", &format!("50{n}")));
        assert_eq!(images.done(&["refresh", "ci"]).matches("conflict").count(), 0);
        assert_eq!(images.script("ci", "git log --oneline | wc -l"), format!("{}\n", n + 1));
        images.done(&["sync", "ci"]);
    }
    // The other way around: staged outside, refreshed inside.
    on_host(&images, "git status --short; echo staged >> file-5; git add file-5");
    images.script("ci", "touch file-6; git status --short");
    images.done(&["refresh", "ci"]);
    assert_eq!(images.script("ci", "git status --short"), "M  file-5\n");
    assert_eq!(images.down("ci"), "");
    assert_eq!(on_host(&images, "git status --short; git log --oneline | wc -l"), "M  file-5\n4\n");
}

#[test]
fn an_index_that_the_host_has_written_after_a_sync_is_clean_inside() {
    if against_native() {
        return;
    }
    for split in ["", "git config core.splitIndex true; git update-index --split-index"] {
        let images = repository("git-inside");
        on_host(&images, split);
        images.up("ci");
        images.script(
            "ci",
            "mkdir new; echo new > new/file; echo x >> file-1; ln -s file-1 link; chmod +x file-2; \
             mv file-3 moved; git add -A; git commit -qm inside",
        );
        images.done(&["sync", "ci"]);
        on_host(&images, "echo more >> file-4; git commit -qam outside");
        // What the host has changed since, and not told git.
        images.script("ci", "echo dirty >> file-5");
        on_host(&images, "touch -d '1 hour ago' file-6");
        images.done(&["refresh", "ci"]);
        let dirty = images.script("ci", "git diff-files --name-only");
        assert_eq!(dirty, "file-5\nfile-6\n", "{split}");
        let quiet = "git checkout -q file-5; git update-index -q --refresh; git diff-index HEAD";
        assert_eq!(images.script("ci", quiet), "", "{split}");
        assert_eq!(images.down("ci"), "");
        let said =
            on_host(&images, &format!("git diff-files --quiet; {CLEAN}; git log --format=%s"));
        assert_eq!(said, "outside\ninside\nfirst\n", "{split}");
    }
}
