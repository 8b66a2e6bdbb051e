//! What changes on the host, too, while an image runs.

mod both_sides;
mod conflicts;
mod followed;
mod links;
mod moved;
mod refresh;
