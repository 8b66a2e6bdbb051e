//! How a mount is made and ended on the host: by mount(2) where that is allowed, else through
//! `fusermount3`, which is set-user-ID and asks the host for us.
//!
//! ```text
//!   root:      open /dev/fuse, mount(2) ─► descriptor
//!   else:      fusermount3 ── descriptor over a socket ──►
//! ```

use std::env;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getegid, geteuid};

use crate::failure::Failure;
use crate::named::message::receive;
use crate::request::reason;

use super::point::KIND;

/// Where the host answers servers.
pub const DEVICE: &str = "/dev/fuse";
/// Who mounts for users, by the names it has had.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// Where it is where `PATH` does not say.
const PLACES: &str = "/usr/bin:/bin:/usr/local/bin";
/// How it is told which socket to answer on.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";
/// How long it may take.
const HELP_MAX: Duration = Duration::from_secs(20);
/// What the host is to check and to leave alone.
const OPTIONS: &str = "default_permissions";

/// Mounts `source` at `directory`; the descriptor that its server reads.
pub fn attach(directory: &Path, source: &str) -> Result<OwnedFd, Failure> {
    let refuse = |why: String, remedy: &str| {
        Failure::new(format!("cannot mount at {}", directory.display()), why, remedy)
    };
    if !Path::new(DEVICE).exists() {
        let why = format!("this host has no {DEVICE}");
        return Err(refuse(why, "load it as root: modprobe fuse; let a container have it"));
    }
    if geteuid().is_root() {
        match directly(directory, source) {
            Ok(device) => return Ok(device),
            // Of a container, for example.
            Err(Errno::PERM) if helper().is_none() => {
                let why = "this root may not mount".to_owned();
                return Err(refuse(why, "give it CAP_SYS_ADMIN"));
            }
            Err(Errno::PERM) => {}
            Err(errno) => return Err(refuse(reason(&errno.into()), "see `husk check`")),
        }
    }
    let Some(helper) = helper() else {
        let why = "there is no fusermount3, through which users mount".to_owned();
        return Err(refuse(why, "install it: apt install fuse3"));
    };
    through(&helper, directory, source).map_err(|why| refuse(why, "see `husk check`"))
}

fn directly(directory: &Path, source: &str) -> Result<OwnedFd, Errno> {
    let open = File::options().read(true).write(true).open(DEVICE);
    let device = open.map_err(|problem| Errno::from_io_error(&problem).unwrap_or(Errno::IO))?;
    let (number, user, group) = (device.as_raw_fd(), geteuid().as_raw(), getegid().as_raw());
    let options = format!("fd={number},rootmode=40000,user_id={user},group_id={group},{OPTIONS}");
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(source, directory, KIND, flags, Some(options.as_c_str()))?;
    Ok(device.into())
}

/// Who mounts for users.
pub fn helper() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| PLACES.into());
    let able = |candidate: &PathBuf| access(candidate, Access::EXEC_OK).is_ok();
    HELPERS
        .iter()
        .find_map(|name| env::split_paths(&path).map(|directory| directory.join(name)).find(able))
}

/// The same through the helper; an error: what it said.
fn through(helper: &Path, directory: &Path, source: &str) -> Result<OwnedFd, String> {
    let in_words = |problem: io::Error| reason(&problem);
    let (ours, theirs) = UnixStream::pair().map_err(in_words)?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| reason(&errno.into()))?;
    let child = Command::new(helper)
        .arg("-o")
        .arg(format!("fsname={source},subtype=husk,nosuid,nodev,{OPTIONS}"))
        .arg("--")
        .arg(directory)
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(in_words)?;
    drop(theirs);
    let received = ours.set_read_timeout(Some(HELP_MAX)).and_then(|()| receive(&ours, false));
    let said = child.wait_with_output().map_err(in_words)?;
    match received {
        Ok((_, descriptors)) if said.status.success() => {
            let device = descriptors.into_iter().next();
            device.ok_or_else(|| "fusermount3 gave no descriptor".to_owned())
        }
        _ => Err(last_line(&said.stderr)),
    }
}

/// The last that somebody said.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().last().unwrap_or("fusermount3 failed").replace(char::is_control, "?")
}

/// Ends the mount at `directory`; `lazily`: also one that is in use, which then is out of sight,
/// and gone with its last user.
pub fn detach(directory: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(directory, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let helper = helper().ok_or(io::ErrorKind::PermissionDenied)?;
    let mut command = Command::new(helper);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(directory);
    let said = command.stdin(Stdio::null()).output()?;
    if said.status.success() {
        return Ok(());
    }
    let line = last_line(&said.stderr);
    let busy = line.to_lowercase().contains("busy");
    Err(if busy { Errno::BUSY.into() } else { io::Error::other(line) })
}
