//! Mounts and unmounts on the host: by mount(2) where that is allowed, else by the set-user-ID
//! program `fusermount3`.
//!
//! ```text
//!   root:      open /dev/fuse, mount(2) ─► descriptor
//!   else:      fusermount3 ── descriptor over a socket ──►
//! ```
//!
//! Invariants
//! 1. What is mounted on is named by its descriptor, what is ended by its name in a directory that
//!    is open: a path may lead elsewhere meanwhile.
//! 2. Nobody waits for `fusermount3` longer than `HELP_MAX`.

use std::env;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getegid, geteuid};

use crate::named::message::receive;
use crate::output::failure::Failure;
use crate::process::children::end_of;
use crate::run::request::reason;

use super::point::{KIND, Point, by_descriptor};

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
/// Most of what it says that is read.
const SAID_BYTES_MAX: u64 = 4096;
/// What the host is to check and to leave alone.
const OPTIONS: &str = "default_permissions";

/// Mounts `source` at `point`; the descriptor that its server reads.
pub fn attach(point: &Point, source: &str) -> Result<OwnedFd, Failure> {
    let refuse = |why: String, remedy: &str| {
        Failure::new(format!("cannot mount at {}", point.path.display()), why, remedy)
    };
    if !Path::new(DEVICE).exists() {
        let why = format!("this host has no {DEVICE}");
        return Err(refuse(why, "load it as root: modprobe fuse; let a container have it"));
    }
    if geteuid().is_root() {
        match directly(&by_descriptor(&point.directory), source) {
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
    through(&helper, &point.directory, source).map_err(|why| refuse(why, "see `husk check`"))
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

/// The same through the helper, which has the directory as its standard input; an error: what it
/// said.
fn through(helper: &Path, directory: &OwnedFd, source: &str) -> Result<OwnedFd, String> {
    let in_words = |problem: io::Error| reason(&problem);
    let directory = directory.try_clone().map_err(in_words)?;
    let (ours, theirs) = UnixStream::pair().map_err(in_words)?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| reason(&errno.into()))?;
    let mut child = Command::new(helper)
        .arg("-o")
        .arg(format!("fsname={source},subtype=husk,nosuid,nodev,{OPTIONS}"))
        .arg("--")
        // What a link stands for, it does not mount on; what lies in there, it finds.
        .arg("/proc/self/fd/0/.")
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .stdin(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(in_words)?;
    drop(theirs);
    let received = ours.set_read_timeout(Some(HELP_MAX)).and_then(|()| receive(&ours, false));
    let (status, said) = ended(&mut child).map_err(in_words)?;
    match received {
        Ok((_, descriptors)) if status.success() => {
            let device = descriptors.into_iter().next();
            device.ok_or_else(|| "fusermount3 gave no descriptor".to_owned())
        }
        _ => Err(last_line(&said)),
    }
}

/// Waits for the helper's end, for some time, and for what it has said; then it is killed.
fn ended(child: &mut Child) -> io::Result<(ExitStatus, Vec<u8>)> {
    let Some(status) = end_of(child, HELP_MAX)? else {
        // It may have ended this moment.
        let _ = child.kill();
        let _ = child.try_wait();
        let why = format!("fusermount3 did not answer in {} s", HELP_MAX.as_secs());
        return Err(io::Error::other(why));
    };
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // Whoever it has started may hold the other end.
        rustix::io::ioctl_fionbio(&stderr, true)?;
        // What came is what there is.
        let _ = stderr.take(SAID_BYTES_MAX).read_to_end(&mut said);
    }
    Ok((status, said))
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
    match by_name(directory, flags) {
        Err(Errno::PERM | Errno::ACCESS) => {}
        other => return Ok(other?),
    }
    let helper = helper().ok_or(io::ErrorKind::PermissionDenied)?;
    let mut command = Command::new(helper);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(directory);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let (status, said) = ended(&mut child)?;
    if status.success() {
        return Ok(());
    }
    let line = last_line(&said);
    let busy = line.to_lowercase().contains("busy");
    Err(if busy { Errno::BUSY.into() } else { io::Error::other(line) })
}

/// Invariant 1, for what is mounted at `directory` itself.
fn by_name(directory: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    let parent = directory.parent().zip(directory.file_name());
    let (parent, name) = parent.ok_or(Errno::INVAL)?;
    let errno = |problem: io::Error| Errno::from_io_error(&problem).unwrap_or(Errno::IO);
    let parent = Point::open(parent).map_err(errno)?;
    unmount(by_descriptor(&parent.directory).join(name), flags | UnmountFlags::NOFOLLOW)
}

/// Whether somebody uses what is mounted at `directory`.
pub fn is_busy(directory: &Path) -> bool {
    // A look takes the mark away that an earlier question has left; the next question would end it.
    drop(Point::open(directory));
    match by_name(directory, UnmountFlags::EXPIRE) {
        Err(Errno::AGAIN) | Ok(()) => false,
        Err(Errno::BUSY) => true,
        // Who may not ask the host looks at the programs, which are all of one user.
        Err(_) => has_users(directory),
    }
}

/// Whether a process that can be looked at stands in `directory`, or has a file open there.
fn has_users(directory: &Path) -> bool {
    let listed = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let within = |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(directory));
    listed("/proc".into()).any(|process| {
        let at = process.path();
        within(at.join("cwd"))
            || within(at.join("root"))
            || listed(at.join("fd")).any(|open| within(open.path()))
            || listed(at.join("map_files")).any(|mapped| within(mapped.path()))
    })
}
