//! Copies of what the home has answered, at another host: all its programs are answered from them.
//!
//! ```text
//!   program's request ─► answer: the same was asked, and the home has not called back
//!                    '─► home ─► its answer, with a number if it may be kept ─► keep
//!   the home calls back numbers ─► forget
//! ```
//!
//! Invariants
//! 1. What comes from the home is kept and forgotten in the order in which it comes, before whoever
//!    asked hears of it.
//! 2. A request is the same if it asks the same of the same object on behalf of the same rights.

use std::collections::HashMap;
use std::sync::Arc;

use husk_wire::messages::{decode, decode_reply, encode};
use husk_wire::text::{Bytes, List};
use husk_wire::{HEADER_BYTES, Header, Kind, Role, message, reply, request};

/// Most copies, whatever the home says.
const COPIES_MAX: usize = 1 << 14;
/// Around what a request asks.
const AROUND: usize = 64;
/// Most bytes of an answer that reads a file, as the agent has it.
const READ_MAX: usize = 64 << 10;

#[derive(Debug)]
struct Answer {
    number: u32,
    status: u16,
    body: Vec<u8>,
}

/// The copies.
#[derive(Debug, Default)]
pub struct Copies {
    answers: HashMap<Vec<u8>, Answer>,
    asked: HashMap<u32, Vec<Vec<u8>>>,
    files: HashMap<u64, (u32, Arc<[u8]>)>,
    holds: HashMap<u32, u64>,
}

/// What two requests have in common that are answered alike.
fn key(header: &Header, body: &[u8]) -> Vec<u8> {
    [&header.kind.to_le_bytes()[..], body].concat()
}

/// Who has asked where a name leads may next ask of the object itself: the answer is the same one.
fn itself(header: &Header, body: &[u8], answered: &Header, said: &[u8]) -> Option<Vec<u8>> {
    if header.kind != Kind::Walk as u16 {
        return None;
    }
    let asked = decode::<request::Walk<'_>>(header, body).ok()?;
    let said = decode_reply::<message::Walk>(answered, said).ok()?.ok()?;
    let directory = said.steps.iter().next()?.attributes.place.object;
    let named = !asked.names.is_empty();
    let names = List::new(&[]).ok()?;
    let mut room = vec![0; body.len() + AROUND];
    let length = encode(&request::Walk { directory, names, ..asked }, &mut room).ok()?;
    named.then(|| key(header, &room[..length]))
}

/// An answer whole.
fn whole(header: &Header, status: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    let header = Header { status, length, ..header.answer(None) };
    [&header.encode()[..], body].concat()
}

