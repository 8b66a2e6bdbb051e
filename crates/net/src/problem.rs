//! Errors for people: what failed, why, what to do.

use std::fmt::Display;

use husk_abi::Errno;
use husk_abi::errno::without_number;

/// The number of an error of `rustix`.
pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// An error of `husk-host` as one of the standard library.
pub(crate) fn io_error(errno: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.0)
}

/// What failed, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What failed.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    pub(crate) fn new(what: impl Display, why: impl Display, remedy: impl Display) -> Problem {
        let why = why.to_string();
        let why = without_number(&why).map(str::to_owned).unwrap_or(why);
        Problem { what: what.to_string(), why, remedy: remedy.to_string() }
    }

    /// Linux refused a step of steering.
    pub(crate) fn refused(what: &str, errno: Errno) -> Problem {
        let release = rustix::system::uname();
        let newer = format!(
            "it takes Linux 5.14 or later, with eBPF; this is {}",
            release.release().to_string_lossy()
        );
        let remedy = match errno {
            Errno::EPERM | Errno::EACCES => {
                "run it as root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_PTRACE)"
            }
            // No such call, or no such kind of program.
            Errno::ENOSYS | Errno::EINVAL => &newer,
            _ => "see `husk net check`",
        };
        Problem::new(format!("cannot {what}"), format!("Linux says {errno:?}"), remedy)
    }
}
