//! What another host keeps copies of, as its home knows it.
//!
//! ```text
//!   answer of the agent ─► judge: is it what the home's memory shows now? ─► the guest may keep it
//!   before anything goes to the guest ─► changed: what is not so any more ─► the guest drops it
//! ```
//!
//! Nobody at home waits for another host: what changes here is visible at once, and the guest is
//! told before it hears anything else. Programs there learn of this host by that one link only, so
//! none of them can see a name as it was before something that it has heard of.
//!
//! Invariants
//! 1. A copy is judged and told of under one lock, the one of the link: the order of judgements is
//!    the order in which the guest hears.
//! 2. What cannot be judged at the moment (somebody is changing it) is no copy.
//! 3. Access times alone do not end a copy.
//! 4. Between two looks at the host only what has moved is looked at: what nobody in the image
//!    changes, as the number that the host shows, may be that late.
//! 5. There are at most `COPIES_MAX` copies and `FILES_BYTES_MAX` bytes; more end all.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_carrier::{Onlooker, Stamp};
use husk_proto::fs::{Attributes, Backing, Kind};
use husk_proto::{Errno, Inode};
use husk_wire::messages::{decode, decode_reply, encode};
use husk_wire::record::{self, Access, Moment, Wants};
use husk_wire::{Failure, Header, Kind as Asked, Role, message, reply, request};

use crate::translate::{inode, told_afar};

/// Most copies of a host.
const COPIES_MAX: usize = 2048;
/// Largest file that is sent when it is opened.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of such files.
const FILES_BYTES_MAX: u64 = 32 << 20;
/// Flags of opening that change nothing: `O_CLOEXEC`, `O_LARGEFILE`, `O_NOCTTY`, `O_NOFOLLOW`.
const HARMLESS: u32 = 0o2_000_000 | 0o100_000 | 0o400 | 0o400_000;

/// What a copy says.
#[derive(Debug, PartialEq)]
enum Said {
    /// An object, or what a name leads to, and the target of a link.
    Found(Box<record::Attributes>, Vec<u8>),
    /// There is no such name.
    Absent,
    /// The directory that has a name of an object, and the name.
    Above(Inode, Vec<u8>),
}

/// What was looked at.
#[derive(Debug)]
enum Look {
    Walk { at: Inode, name: Option<Vec<u8>>, target: bool },
    Above(Inode),
    File { at: Inode, path: PathBuf, seen: [i64; 7] },
}

#[derive(Debug)]
struct Copy {
    look: Look,
    said: Said,
    /// As long as it holds, so does the copy.
    stamp: Option<Stamp>,
}

/// The copies of one host that its home has promised to call back.
#[derive(Debug)]
pub struct Promises {
    onlooker: Onlooker,
    home: Vec<u8>,
    copies: HashMap<u32, Copy>,
    next: u32,
    files_bytes: u64,
    full: bool,
}

/// A file whose bytes go along with the answer to who opens it.
#[derive(Debug)]
pub struct File {
    /// Its copy's number.
    pub copy: u32,
    /// What reads name it by.
    pub hold: u64,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// What a guest may keep.
#[derive(Debug, Default)]
pub struct Kept {
    /// The answer, under this number.
    pub answer: Option<u32>,
    /// And a file.
    pub file: Option<File>,
}

fn timeless(attributes: record::Attributes) -> Box<record::Attributes> {
    Box::new(record::Attributes { accessed: Moment { seconds: 0, nanoseconds: 0 }, ..attributes })
}

/// What the host shows of a file that its content goes with.
fn shown(found: &Metadata) -> [i64; 7] {
    let (modified, changed) = (found.mtime(), found.ctime());
    let numbers = [found.dev() as i64, found.ino() as i64, found.size() as i64];
    let [device, inode, size] = numbers;
    [device, inode, size, modified, found.mtime_nsec(), changed, found.ctime_nsec()]
}

impl Promises {
    /// Of a host whose home's agent listens at `home`; `None`: its memory is not to be had, and
    /// nothing is kept.
    pub fn begin(home: &[u8]) -> Option<Promises> {
        let onlooker = Onlooker::begin(home)?;
        let (copies, home) = (HashMap::new(), home.to_owned());
        Some(Promises { onlooker, home, copies, next: 1, files_bytes: 0, full: false })
    }

