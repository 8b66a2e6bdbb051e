//! Commands about named images, on the side of whoever types them.

pub(super) mod ask;
pub(super) mod copy;
pub(super) mod enter;
pub mod offer;
pub(super) mod parcel;
pub(super) mod programs;
pub(super) mod unfinished;
pub(super) mod up;
pub(super) mod waiting;
