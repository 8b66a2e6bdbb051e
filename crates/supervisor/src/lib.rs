//! The supervisor: one process around an image. It makes the image, starts the first program,
//! buries the dead, serves what is done in the background, and writes changes back at the end.
//!
//! ```text
//!   request -> settings -> image (region, mounts) -> launch -> watch -> write_back
//!   (typed)    (checked)                             (exec)    (wait)   (host tree)
//! ```
//!
//! An image with a name (`named`) has a supervisor of its own in the background, which others ask
//! over a socket. `fsck` looks at an image that another supervisor has made.
//!
//! Nothing waits for the supervisor while it works: programs run handlers themselves, and a
//! waiter that meets a dead holder recovers by itself. If the supervisor dies, programs go on;
//! what they changed in overlays is then not written back.
#![forbid(unsafe_code)]

pub mod aid;
pub mod check;
pub mod clock;
pub mod config;
mod control_group;
pub mod copies;
pub mod dense;
pub mod descent;
pub mod descriptors;
pub mod differences;
pub mod explain;
pub mod failure;
pub mod fate;
pub mod fsck;
mod full;
mod gathered;
pub mod holds;
pub mod image;
mod interrupts;
pub mod launch;
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
mod soundness;
pub mod stat;
pub mod trace;
pub mod variables;
mod vigil;
pub mod visit;
pub mod volumes;
pub mod watch;
mod watchers;
mod whole;
pub mod work;
pub mod write_back;

pub use failure::Failure;
pub use fate::OnFailure;
pub use request::{Request, Settings};
pub use run::run;