    /// Whether there are no copies.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// What the guest may keep of the answer to its request; it is told of that in this turn.
    pub fn judge(&mut self, request: &[u8], answer: &[u8]) -> Kept {
        self.judged(request, answer).unwrap_or_default()
    }

    fn judged(&mut self, request: &[u8], answer: &[u8]) -> Option<Kept> {
        let (asked, body) = Header::split(request).ok()?;
        let (answered, said) = Header::split(answer).ok()?;
        match Asked::of(asked.kind)? {
            Asked::Walk => {
                let asked = decode::<request::Walk<'_>>(&asked, body).ok()?;
                let said = match decode_reply::<message::Walk>(&answered, said).ok()? {
                    Ok(reply::Walk { steps }) => {
                        let step = steps.iter().next()?;
                        let target = step.target.map_or(Vec::new(), |text| text.bytes().to_vec());
                        Said::Found(timeless(step.attributes), target)
                    }
                    Err(Failure::Errno(Errno::ENOENT)) => Said::Absent,
                    Err(_) => return None,
                };
                let name = asked.names.iter().next().map(|name| name.bytes().to_vec());
                let target = asked.wants.has(Wants::TARGET);
                let look = Look::Walk { at: inode(asked.directory).ok()?, name, target };
                Some(Kept { answer: self.keep(look, said), file: None })
            }
            Asked::Above => {
                let asked = decode::<request::Above>(&asked, body).ok()?;
                let said = decode_reply::<message::Above>(&answered, said).ok()?.ok()?;
                let name = said.name.map_or(Vec::new(), |name| name.bytes().to_vec());
                let said = Said::Above(inode(said.directory).ok()?, name);
                let look = Look::Above(inode(asked.object).ok()?);
                Some(Kept { answer: self.keep(look, said), file: None })
            }
            Asked::Open => {
                let asked = decode::<request::Open<'_>>(&asked, body).ok()?;
                let said = decode_reply::<message::Open>(&answered, said).ok()?.ok()?;
                let reads = asked.access == Access::Read && asked.flags & !HARMLESS == 0;
                if !reads || said.grant.is_some() {
                    return None;
                }
                self.file(inode(asked.object).ok()?, said.attributes)
            }
            _ => None,
        }
    }

    /// A file of the host that is opened to be read: whoever opens it again is answered there.
    fn file(&mut self, at: Inode, attributes: record::Attributes) -> Option<Kept> {
        let found = self.onlooker.look(at, None, None).ok()?.0;
        let is_host = found.backing == Backing::Host && found.step.kind == Kind::File;
        let origin = found.origin.filter(|_| is_host && found.size <= FILE_BYTES_MAX)?;
        if self.files_bytes + found.size > FILES_BYTES_MAX {
            self.full = true;
            return None;
        }
        let path = self.host_path(origin.0 & !(1 << 31))?;
        let before = shown(&path.symlink_metadata().ok()?);
        let hold = u64::from(at.generation) << 32 | u64::from(at.number);
        let bytes = self.bytes(hold)?;
        let seen = shown(&path.symlink_metadata().ok()?);
        if seen != before || seen[2] != bytes.len() as i64 || found.size != bytes.len() as u64 {
            return None;
        }
        let said = Said::Found(timeless(attributes), Vec::new());
        let length = bytes.len() as u64;
        let copy = self.keep(Look::File { at, path, seen }, said)?;
        self.files_bytes += length;
        Some(Kept { answer: Some(copy), file: Some(File { copy, hold, bytes }) })
    }

    /// Where the host has what was imported.
    fn host_path(&self, origin: u32) -> Option<PathBuf> {
        let mut room = vec![0; 8 << 10];
        let answer = self.ask::<message::HostFile>(&request::HostFile { origin }, &mut room)?;
        let path = std::ffi::OsStr::from_bytes(answer.path.bytes());
        Some(Path::new(path).to_owned())
    }

    /// All bytes of a small file of the host, as another host is told them.
    fn bytes(&self, hold: u64) -> Option<Vec<u8>> {
        let mut room = vec![0; husk_link::CALL_BYTES_MAX];
        let length = FILE_BYTES_MAX as u32;
        let asked = request::Read { hold, offset: 0, length, ahead: 0 };
        let answer = self.ask::<message::Read>(&asked, &mut room)?;
        Some(answer.data.bytes().to_vec())
    }

