//! What fails: host calls, the write-back itself, who recovers it, and the power.

pub mod faulty;
pub mod killed;
pub mod leftovers;
mod power;
mod recovered;
