//! Home's files on another host: a room, in which programs there see home's file system, read-only.
//!
//! ```text
//!   program ─► Linux ─FUSE─► keeper: `view` ─► `link` ─► guest ─ frames ─► starter: `home`
//!                             ('husk: room')   '─► `store`: what was fetched before
//! ```
//!
//! A process is wholly in the room or wholly outside of it: it enters before it becomes a program,
//! and all that it starts is inside, too.

mod asks;
mod home;
mod keeper;
mod link;
mod modes;
mod shown;
mod store;
mod view;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use rustix::rand::{GetRandomFlags, getrandom};

pub use shown::Shown;

use crate::config::state;
use crate::digest::hex;
use crate::hosts::session::guest::{Guest, give_up, lock};
use crate::hosts::session::stream::{Frame, Kind, put, take};
use crate::named::SELF;
use crate::process::children::end_of;

/// Directories of a root that are each host's own.
const TOP: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];
/// All of them.
const OWN: [&str; TOP.len() + 1] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"];
/// How long a room may take to be made, to show that it is there, and to end.
const MADE_MAX: Duration = Duration::from_secs(60);
const SIGN_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(2);
/// How the keeper of a room begins, and who enters one before it becomes another command.
const KEEPER: &str = "husk: room";
const WITHIN: &str = "husk: within";

/// A room, as the guest knows it.
pub struct Room {
    /// The process that keeps it.
    pub keeper: u32,
    process: Mutex<Child>,
    to: Mutex<Option<Sender<Frame>>>,
    made: (Mutex<Option<Result<(), String>>>, Condvar),
    signs: (Mutex<Signs>, Condvar),
}

/// What shows that a keeper lives.
#[derive(Default)]
struct Signs {
    wanted: u64,
    given: u64,
    /// It gives none any more.
    is_over: bool,
}

