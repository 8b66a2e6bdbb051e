//! Rules of style that a machine can hold.
//!
//! Invariants
//! 1. Lines have at most 100 columns and no blanks at their end (tables and links in Markdown may
//!    be wider).
//! 2. A Rust file has at most 800 lines, a function at most 70.
//! 3. No file is named after nothing: no `utils`, `common`, `helper`, `manager`, `misc`.
//! 4. Nothing names a developer's machine: no paths of one, no words of the desk it stood on.
//! 5. An exception stands in `xtask/allowed.txt` with its reason; one that is no longer needed is
//!    a finding itself.

use super::finding::Finding;
use super::functions;
use crate::workspace::{File, Workspace};
use anyhow::{Context, Result};

const LINE_COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const EMPTY_NAMES: &[&str] =
    &["utils", "util", "common", "helper", "helpers", "manager", "misc", "impl"];
/// Ends of the names of text files whose lines are held to the limit.
const NARROW: &[&str] = &[".rs", ".c", ".h", ".py", ".sh", ".md", ".go", "Makefile"];
/// Folders of what tests feed to other programs: data, as wide as it likes.
const FIXTURES: &[&str] = &["/sources/", "/data/", "/programs/"];
/// Folders of one developer's machine.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
/// FNV-1a of lower-case words that belong to a desk and not into a project.
const DESK_WORDS: &[u64] = &[
    0x2391_9480_3edf_98f7,
    0x2524_b426_1996_11b3,
    0x7f7a_7547_86a6_64b8,
    0x8a1b_8f4a_0a91_3503,
    0xa113_d274_5d70_6ce3,
    0xb145_ff9e_4369_46b2,
    0xb5c1_aca6_a4cb_6952,
    0x91df_4c3d_4652_5f82,
    0x04dc_2554_6038_2976,
    0x7a3c_735f_7f6d_b37f,
    0x125b_6919_1db9_4ab8,
];
const ALLOWED: &str = "xtask/allowed.txt";

/// An exception: `function crates/x/src/y.rs name: reason` or `file crates/x/src/y.rs: reason`.
struct Exception<'a> {
    line: usize,
    what: &'a str,
    reason: &'a str,
}

/// Checks every file of the project.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let list = workspace.file(ALLOWED).context("xtask/allowed.txt is missing")?;
    let exceptions = parse_exceptions(&list.text);
    let mut used = vec![false; exceptions.len()];
    let mut findings: Vec<Finding> = workspace.files.iter().flat_map(check_text).collect();
    for (what, finding) in workspace.files.iter().filter(|file| file.is_rust()).flat_map(too_long) {
        match exceptions.iter().position(|one| one.what == what && !one.reason.is_empty()) {
            Some(at) => used[at] = true,
            None => findings.push(finding),
        }
    }
    let idle = exceptions.iter().zip(used).filter(|(_, used)| !used);
    findings.extend(idle.map(|(one, _)| {
        let text = format!("exception without need or reason: {}", one.what);
        Finding::new(ALLOWED, one.line, text)
    }));
    Ok(findings)
}

fn parse_exceptions(text: &str) -> Vec<Exception<'_>> {
    let rows = text.lines().enumerate().filter(|(_, row)| !row.is_empty() && !row.starts_with('#'));
    rows.map(|(at, row)| {
        let (what, reason) = row.split_once(": ").unwrap_or((row, ""));
        Exception { line: at + 1, what, reason: reason.trim() }
    })
    .collect()
}

/// Rules that look at names and lines.
fn check_text(file: &File) -> Vec<Finding> {
    let mut findings: Vec<Finding> = named_after_nothing(file).into_iter().collect();
    let data = !file.is_rust() && FIXTURES.iter().any(|folder| file.path.contains(folder));
    let narrow = !data && NARROW.iter().any(|end| file.path.ends_with(end));
    let markdown = file.path.ends_with(".md");
    if file.path == "Cargo.lock" || file.path.starts_with("LICENSE") {
        return findings;
    }
    for (at, line) in file.text.lines().enumerate() {
        let mut found = |text: String| findings.push(Finding::new(&file.path, at + 1, text));
        let columns = line.chars().count();
        let wide = markdown && (line.starts_with('|') || line.contains("http"));
        if narrow && columns > LINE_COLUMNS_MAX && !wide {
            found(format!("{columns} columns, at most {LINE_COLUMNS_MAX}"));
        }
        if line.ends_with([' ', '\t']) && narrow {
            found("blanks at the end".to_owned());
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| names_path(line, path)) {
            found(format!("names a machine's own folder: {path}"));
        }
        if let Some(word) = desk_word(line, DESK_WORDS) {
            found(format!("a word of the desk, not of the project: {word}"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') && narrow {
        findings.push(Finding::new(&file.path, 0, "no newline at the end"));
    }
    findings
}

fn named_after_nothing(file: &File) -> Option<Finding> {
    let empty = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or_default());
    let found = file.path.split('/').any(empty);
    found.then(|| Finding::new(&file.path, 0, "a name that says nothing: name it after its role"))
}

/// Whether `path` begins an absolute path in `line` (and is no tail of a longer one).
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-$}*".contains(c))
    })
}

