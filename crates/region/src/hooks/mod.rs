//! Where tests stop an operation, or let another thread run, and the clock that times it: kill
//! points, the model checker's hooks.

pub(crate) mod clock;
pub mod kill;
pub mod model_hooks;
