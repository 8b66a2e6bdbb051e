//! What messages between nodes cost, and calls on another node.

mod deaths;
pub mod exchange;
pub mod hares;
pub mod msg;
pub mod nodes;
mod peer;
