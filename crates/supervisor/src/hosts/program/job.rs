//! What a program needs that is to run on another host, as bytes; and how it has ended.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Most strings of a list.
const STRINGS_MAX: usize = 1 << 17;

/// A program that is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its umask.
    pub umask: u32,
    /// Its standard output and error are one open file.
    pub is_one: bool,
    /// It is a compiler's driver: its writes are gathered, and it has temporary files there.
    pub is_driver: bool,
    /// Its working directory, which is in a tree of the image.
    pub here: OsString,
    /// Its file.
    pub program: OsString,
    /// Its arguments; the first is what it was called by.
    pub arguments: Vec<OsString>,
    /// Its environment, `NAME=VALUE`.
    pub environment: Vec<OsString>,
}

impl Job {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.umask.to_le_bytes().to_vec();
        for is in [self.is_one, self.is_driver] {
            bytes.extend_from_slice(&u32::from(is).to_le_bytes());
        }
        put_string(&mut bytes, &self.here);
        put_string(&mut bytes, &self.program);
        for list in [&self.arguments, &self.environment] {
            bytes.extend_from_slice(&(list.len() as u32).to_le_bytes());
            list.iter().for_each(|string| put_string(&mut bytes, string));
        }
        bytes
    }

    /// From bytes; `None`: they are none.
    pub fn decode(mut bytes: &[u8]) -> Option<Job> {
        let from = &mut bytes;
        let umask = number(from).filter(|umask| umask & !0o777 == 0)?;
        let mut is = || Some(number(from).filter(|is| *is <= 1)? == 1);
        let (is_one, is_driver) = (is()?, is()?);
        let (here, program) = (string(from)?, string(from)?);
        let (arguments, environment) = (strings(from)?, strings(from)?);
        let job = Job { umask, is_one, is_driver, here, program, arguments, environment };
        let whole = job.program.as_bytes().starts_with(b"/") && !job.arguments.is_empty();
        (whole && bytes.is_empty()).then_some(job)
    }
}

fn put_string(bytes: &mut Vec<u8>, string: &OsString) {
    bytes.extend_from_slice(&(string.len() as u32).to_le_bytes());
    bytes.extend_from_slice(string.as_bytes());
}

fn number(from: &mut &[u8]) -> Option<u32> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_le_bytes(*number))
}

/// A string without a NUL.
fn string(from: &mut &[u8]) -> Option<OsString> {
    let length = number(from)? as usize;
    let (text, rest) = from.split_at_checked(length).filter(|(text, _)| !text.contains(&0))?;
    *from = rest;
    Some(OsString::from_vec(text.to_vec()))
}

fn strings(from: &mut &[u8]) -> Option<Vec<OsString>> {
    let count = Some(number(from)? as usize).filter(|count| *count <= STRINGS_MAX)?;
    // Each has four bytes at least: what is said to be more is not there.
    (count <= from.len() / 4).then_some(())?;
    (0..count).map(|_| string(from)).collect()
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has exited.
    Exit(u8),
    /// A signal has ended it.
    Signal(u8),
    /// It could not be started: the status that a shell would give.
    Unstarted(u8),
    /// Nobody knows: its host is lost.
    Lost,
}

impl Fate {
    /// As bytes.
    pub fn encode(self) -> [u8; 2] {
        match self {
            Fate::Exit(status) => [0, status],
            Fate::Signal(signal) => [1, signal],
            Fate::Unstarted(status) => [2, status],
            Fate::Lost => [3, 0],
        }
    }

    /// From bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Fate> {
        match *bytes {
            [0, status] => Some(Fate::Exit(status)),
            [1, signal @ 1..=64] => Some(Fate::Signal(signal)),
            [2, status] => Some(Fate::Unstarted(status)),
            [3, 0] => Some(Fate::Lost),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        let strings = |list: &[&str]| list.iter().map(OsString::from).collect();
        Job {
            umask: 0o22,
            is_one: true,
            is_driver: true,
            here: "/work".into(),
            program: "/usr/bin/cc".into(),
            arguments: strings(&["cc", "-c", ""]),
            environment: strings(&["PATH=/usr/bin", "EMPTY="]),
        }
    }

    #[test]
    fn a_job_is_read_as_it_was_written_and_half_of_one_is_refused() {
        let bytes = job().encode();
        assert_eq!(Job::decode(&bytes), Some(job()));
        for length in 0..bytes.len() {
            assert_eq!(Job::decode(&bytes[..length]), None, "{length}");
        }
        assert_eq!(Job::decode(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn hostile_bytes_in_a_job_are_refused_or_read_and_never_more() {
        let bytes = job().encode();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut wrong = bytes.clone();
                wrong[at] = value;
                if let Some(job) = Job::decode(&wrong) {
                    assert_eq!(job.encode(), wrong);
                }
            }
        }
        assert_eq!(Job::decode(&Job { umask: 0o1000, ..job() }.encode()), None);
        assert_eq!(Job::decode(&Job { program: "cc".into(), ..job() }.encode()), None);
        assert_eq!(Job::decode(&Job { arguments: vec![], ..job() }.encode()), None);
    }

    #[test]
    fn fates_are_read_as_they_were_written() {
        for fate in [Fate::Exit(0), Fate::Exit(255), Fate::Signal(9), Fate::Unstarted(127)] {
            assert_eq!(Fate::decode(&fate.encode()), Some(fate));
        }
        assert_eq!(Fate::decode(&Fate::Lost.encode()), Some(Fate::Lost));
        for wrong in [&[][..], &[0], &[1, 0], &[1, 65], &[4, 0], &[0, 0, 0]] {
            assert_eq!(Fate::decode(wrong), None, "{wrong:?}");
        }
    }
}