impl Room {
    /// Starts the keeper of a room at `place`, which is made; and where it asks.
    pub fn start(place: &Path) -> io::Result<(Room, ChildStdout)> {
        std::fs::create_dir(place)?;
        let mut keeper = Command::new(SELF);
        keeper.arg0(KEEPER).arg(place).args(copies());
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = keeper.spawn()?;
        let (Some(mut input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            unreachable!("both are pipes")
        };
        // What is told was asked for: it is bounded by that.
        let (to, told) = channel::<Frame>();
        thread::spawn(move || {
            for Frame { kind, channel, payload } in told {
                if put(&mut input, kind, channel, &payload).is_err() {
                    return;
                }
            }
        });
        let keeper = process.id();
        let (process, to) = (Mutex::new(process), Mutex::new(Some(to)));
        Ok((
            Room { keeper, process, to, made: Default::default(), signs: Default::default() },
            output,
        ))
    }

    /// Passes on what home has said.
    pub fn tell(&self, frame: Frame) {
        // Who has ended asks no more.
        let _ = lock(&self.to).as_ref().map(|to| to.send(frame));
    }

    /// Waits until the room is made. An error: it cannot be.
    pub fn wait(&self) -> Result<(), String> {
        let made = lock(&self.made.0);
        let waited = self.made.1.wait_timeout_while(made, MADE_MAX, |made| made.is_none());
        let made = waited.map_or_else(|_| None, |(made, _)| made.clone());
        made.unwrap_or_else(|| Err("home does not answer".to_owned()))
    }

    /// Whether the keeper shows files: it answers, or ends. One that is only slow does.
    pub fn is_there(&self) -> bool {
        let mut signs = lock(&self.signs.0);
        signs.wanted += 1;
        let wanted = signs.wanted;
        self.tell(Frame { kind: Kind::Alive, channel: 0, payload: Vec::new() });
        let waits = |signs: &mut Signs| signs.given < wanted && !signs.is_over;
        let waited = self.signs.1.wait_timeout_while(signs, SIGN_MAX, waits);
        waited.is_ok_and(|(signs, _)| !signs.is_over)
    }

    fn gives_sign(&self, is_over: bool) {
        let mut signs = lock(&self.signs.0);
        signs.given += 1;
        signs.is_over |= is_over;
        self.signs.1.notify_all();
    }

    fn is_made(&self, made: Result<(), String>) {
        lock(&self.made.0).get_or_insert(made);
        self.made.1.notify_all();
    }

    /// Ends it.
    pub fn end(&self) {
        *lock(&self.to) = None;
        let mut process = lock(&self.process);
        if !has_ended(&mut process) {
            let _ = process.kill();
            // One that waits for a disk of this host is left to the host.
            let _ = has_ended(&mut process);
        }
    }
}

/// Waits until a process has ended, so long.
fn has_ended(process: &mut Child) -> bool {
    !matches!(end_of(process, END_MAX), Ok(None))
}

/// Passes on what the keeper asks until it ends.
pub fn pass_on(guest: &Guest, mut asks: ChildStdout) {
    let Some(room) = &guest.room else { return };
    while let Ok(Some(Frame { kind, channel, payload })) = take(&mut asks) {
        match kind {
            Kind::Ask | Kind::Note => {
                if guest.put(kind, channel, &payload).is_err() {
                    break;
                }
            }
            Kind::Alive => room.gives_sign(false),
            Kind::Welcome => room.is_made(Ok(())),
            Kind::Refused => {
                room.is_made(Err(String::from_utf8_lossy(&payload).into_owned()));
            }
            _ => break,
        }
    }
    let is_made = matches!(*lock(&room.made.0), Some(Ok(())));
    room.is_made(Err("its process has ended".to_owned()));
    room.gives_sign(true);
    if is_made && !guest.ended.load(Ordering::SeqCst) {
        // Programs see nothing any more: they end as killed, and others run at home.
        give_up(guest);
    }
}

/// Where copies of programs are kept, made and named without links.
fn copies() -> Option<PathBuf> {
    let copies = state::copies()?;
    // If it cannot be made there are none.
    let _ = std::fs::create_dir_all(&copies);
    std::fs::canonicalize(copies).ok()
}

/// `husk` in the room that `keeper` keeps, with the same place for copies of programs.
pub fn within(keeper: u32) -> Command {
    let mut command = Command::new(SELF);
    command.arg0(WITHIN).arg(keeper.to_string());
    let base = copies().and_then(|copies| Some(copies.parent()?.parent()?.to_owned()));
    if let Some(base) = base {
        command.env("XDG_CACHE_HOME", base);
    }
    command
}

/// Serves a room, or enters one and becomes another command, if these are such words.
pub fn at_a_glance(words: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut words = words.peekable();
    let first = words.peek()?;
    if first == KEEPER {
        let words: Vec<_> = words.skip(1).map(PathBuf::from).collect();
        if let [place, copies @ ..] = &words[..] {
            keeper::serve(place, copies.first().map(PathBuf::as_path));
        }
        return Some(0);
    }
    if first != WITHIN {
        return None;
    }
    let words: Vec<_> = words.skip(1).collect();
    let keeper = words.first().and_then(|word| word.to_str()?.parse().ok());
    let entered = keeper.ok_or(io::ErrorKind::InvalidInput.into()).and_then(enter);
    let problem = match entered {
        Ok(()) => Command::new(SELF).arg0("husk").args(&words[1..]).exec(),
        Err(problem) => problem,
    };
    let _ = writeln!(io::stderr(), "husk: cannot enter a room: {problem}");
    Some(crate::output::failure::STATUS_HUSK)
}

/// Enters the room that process `keeper` keeps. We have one thread.
pub fn enter(keeper: u32) -> io::Result<()> {
    let open = |name: &str| File::open(format!("/proc/{keeper}/ns/{name}"));
    let (users, mounts) = (open("user")?, open("mnt")?);
    let (theirs, ours) = (users.metadata()?, std::fs::metadata("/proc/self/ns/user")?);
    if (theirs.dev(), theirs.ino()) != (ours.dev(), ours.ino()) {
        setns(users, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(mounts, CloneFlags::CLONE_NEWNS)?;
    Ok(())
}

/// A name that nobody else takes.
fn random_name() -> String {
    let mut bytes = [0; 8];
    // Without, it is one that may be taken: making it fails then.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    hex(&bytes)
}
