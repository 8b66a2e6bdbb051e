//! What is overlaid besides what was named: file systems mounted below an overlay, and for
//! `--overlay /` each directory of the host's root.
//!
//! ```text
//!   /  ─┬─ etc, home, opt, usr, var, ...  an overlay each
//!       │   └─ usr/local                  one more on each ordinary file system mounted below
//!       ├─ bin -> usr/bin                 links lead into those
//!       └─ proc, sys, dev                 the host's
//! ```
//!
//! Invariants
//! 1. An ordinary file system mounted below an overlay is overlaid. Where it is not, because it is
//!    of the network or there is no room, a note says so.
//! 2. A directory that was named otherwise (`--overlay`, `--mount`) is as named.
//! 3. With `--overlay /`, nothing outside is changed: what is no overlay is read-only, unless that
//!    was ruled out.
//! 4. There are at most so many trees as an image has room for. Left out first, with a note, is
//!    what this user cannot write to (empty directories, then roots of file systems mounted
//!    deeper), then what is empty on the host, then the other file systems.

use std::fs;
use std::path::{Path, PathBuf};

use husk_proto::image::{Cover, MOUNTS_MAX};
use rustix::fs::{Access, access};

use crate::named::mount::{Standing, mounts, standing_over};
use crate::output::failure::Failure;
use crate::run::request::{MountPlan, is_the_hosts};

/// The host's root.
pub const ROOT: &str = "/";
/// No user's directory, in every root of ext2, ext3 and ext4.
const LOST: &str = "/lost+found";
/// Directories that are often empty before they are filled.
const FILLED_LATER: [&str; 3] = ["/opt", "/srv", "/tmp"];
/// File systems that hold files of users and of the system.
const ORDINARY: [&str; 12] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "ntfs3", "tmpfs", "vfat", "xfs",
    "zfs",
];
/// File systems of the network and of containers, which are not overlaid unless they are named.
const OTHERS: [&str; 9] =
    ["9p", "ceph", "cifs", "fuse.sshfs", "nfs", "nfs4", "overlay", "smb3", "virtiofs"];
/// What is mounted below these holds devices and settings, as below /dev and /sys (`chroot`s).
const OF_THE_KERNEL: [&str; 3] = ["devtmpfs", "proc", "sysfs"];
/// The tree on /dev/shm, where what lies outside is read-only.
const ON_SHM: usize = 1;

/// Whether a directory that was named is the root.
pub fn is_root(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|real| real == Path::new(ROOT))
}

/// Adds an overlay on each directory of the root. A note about what was left out.
pub fn add(plans: &mut Vec<MountPlan>) -> Result<Option<String>, Failure> {
    let named = |path: &PathBuf| plans.iter().any(|plan| plan.path == *path);
    let mut found: Vec<PathBuf> = directories(Path::new(ROOT))?;
    found.retain(|path| !named(path));
    let deeper = mounted(&mounts(), &found, plans, &ORDINARY);
    let room = MOUNTS_MAX.saturating_sub(plans.len() + ON_SHM);
    let left_out = fit(&mut found, deeper, room, &is_empty, &writable)?;
    plans.extend(found.into_iter().map(|path| MountPlan { path, cover: Cover::Overlay }));
    Ok((!left_out.is_empty()).then(|| {
        let names = listed(&left_out);
        format!("an image has at most {MOUNTS_MAX} trees: not overlaid, read-only: {names}")
    }))
}

/// Adds an overlay on each ordinary file system mounted below another overlay. A note about those
/// where changes reach the host.
pub fn add_mounted(plans: &mut Vec<MountPlan>) -> Result<Option<String>, Failure> {
    let all = mounts();
    let deeper = mounted(&all, &[], plans, &ORDINARY);
    let room = MOUNTS_MAX.saturating_sub(plans.len());
    let mut found = Vec::new();
    let mut left_out = fit(&mut found, deeper, room, &is_empty, &writable)?;
    left_out.extend(mounted(&all, &[], plans, &OTHERS));
    plans.extend(found.into_iter().map(|path| MountPlan { path, cover: Cover::Overlay }));
    Ok((!left_out.is_empty()).then(|| {
        let names = listed(&left_out);
        let how = "changes there reach the host at once, unless --overlay names them";
        format!("mounted below an overlay, and not part of it: {names}: {how}")
    }))
}

fn writable(path: &Path) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

