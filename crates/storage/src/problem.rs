//! Errors of volumes, as people read them.

use std::fmt;
use std::io;

/// One line in three parts: what failed, why, what to do.
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
    /// Of its three parts.
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), remedy: remedy.into() }
    }

    /// Why the host refused something, with the usual remedy.
    pub(crate) fn of(what: impl Into<String>, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let remedy = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => "make room, or name another place with --on",
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
                "name a place of yours with --on, or run it as the owner"
            }
            Kind::FileTooLarge => "choose a smaller --size, or another place with --on",
            _ => "look at the disk (`dmesg`), or name another place with --on",
        };
        Self::new(what, reason(error), remedy)
    }

    /// The same while a volume gets another size.
    pub fn of_resize(what: impl Into<String>, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let remedy = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => {
                "make room on its disk, which has the old and the new one for a moment"
            }
            Kind::FileTooLarge => "choose a smaller --size",
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => "run it as the owner",
            _ => "look at the disk (`dmesg`)",
        };
        Self::new(what, reason(error), remedy)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.remedy)
    }
}

impl std::error::Error for Problem {}

/// An error of the host, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
