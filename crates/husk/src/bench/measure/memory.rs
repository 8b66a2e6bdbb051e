//! What an image holds in memory: its supervisor's own pages and the pages of its memfds.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that are there only because the image is: private pages of process `supervisor` and all
/// pages allocated to the memfds it has open (each once, however often it is mapped).
pub fn image_bytes(supervisor: u32) -> anyhow::Result<u64> {
    Ok(private_bytes(supervisor)? + region_bytes(supervisor)?)
}

/// Pages allocated to the memfds of process `supervisor`, in bytes.
pub fn region_bytes(supervisor: u32) -> anyhow::Result<u64> {
    let mut seen = Vec::new();
    let mut bytes = 0;
    for entry in std::fs::read_dir(format!("/proc/{supervisor}/fd"))? {
        let path = entry?.path();
        let Some(facts) = memfd(&path) else { continue };
        if !seen.contains(&facts.ino()) {
            seen.push(facts.ino());
            bytes += facts.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// Memory of a process and of all that it has started, in bytes. Pages that they share count once;
/// those of the memfds that the first one has open count even where nobody has mapped them.
pub fn tree_bytes(pid: u32) -> anyhow::Result<u64> {
    let (mut own, mut shared) = (0, 0);
    for process in crate::bench::servers::processes(pid)? {
        // Who has ended meanwhile has none.
        let Ok(sums) = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")) else {
            continue;
        };
        let [all, shmem] = ["Pss:", "Pss_Shmem:"].map(|name| line_bytes(&sums, name));
        own += all.saturating_sub(shmem);
        shared += shmem;
    }
    Ok(own + shared.max(region_bytes(pid).unwrap_or(0)))
}

/// The descriptor's facts when it is a memfd.
fn memfd(path: &Path) -> Option<std::fs::Metadata> {
    let target = std::fs::read_link(path).ok()?;
    if !target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
        return None;
    }
    std::fs::metadata(path).ok()
}

fn private_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(line_bytes(&status, "RssAnon:"))
}

/// The number of KiB behind `name`, in bytes.
fn line_bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: u64 = line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0);
    kib * 1024
}
