//! Commands: what is typed and printed; `husk-supervisor` does the work. `husk net`, `top` and
//! `bench` have folders of their own.

pub mod diff;
pub mod explain;
pub mod metrics;
pub mod named;
pub mod recover;
pub mod rescue;
pub mod settings;
pub mod trace;
pub mod volume;
