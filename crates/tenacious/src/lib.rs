//! Logs, queues, maps and counters that survive crashes.
//!
//! ```text
//!   Log  Queue  Map  Counter      handles, shared by threads
//!     batch                       operations that count together, or not at all
//!     store                       state in memory, ordered at once; callbacks when durable
//!       record                    operations and snapshots as bytes
//!         husk_storage::log       records, durable in order
//! ```
//!
//! Each change takes effect in memory at once and returns its number, an [`Lsn`]. It is durable
//! once [`Store::wait`] has returned for that number, or once the callback given to
//! [`Store::on_durable`] has run; a [`Doorbell`] tells event loops. After a crash a store holds the
//! changes up to some number, in order, with all that were durable: never one change without those
//! before it.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop");
//! let store = tenacious::Store::create(&path, 16 << 20)?;
//! let stock = store.map("stock")?;
//! let orders = store.queue("orders")?;
//! stock.insert(b"apples", b"7")?;
//! let lsn = orders.push(b"one apple")?;
//! store.wait(lsn)?; // Both are durable.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The README says what is promised, and what is not.
#![forbid(unsafe_code)]

mod batch;
mod committer;
mod doorbell;
mod error;
mod record;
mod state;
mod store;
mod structures;

#[cfg(test)]
mod crashes;

pub use batch::Batch;
pub use doorbell::Doorbell;
pub use error::Error;
pub use husk_storage::log::Lsn;
pub use store::{Counts, Options, Store};
pub use structures::{Counter, Item, Log, Map, Queue};

/// Longest name of a structure.
pub const NAME_BYTES_MAX: usize = 255;
/// Most structures in a store.
pub const STRUCTURES_MAX: usize = 1 << 16;
/// Longest batch with its keys and values, as it is written.
pub const BATCH_BYTES_MAX: usize = husk_storage::log::RECORD_BYTES_MAX;
/// Smallest store.
pub const SIZE_BYTES_MIN: u64 = husk_storage::area::SIZE_BYTES_MIN;
