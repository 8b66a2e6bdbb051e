//! What `mmap`, `mprotect` and `mremap` take, as wide as the argument that carries it.

use linux_raw_sys::general as g;

/// Execute.
pub const PROT_EXEC: usize = g::PROT_EXEC as usize;
/// Read.
pub const PROT_READ: usize = g::PROT_READ as usize;
/// Write.
pub const PROT_WRITE: usize = g::PROT_WRITE as usize;

/// No file.
pub const MAP_ANONYMOUS: usize = g::MAP_ANONYMOUS as usize;
/// At this address, whatever lies there.
pub const MAP_FIXED: usize = g::MAP_FIXED as usize;
/// At this address, if nothing lies there.
pub const MAP_FIXED_NOREPLACE: usize = g::MAP_FIXED_NOREPLACE as usize;
/// Nothing is set aside for its pages.
pub const MAP_NORESERVE: usize = g::MAP_NORESERVE as usize;
/// All pages at once.
pub const MAP_POPULATE: usize = g::MAP_POPULATE as usize;
/// Stores stay with the process.
pub const MAP_PRIVATE: usize = g::MAP_PRIVATE as usize;
/// Stores are seen by all who map it.
pub const MAP_SHARED: usize = g::MAP_SHARED as usize;
/// The bits that say whose stores are.
pub const MAP_TYPE: usize = g::MAP_TYPE as usize;

/// A fork takes it along.
pub const MADV_DOFORK: usize = g::MADV_DOFORK as usize;
/// A fork leaves it out.
pub const MADV_DONTFORK: usize = g::MADV_DONTFORK as usize;

/// The old place stays mapped.
pub const MREMAP_DONTUNMAP: usize = g::MREMAP_DONTUNMAP as usize;
/// To this address, whatever lies there.
pub const MREMAP_FIXED: usize = g::MREMAP_FIXED as usize;
/// To another address, if need be.
pub const MREMAP_MAYMOVE: usize = g::MREMAP_MAYMOVE as usize;
