//! Messages over an image's socket: one request, one answer, as lines of JSON; descriptors come
//! with the answer.
//!
//! ```text
//!   asker ── {"version":...,"ask":...}\n ──► supervisor
//!         ◄── {"Joined":...}\n + [region, loader] ──
//! ```
//!
//! Before the answer to a wish to write back, or to end, come lines that say how far that is. Then
//! whoever has asked may send `STOP`.
//!
//! Invariants
//! 1. A wish to join, and the answer to it, are also written and read by who knows no JSON
//!    (`husk-entry`): their fields keep their order.
//! 2. `version` is read before anything else: what another version asks need not make sense.
//! 3. Neither side waits for ever for the other, nor takes more than it has room for.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

pub use husk_proto::entry::VERSION;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::hosts::Root;
use crate::nodes::PartOf;
use crate::output::failure::Failure;
use crate::write_back::tally::Tally;

/// What is sent behind a letter by who does not want it any more.
pub const STOP: &[u8] = b"stop\n";
/// Longest letter: some hundred thousand descriptors.
pub const LETTER_BYTES_MAX: usize = 2 << 20;
/// Longest answer: a line for each file that could not be written back.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Most descriptors with an answer, or what a supervisor leaves to its successor.
const DESCRIPTORS_MAX: usize = 6;
/// Most that is received at once.
const SHORT_BYTES: usize = 64 << 10;

/// A letter before it is known whether it makes sense.
#[derive(Serialize, Deserialize, Debug)]
pub struct Letter {
    /// `VERSION` of who asks.
    pub version: String,
    /// An `Ask`.
    pub ask: serde_json::Value,
}

/// A letter that makes sense, whatever its version.
#[derive(Deserialize, Debug)]
pub struct Whole {
    /// `VERSION` of who asks.
    pub version: String,
    /// What it asks.
    pub ask: Ask,
}

/// What a supervisor is asked.
#[derive(Serialize, Deserialize, Debug)]
pub enum Ask {
    /// Who asks becomes a program of the image.
    Join {
        /// Its number, as it knows it.
        pid: u32,
        /// Descriptors it will start with.
        inherited: Vec<u32>,
        /// Those of them and others that the home of all names has something open under.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed: Vec<u32>,
        /// Its umask.
        umask: u32,
        /// Its working directory, where it has a name.
        here: Option<PathBuf>,
    },
    /// The region.
    Region,
    /// What there is to know.
    Look,
    /// Who runs in it.
    Processes,
    /// What has changed is written back, and the image goes on.
    Sync {
        /// Only these paths of the host, and what is below; all, where there are none.
        paths: Vec<OsString>,
    },
    /// Programs may run on another host, too.
    AddHost {
        /// As ssh knows it.
        host: String,
    },
    /// They may not any more.
    RemoveHost {
        /// The host.
        host: String,
        /// Programs that run there are ended.
        force: bool,
    },
    /// The end.
    Down {
        /// Nothing is written back.
        discard: bool,
        /// Running programs are ended.
        force: bool,
    },
}

/// What it answers.
#[derive(Serialize, Deserialize, Debug)]
pub enum Answer {
    /// A record; with it come region and loader.
    Joined {
        /// The process record.
        process: u32,
        /// Protection key wanted.
        guard: bool,
        /// Rewritten copies not wanted.
        trap_only: bool,
        /// A write-back may have been killed: whoever knows no JSON leaves it to the whole command,
        /// which looks.
        #[serde(default, skip_serializing_if = "is_false")]
        noted: bool,
    },
    /// The region comes with it.
    Region {
        /// The supervisor.
        pid: u32,
    },
    /// What there is to know.
    Look(Status),
    /// Host processes that run in it.
    Processes(Vec<u32>),
    /// No answer yet, but a sign of life: somebody writes back.
    Progress {
        /// Files and directories that are written.
        done: u64,
        /// Of so many; 0: that is not known yet.
        total: u64,
        /// Bytes that are written.
        #[serde(default)]
        bytes: u64,
    },
    /// What has changed is written back.
    Synced(Synced),
    /// A host is in the image, or is not any more.
    Host {
        /// What went on with it.
        line: Option<String>,
    },
    /// The image has ended.
    Down {
        /// What there is to tell.
        lines: Vec<String>,
        /// Everything is on the host as the image had it, or was to be dropped.
        complete: bool,
        /// What was done, in numbers.
        #[serde(default)]
        tally: Tally,
    },
    /// No.
    Refused(Failure),
}

