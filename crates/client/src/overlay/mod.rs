//! The host's tree below an overlay, and read-only mode outside of the trees.

pub(crate) mod fetcher;
pub(crate) mod lower;
pub(crate) mod read_only_outside;
mod servers;

/// What a thread keeps while it reads the host's directories.
#[derive(Default)]
pub(crate) struct Lower {
    /// The directory that is read belongs to who asks.
    lists_own: bool,
    /// It is the fetcher's: there is nobody else to ask.
    is_fetcher: bool,
}
