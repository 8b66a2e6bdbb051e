//! What is different for a node on another host, where each message costs milliseconds.
//!
//! ```text
//!   there: copies of answers, `written` files ◄── calls back ── home: `promises`, who keeps what
//! ```

pub(crate) mod afar;
pub(crate) mod clock;
pub(crate) mod copies;
pub(crate) mod promises;
pub(crate) mod written;
