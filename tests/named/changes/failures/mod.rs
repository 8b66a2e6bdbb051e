//! Commands that are killed, disks that fill up, and files that a write-back had to save elsewhere.

mod crowded;
mod cut;
mod rescue;
