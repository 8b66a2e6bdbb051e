//! Threads of the supervisor that do things which programs of the image may not or cannot do.

pub(crate) mod counter;
pub(crate) mod fetcher;
pub(crate) mod lender;
pub(crate) mod loads;
mod moved;
