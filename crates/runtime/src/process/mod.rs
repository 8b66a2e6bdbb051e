//! Processes and threads.

pub(crate) mod clock;
pub(crate) mod elsewhere;
pub(crate) mod exec;
pub(crate) mod landlock;
pub(crate) mod limits;
pub(crate) mod placement;
pub(crate) mod shadow;
pub(crate) mod spawn;
pub(crate) mod thread;
