//! `husk up`: an image in the background.
//!
//! ```text
//!   husk up ARGUMENTS ── starts ──► husk keep ARGUMENTS ── starts ──► husk tend ARGUMENTS
//!        ◄────────────── one answer on its standard output ─────────────────'
//! ```
//!
//! Invariant: whatever can fail at the start fails before `husk up` ends, in one line of its own.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::named::place::Name;
use crate::request::reason;

/// The command as it was started, whatever has become of its file.
pub const SELF: &str = "/proc/self/exe";
/// Longest answer of a supervisor that starts.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What a supervisor that was started says.
#[derive(Serialize, Deserialize)]
pub enum Begun {
    /// It serves.
    Up,
    /// It has ended.
    Failed(Failure),
}

/// Makes image `name`; `arguments` are those of `husk up`, which its supervisor reads again.
pub fn up(name: &OsStr, arguments: &[OsString]) -> Result<(), Failure> {
    let name = Name::parse(name)?;
    let failed = |why: &str| {
        Failure::new(format!("cannot make image {name}"), why, "see `husk check`, and try again")
    };
    let mut keeper = Command::new(SELF)
        .arg0("husk")
        .arg("keep")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|problem| failed(&reason(&problem)))?;
    let mut text = Vec::new();
    if let Some(output) = keeper.stdout.take() {
        // What could not be read is no answer.
        let _ = output.take(ANSWER_BYTES_MAX).read_to_end(&mut text);
    }
    match serde_json::from_slice(&text) {
        Ok(Begun::Up) => Ok(()),
        Ok(Begun::Failed(failure)) => Err(failure),
        Err(_) => {
            let end = keeper.wait().map_or_else(|p| reason(&p), |status| status.to_string());
            Err(failed(&format!("its supervisor did not start: {end}")))
        }
    }
}
