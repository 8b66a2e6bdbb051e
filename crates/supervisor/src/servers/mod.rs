//! Threads of the supervisor that do for programs of the image what these may not or cannot do.

pub(crate) mod counter;
pub(crate) mod fetcher;
pub(crate) mod lender;
pub(crate) mod loads;
mod moved;