impl Copies {
    /// The answer to a request; `None`: the home is to be asked.
    pub fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (header, body) = Header::split(message).ok()?;
        if header.role != Role::Request {
            return None;
        }
        if header.kind == Kind::Read as u16 {
            return self.read(&header, body);
        }
        let known = self.answers.get(&key(&header, body))?;
        Some(whole(&header, known.status, &known.body))
    }

    fn read(&self, header: &Header, body: &[u8]) -> Option<Vec<u8>> {
        let asked = decode::<request::Read>(header, body).ok()?;
        let bytes = &self.files.get(&asked.hold)?.1;
        let start = usize::try_from(asked.offset).unwrap_or(usize::MAX).min(bytes.len());
        let most = (asked.length as usize).min(READ_MAX);
        let end = bytes.len().min(start.saturating_add(most));
        let data = Bytes::new(&bytes[start..end]).ok()?;
        let mut room = vec![0; data.bytes().len() + HEADER_BYTES];
        let length = encode(&reply::Read { data, change: 0 }, &mut room).ok()?;
        Some(whole(header, 0, &room[..length]))
    }

    /// Keeps an answer to a request that the home has given a number.
    pub fn keep(&mut self, number: u32, request: &[u8], answer: &[u8]) {
        let (Ok((header, body)), Ok((answered, said))) =
            (Header::split(request), Header::split(answer))
        else {
            return;
        };
        if self.answers.len() >= COPIES_MAX {
            return;
        }
        let keys = [Some(key(&header, body)), itself(&header, body, &answered, said)];
        for key in keys.into_iter().flatten() {
            self.asked.entry(number).or_default().push(key.clone());
            let answer = Answer { number, status: answered.status, body: said.to_vec() };
            if let Some(before) = self.answers.insert(key.clone(), answer)
                && let Some(keys) = self.asked.get_mut(&before.number)
            {
                keys.retain(|other| *other != key);
            }
        }
    }

    /// Keeps the bytes of a file.
    pub fn keep_file(&mut self, number: u32, hold: u64, bytes: &[u8]) {
        if self.files.len() >= COPIES_MAX {
            return;
        }
        self.holds.insert(number, hold);
        if let Some((before, _)) = self.files.insert(hold, (number, bytes.into())) {
            self.holds.remove(&before);
        }
    }

    /// The home calls back.
    pub fn forget(&mut self, number: u32) {
        for key in self.asked.remove(&number).unwrap_or_default() {
            self.answers.remove(&key);
        }
        if let Some(hold) = self.holds.remove(&number) {
            self.files.remove(&hold);
        }
    }

    /// How many answers and files there are.
    pub fn count(&self) -> usize {
        self.answers.len() + self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_proto::Errno;
    use husk_wire::record::Object;
    use husk_wire::text::Name;
    use husk_wire::{Failure, record};

    fn message(kind: Kind, body: &[u8], request: u32) -> Vec<u8> {
        let length = body.len() as u32;
        let header =
            Header { length, request, behalf: request, ..Header::new(kind, Role::Request) };
        [&header.encode()[..], body].concat()
    }

    fn above(number: u64, request: u32) -> Vec<u8> {
        let (object, mut room) = (Object { number, generation: 1 }, [0; 64]);
        let length = encode(&request::Above { object }, &mut room).unwrap();
        message(Kind::Above, &room[..length], request)
    }

    fn read(hold: u64, offset: u64, length: u32) -> Vec<u8> {
        let (asked, mut room) = (request::Read { hold, offset, length, ahead: 0 }, [0; 64]);
        let length = encode(&asked, &mut room).unwrap();
        message(Kind::Read, &room[..length], 1)
    }

    fn answered(request: &[u8], failed: Option<Failure>, body: &[u8]) -> Vec<u8> {
        let header = Header::split(request).unwrap().0;
        whole(&header, header.answer(failed).status, body)
    }

    #[test]
    fn the_same_request_of_another_is_answered_as_its_own_until_the_home_calls_back() {
        let mut copies = Copies::default();
        let first = above(7, 1);
        assert_eq!(copies.answer(&first), None);
        copies.keep(5, &first, &answered(&first, None, b"body"));
        let second = above(7, 2);
        assert_eq!(copies.answer(&second), Some(answered(&second, None, b"body")));
        assert_eq!(copies.answer(&above(8, 3)), None, "it asks for something else");
        copies.forget(6);
        assert!(copies.answer(&second).is_some(), "another one was called back");
        copies.forget(5);
        assert_eq!((copies.answer(&second), copies.count()), (None, 0));
    }

    #[test]
    fn what_is_absent_is_kept_and_a_later_answer_takes_the_place_of_an_earlier_one() {
        let mut copies = Copies::default();
        let asked = above(7, 1);
        let none = answered(&asked, Some(Failure::Errno(Errno::ENOENT)), b"");
        copies.keep(5, &asked, &none);
        assert_eq!(copies.answer(&asked), Some(none));
        let there = answered(&asked, None, b"there");
        copies.keep(6, &asked, &there);
        copies.forget(5);
        assert_eq!(copies.answer(&asked), Some(there), "the earlier one is called back late");
        copies.forget(6);
        assert_eq!(copies.count(), 0);
    }

    #[test]
    fn who_asks_of_what_a_name_has_led_to_gets_the_same_answer_as_long_as_that_is_kept() {
        use crate::other_host::written::tests::{attributes, message as whole_message};
        let asked = |number, names: &[Name<'_>]| {
            let directory = Object { number, generation: 3 };
            let groups = List::new(&[]).unwrap();
            let caller = record::Credentials { uid: 0, gid: 0, capabilities: 0, groups };
            let (names, wants) = (List::new(names).unwrap(), Default::default());
            let asked = request::Walk { directory, names, wants, caller };
            whole_message::<message::Walk>(&asked)
        };
        let steps =
            [record::Step { attributes: attributes(), grant: None, listing: None, target: None }];
        let mut room = [0; 512];
        let said = reply::Walk { steps: List::new(&steps).unwrap() };
        let length = encode(&said, &mut room).unwrap();
        let by_name = asked(1, &[Name::new(b"f.c").unwrap()]);
        let (by_itself, another) = (asked(7, &[]), asked(8, &[]));
        let mut copies = Copies::default();
        copies.keep(5, &by_name, &answered(&by_name, None, &room[..length]));
        for asked in [&by_name, &by_itself] {
            assert_eq!(copies.answer(asked), Some(answered(asked, None, &room[..length])));
        }
        assert_eq!(copies.answer(&another), None);
        copies.keep(6, &by_itself, &answered(&by_itself, None, b"later"));
        copies.forget(5);
        assert_eq!(copies.answer(&by_name), None);
        assert_eq!(copies.answer(&by_itself), Some(answered(&by_itself, None, b"later")));
        copies.forget(6);
        assert_eq!(copies.count(), 0);
    }

    #[test]
    fn reads_of_a_file_get_its_bytes_and_at_its_end_none() {
        let mut copies = Copies::default();
        copies.keep_file(9, 77, b"0123456789");
        let got = |copies: &Copies, offset, length| {
            let answer = copies.answer(&read(77, offset, length))?;
            let (header, body) = Header::split(&answer).unwrap();
            let said = decode::<reply::Read<'_>>(&header, body).unwrap();
            Some(said.data.bytes().to_vec())
        };
        assert_eq!(got(&copies, 0, 4).unwrap(), b"0123");
        assert_eq!(got(&copies, 8, 4).unwrap(), b"89");
        assert_eq!(got(&copies, 10, 4).unwrap(), b"");
        assert_eq!(got(&copies, u64::MAX, 4).unwrap(), b"");
        assert_eq!(copies.answer(&read(78, 0, 4)), None);
        copies.forget(9);
        assert_eq!(got(&copies, 0, 4), None);
    }

    #[test]
    fn noise_is_neither_kept_nor_answered() {
        let mut copies = Copies::default();
        for noise in [&b""[..], b"abc", &[0xff; 40], &[0; 200]] {
            assert_eq!(copies.answer(noise), None);
            copies.keep(1, noise, noise);
            copies.keep(1, &above(7, 1), noise);
        }
        assert_eq!(copies.count(), 0);
    }
}
