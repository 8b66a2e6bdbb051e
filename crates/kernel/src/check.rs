//! placeholder
use crate::Kernel;
/// What the checker found.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// What is wrong.
    pub what: &'static str,
}
/// Checks.
pub fn check(_: &Kernel) {}
/// Words.
pub fn scratch_words(_: &Kernel) -> usize { 0 }
