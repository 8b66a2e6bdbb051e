//! Rules that every file of the project keeps, one file each. A rule looks through the workspace
//! and returns findings.

pub mod edges;
pub mod fences;
pub mod finding;
mod functions;
pub mod licences;
pub mod links;
pub mod pins;
pub mod siblings;
pub mod syscalls;
pub mod tidy;
