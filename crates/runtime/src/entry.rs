//! What `husk exec` says and understands before the C library has started (`entry/main.rs`), apart
//! from the calls it makes.
//!
//! ```text
//!   {"version":"0.1.0+3","ask":{"Join":{"pid":7,"inherited":[0,1,2],"umask":18,"here":"/"}}}\n
//!   {"Joined":{"process":26,"guard":true,"trap_only":false}}\n
//! ```
//!
//! Invariant: whatever is unusual is nobody's mistake here, and is left to the whole command:
//! `None` says so.

use husk_proto::entry::VERSION;

/// Longest name of an image.
const NAME_BYTES_MAX: usize = 64;

/// Text in a room of fixed size; nothing, once there was no room for a part of it.
pub struct Text<'a> {
    room: &'a mut [u8],
    length: Option<usize>,
}

impl<'a> Text<'a> {
    /// Nothing yet.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, length: Some(0) }
    }

    /// Adds `part`.
    pub fn put(&mut self, part: &[u8]) -> &mut Self {
        let from = self.length.take();
        let place = from.and_then(|from| self.room.get_mut(from..)?.get_mut(..part.len()));
        if let (Some(from), Some(place)) = (from, place) {
            place.copy_from_slice(part);
            self.length = Some(from + part.len());
        }
        self
    }

    /// Adds `value` in decimal digits.
    pub fn number(&mut self, value: u32) -> &mut Self {
        let (mut digits, mut rest, mut at) = ([0; 10], value, 10);
        while at > 0 && (rest > 0 || at == 10) {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.put(&digits[at..])
    }

    /// All of it.
    pub fn whole(&self) -> Option<&[u8]> {
        self.room.get(..self.length?)
    }
}

/// Whether an image can have that name.
pub fn is_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let first = name.first().is_some_and(u8::is_ascii_alphabetic);
    first && name.len() <= NAME_BYTES_MAX && name.iter().all(plain)
}

/// Who wants to join.
pub struct Newcomer<'a> {
    /// Its number.
    pub pid: u32,
    /// Its descriptors.
    pub inherited: &'a [u32],
    /// Numbers under which the home of all names has something open for it.
    pub passed: &'a [u32],
    /// Its umask.
    pub umask: u32,
    /// Its working directory, where that has a name.
    pub here: Option<&'a [u8]>,
}

/// The letter that asks for `newcomer`. `None`: its directory's name needs a real writer of JSON,
/// or there is no room.
pub fn letter<'a>(newcomer: &Newcomer<'_>, text: &'a mut Text<'_>) -> Option<&'a [u8]> {
    text.put(b"{\"version\":\"").put(VERSION.as_bytes()).put(b"\",\"ask\":{\"Join\":{\"pid\":");
    text.number(newcomer.pid).put(b",\"inherited\":");
    numbers(text, newcomer.inherited);
    if !newcomer.passed.is_empty() {
        numbers(text.put(b",\"passed\":"), newcomer.passed);
    }
    text.put(b",\"umask\":").number(newcomer.umask).put(b",\"here\":");
    match newcomer.here {
        None => text.put(b"null"),
        Some(here) if here.iter().all(is_plain) => text.put(b"\"").put(here).put(b"\""),
        Some(_) => return None,
    };
    text.put(b"}}}\n").whole()
}

fn numbers(text: &mut Text<'_>, numbers: &[u32]) {
    text.put(b"[");
    for (index, number) in numbers.iter().enumerate() {
        text.put(if index == 0 { b"" } else { b"," }).number(*number);
    }
    text.put(b"]");
}

/// Whether a byte stands for itself in JSON, whatever stands beside it.
fn is_plain(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

/// What a supervisor says to who may enter.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined {
    /// The process record.
    pub process: u32,
    /// Protection key wanted.
    pub guard: bool,
    /// Rewritten copies not wanted.
    pub trap_only: bool,
}

/// Understands the answer, if it is that.
pub fn joined(answer: &[u8]) -> Option<Joined> {
    let rest = answer.strip_prefix(b"{\"Joined\":{\"process\":")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    let process = core::str::from_utf8(number).ok()?.parse().ok()?;
    let (guard, rest) = truth(rest.strip_prefix(b",\"guard\":")?)?;
    let (trap_only, rest) = truth(rest.strip_prefix(b",\"trap_only\":")?)?;
    (rest == b"}}\n").then_some(Joined { process, guard, trap_only })
}

fn truth(text: &[u8]) -> Option<(bool, &[u8])> {
    let no = text.strip_prefix(b"false").map(|rest| (false, rest));
    text.strip_prefix(b"true").map(|rest| (true, rest)).or(no)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_what_it_is_or_nothing() {
        let asked = |room: usize, here: Option<&[u8]>| {
            let inherited = &[0, 1, 4294967295];
            let newcomer = Newcomer { pid: 10, inherited, passed: &[], umask: 0, here };
            let mut room = vec![0; room];
            letter(&newcomer, &mut Text::new(&mut room)).map(<[u8]>::to_vec)
        };
        let start = format!("{{\"version\":\"{VERSION}\",\"ask\":{{\"Join\":{{\"pid\":10,");
        let rest = "\"inherited\":[0,1,4294967295],\"umask\":0,\"here\":\"/a b\"}}}\n";
        let whole = start.clone() + rest;
        assert_eq!(asked(200, Some(b"/a b")).as_deref(), Some(whole.as_bytes()));
        assert_eq!(asked(whole.len(), Some(b"/a b")).as_deref(), Some(whole.as_bytes()));
        assert_eq!(asked(whole.len() - 1, Some(b"/a b")), None);
        let nowhere = start + &rest.replace("\"/a b\"", "null");
        assert_eq!(asked(200, None).as_deref(), Some(nowhere.as_bytes()));
        for unusual in ["/\"", "/\\", "/\n", "/\u{e4}", "/\u{7f}"] {
            assert_eq!(asked(200, Some(unusual.as_bytes())), None, "{unusual:?}");
        }
    }

    #[test]
    fn an_answer_is_understood_as_a_whole_or_not_at_all() {
        let told = b"{\"Joined\":{\"process\":26,\"guard\":true,\"trap_only\":false}}\n";
        let expected = Joined { process: 26, guard: true, trap_only: false };
        assert_eq!(joined(told), Some(expected));
        for end in 0..told.len() {
            assert_eq!(joined(&told[..end]), None, "{end}");
        }
        for other in [
            &b"{\"Joined\":{\"process\":99999999999,\"guard\":true,\"trap_only\":false}}\n"[..],
            b"{\"Joined\":{\"process\":,\"guard\":true,\"trap_only\":false}}\n",
            b"{\"Joined\":{\"process\":1,\"guard\":maybe,\"trap_only\":false}}\n",
            b"{\"Refused\":{\"what\":\"x\"}}\n",
        ] {
            assert_eq!(joined(other), None);
        }
    }
}
