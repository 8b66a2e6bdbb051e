//! Husk's own errors: one line that says what failed, why, and what to do.
//!
//! ```text
//!   husk: cannot overlay /etc/passwd: it is not a directory; name a directory
//!         '------- what ---------'  '------ why ------'  '---- remedy ----'
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// Husk's own failure (as `env` and `timeout` use it).
pub const STATUS_HUSK: u8 = 125;
/// The command was found and cannot be executed.
pub const STATUS_NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const STATUS_NOT_FOUND: u8 = 127;
/// Added to a signal's number when it ended the command.
pub const STATUS_SIGNAL_BASE: u8 = 128;

/// A failure of Husk's own, ready to print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What failed.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
    /// Exit status.
    pub status: u8,
}

impl Failure {
    /// A failure with status 125.
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), remedy: remedy.into(), status: STATUS_HUSK }
    }

    /// The same with another exit status.
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a path contains.
        let line = format!("{}: {}; {}", self.what, self.why, self.remedy);
        f.write_str(&line.replace('\n', "?"))
    }
}

impl std::error::Error for Failure {}

impl From<husk_storage::Problem> for Failure {
    fn from(problem: husk_storage::Problem) -> Self {
        Self::new(problem.what, problem.why, problem.remedy)
    }
}
