//! Hooks for tests: kill points, at which an operation stops, and the model checker's scheduling
//! points. And the clock.

pub(crate) mod clock;
pub mod kill;
pub mod model_hooks;
