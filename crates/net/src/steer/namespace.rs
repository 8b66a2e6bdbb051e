//! Work in the network namespace of another process.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Does `work` in the network namespace of a process: sockets that are made there belong to it.
/// This thread may have no business in another one meanwhile.
pub(super) fn within<T>(pid: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (own, theirs) = ("/proc/thread-self/ns/net", format!("/proc/{pid}/ns/net"));
    if fs::read_link(own)? == fs::read_link(&theirs)? {
        return work();
    }
    let network = Some(LinkNameSpaceType::Network);
    let (own, theirs) = (File::open(own)?, File::open(theirs)?);
    move_into_link_name_space(theirs.as_fd(), network)?;
    let done = work();
    move_into_link_name_space(own.as_fd(), network)?;
    done
}
