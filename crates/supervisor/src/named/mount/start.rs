//! Start and end of a mount's server, which runs inside the image, with the host's descriptor as
//! its standard input.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::available_parallelism;

use fuser::{Config, Session, SessionACL};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::named::commands::up::Begun;
use crate::named::server::tend::{let_go, say_begun};
use crate::output::failure::Failure;
use crate::run::request::reason;

use super::nodes::Nodes;
use super::serve::Shown;
use super::{SERVER, Wish};

/// Most requests that are answered at the same time.
const THREADS_MAX: usize = 4;
/// Fewest: who waits for a slow disk of the host holds nobody up.
const THREADS_MIN: usize = 2;
/// Most directories that are held open.
const DIRECTORIES_MAX: u64 = 1024;
/// What part of the descriptors they may take.
const DIRECTORIES_PART: u64 = 4;

/// What `husk serve-mount` does: answers until the mount ends.
pub fn serve(typed: &OsStr, trees: &[PathBuf]) -> Result<(), Failure> {
    let failed = |why: String| {
        let what = format!("cannot show image {}", typed.to_string_lossy());
        Failure::new(what, why, "check the path, and see `husk check`")
    };
    match begin(typed, trees, &failed) {
        Ok(session) => {
            say_begun(&Begun::Up);
            // Where that fails, who started us waits for the end of the mount.
            let _ = let_go();
            session.run().map_err(|problem| failed(reason(&problem)))
        }
        Err(failure) => {
            say_begun(&Begun::Failed(failure));
            Ok(())
        }
    }
}

fn begin(
    typed: &OsStr,
    trees: &[PathBuf],
    failed: &dyn Fn(String) -> Failure,
) -> Result<Session<Shown>, Failure> {
    let problem = |problem: std::io::Error| failed(reason(&problem));
    let wish = Wish::parse(typed)?;
    let device: OwnedFd = rustix::stdio::stdin().try_clone_to_owned().map_err(problem)?;
    let name = std::ffi::CString::new(SERVER).unwrap_or_default();
    // For people only.
    let _ = rustix::thread::set_name(&name);
    // The host's kernel has applied the caller's.
    rustix::process::umask(rustix::fs::Mode::empty());
    // Nothing here holds a directory that somebody wants to remove.
    let _ = std::env::set_current_dir("/");
    let nodes = Nodes::plant(&wish.root, trees, room()).map_err(|errno| problem(errno.into()))?;
    let mut config = Config::default();
    let cores = available_parallelism().map_or(1, usize::from);
    config.n_threads = Some(cores.clamp(THREADS_MIN, THREADS_MAX));
    Session::from_fd(Shown::new(nodes), device, SessionACL::Owner, config).map_err(problem)
}

/// How many directories may be held open, with all the descriptors there are to be had.
fn room() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Within the hard limit: cannot fail. If it did, fewer would do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / DIRECTORIES_PART).min(DIRECTORIES_MAX) as usize
}
