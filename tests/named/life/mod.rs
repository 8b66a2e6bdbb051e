//! How images live, with whom, and how they end.

mod adopted;
mod ends;
mod guarded;
mod joins;
mod killed;
mod lives;
mod many;
mod nodes;
mod placing;
mod scarce;
mod sessions;
mod storms;
mod volumes;
