//! What files cost: single calls, common commands, the workloads of Hare, many processes, a
//! write-back.

pub mod commands;
pub mod hare;
pub mod operations;
pub mod scale;
pub mod scale_part;
pub mod workloads;
pub mod write_back;
