//! The session with another host, over ssh.
//!
//! ```text
//!   here: starter ─ ssh ─► there: guest        frames (`stream`) in both directions
//!            '─ own: the file of this command, if it is not there yet
//! ```

pub mod guest;
mod own;
pub mod ssh;
pub mod starter;
pub mod stream;