/// How a write-back went after which the image goes on.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct Synced {
    /// Objects that took their names on the host.
    pub written: u64,
    /// Objects that were removed there.
    pub removed: u64,
    /// Files and directories that were written, also below new directories.
    #[serde(default)]
    pub files: u64,
    /// Bytes that were written to files.
    #[serde(default)]
    pub bytes: u64,
    /// What somebody else has changed there, one line each: both versions are kept.
    pub conflicts: Vec<String>,
    /// What could not be written, one line each: it is still in the image.
    pub failures: Vec<String>,
    /// What changes while it is looked at, one line each: it is left for the next time.
    pub changing: Vec<String>,
    /// What is good to know, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Everything is on the host as the image had it.
    pub complete: bool,
}

/// What there is to know of an image.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The version that made it.
    pub version: String,
    /// Its supervisor.
    pub pid: u32,
    /// Its keeper, who starts another supervisor when this one is killed; 0 = it has none.
    pub keeper: u32,
    /// What tells its names beside others' on the host: the same whoever keeps it.
    #[serde(default)]
    pub number: u32,
    /// When it was made, s since the epoch.
    pub started_s: i64,
    /// Kernels.
    pub kernels: u32,
    /// Most it may hold.
    pub memory_bytes: u64,
    /// State guarded by a protection key.
    pub guard: bool,
    /// Nothing will be written back.
    pub discard: bool,
    /// Programs change nothing outside its trees.
    #[serde(default)]
    pub read_only_outside: bool,
    /// Directories whose changes are kept and written back.
    pub overlays: Vec<String>,
    /// Directories that were empty at the start.
    pub mounts: Vec<String>,
    /// Processes that run in it now.
    pub processes: u32,
    /// What it has no room for now, a line each; others' versions say nothing of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub full: Vec<String>,
    /// What its memory is known by.
    #[serde(default)]
    pub region: Option<Region>,
    /// Nodes it is the first of; 0: itself alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nodes: u32,
    /// Requests that its processes have sent to the first node.
    #[serde(default, skip_serializing_if = "are_none")]
    pub requests: u64,
    /// Other hosts of it by number; no text: that number is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Whose files programs on them see.
    #[serde(default, skip_serializing_if = "Root::is_usual")]
    pub root: Root,
    /// The image that it is another node of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<PartOf>,
    /// What has become of its keeper, if that is to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

fn is_false(what: &bool) -> bool {
    !what
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn are_none(count: &u64) -> bool {
    *count == 0
}

/// What the memory of an image is known by, for who finds it in a program.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// When the image was made, ns since the epoch.
    pub made_ns: i64,
    /// Rewritten copies not wanted.
    pub trap_only: bool,
}

impl Letter {
    /// A letter that asks `ask`, as it is sent.
    pub fn text(ask: &Ask) -> io::Result<Vec<u8>> {
        let letter = Letter { version: VERSION.to_owned(), ask: serde_json::to_value(ask)? };
        line(&letter)
    }
}

/// A message as one line.
pub fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    Ok(text)
}

/// Sends an answer; `descriptors` come with its first byte.
pub fn answer(
    stream: &UnixStream,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send(stream, &line(answer)?, descriptors)
}

/// Sends all of `text`; `descriptors` come with its first byte. A socket that does not block, or
/// not for ever, and has no room in time is an error.
pub fn send(stream: &UnixStream, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if send_some(stream, text, descriptors)? == text.len() {
        return Ok(());
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Sends what there is room for, `descriptors` with the first byte; how much it was.
pub fn send_some(
    stream: &UnixStream,
    text: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut sent = 0;
    while sent < text.len() {
        let rest = IoSlice::new(&text[sent..]);
        match sendmsg(stream, &[rest], &mut control, SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(Errno::AGAIN) => break,
            Err(problem) => return Err(problem.into()),
        }
        control.clear();
    }
    Ok(sent)
}

/// Receives a line, and what came with its first byte. `short`: it is not longer than a few KiB,
/// and the other side need not close.
pub fn receive(stream: &UnixStream, short: bool) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; SHORT_BYTES];
    let mut descriptors = Vec::new();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?.bytes;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    text.truncate(got);
    if text.last() != Some(&b'\n') || !short {
        let mut rest = stream;
        (&mut rest).take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    }
    if text.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((text, descriptors)) }
}

/// Asks, and waits for the whole answer and the end of the connection.
pub fn ask(stream: &UnixStream, ask: &Ask) -> io::Result<(Answer, Vec<OwnedFd>)> {
    send(stream, &Letter::text(ask)?, &[])?;
    let (text, descriptors) = receive(stream, matches!(ask, Ask::Join { .. }))?;
    Ok((serde_json::from_slice(&text)?, descriptors))
}

