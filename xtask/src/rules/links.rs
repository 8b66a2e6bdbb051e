//! Links in Markdown lead somewhere: every relative one names a file of the project, and an anchor
//! names a heading in it, as GitHub names headings.

use super::finding::Finding;
use crate::workspace::Workspace;

/// Checks every Markdown file.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let markdown = workspace.files.iter().filter(|file| file.path.ends_with(".md"));
    let all = markdown.flat_map(|file| {
        file.text.lines().enumerate().flat_map(move |(at, line)| {
            targets(line).into_iter().map(move |target| (file, at + 1, target))
        })
    });
    all.filter(|(file, _, target)| !leads_somewhere(workspace, &file.path, target))
        .map(|(file, line, target)| Finding::new(&file.path, line, format!("dead link {target}")))
        .collect()
}

/// What `](...)` holds, without web addresses.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

fn leads_somewhere(workspace: &Workspace, from: &str, target: &str) -> bool {
    let (target, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if target.is_empty() { from.to_owned() } else { resolve(from, target) };
    if let Some(file) = workspace.file(&path) {
        return anchor.is_empty() || file.text.lines().any(|line| has_anchor(line, anchor));
    }
    let folder = format!("{path}/");
    workspace.files.iter().any(|file| file.path.starts_with(&folder))
}

/// The path within the project of a target that the file `from` names.
fn resolve(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Whether a line is the heading that an anchor names: small letters, dashes for blanks, no other
/// punctuation.
fn has_anchor(line: &str, anchor: &str) -> bool {
    let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
    let title = line.trim_start_matches('#');
    let name = title.trim().chars().filter(kept).collect::<String>().to_lowercase();
    line.starts_with('#') && name.replace(' ', "-") == anchor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_found_and_a_live_one_is_not() {
        let files = [
            ("docs/a.md", "[up](../README.md#its-x) [side](b.md) [web](https://x.y#z) [d](./)\n"),
            (
                "README.md",
                "# It's `X`\n[docs](docs/), [gone](docs/c.md), [here](#its-x), [y](#y)\n",
            ),
        ];
        let workspace = Workspace::of(Vec::new(), &files);
        let found: Vec<String> = check(&workspace).iter().map(ToString::to_string).collect();
        let expected = [
            "docs/a.md:1: dead link b.md",
            "README.md:2: dead link docs/c.md",
            "README.md:2: dead link #y",
        ];
        assert_eq!(found, expected);
    }
}
