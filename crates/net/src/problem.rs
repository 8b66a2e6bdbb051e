//! What a person is told when something does not work.

use std::fmt::Display;

use husk_abi::Errno;

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
        Problem { what: what.to_string(), why: why.to_string(), remedy: remedy.to_string() }
    }

    /// Linux refused a step of steering.
    pub(crate) fn refused(what: &str, errno: Errno) -> Problem {
        let remedy = match errno {
            Errno::EPERM | Errno::EACCES => {
                "run it as root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_PTRACE)"
            }
            _ => "see `husk net check`",
        };
        Problem::new(format!("cannot {what}"), format!("Linux says {errno:?}"), remedy)
    }
}
