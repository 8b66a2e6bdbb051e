//! Services that only the supervisor, and commands on its behalf, ask of the kernels.

pub mod admin;
pub mod overview;
pub mod volume_log;
