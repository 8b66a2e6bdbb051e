//! Descriptors: numbers, and the objects that they refer to.

pub(crate) mod fd_cache;
pub(crate) mod fd_cache_policy;
pub(crate) mod foreign_fds;
pub(crate) mod table;

use fd_cache::Spares;

/// What a thread keeps of numbers.
pub(crate) struct Numbers {
    /// Soft `RLIMIT_NOFILE`; 0 = to be asked.
    limit: u32,
    /// Files that are kept open.
    spares: Spares,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { limit: 0, spares: Spares::NONE }
    }
}

impl Numbers {
    /// The limit as it was last asked for; 0: it is to be asked for.
    #[inline(always)]
    pub fn known_limit(&self) -> u32 {
        self.limit
    }

    /// It is so much.
    pub fn learn_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// It may be another one.
    pub fn forget_limit(&mut self) {
        self.limit = 0;
    }

    /// Whether a file that is kept open has been lent to a number.
    #[inline(always)]
    pub fn is_lending(&self) -> bool {
        self.spares.is_lending()
    }

    /// Whether to this one.
    #[inline(always)]
    pub fn lends(&self, fd: u32) -> bool {
        self.spares.lends(fd)
    }
}
