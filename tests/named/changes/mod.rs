//! What an image has changed, and how it gets to the host, or stays.

mod asked;
mod both_sides;
mod chosen;
mod conflicts;
mod crowded;
mod cut;
mod failing;
mod followed;
mod git;
mod links;
mod moved;
mod names;
mod refresh;
mod rescue;
mod sides;
mod stays;
mod sync;
mod waited;
