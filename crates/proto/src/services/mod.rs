//! Services: what programs ask of the kernels, one file each.

pub mod descriptor;
pub mod epoll;
pub mod flight;
pub mod fs;
pub mod image;
pub mod lock;
pub mod pipe;
pub mod process;
pub mod shortcuts;
pub mod volume;
pub mod watch;
