//! Inside a crate, folders import downward only: the other half of the step `edges`.
//!
//! ```text
//!   ORDER   a crate's folders from the top down; a folder may name those after it
//! ```
//!
//! Invariant: every folder, and every file beside the crate's root, has its place in `ORDER`.
//!
//! The crate's root (`lib.rs`, `main.rs`) and the names it gives all are outside of the order.

use super::finding::Finding;
use crate::workspace::{File, Workspace};
use std::collections::BTreeSet;

/// Where a crate's files lie, and its folders from the top down.
const ORDER: &[(&str, &[&str])] = &[
    (
        "crates/client/src/",
        &[
            "scratch",
            "call",
            "ready",
            "socket",
            "pipe",
            "memory",
            "file",
            "fd",
            "overlay",
            "path",
            "identity",
            "namespace",
            "buffers",
            "iovec",
            "layout",
            "boundary",
            "reason",
        ],
    ),
    (
        "crates/kernel/src/",
        &[
            "check",
            "process",
            "descriptor",
            "lock",
            "readiness",
            "pipe",
            "fs",
            "watch",
            "image",
            "state",
        ],
    ),
    ("crates/region/src/", &["rings", "observe", "pools", "txn", "arena", "hooks"]),
    (
        "crates/runtime/src/",
        &[
            "start",
            "gate",
            "process",
            "signal",
            "mapping",
            "dump",
            "load",
            "client",
            "detour",
            "memory",
            "clock",
            "stubs",
            "thread",
            "facts",
            "frame",
            "addresses",
            "maps",
            "entry",
            "reach",
            "handover",
            "script",
            "elf",
            "core_dump",
        ],
    ),
    (
        "crates/node/src/",
        &[
            "tests",
            "sim",
            "fetcher",
            "serve",
            "slots",
            "dispatch",
            "file",
            "once",
            "other_host",
            "agent",
            "translate",
            "plain",
            "sessions",
            "planted",
        ],
    ),
    (
        "crates/husk/src/",
        &[
            "commands", "sim", "bench", "net", "top", "pages", "picture", "screen", "ends",
            "numbers",
        ],
    ),
];

/// Checks the imports of every file of the crates in `ORDER`.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (source, order) in ORDER {
        for file in workspace.files.iter().filter(|file| file.is_rust()) {
            let Some(path) = file.path.strip_prefix(source) else { continue };
            check_file(file, path, order, &mut findings);
        }
    }
    findings
}

fn check_file(file: &File, path: &str, order: &[&str], findings: &mut Vec<Finding>) {
    let own = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    if matches!(own, "lib" | "main") {
        return;
    }
    let Some(place) = order.iter().position(|folder| *folder == own) else {
        let text = format!("{own} has no place in the order of xtask/src/rules/siblings.rs");
        return findings.push(Finding::new(&file.path, 0, text));
    };
    let imports = imports(file, depth(path));
    for above in order[..place].iter().filter(|folder| imports.contains(**folder)) {
        let text = format!("{own} must not import {above}, which is above it");
        findings.push(Finding::new(&file.path, 0, text));
    }
}

/// How many modules down from the crate's root a file is.
fn depth(path: &str) -> usize {
    path.split('/').count() - usize::from(path.ends_with("/mod.rs"))
}

/// What a file names of its crate's root: by `crate::`, or by as many `super::` as lead there.
fn imports(file: &File, depth: usize) -> BTreeSet<String> {
    let code: String = file.code().flat_map(|(_, line)| [line, "\n"]).collect();
    let ups = "super::".repeat(depth);
    ["crate::", &ups]
        .into_iter()
        .flat_map(|prefix| code.match_indices(prefix).map(move |(at, _)| (at, prefix)))
        .filter(|(at, _)| !code[..*at].ends_with(is_of_a_name))
        .flat_map(|(at, prefix)| first_names(&code[at + prefix.len()..]))
        .collect()
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// The first name of a path, or of each path in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| is_of_a_name(*c)).collect();
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut names = vec![name(list)];
    let mut open = 1;
    for (at, c) in list.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            ',' if open == 1 => names.push(name(&list[at + 1..])),
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)]) -> Vec<String> {
        check(&Workspace::of(Vec::new(), files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_import_upward_is_found_however_it_is_written() {
        let ways = [
            "use crate::descriptor::table;\n",
            "use crate::{\n    state::{text, tree}, // below\n    descriptor::table,\n};\n",
            "fn f() {\n    crate::descriptor::table::close();\n}\n",
            "use super::super::descriptor::table;\n",
        ];
        for way in ways {
            assert_eq!(
                texts(&[("crates/kernel/src/watch/list.rs", way)]),
                ["crates/kernel/src/watch/list.rs: watch must not import descriptor, which is \
                     above it"]
            );
        }
    }

    #[test]
    fn imports_downward_of_its_own_folder_and_in_comments_pass() {
        let text = "// crate::check\nuse crate::fs::walk;\nuse crate::{Kernel, state::tree};\n\
                    use other_crate::check;\npub(crate) fn f() {}\nuse super::names;\n";
        assert_eq!(texts(&[("crates/kernel/src/fs/walk.rs", text)]), Vec::<String>::new());
        assert_eq!(
            texts(&[("crates/kernel/src/lib.rs", "use crate::check;\n")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_folder_without_a_place_is_found() {
        assert_eq!(
            texts(&[("crates/kernel/src/attic/one.rs", "")]),
            ["crates/kernel/src/attic/one.rs: attic has no place in the order of \
              xtask/src/rules/siblings.rs"]
        );
    }
}
