//! The process that makes a room and keeps it: a mount namespace of its own, whose root shows
//! home's directories, and those that are each host's own.
//!
//! ```text
//!   /            memory, not to be written to
//!   |-- usr ...  ─► home's, by `view`, not to be written to
//!   |-- tmp ...  ─► this host's, as are proc, sys, dev, run, var/tmp, and where Husk keeps copies
//! ```
//!
//! Invariants
//! 1. It is made by one thread, before any other: namespaces are a thread's.
//! 2. Who may not make a mount namespace makes it as root of a namespace of users, in which it is
//!    nobody but itself.
//! 3. It ends with the guest, and the room with it.
//! 4. A thread that may wait for an answer of the file system does not have the descriptor that
//!    answers come over. Such a wait ends only with an answer or with that descriptor, so a keeper
//!    that was killed would wait for itself for ever.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive,
    mount_change, mount_remount, open_tree, unmount,
};
use rustix::process::{chdir, getgid, getuid, pivot_root};

use super::link::Link;
use super::store::Store;
use super::view::{Shared, View};
use super::{OWN, TOP};
use crate::hosts::session::guest::lock;
use crate::hosts::session::stream::Kind;
use crate::run::request::reason;

/// Requests that are answered at the same time: one that waits for home holds up no other.
const THREADS: usize = 8;
/// So often it is kept what is known.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// What a room is called among mounts.
const NAME: &str = "husk-room";

/// Makes a room at `place`, an empty directory, and serves it until standard input ends.
pub fn serve(place: &Path, copies: Option<&Path>) {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::thread::set_name(c"husk: room");
    let Ok(output) = rustix::stdio::stdout().try_clone_to_owned() else { return };
    let link = Link::new(File::from(output));
    let store = Arc::new(Store::open(copies.map(|copies| copies.with_file_name("files"))));
    let kept = copies.and_then(Path::parent).into_iter().map(Path::to_owned).collect();
    let made = make(place, &link, &store, kept);
    let is_made = made.is_ok();
    let said = match made {
        Ok(()) => link.say(Kind::Welcome, &[]),
        Err(why) => link.say(Kind::Refused, why.as_bytes()),
    };
    if said.is_err() || !is_made {
        return;
    }
    loop {
        // What failed while a program waited is told to people, once.
        if let Some(why) = lock(&store.why).take() {
            let _ = link.say(Kind::Note, why.as_bytes());
        }
        store.keep();
        if link.is_over(KEEP_EVERY) {
            store.keep();
            return;
        }
    }
}

/// An error says what cannot be done.
fn make(
    place: &Path,
    link: &Arc<Link>,
    store: &Arc<Store>,
    kept: Vec<PathBuf>,
) -> Result<(), String> {
    separate().map_err(|problem| format!("namespaces: {}", reason(&problem)))?;
    let told = |what: &str, problem: io::Error| format!("{what}: {}", reason(&problem));
    // With all that is mounted there, which is let go of below.
    let whole = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE;
    let own = open_tree(CWD, "/", whole | OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .map_err(|errno| told("open_tree", errno.into()))?;
    let view = place.join("view");
    let step =
        |what: &str, done: rustix::io::Result<()>| done.map_err(|errno| told(what, errno.into()));
    // What is mounted here is nobody else's.
    let own_only = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    step("mount namespace", mount_change("/", own_only))?;
    let options = CString::new("mode=755,size=1m").expect("no NUL");
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    step("tmpfs", mount(NAME, place, "tmpfs", safe, Some(options.as_c_str())))?;
    // What is shown of this host's directories does not show it.
    step("tmpfs", mount_change(place, MountPropagationFlags::UNBINDABLE))?;
    fs::create_dir(&view).map_err(|problem| told("view", problem))?;
    let shared = Arc::new(Shared::new(link.clone(), store.clone(), own, kept.clone()));
    hear(link, &shared);
    show(&view, shared)?;
    fill(place, &view, &kept)?;
    step("umount", unmount(&view, UnmountFlags::DETACH))?;
    fs::remove_dir(&view).map_err(|problem| told("view", problem))?;
    step("/", mount_remount(place, safe | MountFlags::BIND | MountFlags::RDONLY, c""))?;
    step("/", chdir(place))?;
    step("root", pivot_root(".", "."))?;
    step("old root", unmount(".", UnmountFlags::DETACH))?;
    step("/", chdir("/"))
}

/// Into a mount namespace of our own.
fn separate() -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    // Jobs look for our namespaces.
    nix::sys::prctl::set_dumpable(true)?;
    Ok(())
}

