//! Allocation: free objects and blocks, and those set aside for threads.

pub(crate) mod blocks;
pub(crate) mod magazine;
pub(crate) mod populate;
pub(crate) mod reserve;
pub(crate) mod steal;
