//! Starts the background processes of an image: `husk: NAME` in `ps`, `top` and the host's log.
//!
//! What one of them is to do comes over its standard input, so that its only argument is its name:
//!
//! ```text
//!   length of the rest, 4 bytes │ word │ 0 │ word │ 0 ...
//! ```

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{FileType, fstat};

use crate::named::commands::up::SELF;
use crate::named::place::Name;
use crate::process::oom;

/// How their names begin.
const PREFIX: &str = "husk: ";
/// Most bytes of words: as many as a command may have.
const WORDS_BYTES_MAX: u32 = 4 << 20;

/// The command that becomes one of image `name`.
pub fn command(name: &Name, input: UnixStream) -> Command {
    let mut command = Command::new(SELF);
    command.arg0(format!("{PREFIX}{name}")).stdin(OwnedFd::from(input));
    command
}

/// Tells the one at the other end what to do.
pub fn tell<'a>(
    mut stream: &UnixStream,
    words: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<()> {
    let words: Vec<u8> =
        words.into_iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let length = u32::try_from(words.len()).ok().filter(|length| *length <= WORDS_BYTES_MAX);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_le_bytes()[..], &words].concat())
}

/// What this process is to do, if it is one of them: the words of a command.
pub fn told() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os();
    let own = arguments.next()?;
    if !own.as_bytes().starts_with(PREFIX.as_bytes()) || arguments.next().is_some() {
        return None;
    }
    let input = rustix::stdio::stdin();
    let socket = |input| fstat(input).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_socket());
    let input = socket(input).then(|| input.try_clone_to_owned().ok()).flatten()?;
    let mut input = UnixStream::from(input);
    let mut length = [0; 4];
    input.read_exact(&mut length).ok()?;
    let length = u32::from_le_bytes(length);
    let mut words = vec![0; (length <= WORDS_BYTES_MAX).then_some(length as usize)?];
    // No more than these: what follows comes with descriptors.
    input.read_exact(&mut words).ok()?;
    let name = CString::new(own.into_vec()).ok()?;
    // For people only; Linux keeps the first 15 bytes.
    let _ = rustix::thread::set_name(&name);
    oom::hold();
    let words = words.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let words = words.map(|word| OsStr::from_bytes(word).to_owned());
    Some([OsString::from("husk")].into_iter().chain(words).collect())
}
