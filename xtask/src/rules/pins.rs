//! Every difference from Linux that `docs/caveats.md` owns up to is held by a test that exists.
//!
//! A row of the table ends with `` `path/of/file.rs` `name_of_test` `` or with the words
//! `not pinned`, and a reason. The same goes for `docs/races.md`.

use super::finding::Finding;
use crate::workspace::{File, Workspace};

/// The ledgers.
const LEDGERS: &[&str] = &["docs/caveats.md", "docs/races.md"];
const UNPINNED: &str = "not pinned";

/// Checks every row of the ledgers.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let ledgers = LEDGERS.iter().filter_map(|path| workspace.file(path));
    ledgers.flat_map(|ledger| check_ledger(workspace, ledger)).collect()
}

fn check_ledger(workspace: &Workspace, ledger: &File) -> Vec<Finding> {
    let rows = ledger.text.lines().enumerate().filter(|(_, row)| is_row(row));
    rows.filter_map(|(at, row)| {
        let cell = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let fault = fault_of(workspace, cell)?;
        Some(Finding::new(&ledger.path, at + 1, fault))
    })
    .collect()
}

/// A row of the body: not the head (its last cell says `Test`), not the rule below it.
fn is_row(line: &str) -> bool {
    line.starts_with('|') && !line.starts_with("|-") && !line.ends_with("| Test |")
}

fn fault_of(workspace: &Workspace, cell: &str) -> Option<String> {
    if cell.contains(UNPINNED) {
        return None;
    }
    let quoted: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    let [path, name] = quoted[..] else {
        return Some(format!("ends neither with a test nor with `{UNPINNED}`"));
    };
    let found = workspace.file(path).is_some_and(|file| names_test(&file.text, name));
    (!found).then(|| format!("no test {name} in {path}"))
}

fn names_test(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}(")) || text.contains(&format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_table(rows: &str) -> Vec<String> {
        let head = "| Difference | Test |\n|---|---|\n";
        let table = format!("{head}{rows}");
        let files =
            [("docs/caveats.md", table.as_str()), ("tests/a.rs", "#[test]\nfn holds() {}\n")];
        let workspace = Workspace::of(Vec::new(), &files);
        check(&workspace).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_row_names_a_test_that_exists_or_says_that_none_does() {
        let good = "| x | `tests/a.rs` `holds` |\n| y | not pinned: needs two machines |\n";
        assert_eq!(check_table(good), Vec::<String>::new());
    }

    #[test]
    fn a_row_with_a_lost_test_or_none_is_found() {
        assert_eq!(check_table("| x | `tests/a.rs` `gone` |\n"), ["no test gone in tests/a.rs"]);
        assert_eq!(check_table("| x | y |\n"), ["ends neither with a test nor with `not pinned`"]);
    }
}
