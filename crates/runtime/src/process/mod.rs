//! Processes and threads.

pub(crate) mod elsewhere;
pub(crate) mod exec;
pub(crate) mod join;
pub(crate) mod landlock;
pub(crate) mod limits;
pub(crate) mod loads;
pub(crate) mod placement;
pub(crate) mod refusal;
pub(crate) mod shadow;
pub(crate) mod spawn;
