//! `docs/syscalls.md` from the client's table of calls: one declaration, read as text.
//!
//! ```text
//! crates/client/src/call/table.rs   --rows()-->   docs/syscalls.md
//!     // ---- bytes                              ## Bytes
//!     read Full "" => ...;                       | `read` | full | |
//! ```

use super::finding::Finding;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;

const SOURCE: &str = "crates/client/src/call/table.rs";
const PAGE: &str = "docs/syscalls.md";
const HEAD: &str = "\
# System calls on files of an image

Made by `cargo xtask syscalls` from [the client's table](../crates/client/src/call/table.rs), not by
hand. It says how each call is answered where it concerns Husk: *full* as Linux does, *partial* with
what is missing in the note, *passed* to the host while the client takes notes, *refused* with the
error in the note. A call that is not listed goes to the host unchanged, and so does every call that
concerns only the host's files.
";

/// One part of the page.
enum Row<'a> {
    Section(&'a str),
    Call { name: &'a str, support: &'a str, note: &'a str },
}

/// Whether the page is what the table says.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let fresh = page(&source(workspace)?);
    let stale = workspace.file(PAGE).is_none_or(|file| file.text != fresh);
    let finding = || Finding::new(PAGE, 0, "not what the table says; type: cargo xtask syscalls");
    Ok(stale.then(finding).into_iter().collect())
}

/// Writes the page.
pub fn write(workspace: &Workspace) -> Result<()> {
    fs::write(workspace.root.join(PAGE), page(&source(workspace)?)).context("cannot write the page")
}

fn source(workspace: &Workspace) -> Result<String> {
    let file = workspace.file(SOURCE).context("the client's table of calls is gone")?;
    Ok(file.text.clone())
}

fn page(source: &str) -> String {
    let mut page = HEAD.to_owned();
    for row in rows(source) {
        match row {
            Row::Section(name) => {
                let (first, rest) = name.split_at(1);
                let head = "| Call | Served | Note |\n|---|---|---|\n";
                page.push_str(&format!("\n## {}{rest}\n\n{head}", first.to_uppercase()));
            }
            Row::Call { name, support, note } => {
                let support = support.to_lowercase();
                let note = if note.is_empty() { String::new() } else { format!("{note} ") };
                page.push_str(&format!("| `{name}` | {support} | {note}|\n"));
            }
        }
    }
    page
}

/// The rows between `calls! {` and its end.
fn rows(source: &str) -> Vec<Row<'_>> {
    let table = source.split_once("\ncalls! {").map_or("", |(_, table)| table);
    let table = table.split_once("\n}").map_or(table, |(table, _)| table);
    table.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row<'_>> {
    let line = line.strip_prefix("    ")?;
    if let Some(name) = line.strip_prefix("// ---- ") {
        return Some(Row::Section(name));
    }
    let (name, rest) = line.split_once(' ')?;
    let (support, rest) = rest.split_once(" \"")?;
    let known = ["Full", "Partial", "Passed", "Refused"].contains(&support);
    let (note, _) = rest.split_once('"')?;
    (known && !name.is_empty()).then_some(Row::Call { name, support, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"x
calls! { |c|
    // ---- bytes
    read Full "" => c.read();
    tee Refused "EINVAL"
        => c.tee("no row");
}
other Full "" =>
"#;

    #[test]
    fn the_page_has_a_row_for_each_call() {
        let made = page(TABLE);
        let body = made.strip_prefix(HEAD).expect("the head");
        assert_eq!(
            body,
            "\n## Bytes\n\n| Call | Served | Note |\n|---|---|---|\n\
             | `read` | full | |\n| `tee` | refused | EINVAL |\n"
        );
    }

    #[test]
    fn a_stale_page_is_found() {
        let fresh = page(TABLE);
        let check_page =
            |text: &str| check(&Workspace::of(Vec::new(), &[(SOURCE, TABLE), (PAGE, text)]));
        assert_eq!(check_page(&fresh).expect("a table").len(), 0);
        assert_eq!(check_page("old\n").expect("a table").len(), 1);
    }
}
