//! What a program on another host has written to files that it has made, and that is not home yet.
//!
//! ```text
//!   makes a file ─► begin ─► its writes and reads: answered here
//!   anything else that the same job asks or says, or `HELD_MAX` ─► take: brought home first
//! ```
//!
//! Invariants
//! 1. A file is here from the moment it was made, empty, until its bytes were taken: all its bytes
//!    are known.
//! 2. Before a job is heard of by anybody, nothing of it is here any more.
//! 3. At most `FILE_BYTES_MAX` of a file and `BYTES_MAX` in all are here; what would be more is
//!    asked of the home, and so taken first.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use husk_abi::sys::general::{O_APPEND, O_DSYNC, O_SYNC};
use husk_carrier::AT_END;
use husk_wire::messages::{decode, decode_reply, encode};
use husk_wire::record::{Access, Attributes, Leaves, Run};
use husk_wire::text::Bytes;
use husk_wire::{Header, Kind, Message, Role, message, reply, request};

/// Most bytes of a file.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Most bytes of all.
const BYTES_MAX: usize = 64 << 20;
/// Most bytes of one message.
const PIECE: usize = 40 << 10;
/// Most bytes of an answer that reads a file, as the agent has it.
const READ_MAX: usize = 64 << 10;
/// Around them.
const AROUND: usize = 512;
/// How long bytes stay here.
pub const HELD_MAX: Duration = Duration::from_millis(500);

/// A file that was made here.
#[derive(Debug)]
struct File {
    job: u32,
    bytes: Vec<u8>,
    /// What is not home.
    fresh: Range<usize>,
    since: Instant,
    /// As the last write asked.
    header: Header,
    leaves: Leaves,
    attributes: Attributes,
}

/// All of them, by what reads and writes name them.
#[derive(Debug, Default)]
pub struct Written {
    files: HashMap<u64, File>,
    bytes: usize,
}

fn whole<M: Message>(header: &Header, said: &M::Reply<'_>, most: usize) -> Option<Vec<u8>> {
    let mut room = vec![0; most + AROUND];
    let length = encode(said, &mut room).ok()?;
    let header = Header { length: length as u32, ..header.answer(None) };
    Some([&header.encode()[..], &room[..length]].concat())
}

impl Written {
    /// A job has made a file, and has it open, if these are the words of that.
    pub fn begin(&mut self, job: u32, request: &[u8], answer: &[u8]) {
        let _ = self.begun(job, request, answer);
    }

    fn begun(&mut self, job: u32, request: &[u8], answer: &[u8]) -> Option<()> {
        let (header, body) = Header::split(request).ok()?;
        if header.kind != Kind::Create as u16 || job == 0 {
            return None;
        }
        let asked = decode::<request::Create<'_>>(&header, body).ok()?;
        let (answered, said) = Header::split(answer).ok()?;
        let said = decode_reply::<message::Create>(&answered, said).ok()?.ok()?;
        let writes = matches!(asked.open, Some(Access::Write | Access::Both));
        let plain = asked.flags & (O_APPEND | O_SYNC | O_DSYNC) == 0;
        if !writes || !plain || said.grant.is_none() || said.attributes.size != 0 {
            return None;
        }
        let place = said.attributes.place.object;
        let hold = u64::from(place.generation) << 32 | place.number;
        let (bytes, since, attributes) = (Vec::new(), Instant::now(), said.attributes);
        let leaves = Leaves::Ask;
        let file = File { job, bytes, fresh: 0..0, since, header, leaves, attributes };
        self.files.insert(hold, file);
        Some(())
    }

