//! What processes cost: starts, placement, pipes, and how long others hold what they wait for.

pub mod exec;
pub mod flow;
pub mod hold;
pub mod pipes;
pub mod place;
