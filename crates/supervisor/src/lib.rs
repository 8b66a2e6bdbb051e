//! The supervisor: one process for each image. It makes the image, starts the first program, cleans
//! up after processes that end, does background work, and writes changes back at the end.
//!
//! ```text
//!   request -> settings -> image (region, mounts) -> launch -> watch -> write_back
//!   (typed)    (checked)                             (exec)    (wait)   (host tree)
//! ```
//!
//! An image with a name (`named`) has a supervisor in the background, which commands ask over a
//! socket. `fsck` checks an image that another supervisor has made.
//!
//! Programs never wait for the supervisor: they run handlers themselves, and a waiter that finds
//! the holder of a lock dead recovers by itself. If the supervisor dies, programs go on; their
//! changes in overlays are then not written back.
#![forbid(unsafe_code)]

pub mod config;
pub mod differences;
mod digest;
pub mod follow;
pub mod hosts;
pub mod image;
pub mod memory;
pub mod named;
pub mod nodes;
pub mod output;
pub mod process;
pub mod recording;
pub mod recovery;
pub mod refresh;
pub mod rescues;
pub mod review;
pub mod run;
mod servers;
pub mod show;
pub mod volumes;
pub mod write_back;

pub use output::failure::Failure;
pub use run::fate::OnFailure;
pub use run::request::{Request, Settings};
pub use run::run;