    /// The answer to a read or a write of what is here; `None`: the home is asked.
    pub fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let (header, body) = Header::split(message).ok()?;
        if header.role != Role::Request {
            return None;
        }
        match Kind::of(header.kind)? {
            Kind::Read => self.read(&header, decode(&header, body).ok()?),
            Kind::WriteHome => self.write(&header, &decode(&header, body).ok()?),
            _ => None,
        }
    }

    fn read(&self, header: &Header, asked: request::Read) -> Option<Vec<u8>> {
        let bytes = &self.files.get(&asked.hold)?.bytes;
        let start = usize::try_from(asked.offset).unwrap_or(usize::MAX).min(bytes.len());
        let most = (asked.length as usize).min(READ_MAX);
        let end = bytes.len().min(start.saturating_add(most));
        let data = Bytes::new(&bytes[start..end]).ok()?;
        whole::<message::Read>(header, &reply::Read { data, change: 0 }, end - start)
    }

    fn write(&mut self, header: &Header, asked: &request::WriteHome<'_>) -> Option<Vec<u8>> {
        let file = self.files.get_mut(&asked.hold)?;
        let data = asked.run.data.bytes();
        let special = asked.size.is_some() || asked.modified.is_some() || asked.close;
        let start = match asked.run.offset {
            AT_END => file.bytes.len(),
            offset => usize::try_from(offset).ok()?,
        };
        let end = start.checked_add(data.len())?;
        let more = if data.is_empty() { 0 } else { end.saturating_sub(file.bytes.len()) };
        if special || end > FILE_BYTES_MAX || self.bytes + more > BYTES_MAX {
            return None;
        }
        if file.fresh.is_empty() {
            file.since = Instant::now();
        }
        if !data.is_empty() {
            // What lies between is zeros here, and will be there.
            let from = start.min(file.bytes.len());
            file.bytes.resize(file.bytes.len().max(end), 0);
            file.bytes[start..end].copy_from_slice(data);
            self.bytes += more;
            let known = if file.fresh.is_empty() { from..end } else { file.fresh.clone() };
            file.fresh = known.start.min(from)..known.end.max(end);
        }
        (file.header, file.leaves) = (*header, asked.leaves);
        let size = file.bytes.len() as u64;
        let attributes = Attributes { size, ..file.attributes };
        let (offset, count) = (start as u64, data.len() as u64);
        whole::<message::WriteHome>(header, &reply::WriteHome { attributes, offset, count }, 0)
    }

    /// Whether something of a job is here that is not home.
    pub fn is_due(&self, job: u32) -> bool {
        self.files.values().any(|file| file.job == job && !file.fresh.is_empty())
    }

    /// Jobs of which something has been here for long.
    pub fn late(&self) -> Vec<u32> {
        let is_late = |file: &&File| !file.fresh.is_empty() && file.since.elapsed() > HELD_MAX;
        let mut jobs: Vec<_> = self.files.values().filter(is_late).map(|file| file.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// Takes what is not home of a job, as messages that bring it there. Its files that have bytes
    /// are not here any more; `all`: nor are the others.
    pub fn take(&mut self, job: u32, all: bool) -> Vec<Vec<u8>> {
        let is_taken =
            |_: &u64, file: &mut File| file.job == job && (all || !file.fresh.is_empty());
        let mut messages = Vec::new();
        for (hold, file) in self.files.extract_if(is_taken) {
            self.bytes -= file.bytes.len();
            let fresh = &file.bytes[file.fresh.clone()];
            for (turn, piece) in fresh.chunks(PIECE).enumerate() {
                let offset = (file.fresh.start + turn * PIECE) as u64;
                messages.extend(bring(hold, &file, offset, piece));
            }
        }
        messages
    }
}

fn bring(hold: u64, file: &File, offset: u64, piece: &[u8]) -> Option<Vec<u8>> {
    let data = Bytes::new(piece).ok()?;
    let (run, leaves) = (Run { offset, data }, file.leaves);
    let (grant, size, modified, close) = (0, None, None, false);
    let asked = request::WriteHome { hold, grant, run, size, modified, close, leaves };
    let mut room = vec![0; piece.len() + AROUND];
    let length = encode(&asked, &mut room).ok()?;
    let header = Header { length: length as u32, ..file.header };
    Some([&header.encode()[..], &room[..length]].concat())
}

/// How many bytes a message brings home, if the answer says that all of them were taken; an error
/// says why not.
pub fn brought(message: &[u8], answer: &[u8]) -> Result<(), husk_proto::Errno> {
    let failed = husk_proto::Errno::EIO;
    let (header, body) = Header::split(message).map_err(|_| failed)?;
    let asked = decode::<request::WriteHome<'_>>(&header, body).map_err(|_| failed)?;
    let (answered, said) = Header::split(answer).map_err(|_| failed)?;
    match decode_reply::<message::WriteHome>(&answered, said).map_err(|_| failed)? {
        Ok(said) if said.count as usize == asked.run.data.bytes().len() => Ok(()),
        Ok(_) => Err(husk_proto::Errno::ENOSPC),
        Err(husk_wire::Failure::Errno(errno)) => Err(errno),
        Err(_) => Err(failed),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::translate::nothing;
    use husk_proto::Errno;
    use husk_wire::record::{Credentials, Grant, Object, Promises, Spot};
    use husk_wire::text::{List, Name};
    use husk_wire::{Failure, record};

    const HOLD: u64 = 3 << 32 | 7;

    pub(crate) fn message<M: Message>(asked: &M::Request<'_>) -> Vec<u8> {
        let mut room = vec![0; 96 << 10];
        let length = encode(asked, &mut room).unwrap();
        let header = Header::new(M::KIND, Role::Request);
        let header = Header { length: length as u32, source: 257, request: 1, ..header };
        [&header.encode()[..], &room[..length]].concat()
    }

    pub(crate) fn attributes() -> record::Attributes {
        let object = Object { number: 7, generation: 3 };
        record::Attributes { mode: 0o644, links: 1, shown_number: 7, ..nothing(object) }
    }

    fn made(written: &mut Written, flags: u32, open: Option<Access>) {
        let spot = Spot {
            directory: Object { number: 1, generation: 1 },
            name: Name::new(b"f.o").unwrap(),
        };
        let groups = List::new(&[]).unwrap();
        let caller = Credentials { uid: 0, gid: 0, capabilities: 0, groups };
        let (mode, device, target, own) = (0o644, 0, None, None);
        let asked = request::Create { spot, mode, device, target, flags, open, own, caller };
        let request = message::<message::Create>(&asked);
        let header = Header::split(&request).unwrap().0;
        let grant = Some(Grant { number: 5, kinds: Promises::default(), term_ms: 0 });
        let directory = record::Changed { object: Object { number: 1, generation: 1 }, change: 0 };
        let (copy_stands, hold) = (false, None);
        let said = reply::Create { attributes: attributes(), directory, copy_stands, hold, grant };
        let answer = whole::<message::Create>(&header, &said, 0).unwrap();
        written.begin(9, &request, &answer);
    }

    fn write(offset: u64, bytes: &[u8]) -> Vec<u8> {
        let run = Run { offset, data: Bytes::new(bytes).unwrap() };
        let (hold, grant, size, modified, close) = (HOLD, 0, None, None, false);
        let leaves = Leaves::Nothing;
        let asked = request::WriteHome { hold, grant, run, size, modified, close, leaves };
        message::<message::WriteHome>(&asked)
    }

    fn read(written: &mut Written, offset: u64, length: u32) -> Option<Vec<u8>> {
        let asked = request::Read { hold: HOLD, offset, length, ahead: 0 };
        let answer = written.answer(&message::<message::Read>(&asked))?;
        let (header, body) = Header::split(&answer).unwrap();
        Some(decode::<reply::Read<'_>>(&header, body).unwrap().data.bytes().to_vec())
    }

    /// What the home has once it has been brought there.
    fn home(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            let (header, body) = Header::split(message).unwrap();
            let asked = decode::<request::WriteHome<'_>>(&header, body).unwrap();
            let (at, data) = (asked.run.offset as usize, asked.run.data.bytes());
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
            assert_eq!((asked.hold, header.source), (HOLD, 257));
        }
        bytes
    }

    #[test]
    fn writes_in_any_order_read_back_and_come_home_as_those_of_a_file() {
        let mut seed = 1u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        for _ in 0..200 {
            let (mut written, mut model) = (Written::default(), Vec::new());
            made(&mut written, 0, Some(Access::Both));
            for _ in 0..next(30) {
                let most = if next(5) == 0 { 60_000 } else { 50 };
                let length = next(most) as usize;
                let bytes = vec![next(255) as u8 + 1; length];
                let append = next(4) == 0;
                let offset = if append { model.len() as u64 } else { next(90_000) };
                let said = written.answer(&write(if append { AT_END } else { offset }, &bytes));
                assert!(said.is_some());
                let end = offset as usize + length;
                if length == 0 {
                    continue;
                }
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
                let from = next(100_000);
                let most = next(70_000);
                let wanted = &model[(from as usize).min(model.len())..];
                let wanted = &wanted[..wanted.len().min(most as usize).min(READ_MAX)];
                assert_eq!(read(&mut written, from, most as u32).unwrap(), wanted);
            }
            let messages = written.take(9, true);
            assert!(messages.iter().all(|message| message.len() < 64 << 10));
            assert_eq!(home(&messages), model);
            assert_eq!((written.files.len(), written.bytes), (0, 0));
        }
    }

    #[test]
    fn a_file_is_here_until_it_is_taken_and_only_for_whom_it_was_made() {
        let mut written = Written::default();
        for (flags, open) in [
            (O_APPEND, Some(Access::Write)),
            (O_SYNC, Some(Access::Write)),
            (0, Some(Access::Read)),
            (0, None),
        ] {
            made(&mut written, flags, open);
            assert_eq!(read(&mut written, 0, 1), None, "{flags:o} {open:?}");
        }
        made(&mut written, 0, Some(Access::Write));
        assert_eq!(read(&mut written, 0, 9).unwrap(), b"");
        assert!(!written.is_due(9) && written.take(9, false).is_empty());
        written.answer(&write(0, b"bytes")).unwrap();
        assert!(written.is_due(9) && !written.is_due(8));
        assert_eq!(written.take(8, true), Vec::<Vec<u8>>::new());
        assert_eq!(home(&written.take(9, false)), b"bytes");
        assert_eq!(read(&mut written, 0, 9), None, "the home is asked from now on");
        assert_eq!(written.answer(&write(5, b"more")), None);
    }

    #[test]
    fn what_is_too_much_is_not_answered_here() {
        let mut written = Written::default();
        made(&mut written, 0, Some(Access::Write));
        let far = FILE_BYTES_MAX as u64;
        assert!(written.answer(&write(far - 2, b"12")).is_some());
        assert_eq!(written.answer(&write(far - 2, b"123")), None);
        assert_eq!(written.answer(&write(u64::MAX - 1, b"123")), None);
        assert_eq!(home(&written.take(9, false)).len(), FILE_BYTES_MAX);
    }

    #[test]
    fn bytes_are_home_only_if_all_of_them_were_taken() {
        let asked = write(0, b"bytes");
        let header = Header::split(&asked).unwrap().0;
        let said = |count| {
            let said = reply::WriteHome { attributes: attributes(), offset: 0, count };
            whole::<message::WriteHome>(&header, &said, 0).unwrap()
        };
        assert_eq!(brought(&asked, &said(5)), Ok(()));
        assert_eq!(brought(&asked, &said(4)), Err(Errno::ENOSPC));
        let failed = header.answer(Some(Failure::Errno(Errno::EFBIG))).encode();
        assert_eq!(brought(&asked, &failed), Err(Errno::EFBIG));
        assert_eq!(brought(&asked, b"noise"), Err(Errno::EIO));
    }
}
