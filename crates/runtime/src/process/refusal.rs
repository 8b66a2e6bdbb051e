//! What a person is told when a program cannot be started.

use husk_abi::Errno;
use husk_host::calls;

/// Prints one line and ends the process.
pub fn die(status: usize, what: &[u8], about: &[u8], why: &[u8]) -> ! {
    for part in [&b"husk: "[..], what, about, why, b"\n"] {
        if !part.is_empty() {
            calls::write(2, part);
        }
    }
    calls::exit_group(status)
}

/// Why a path leads to nothing here that leads to something outside, and what to do.
pub const HIDDEN: &[u8] =
    b": it is on the host, but not in the image, which has a tree of its own \
    there; copy it in: husk cp FILE NAME:FILE";

/// Why a command that was typed cannot be run, and what to do: in the words of `husk run`.
pub fn why_not(typed: &[u8], errno: Errno) -> &'static [u8] {
    let (path, blank) = (typed.contains(&b'/'), typed.contains(&b' '));
    match errno {
        Errno::ENOENT if typed.is_empty() => b": the name is empty; name a program",
        Errno::ENOENT if blank && path => {
            b": no such file or directory; \
              leave out the quotes around the whole command, or write: sh -c 'COMMAND'"
        }
        Errno::ENOENT if blank => {
            b": not found in PATH; \
              leave out the quotes around the whole command, or write: sh -c 'COMMAND'"
        }
        Errno::ENOENT if path => b": no such file or directory; check the path",
        Errno::ENOENT => b": not found in PATH; check the name, or give its path",
        Errno::EACCES => b": permission denied; name a program whose mode lets you run it",
        Errno::ENOEXEC => b": not a program this machine can run; name another program",
        // A mount whose server is gone.
        Errno::ENOTCONN | Errno::ECONNABORTED => {
            b": the host or server that has its file is lost; start it again"
        }
        _ => b": cannot be started; check the command",
    }
}

/// What to tell the user.
pub fn message(errno: Errno) -> &'static [u8] {
    match errno {
        Errno::ENOENT => b"no such file or directory",
        Errno::EACCES => b"permission denied",
        Errno::ENOEXEC => b"not a program this machine can run",
        Errno::ENOTDIR => b"a part of the path is no directory",
        Errno::EISDIR => b"is a directory",
        Errno::ELOOP => b"too many symbolic links or script interpreters",
        Errno::ENAMETOOLONG => b"path too long",
        Errno::ENOMEM => b"out of memory",
        Errno::ENOSYS => b"the image cannot be used",
        Errno::E2BIG => b"argument list too long",
        Errno::ENOTCONN | Errno::ECONNABORTED => b"the host or server that has its file is lost",
        Errno::ETXTBSY => b"somebody is writing to it",
        _ => b"cannot be started",
    }
}
