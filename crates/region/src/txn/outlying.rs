//! Descriptors of this process that are host directories with no tree at or below them: a name in
//! one, if it is a link that is not followed, is the host's; the directory's path is not needed.
//!
//! Invariants
//! 1. A number is here only while it is what it was when that was found: whoever changes it takes
//!    it away (`Session::clear_pass`), and where others might, none is here (`set_alone`).
//! 2. All of it holds as long as what the image knows of the host's paths does: one age for all.

use core::cell::Cell as Local;

use crate::txn::session::Session;

/// Numbers that can be here: who walks a tree has few directories open.
const NUMBERS: usize = 1024;

/// A bit for each, and the age of what was known when they were found.
#[derive(Debug, Default)]
pub(crate) struct Outlying {
    age: Local<u64>,
    bits: [Local<u64>; NUMBERS / u64::BITS as usize],
}

impl Outlying {
    fn word(&self, fd: u32) -> Option<(&Local<u64>, u64)> {
        self.bits.get((fd / u64::BITS) as usize).map(|word| (word, 1 << (fd % u64::BITS)))
    }

    /// What number `fd` is changes.
    #[inline(always)]
    pub(crate) fn forget(&self, fd: u32) {
        if let Some((word, bit)) = self.word(fd) {
            word.set(word.get() & !bit);
        }
    }

    /// The same of all.
    pub(crate) fn forget_all(&self) {
        self.bits.iter().for_each(|word| word.set(0));
    }
}

impl Session {
    /// Number `fd` is such a directory, as was found when the age of what is known was `age`.
    pub fn set_outlying(&self, fd: u32, age: u64) {
        if !self.is_alone() {
            return;
        }
        if self.outlying.age.replace(age) != age {
            self.outlying.forget_all();
        }
        if let Some((word, bit)) = self.outlying.word(fd) {
            word.set(word.get() | bit);
        }
    }

    /// Whether it is one, the age of what is known being `age`.
    #[inline(always)]
    pub fn is_outlying(&self, fd: u32, age: u64) -> bool {
        let set = |(word, bit): (&Local<u64>, u64)| word.get() & bit != 0;
        self.outlying.word(fd).is_some_and(set) && self.outlying.age.get() == age
    }
}
