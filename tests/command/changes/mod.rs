//! What a run changes, what it may, and what comes back to the host.

mod diff;
mod fidelity;
mod first_looks;
mod flags;
mod hard_trees;
mod portals;
mod read_only_outside;
mod recovered;
mod whole;
mod write_back;
