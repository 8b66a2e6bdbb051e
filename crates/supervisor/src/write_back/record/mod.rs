//! What write-backs keep on the host about themselves: the steps of one under way, what earlier
//! ones have written, and how one that was killed is finished or undone.

pub mod ledger;
pub mod manifest;
pub mod recover;