    /// Asks the agent, as the other host would for bytes, and as this one for paths.
    fn ask<'r, M: husk_wire::Message>(
        &self,
        asked: &M::Request<'_>,
        room: &'r mut [u8],
    ) -> Option<M::Reply<'r>> {
        let mut body = [0; 128];
        let length = encode(asked, &mut body).ok()?;
        let source = if M::KIND == Asked::Read { husk_wire::AFAR } else { 0 };
        let header = Header::new(M::KIND, Role::Request);
        let header = Header { source, length: length as u32, request: 1, ..header };
        let parts = [&header.encode()[..], &body[..length]];
        let length = husk_link::call(&self.home, parts, room, husk_link::ANSWER_S).ok()?;
        let (header, body) = Header::split(room.get(..length)?).ok()?;
        decode_reply::<M>(&header, body).ok()?.ok()
    }

    /// Keeps a copy of what is still so.
    fn keep(&mut self, look: Look, said: Said) -> Option<u32> {
        if self.copies.len() >= COPIES_MAX {
            self.full = true;
            return None;
        }
        // Before the look: what changes meanwhile has moved it.
        let stamp = stamp(&self.onlooker, &look);
        if look_again(&self.onlooker, &look)? != said {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        self.copies.insert(number, Copy { look, said, stamp });
        Some(number)
    }

    /// The copies that are not so any more, which are forgotten here; the guest is told in this
    /// turn. `hosts`: files of the host are looked at there, too, which takes a call each.
    pub fn changed(&mut self, hosts: bool) -> Vec<u32> {
        if core::mem::take(&mut self.full) {
            self.files_bytes = 0;
            return self.copies.drain().map(|(number, _)| number).collect();
        }
        let onlooker = &self.onlooker;
        let is_over = |copy: &mut Copy| {
            // There are a thousand copies, and a message is sent each millisecond.
            let holds = copy.stamp.as_ref().is_some_and(|stamp| onlooker.is_still(stamp));
            if holds && !hosts {
                return false;
            }
            copy.stamp = stamp(onlooker, &copy.look);
            let as_host = match &copy.look {
                Look::File { path, seen, .. } if hosts => {
                    path.symlink_metadata().is_ok_and(|found| shown(&found) == *seen)
                }
                _ => true,
            };
            !as_host || look_again(onlooker, &copy.look).as_ref() != Some(&copy.said)
        };
        let mut over = Vec::new();
        for (number, copy) in self.copies.extract_if(|_, copy| is_over(copy)) {
            if let Look::File { seen, .. } = copy.look {
                self.files_bytes -= seen[2] as u64;
            }
            over.push(number);
        }
        over
    }
}

/// As another host is told.
fn told(found: &Attributes) -> Box<record::Attributes> {
    let mut found = *found;
    found.step.inode.number &= !(1 << 31);
    timeless(told_afar(&found))
}

/// What moves with what was looked at.
fn stamp(onlooker: &Onlooker, look: &Look) -> Option<Stamp> {
    match look {
        Look::Walk { at, name, .. } => onlooker.stamp(*at, name.as_deref()),
        Look::File { at, .. } => onlooker.stamp(*at, None),
        Look::Above(_) => None,
    }
}

/// What the agent would say now; `None`: it is being changed, or is something else.
fn look_again(onlooker: &Onlooker, look: &Look) -> Option<Said> {
    match look {
        Look::Walk { at, name, target } => {
            let mut room = [0; husk_abi::PATH_MAX];
            let text = target.then_some(&mut room[..]);
            match onlooker.look(*at, name.as_deref(), text) {
                Ok((found, _)) if found.step.kind == Kind::Portal => None,
                Ok((found, length)) => {
                    Some(Said::Found(told(&found), room.get(..length)?.to_vec()))
                }
                Err(Errno::ENOENT) => Some(Said::Absent),
                Err(_) => None,
            }
        }
        Look::Above(at) => {
            let mut room = [0; 255];
            let (dir, name) = onlooker.above(*at, &mut room).ok()?;
            Some(Said::Above(dir, name.to_vec()))
        }
        Look::File { at, .. } => {
            let found = onlooker.look(*at, None, None).ok()?.0;
            let is_host = found.backing == Backing::Host && found.step.kind == Kind::File;
            is_host.then(|| Said::Found(told(&found), Vec::new()))
        }
    }
}
