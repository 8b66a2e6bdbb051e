//! The memory limit of this process's control group, which may be below the machine's memory: above
//! it Linux kills processes of the group.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are, by their interface: the second one's alone, beside the first one's,
/// and the first one's group of memory; with the name of the limit there.
const PLACES: [(&str, &str, &str); 3] = [
    ("", "/sys/fs/cgroup", "memory.max"),
    ("", "/sys/fs/cgroup/unified", "memory.max"),
    ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// The least limit on memory of this process's groups, bytes; `None` = there is none.
pub(crate) fn memory_bytes() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = PLACES.iter().filter_map(|&(controller, root, limit)| {
        least(Path::new(root), &group_of(&own, controller)?, limit)
    });
    limits.min()
}

/// The group that a line of `/proc/PID/cgroup` names for `controller`, below the root of groups.
fn group_of(lines: &str, controller: &str) -> Option<PathBuf> {
    lines.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let named = controllers.split(',').any(|name| name == controller);
        named.then(|| PathBuf::from(path.trim_start_matches('/')))
    })
}

/// The least limit of a group and of those above it.
fn least(root: &Path, group: &Path, limit: &str) -> Option<u64> {
    let limits = group.ancestors().filter_map(|group| {
        fs::read_to_string(root.join(group).join(limit)).ok()?.trim().parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_controller() {
        let lines = "12:cpu,memory:/a/b\n3:freezer:/\n0::/user/x:y\n";
        assert_eq!(group_of(lines, "memory"), Some(PathBuf::from("a/b")));
        assert_eq!(group_of(lines, ""), Some(PathBuf::from("user/x:y")));
        assert_eq!(group_of(lines, "freezer"), Some(PathBuf::new()));
        assert_eq!(group_of(lines, "mem"), None);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let root = std::env::temp_dir().join(format!("husk-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).expect("directories");
        for (group, limit) in [("", "max\n"), ("a", "4096\n"), ("a/b", "8192\n")] {
            fs::write(root.join(group).join("memory.max"), limit).expect("a limit");
        }
        assert_eq!(least(&root, Path::new("a/b"), "memory.max"), Some(4096));
        assert_eq!(least(&root, Path::new(""), "memory.max"), None);
        fs::remove_dir_all(&root).expect("removed");
    }
}
