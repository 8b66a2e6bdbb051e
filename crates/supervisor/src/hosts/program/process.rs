//! A job on another host: its process, and its output on the way home.
//!
//! ```text
//!   guest ─► 'husk: job': into the room, if it is to see home's files ─► a program of the node
//!            (in no room: by the narrow way of `husk exec`, without the C library)
//!        ◄── output, as far as there is credit; how it has ended
//! ```

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use husk_proto::entry::{JOB, Site};
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::hosts::program::job::{Fate, Job};
use crate::hosts::program::temporary;
use crate::hosts::room;
use crate::hosts::session::guest::{CREDIT_BYTES, Guest, NODE, TALK_MAX, end_group, lock};
use crate::hosts::session::stream::Kind;
use crate::named::SELF;
use crate::run::request::reason;

/// Bytes read from a job at once.
const PIECE: usize = 32 << 10;
/// A job in no room: the word of `husk exec`, so that the narrow way takes it.
const OUTSIDE: &str = "exec";

/// How many more bytes a job may send.
pub struct Credit {
    left: Mutex<u64>,
    more: Condvar,
}

impl Credit {
    /// All of it.
    pub fn new() -> Arc<Credit> {
        Arc::new(Credit { left: Mutex::new(CREDIT_BYTES), more: Condvar::new() })
    }

    /// The session has ended: nobody waits for more.
    pub fn end(&self) {
        self.more.notify_all();
    }

    /// Waits until some may be sent, and takes at most `most`; none: the session has ended.
    fn wait(&self, ended: &AtomicBool) -> bool {
        let mut left = lock(&self.left);
        while *left < PIECE as u64 {
            if ended.load(Ordering::SeqCst) {
                return false;
            }
            let waited = self.more.wait_timeout(left, TALK_MAX);
            left = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(left, _)| left);
        }
        true
    }

    fn spend(&self, count: usize) {
        let mut left = lock(&self.left);
        *left = left.saturating_sub(count as u64);
    }

    /// So many bytes were written.
    pub fn give(&self, count: u64) {
        let mut left = lock(&self.left);
        *left = left.saturating_add(count).min(CREDIT_BYTES);
        self.more.notify_all();
    }
}

/// Runs a job to its end.
pub fn run(guest: &Arc<Guest>, channel: u32, job: &Job, credit: &Arc<Credit>) {
    let fate = match start(guest, channel, job, credit) {
        Ok(fate) => fate,
        Err(problem) => {
            let line = format!(
                "husk: cannot start {}: {}\n",
                job.program.to_string_lossy(),
                reason(&problem)
            );
            let _ = guest.put(Kind::Errors, channel, line.as_bytes());
            Fate::Unstarted(crate::output::failure::STATUS_NOT_EXECUTABLE)
        }
    };
    guest.bring(channel, true);
    let over = lock(&guest.jobs).remove(&channel);
    let waited = over.as_ref().map_or(0, |job| job.waited.as_millis() as u32);
    let failed = over.and_then(|job| job.failed);
    let fate = match failed {
        Some(errno) if fate == Fate::Exit(0) && !guest.ended.load(Ordering::SeqCst) => {
            let problem = io::Error::from_raw_os_error(errno.0);
            let (name, why) = (job.program.to_string_lossy(), reason(&problem));
            let line = format!("husk: cannot write what {name} has written: {why}\n");
            let _ = guest.put(Kind::Errors, channel, line.as_bytes());
            Fate::Exit(1)
        }
        _ => fate,
    };
    let is_lost =
        || fate != Fate::Exit(0) && guest.room.as_ref().is_some_and(|room| !room.is_there());
    // Also what has failed because home's files were gone; the session ends right after.
    if guest.ended.load(Ordering::SeqCst) || is_lost() {
        // Home may only be slow. What ended with the session must look lost to it, and not as if it
        // had ended while the host was there: the next program would be sent here, too.
        return;
    }
    // Without home there is nobody to tell.
    let status = [&fate.encode()[..], &waited.to_le_bytes()].concat();
    let _ = guest.put(Kind::Status, channel, &status);
}

