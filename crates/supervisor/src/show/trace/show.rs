//! Prints a system call as one line.
//!
//! ```text
//!   14:02:11.123456 4242 openat(AT_FDCWD, "/tmp/x", O_RDONLY) = 3 <kernel 0, 812 ns>
//! ```

use std::fmt::Write as _;

use husk_abi::errno::without_number;
use husk_abi::sys::general as linux;
use husk_abi::{nr, shape};
use husk_region::observe::trace::By;
use nix::errno::Errno;
use serde::Serialize;

use super::{Call, End, Text};

/// Arguments of a call of which nothing is known.
const UNKNOWN: &str = "xxxxxx";

/// Named bits.
type Bits = &'static [(u64, &'static str)];

const OPEN: Bits = &[
    (linux::O_TMPFILE as u64, "O_TMPFILE"),
    (linux::O_CREAT as u64, "O_CREAT"),
    (linux::O_EXCL as u64, "O_EXCL"),
    (linux::O_NOCTTY as u64, "O_NOCTTY"),
    (linux::O_TRUNC as u64, "O_TRUNC"),
    (linux::O_APPEND as u64, "O_APPEND"),
    (linux::O_NONBLOCK as u64, "O_NONBLOCK"),
    (linux::O_SYNC as u64, "O_SYNC"),
    (linux::O_DSYNC as u64, "O_DSYNC"),
    (linux::O_DIRECT as u64, "O_DIRECT"),
    (linux::O_LARGEFILE as u64, "O_LARGEFILE"),
    (linux::O_DIRECTORY as u64, "O_DIRECTORY"),
    (linux::O_NOFOLLOW as u64, "O_NOFOLLOW"),
    (linux::O_NOATIME as u64, "O_NOATIME"),
    (linux::O_CLOEXEC as u64, "O_CLOEXEC"),
    (linux::O_PATH as u64, "O_PATH"),
];
const AT: Bits = &[
    (linux::AT_SYMLINK_NOFOLLOW as u64, "AT_SYMLINK_NOFOLLOW"),
    (linux::AT_SYMLINK_FOLLOW as u64, "AT_SYMLINK_FOLLOW"),
    (linux::AT_NO_AUTOMOUNT as u64, "AT_NO_AUTOMOUNT"),
    (linux::AT_EMPTY_PATH as u64, "AT_EMPTY_PATH"),
    (linux::AT_STATX_FORCE_SYNC as u64, "AT_STATX_FORCE_SYNC"),
    (linux::AT_STATX_DONT_SYNC as u64, "AT_STATX_DONT_SYNC"),
];
/// Of faccessat2, and of unlinkat.
const AT_EACCESS: Bits = &[(linux::AT_EACCESS as u64, "AT_EACCESS")];
const AT_REMOVEDIR: Bits = &[(linux::AT_REMOVEDIR as u64, "AT_REMOVEDIR")];
const ACCESS: Bits = &[(4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
const PROTECTION: Bits = &[(1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC")];
const MAPPING: Bits = &[
    (1, "MAP_SHARED"),
    (2, "MAP_PRIVATE"),
    (0x10, "MAP_FIXED"),
    (0x20, "MAP_ANONYMOUS"),
    (0x100, "MAP_GROWSDOWN"),
    (0x800, "MAP_DENYWRITE"),
    (0x2000, "MAP_LOCKED"),
    (0x4000, "MAP_NORESERVE"),
    (0x8000, "MAP_POPULATE"),
    (0x20000, "MAP_STACK"),
    (0x40000, "MAP_HUGETLB"),
    (0x10_0000, "MAP_FIXED_NOREPLACE"),
];
const CLONE: Bits = &[
    (linux::CLONE_VM as u64, "CLONE_VM"),
    (linux::CLONE_FS as u64, "CLONE_FS"),
    (linux::CLONE_FILES as u64, "CLONE_FILES"),
    (linux::CLONE_SIGHAND as u64, "CLONE_SIGHAND"),
    (linux::CLONE_PIDFD as u64, "CLONE_PIDFD"),
    (linux::CLONE_VFORK as u64, "CLONE_VFORK"),
    (linux::CLONE_THREAD as u64, "CLONE_THREAD"),
    (linux::CLONE_SYSVSEM as u64, "CLONE_SYSVSEM"),
    (linux::CLONE_SETTLS as u64, "CLONE_SETTLS"),
    (linux::CLONE_PARENT_SETTID as u64, "CLONE_PARENT_SETTID"),
    (linux::CLONE_CHILD_CLEARTID as u64, "CLONE_CHILD_CLEARTID"),
    (linux::CLONE_CHILD_SETTID as u64, "CLONE_CHILD_SETTID"),
];
const WHENCE: &[&str] = &["SEEK_SET", "SEEK_CUR", "SEEK_END", "SEEK_DATA", "SEEK_HOLE"];
const FCNTL: Bits = &[
    (0, "F_DUPFD"),
    (1, "F_GETFD"),
    (2, "F_SETFD"),
    (3, "F_GETFL"),
    (4, "F_SETFL"),
    (5, "F_GETLK"),
    (6, "F_SETLK"),
    (7, "F_SETLKW"),
    (8, "F_SETOWN"),
    (9, "F_GETOWN"),
    (36, "F_OFD_GETLK"),
    (37, "F_OFD_SETLK"),
    (38, "F_OFD_SETLKW"),
    (1024, "F_SETLEASE"),
    (1025, "F_GETLEASE"),
    (1030, "F_DUPFD_CLOEXEC"),
    (1031, "F_SETPIPE_SZ"),
    (1032, "F_GETPIPE_SZ"),
    (1033, "F_ADD_SEALS"),
    (1034, "F_GET_SEALS"),
];

impl Call {
    /// Its name.
    pub fn name(&self) -> String {
        match nr::name(self.number) {
            "?" => format!("syscall_{}", self.number),
            name => name.to_owned(),
        }
    }

    /// Its arguments, as they would be written.
    pub fn arguments(&self) -> String {
        let letters = shape::shape(self.number).unwrap_or(UNKNOWN);
        let mut texts = self.texts.iter();
        let shown = letters.bytes().zip(self.args).filter(|(letter, _)| self.counts(*letter));
        let shown = shown.map(|(letter, value)| match letter {
            b'p' => match texts.next() {
                Some(Some(text)) => quoted(text),
                _ => address(value),
            },
            letter => self.argument(letter, value),
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// Whether an argument counts: a mode of open does where a file may be made.
    fn counts(&self, letter: u8) -> bool {
        let flags = match self.number {
            nr::open => self.args[1],
            nr::openat => self.args[2],
            _ => return true,
        };
        const MAKES: u64 = (linux::O_CREAT | linux::O_TMPFILE & !linux::O_DIRECTORY) as u64;
        letter != b'm' || flags & MAKES != 0
    }

    fn argument(&self, letter: u8, value: u64) -> String {
        let low = u64::from(value as u32);
        match letter {
            b'd' if value as i32 == linux::AT_FDCWD => "AT_FDCWD".to_owned(),
            b'f' | b'd' => (value as i32).to_string(),
            b'i' => small(value),
            b'l' => (value as i64).to_string(),
            b'u' => value.to_string(),
            b'm' => octal(value as u32),
            b'o' => open_flags(low),
            b'a' => match self.number {
                nr::unlinkat => flags(low, AT_REMOVEDIR, "0"),
                nr::faccessat2 if low & 0x200 != 0 => {
                    let rest = flags(low & !0x200, AT, "");
                    let more = if rest.is_empty() { rest } else { format!("|{rest}") };
                    flags(0x200, AT_EACCESS, "0") + &more
                }
                _ => flags(low, AT, "0"),
            },
            b'r' => flags(low, ACCESS, "F_OK"),
            b'P' => flags(low, PROTECTION, "PROT_NONE"),
            b'M' => flags(low, MAPPING, "0"),
            b'C' => clone_flags(value),
            b'h' => format!("{value:#x}"),
            b'w' => match WHENCE.get(low as usize) {
                Some(name) => (*name).to_owned(),
                None => low.to_string(),
            },
            b'c' => match FCNTL.iter().find(|(command, _)| *command == low) {
                Some((_, name)) => (*name).to_owned(),
                None => low.to_string(),
            },
            b's' => signal(low as i32),
            _ => address(value),
        }
    }

    /// The result, as strace would show it.
    pub fn result(&self) -> String {
        let Some(End { result, .. }) = self.end else { return "?".to_owned() };
        if let Some(errno) = error(result) {
            let told = told(errno);
            return format!("-1 {errno:?} ({told})");
        }
        match self.number {
            nr::mmap | nr::mremap | nr::brk | nr::shmat => address(result as u64),
            nr::umask => octal(result as u32),
            nr::fcntl if self.args[1] as u32 == linux::F_GETFL => {
                format!("{result:#x} (flags {})", open_flags(result as u64))
            }
            _ => result.to_string(),
        }
    }

    /// Time of day, in UTC.
    fn time(&self) -> String {
        let (seconds, ns) = (self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000);
        let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
        format!("{hour:02}:{minute:02}:{:02}.{:06}", seconds % 60, ns / 1000)
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let mut line = format!("{} {}", self.time(), self.pid);
        if self.tid != self.pid {
            let _ = write!(line, "/{}", self.tid);
        }
        let _ = write!(line, " {}({}) = {}", self.name(), self.arguments(), self.result());
        match self.end {
            Some(End { by, duration_ns, .. }) => {
                let _ = write!(line, " <{}, {duration_ns} ns>", who(by));
            }
            None if matches!(self.number, nr::exit | nr::exit_group) => {}
            None => line += " <unfinished>",
        }
        line
    }

    /// The line for programs.
    pub fn json(&self) -> String {
        let end = self.end.as_ref();
        let told = Told {
            time_ns: self.at_ns,
            pid: self.pid,
            tid: self.tid,
            program: &self.program,
            call: self.name(),
            number: self.number,
            arguments: self.arguments(),
            result: end.map(|end| end.result),
            error: end.and_then(|end| error(end.result)).map(|errno| format!("{errno:?}")),
            answered_by: end.map(|end| answerer(end.by)),
            kernel: end.and_then(|end| kernel(end.by)),
            duration_ns: end.map(|end| end.duration_ns),
        };
        serde_json::to_string(&told).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Told<'a> {
    time_ns: u64,
    pid: u32,
    tid: u32,
    program: &'a str,
    call: String,
    number: usize,
    arguments: String,
    result: Option<i64>,
    error: Option<String>,
    answered_by: Option<&'static str>,
    kernel: Option<u16>,
    duration_ns: Option<u64>,
}

/// `1,234 calls were not recorded`.
pub fn not_recorded(calls: u64) -> String {
    let digits = calls.to_string();
    let mut grouped = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let (noun, verb) = if calls == 1 { ("call", "was") } else { ("calls", "were") };
    format!("... {grouped} {noun} {verb} not recorded")
}

/// Who has answered, in words.
pub fn who(by: By) -> String {
    match by {
        By::Kernel(kernel) => format!("kernel {kernel}"),
        by => answerer(by).to_owned(),
    }
}

fn answerer(by: By) -> &'static str {
    match by {
        By::Kernel(_) => "kernel",
        By::Host => "host",
        By::Ring => "ring",
        By::Itself => "process",
    }
}

fn kernel(by: By) -> Option<u16> {
    match by {
        By::Kernel(kernel) => Some(kernel),
        _ => None,
    }
}

/// The error that a result stands for.
pub fn error(result: i64) -> Option<Errno> {
    (-4095..0).contains(&result).then(|| Errno::from_raw(-result as i32))
}

fn address(value: u64) -> String {
    if value == 0 { "NULL".to_owned() } else { format!("{value:#x}") }
}

/// A number that is an `int` as a rule: registers' upper halves may hold anything.
fn small(value: u64) -> String {
    let upper = value >> 32;
    let is_int = upper == 0 || upper == u64::from(u32::MAX);
    if is_int { (value as i32).to_string() } else { (value as i64).to_string() }
}

/// What the C library says of an error.
fn told(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno as i32).to_string();
    without_number(&text).unwrap_or_default().to_owned()
}

/// As C writes it.
fn octal(value: u32) -> String {
    if value == 0 { "0".to_owned() } else { format!("0{value:o}") }
}

fn signal(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => number.to_string(),
    }
}

fn clone_flags(value: u64) -> String {
    let (bits, child) = (value & !0xff, (value & 0xff) as i32);
    match (bits, child) {
        (0, 0) => "0".to_owned(),
        (0, child) => signal(child),
        (bits, 0) => flags(bits, CLONE, "0"),
        (bits, child) => format!("{}|{}", flags(bits, CLONE, "0"), signal(child)),
    }
}

fn open_flags(value: u64) -> String {
    let way = match value & 3 {
        0 => "O_RDONLY",
        1 => "O_WRONLY",
        2 => "O_RDWR",
        _ => "O_ACCMODE",
    };
    match flags(value & !3, OPEN, "") {
        rest if rest.is_empty() => way.to_owned(),
        rest => format!("{way}|{rest}"),
    }
}

/// The names of the bits, those that have none as a number; `none` where none is set.
fn flags(mut value: u64, names: Bits, none: &str) -> String {
    let mut shown = vec![];
    for (bits, name) in names {
        if *bits != 0 && value & bits == *bits {
            shown.push((*name).to_owned());
            value &= !bits;
        }
    }
    if value != 0 {
        shown.push(format!("{value:#x}"));
    }
    if shown.is_empty() { none.to_owned() } else { shown.join("|") }
}

fn quoted(text: &Text) -> String {
    let shown: String =
        text.bytes.iter().flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    let more = if text.goes_on { "..." } else { "" };
    format!("\"{}\"{more}", shown.replace("\\'", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: usize, args: [u64; 6], text: &str, result: i64) -> Call {
        let text = Text { bytes: text.as_bytes().to_vec(), goes_on: false };
        Call {
            at_ns: 3_723_000_001_000,
            pid: 7,
            tid: 7,
            program: "cat".to_owned(),
            number,
            args,
            texts: vec![Some(text)],
            end: Some(End { result, by: By::Kernel(1), duration_ns: 81 }),
        }
    }

    #[test]
    fn a_call_is_a_line() {
        let at = linux::AT_FDCWD as u64;
        let open = call(nr::openat, [at, 1, 0o2_000_101, 0o644, 0, 0], "a\"\n'", 3);
        let line =
            r#"01:02:03.000001 7 openat(AT_FDCWD, "a\"\n'", O_WRONLY|O_CREAT|O_CLOEXEC, 0644)"#;
        assert_eq!(open.line(), format!("{line} = 3 <kernel 1, 81 ns>"));
        let gone = call(nr::stat, [1, 0xff00, 0, 0, 0, 0], "/x", -2);
        assert!(
            gone.line().ends_with(
                "stat(\"/x\", 0xff00) = -1 ENOENT (No such file or directory) \
            <kernel 1, 81 ns>"
            ),
            "{}",
            gone.line()
        );
        let mut exit = call(nr::exit_group, [1, 0, 0, 0, 0, 0], "", 0);
        exit.end = None;
        assert!(exit.line().ends_with("exit_group(1) = ?"), "{}", exit.line());
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(not_recorded(1), "... 1 call was not recorded");
        assert_eq!(not_recorded(1_234_567), "... 1,234,567 calls were not recorded");
        assert_eq!(not_recorded(999), "... 999 calls were not recorded");
    }

    #[test]
    fn bits_without_a_name_are_shown() {
        assert_eq!(flags(3 | 0x4000_0000, PROTECTION, "-"), "PROT_READ|PROT_WRITE|0x40000000");
        assert_eq!(open_flags(linux::O_TMPFILE as u64 | 2), "O_RDWR|O_TMPFILE");
        assert_eq!(clone_flags(17), "SIGCHLD");
    }
}