fn listed(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// Directories that can be overlaid by this user.
fn directories(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |problem: std::io::Error| {
        let why = crate::run::request::reason(&problem);
        Failure::new(format!("cannot overlay {ROOT}"), why, "name directories below it")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let able = || access(&path, Access::READ_OK | Access::EXEC_OK).is_ok();
        // Who has gone meanwhile is none. Links are not followed.
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let other = is_the_hosts(&path) || path == Path::new(LOST);
        if is_directory && !other && able() && standing_over(&path).is_none() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Directories on which one of `all` mounts is, of one of these `kinds`, below those `found` or
/// below overlays of `plans`.
fn mounted(
    all: &[(String, Standing)],
    found: &[PathBuf],
    plans: &[MountPlan],
    kinds: &[&str],
) -> Vec<PathBuf> {
    let trees = || {
        let found = found.iter().map(|path| (&**path, true));
        found.chain(plans.iter().map(|plan| (&*plan.path, plan.cover == Cover::Overlay)))
    };
    let is_deeper = |path: &Path| {
        let above = trees().filter(|(above, _)| path.starts_with(above));
        let innermost = above.max_by_key(|(above, _)| above.as_os_str().len());
        innermost.is_some_and(|(above, overlaid)| overlaid && above != path)
    };
    let of_kind = |kinds: &[&str]| -> Vec<&Path> {
        let is_of = |kind: &str| kinds.contains(&kind);
        all.iter().filter(|(kind, _)| is_of(kind)).map(|(_, one)| &*one.directory).collect()
    };
    let kernels = of_kind(&OF_THE_KERNEL);
    let is_the_kernels = |path: &Path| kernels.iter().any(|one| path.starts_with(one));
    let mut deeper = of_kind(kinds);
    deeper.retain(|path| is_deeper(path) && !is_the_hosts(path) && !is_the_kernels(path));
    // One of the network may not answer.
    if kinds == ORDINARY {
        let able = Access::READ_OK | Access::EXEC_OK;
        deeper.retain(|path| path.is_dir() && access(*path, able).is_ok());
    }
    deeper.sort();
    deeper.dedup();
    deeper.into_iter().map(PathBuf::from).collect()
}

/// Adds what is `deeper` (invariant 4). What was left out.
fn fit(
    found: &mut Vec<PathBuf>,
    deeper: Vec<PathBuf>,
    room: usize,
    is_empty: &dyn Fn(&Path) -> bool,
    writable: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, Failure> {
    let excess = (found.len() + deeper.len()).saturating_sub(room);
    let is_filled_later = |path: &Path| FILLED_LATER.iter().any(|name| path == Path::new(name));
    let empty = found.iter().filter(|path| is_empty(path)).map(|path| {
        let worth = if writable(path) { 2 + usize::from(is_filled_later(path)) } else { 0 };
        (worth, path.clone())
    });
    let mounted =
        deeper.iter().rev().map(|path| (if writable(path) { 4 } else { 1 }, path.clone()));
    let mut left_out: Vec<(usize, PathBuf)> = empty.chain(mounted).collect();
    left_out.sort_by_key(|(worth, _)| *worth);
    let mut left_out: Vec<PathBuf> = left_out.into_iter().map(|(_, path)| path).collect();
    left_out.truncate(excess);
    if left_out.len() < excess {
        let (count, most) = (found.len(), MOUNTS_MAX);
        return Err(Failure::new(
            format!("cannot overlay {ROOT}"),
            format!("it has {count} directories, and an image has at most {most} trees"),
            "name those that matter, as --overlay /usr --overlay /etc",
        ));
    }
    found.extend(deeper);
    found.retain(|path| !left_out.contains(path));
    Ok(left_out)
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_directories_make_room_and_those_that_installers_fill_do_so_last() {
        let all = ["/etc", "/media", "/mnt", "/opt", "/usr"].map(PathBuf::from);
        let empty = |path: &Path| !["/etc", "/usr"].map(Path::new).contains(&path);
        let writable = |_: &Path| true;
        let left = |room| fit(&mut all.to_vec(), Vec::new(), room, &empty, &writable);
        assert_eq!(left(5).unwrap(), [] as [PathBuf; 0]);
        assert_eq!(left(3).unwrap(), ["/media", "/mnt"].map(PathBuf::from));
        assert_eq!(left(2).unwrap().last(), Some(&PathBuf::from("/opt")));
        // A file system that is mounted deeper is worth more than what is empty, and less than
        // what is not.
        let mut found = all.to_vec();
        let local = || vec![PathBuf::from("/usr/local")];
        let left_out = fit(&mut found, local(), 3, &empty, &writable).unwrap();
        assert_eq!(left_out, ["/media", "/mnt", "/opt"].map(PathBuf::from));
        assert_eq!(found.last(), Some(&PathBuf::from("/usr/local")));
        let left_out = fit(&mut all.to_vec(), local(), 2, &empty, &writable);
        assert_eq!(left_out.unwrap().last(), Some(&PathBuf::from("/usr/local")));
        // What is not the user's to write to is worth less than that.
        let own = |path: &Path| path != Path::new("/usr/local") && path != Path::new("/opt");
        let left_out = fit(&mut all.to_vec(), local(), 3, &empty, &own);
        assert_eq!(left_out.unwrap(), ["/opt", "/usr/local", "/media"].map(PathBuf::from));
        assert!(left(1).unwrap_err().to_string().contains("at most 16 trees"));
    }

    #[test]
    fn a_directory_that_was_named_otherwise_is_as_named() {
        let usr = MountPlan { path: PathBuf::from("/usr"), cover: Cover::Memory };
        let mut plans = vec![usr.clone()];
        add(&mut plans).unwrap();
        assert_eq!(plans.iter().filter(|plan| plan.path == usr.path).count(), 1);
        assert!(plans.contains(&usr) && plans.len() > 2);
        let hosts = ["/proc", "/sys", "/dev", "/bin"].map(Path::new);
        // Where `/bin` is a link, as it is on every system with a merged `/usr`.
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_default() == path;
        for path in hosts.into_iter().filter(|path| is_the_hosts(path) || !real(path)) {
            assert!(plans.iter().all(|plan| plan.path != path), "{}", path.display());
        }
    }
}
