//! Memory aligned for O_DIRECT.

use std::ops::{Deref, DerefMut};

use super::BLOCK_BYTES;

/// Bytes that begin at a multiple of `BLOCK_BYTES`, a whole number of blocks.
#[derive(Debug)]
pub struct Aligned {
    /// Longer by a block, so that a boundary is in it. It never grows: its bytes stay where they
    /// are.
    store: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Aligned {
    /// `length` zeros, rounded up to whole blocks.
    pub fn zeroed(length: usize) -> Self {
        let length = length.next_multiple_of(BLOCK_BYTES);
        let store = vec![0; length + BLOCK_BYTES];
        let begin = store.as_ptr().align_offset(BLOCK_BYTES);
        Self { store, begin, length }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.store[self.begin..][..self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.store[self.begin..][..self.length]
    }
}
