//! How is measured: both sides in turn, slices that count, where it works, what it is measured on.

pub mod calm;
pub mod fragment;
pub mod lab;
pub mod lines;
pub mod machine;
pub mod memory;
pub mod pair;
pub mod scratch;
pub mod stop;
pub mod technique;
pub mod worker;
