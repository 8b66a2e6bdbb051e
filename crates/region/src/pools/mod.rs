//! Free objects and blocks, and who has which set aside.

pub(crate) mod blocks;
pub(crate) mod magazine;
pub(crate) mod reserve;
pub(crate) mod steal;