/// Asks for what may take long. What each sign of life says is `told`: done, total, bytes. A
/// silence longer than `patience` is an error, as in `ask` after a read time-out.
pub fn ask_patiently(
    stream: &UnixStream,
    ask: &Ask,
    patience: Duration,
    told: &mut dyn FnMut(u64, u64, u64),
) -> io::Result<Answer> {
    stream.set_read_timeout(Some(patience))?;
    send(stream, &Letter::text(ask)?, &[])?;
    let mut answers = BufReader::new(stream);
    loop {
        let mut text = Vec::new();
        (&mut answers).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut text)?;
        if text.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&text)? {
            Answer::Progress { done, total, bytes } => told(done, total, bytes),
            answer => {
                // It has not ended before it closes; what it said counts anyway.
                let _ = answers.read(&mut [0]);
                return Ok(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn an_answer_comes_with_its_descriptors() {
        let (one, two) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let told = Answer::Joined { process: 7, guard: true, trap_only: false, noted: false };
        answer(&two, &told, &[writer.as_fd()]).unwrap();
        drop((two.shutdown(std::net::Shutdown::Write), writer));
        let (got, mut descriptors) = ask(&one, &Ask::Look).unwrap();
        assert!(matches!(got, Answer::Joined { process: 7, .. }), "{got:?}");
        let mut file = std::fs::File::from(descriptors.pop().unwrap());
        file.write_all(b"x").unwrap();
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn who_knows_no_json_says_and_understands_the_same() {
        use husk_runtime::entry::{Newcomer, Text, joined, letter};
        let here = Some(&b"/some where"[..]);
        let mut room = [0; 200];
        let mut text = Text::new(&mut room);
        let (inherited, passed) = (&[0, 1, 300], &[1, 4]);
        let newcomer = Newcomer { pid: 7, inherited, passed, umask: 18, here };
        let ask = Ask::Join {
            pid: 7,
            inherited: vec![0, 1, 300],
            passed: vec![1, 4],
            umask: 18,
            here: Some(PathBuf::from("/some where")),
        };
        let written: Letter =
            serde_json::from_slice(letter(&newcomer, &mut text).unwrap()).unwrap();
        assert_eq!(written.version, VERSION);
        assert_eq!(written.ask, serde_json::to_value(ask).unwrap());
        for guard in [true, false] {
            let (process, trap_only) = (26, !guard);
            let told = Answer::Joined { process, guard, trap_only, noted: false };
            let joined = joined(&line(&told).unwrap()).unwrap();
            assert_eq!((joined.process, joined.guard, joined.trap_only), (26, guard, !guard));
            let told = Answer::Joined { process, guard, trap_only, noted: true };
            assert!(husk_runtime::entry::joined(&line(&told).unwrap()).is_none());
        }
    }

    #[test]
    fn who_gives_signs_of_life_is_waited_for_and_who_is_silent_is_not() {
        const PATIENCE: Duration = Duration::from_millis(500);
        let end = Ask::Down { discard: false, force: false };
        let (one, two) = UnixStream::pair().unwrap();
        let works = std::thread::spawn(move || {
            for done in 0..10 {
                answer(&two, &Answer::Progress { done, total: 10, bytes: 7 }, &[]).unwrap();
                std::thread::sleep(PATIENCE / 5);
            }
            let (lines, tally) = Default::default();
            answer(&two, &Answer::Down { lines, complete: true, tally }, &[]).unwrap();
        });
        let mut told = Vec::new();
        let mut tell = |done, total, bytes| told.push((done, total, bytes));
        let got = ask_patiently(&one, &end, PATIENCE, &mut tell);
        assert!(matches!(got, Ok(Answer::Down { complete: true, .. })), "{got:?}");
        assert_eq!(told, (0..10).map(|done| (done, 10, 7)).collect::<Vec<_>>());
        works.join().unwrap();
        let (one, _silent) = UnixStream::pair().unwrap();
        let got = ask_patiently(&one, &end, PATIENCE, &mut |_, _, _| {});
        assert_eq!(got.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for text in ["", "{", "{\"Nonsense\":1}\n", "\u{0}\n"] {
            let (one, mut two) = UnixStream::pair().unwrap();
            two.write_all(text.as_bytes()).unwrap();
            two.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(ask(&one, &Ask::Region).is_err(), "{text:?}");
        }
    }
}
