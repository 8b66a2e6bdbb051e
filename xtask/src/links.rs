//! Links in Markdown lead somewhere: every relative one names a file of the project.

use crate::finding::Finding;
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

/// What stands in `](...)`, without web addresses and anchors.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

fn leads_somewhere(workspace: &Workspace, from: &str, target: &str) -> bool {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    let path = parts.join("/");
    let folder = format!("{path}/");
    workspace.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_found_and_a_live_one_is_not() {
        let files = [
            ("docs/a.md", "[up](../README.md#x) [side](b.md) [web](https://x.y) [d](./)\n"),
            ("README.md", "[docs](docs/) and [gone](docs/c.md)\n"),
        ];
        let workspace = Workspace::of(Vec::new(), &files);
        let found: Vec<String> = check(&workspace).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["docs/a.md:1: dead link b.md", "README.md:1: dead link docs/c.md"]);
    }
}
