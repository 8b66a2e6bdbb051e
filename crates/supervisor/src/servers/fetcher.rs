//! Looks at the host for some programs of the image: those in a user namespace of their own, which
//! would take its ids into the image, and those that the host does not let see or read what the
//! image does (`docs/adr/0091`).
//!
//! ```text
//!   a program ──► an inode from the host, and what is to be looked at ──► the import
//!             ◄── done, or a descriptor; or an error number ──
//! ```

use std::fs;

use husk_carrier::Direct;
use husk_node::Fetcher;
use husk_proto::Shortcuts as _;
use husk_proto::fetch::FETCHER;
use husk_proto::{Admin as _, Credentials};
use rustix::io::Errno;
use rustix::net::UCred;

use crate::servers::counter::{Counter, Queue};
use crate::servers::moved::Moved;

/// Announces the fetcher in the image, before the first program begins. Without it such programs
/// see what they may see themselves.
pub fn offer(direct: &mut Direct) -> Option<Queue> {
    let queue = Queue::open(direct.private_path(), FETCHER)?;
    direct.set_fetcher(rustix::process::geteuid().as_raw());
    Some(queue)
}

/// Begins to.
pub fn begin(queue: Queue) -> Option<Counter> {
    let fetch = |direct: Direct| {
        let mut fetcher = Fetcher::new(direct);
        let mut moved = Moved::default();
        move |request: &[u8], who: UCred| {
            let (uid, gid, groups) = (who.uid.as_raw(), who.gid.as_raw(), groups_of(who));
            // Capabilities are not known; a process that has some need not ask.
            let (capabilities, within) = (0, None);
            let who = Credentials { uid, gid, groups: &groups, capabilities, within };
            let got = fetcher.answer(request, &who, |inode| moved.find(inode));
            got.map_err(|errno| Errno::from_raw_os_error(errno.0))
        }
    };
    Counter::begin(queue, fetch)
}

/// Supplementary groups of a process.
fn groups_of(who: UCred) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", who.pid.as_raw_pid()));
    let status = status.unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}
