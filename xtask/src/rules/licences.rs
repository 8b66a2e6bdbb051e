//! Every package's licence is one of `deny.toml`'s.
//!
//! `deny.toml` is also what `cargo deny` reads; the check here needs no further tool, so that it
//! always runs.

use super::finding::Finding;
use crate::workspace::Workspace;
use anyhow::{Context, Result};

/// Where the list stands.
const LIST: &str = "deny.toml";

/// Checks every package that is built.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let list = workspace.file(LIST).context("deny.toml is missing")?;
    let allowed = allowed(&list.text);
    let refused = workspace.packages.iter().filter_map(|package| {
        let expression = package.license.as_deref().unwrap_or("none stated");
        (!permits(expression, &allowed)).then(|| {
            let text = format!("licence of {} is not allowed: {expression}", package.name);
            Finding::new(LIST, 0, text)
        })
    });
    Ok(refused.collect())
}

/// The quoted strings of the `allow = [ ... ]` list.
fn allowed(text: &str) -> Vec<&str> {
    let list = text.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    list.map_or_else(Vec::new, |(list, _)| list.split('"').skip(1).step_by(2).collect())
}

/// Whether an SPDX expression can be satisfied: any side of an OR, all of an AND.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    split(&expression, " OR ").iter().any(|choice| {
        split(choice, " AND ").iter().all(|term| {
            let inner = term.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            inner.map_or_else(|| allowed.contains(term), |inner| permits(inner, allowed))
        })
    })
}

/// Splits at `separator` outside parentheses.
fn split<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ if depth == 0 && text[at..].starts_with(separator) && at >= start => {
                parts.push(text[start..at].trim());
                start = at + separator.len();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[&str] = &["MIT", "Apache-2.0", "Unicode-3.0"];

    #[test]
    fn one_side_of_an_or_is_enough() {
        assert!(permits("GPL-3.0 OR MIT", ALLOWED));
        assert!(permits("MIT/Apache-2.0", ALLOWED));
    }

    #[test]
    fn both_sides_of_an_and_are_needed() {
        assert!(permits("(MIT OR GPL-3.0) AND Unicode-3.0", ALLOWED));
        assert!(!permits("MIT AND GPL-3.0", ALLOWED));
    }

    #[test]
    fn an_unknown_licence_and_none_are_refused() {
        assert!(!permits("GPL-3.0", ALLOWED));
        assert!(!permits("none stated", ALLOWED));
    }

    #[test]
    fn the_list_is_read_from_the_file() {
        let text = "[licenses]\nallow = [\n  \"MIT\", # why\n  \"ISC\",\n]\n";
        assert_eq!(allowed(text), ["MIT", "ISC"]);
    }
}
