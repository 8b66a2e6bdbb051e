//! What an image has changed, and how it gets to the host, or stays.

mod asked;
mod chosen;
mod failing;
mod failures;
mod git;
mod host;
mod names;
mod sides;
mod stays;
mod sync;
mod waited;