fn desk_word<'a>(line: &'a str, words: &[u64]) -> Option<&'a str> {
    let parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    parts.filter(|part| part.len() > 3).find(|part| words.contains(&fnv(part)))
}

fn fnv(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x100_0000_01b3)
    })
}

/// Files and functions over their limit, each with the words that would except it.
fn too_long(file: &File) -> Vec<(String, Finding)> {
    let Some(all) = functions::functions(&file.text) else {
        let finding = Finding::new(&file.path, 0, "cannot be read as Rust");
        return vec![(format!("file {}", file.path), finding)];
    };
    let mut found = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        let text = format!("{lines} lines, at most {FILE_LINES_MAX}");
        found.push((format!("file {}", file.path), Finding::new(&file.path, 0, text)));
    }
    for one in all.iter().filter(|one| one.length_lines > FUNCTION_LINES_MAX) {
        let (name, length) = (&one.name, one.length_lines);
        let text = format!("fn {name} has {length} lines, at most {FUNCTION_LINES_MAX}");
        let what = format!("function {} {name}", file.path);
        found.push((what, Finding::new(&file.path, one.line, text)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_files(files: &[(&str, &str)]) -> Vec<String> {
        let mut files = files.to_vec();
        if !files.iter().any(|file| file.0 == ALLOWED) {
            files.push((ALLOWED, ""));
        }
        let workspace = Workspace::of(Vec::new(), &files);
        check(&workspace).expect("a list").iter().map(ToString::to_string).collect()
    }

    fn long_function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_line_of_101_columns_is_found_and_one_of_100_is_not() {
        let line = |columns: usize| format!("// {}\n", "x".repeat(columns - 3));
        let found = check_files(&[("a.rs", &(line(100) + &line(101)))]);
        assert_eq!(found, ["a.rs:2: 101 columns, at most 100"]);
    }

    #[test]
    fn blanks_at_the_end_and_a_missing_newline_are_found() {
        let found = check_files(&[("a.rs", "fn a() {} \nfn b() {}")]);
        assert_eq!(found, ["a.rs:1: blanks at the end", "a.rs: no newline at the end"]);
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        assert_eq!(check_files(&[("a.rs", &long_function(70))]), Vec::<String>::new());
        let found = check_files(&[("a.rs", &long_function(71))]);
        assert_eq!(found, ["a.rs:1: fn long has 71 lines, at most 70"]);
    }

    #[test]
    fn an_exception_needs_a_reason_and_a_use() {
        let source = long_function(80);
        let with = |list: &str| check_files(&[("a.rs", &source), (ALLOWED, list)]);
        assert_eq!(with("function a.rs long: a table\n"), Vec::<String>::new());
        assert_eq!(with("function a.rs long: \n").len(), 2);
        let found = check_files(&[("a.rs", ""), (ALLOWED, "function a.rs long: a table\n")]);
        assert_eq!(
            found,
            ["xtask/allowed.txt:1: exception without need or reason: function a.rs long"]
        );
    }

    #[test]
    fn a_file_of_801_lines_is_found() {
        let found = check_files(&[("a.rs", &"// x\n".repeat(801))]);
        assert_eq!(found, ["a.rs: 801 lines, at most 800"]);
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        let found = check_files(&[("crates/x/src/utils.rs", "//! x\n"), ("common/mod.rs", "")]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let text = format!("// see {}notes\n// the net{}x\n", MACHINE_PATHS[0], MACHINE_PATHS[0]);
        let found = check_files(&[("a.rs", &text)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:1: names a machine's own folder"));
    }

    #[test]
    fn a_word_of_the_desk_is_found_whatever_its_case() {
        let words = [fnv("inkwell")];
        assert_eq!(desk_word("the Inkwell-stand, the Inkwell.", &words), Some("Inkwell"));
        assert_eq!(desk_word("no such thing", &words), None);
    }
}