/// Takes what home says.
fn hear(link: &Arc<Link>, shared: &Arc<Shared>) {
    let (link, shared) = (link.clone(), shared.clone());
    thread::spawn(move || {
        link.hear(&mut io::stdin().lock(), &|path| shared.changed(path));
        link.end();
    });
}

/// Mounts home's files at `view`.
fn show(view: &Path, shared: Arc<Shared>) -> Result<(), String> {
    let told = |problem: io::Error| format!("FUSE: {}", reason(&problem));
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = device.map_err(|errno| told(errno.into()))?;
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions,allow_other",
        device.as_raw_fd()
    );
    let options = CString::new(options).expect("no NUL");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    mount(NAME, view, "fuse", flags, Some(options.as_c_str()))
        .map_err(|errno| told(errno.into()))?;
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    let ours = device.as_raw_fd();
    let session = Session::from_fd(View(shared), device, SessionACL::All, config).map_err(told)?;
    let (tell, is_apart) = sync_channel(1);
    thread::spawn(move || {
        // From here on its threads have descriptors of their own (invariant 4).
        let apart = unshare(CloneFlags::CLONE_FILES);
        let is_ready = apart.is_ok();
        if tell.send(apart).is_ok() && is_ready {
            // Its end is the end of the room.
            let _ = session.run();
        }
    });
    let apart = is_apart.recv().unwrap_or(Err(nix::Error::EIO));
    apart.and_then(|()| nix::unistd::close(ours)).map_err(|errno| told(errno.into()))
}

/// Fills the root.
fn fill(place: &Path, view: &Path, kept: &[PathBuf]) -> Result<(), String> {
    let told =
        |what: &Path, problem: io::Error| format!("{}: {}", what.display(), reason(&problem));
    let entries = fs::read_dir(view).map_err(|problem| told(Path::new("/"), problem))?;
    let named = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let named: io::Result<Vec<OsString>> = named.collect();
    let named = named.map_err(|problem| told(Path::new("/"), problem))?;
    let tops = kept.iter().filter_map(|kept| kept.iter().nth(1).map(OsString::from));
    // One that is this host's own is made below.
    let is_ours =
        |name: &OsString| TOP.iter().any(|top| Path::new(top) == Path::new("/").join(name));
    let tops = tops.filter(|name| !is_ours(name));
    let mut all: Vec<_> = named.into_iter().chain(tops).collect();
    all.sort();
    all.dedup();
    for name in all {
        let (from, to) = (view.join(&name), place.join(&name));
        show_one(&from, &to).map_err(|problem| told(Path::new(&name), problem))?;
    }
    for path in OWN.iter().map(Path::new).chain(kept.iter().map(PathBuf::as_path)) {
        let to = place.join(path.strip_prefix("/").unwrap_or(path));
        let is_top = TOP.iter().any(|top| Path::new(top) == path);
        let is_within = !is_top && TOP.iter().any(|top| path.starts_with(top));
        if is_top {
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o755).create(&to).map_err(|problem| told(path, problem))?;
        }
        if is_within || !path.is_dir() || !to.is_dir() {
            continue;
        }
        mount_bind_recursive(path, &to).map_err(|errno| told(path, errno.into()))?;
    }
    Ok(())
}

fn show_one(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    if found.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    match found.is_dir() {
        true => fs::create_dir(to)?,
        false => drop(File::create(to)?),
    }
    mount_bind_recursive(from, to).map_err(io::Error::from)
}
