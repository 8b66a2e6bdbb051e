//! Service `descriptor`: numbers and open-file descriptions.
//!
//! ```text
//!   table   and its entries: see `state::fd_table`
//!   open    0 lock   1 generation:32 tag:32   2 inode:32 flags:32   3 references   4 offset
//!           5 generation of the inode
//! ```
//!
//! 1. All changes of a table happen under its lock, and in the transaction that changes the
//!    descriptions they name: a count is never wrong, whoever dies.
//!    A table that one process of one thread has needs none: nobody else comes by it while that
//!    thread lives, and whoever cleans up after it recovers its journal first (`process::reap`).
//!    In such a table a plain number of the host's comes and goes without a transaction, too: by
//!    two stores (`Session::put_alone`).
//! 2. A shadow is an entry of the host's that names a description. Whether that is the host's or
//!    the image's by now says a flag of the description, for all its numbers at once.
//! 3. Lock words are the first words of records and stay lock words in every life of the record, so
//!    a thread that comes late to a closed description locks harmlessly and then finds it gone.

pub mod flight;
#[cfg(feature = "answers")]
pub mod holds;
pub mod hosts;
pub mod leases;
pub mod open;
#[cfg(feature = "answers")]
pub mod passing;
pub mod table;
pub(crate) mod whole;
