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

pub mod aid;
pub mod check;
pub mod clock;
pub mod config;
mod control_group;
pub mod copies;
mod counter;
pub mod dense;
pub mod descent;
pub mod descriptors;
pub mod differences;
mod digest;
pub mod explain;
pub mod failure;
pub mod fate;
mod fetcher;
pub mod follow;
pub mod fsck;
mod full;
mod gathered;
pub mod holds;
pub mod hosts;
pub mod image;
mod interrupts;
pub mod launch;
mod lender;
pub mod limits;
mod loads;
pub mod metrics;
pub mod named;
mod neighbours;
pub mod nodes;
mod onlooker;
mod oom;
pub mod private;
pub mod program;
pub mod punch;
pub mod rates;
pub mod recording;
pub mod recovery;
pub mod refresh;
pub mod request;
pub mod rescues;
pub mod review;
mod room;
pub mod run;
mod runtime_file;
pub mod say;
mod shortage;
pub mod signals;
mod sleepers;
pub mod sockets;
mod soundness;
pub mod stat;
pub mod trace;
pub mod typed;
pub mod umask;
pub mod variables;
mod vigil;
pub mod visit;
pub mod volumes;
pub mod waits;
pub mod watch;
mod watchers;
mod whole;
pub mod work;
pub mod write_back;

pub use failure::Failure;
pub use fate::OnFailure;
pub use request::{Request, Settings};
pub use run::run;