fn start(guest: &Arc<Guest>, channel: u32, job: &Job, credit: &Arc<Credit>) -> io::Result<Fate> {
    let mut command = Command::new(SELF);
    command
        .arg0(JOB)
        .arg(guest.room.as_ref().map_or(OUTSIDE.to_owned(), |room| room.keeper.to_string()))
        .arg(site(job, &guest.images))
        .arg(&job.program)
        .args(&job.arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for variable in &job.environment {
        let bytes = variable.as_bytes();
        let Some(at) = bytes.iter().position(|byte| *byte == b'=') else { continue };
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        command.env(part(&bytes[..at]), part(&bytes[at + 1..]));
    }
    // What a compiler's parts hand over to each other never leaves this host.
    if let Some(place) = &guest.temporary
        && job.is_driver
        && !temporary::is_told(&job.environment)
    {
        command.env("TMPDIR", place);
    }
    let one = one_for_both(&mut command, job.is_one)?;
    // Whatever it asks is asked on behalf of a job that is known.
    let mut jobs = lock(&guest.jobs);
    let mut child = command.spawn()?;
    // With its ends of pipes.
    drop(command);
    let pid = child.id() as i32;
    if let Some(running) = jobs.get_mut(&channel) {
        running.pid = pid;
    }
    drop(jobs);
    if guest.ended.load(Ordering::SeqCst) {
        end_group(pid, Signal::SIGKILL);
    }
    // Closed when the job has ended.
    let (over, runs) = io::pipe()?;
    let over = Arc::new(OwnedFd::from(over));
    let mut readers = Vec::new();
    let pipes = [
        (Kind::Output, one.or(child.stdout.take().map(OwnedFd::from))),
        (Kind::Errors, child.stderr.take().map(OwnedFd::from)),
    ];
    for (kind, pipe) in pipes {
        let Some(pipe) = pipe else { continue };
        let (guest, credit, over) = (guest.clone(), credit.clone(), over.clone());
        let read = move || pass_on(&guest, (kind, channel), [&pipe, &over], &credit);
        readers.push(thread::spawn(read));
    }
    let status = child.wait()?;
    drop(runs);
    for reader in readers {
        let _ = reader.join();
    }
    Ok(match status.signal() {
        Some(signal) => Fate::Signal(signal as u8),
        None => Fate::Exit(status.code().unwrap_or(1) as u8),
    })
}

/// Where it runs, as `Site` understands it.
fn site(job: &Job, images: &Path) -> OsString {
    let images = images.as_os_str();
    let mut site = OsString::from(format!("{} {} ", job.umask, images.len()));
    site.push(images);
    site.push(&job.here);
    site
}

/// Where output and errors are read that are one file at home: in the order of their writes.
fn one_for_both(command: &mut Command, is_one: bool) -> io::Result<Option<OwnedFd>> {
    if !is_one {
        return Ok(None);
    }
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    Ok(Some(reader.into()))
}

/// Sends home what a job writes, until all who could write have closed, or the job has ended and
/// nothing is left.
fn pass_on(
    guest: &Guest,
    (kind, channel): (Kind, u32),
    [pipe, over]: [&OwnedFd; 2],
    credit: &Credit,
) {
    let (mut bytes, mut is_over) = (vec![0; PIECE], false);
    while credit.wait(&guest.ended) {
        let mut watched = [pipe, over].map(|end| PollFd::new(end, PollFlags::IN));
        let watched = if is_over { &mut watched[..1] } else { &mut watched[..] };
        match poll(watched, is_over.then_some(&Timespec::default())) {
            Ok(0) => return,
            Err(_) => continue,
            Ok(_) => {}
        }
        if watched[0].revents().is_empty() {
            // What it wrote before its end is there, and is looked for once more.
            is_over = true;
            continue;
        }
        let Ok(count) = rustix::io::read(pipe, &mut *bytes) else { return };
        if count == 0 {
            return;
        }
        credit.spend(count);
        // Who reads that may look for what was written before.
        guest.bring(channel, false);
        if guest.put(kind, channel, &bytes[..count]).is_err() {
            return;
        }
    }
}

/// Becomes a job, if these are a job's words; its exit status where it cannot.
pub fn at_a_glance(words: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut words = words.peekable();
    words.peek().filter(|first| *first == JOB)?;
    let words: Vec<_> = words.collect();
    let [_, keeper, site, program, shown, arguments @ ..] = &words[..] else {
        return Some(crate::output::failure::STATUS_HUSK);
    };
    let Some(Site { umask, images, here }) = Site::parse(site.as_bytes()) else {
        return Some(crate::output::failure::STATUS_HUSK);
    };
    let (images, here) = (OsStr::from_bytes(images), OsStr::from_bytes(here));
    if let Err(problem) = enter_room(keeper) {
        let _ = writeln!(io::stderr(), "husk: cannot see files of home: {}", reason(&problem));
        return Some(crate::output::failure::STATUS_HUSK);
    }
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(umask));
    let mut command = vec![program.clone()];
    command.extend_from_slice(arguments);
    let place = Path::new(images).join(NODE);
    let Err(failure) = crate::named::enter_at((&place, NODE), Path::new(here), &command, shown);
    let _ = writeln!(io::stderr(), "husk: {failure}");
    Some(failure.status)
}

fn enter_room(keeper: &OsStr) -> io::Result<()> {
    let keeper = keeper.to_str().filter(|keeper| *keeper != OUTSIDE);
    let Some(keeper) = keeper else { return Ok(()) };
    room::enter(keeper.parse().map_err(|_| io::ErrorKind::InvalidInput)?)
}
