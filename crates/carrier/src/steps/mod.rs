//! Operations that are more than a call of their handler: `by carrier` in their declaration.
//!
//! Handlers change one kernel's state once. What needs several, a second try after the dead are
//! buried, or another answer on another node, is put together here.

pub(crate) mod admin;
pub(crate) mod descriptor;
pub(crate) mod fs;
pub(crate) mod lock;
pub(crate) mod overview;
pub(crate) mod pipe;
pub(crate) mod process;
pub(crate) mod shortcuts;
pub(crate) mod volume;
pub(crate) mod volume_log;
pub(crate) mod watch;
