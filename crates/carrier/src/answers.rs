//! Who serves other nodes makes each change that they ask for once.

use husk_kernel::image::answers;
use husk_proto::{Inode, Result};

pub use husk_kernel::image::answers::{ANSWERED, Asked, Changes};

use crate::Direct;

/// The inode in the record of something that was made.
pub fn made([number, generation]: [u64; 2]) -> Inode {
    Inode { number: number as u32, generation: generation as u32 }
}

impl Direct {
    /// What `asked` came to before, if it was done. `EIO`: it is asked `again`, its record is gone,
    /// and nobody knows.
    pub fn answer(&self, asked: &Asked, again: bool) -> Result<Option<[u64; 2]>> {
        answers::answer(&self.kernel, asked, again)
    }

    /// Runs `change`, whose transaction takes the record of what was asked, if anything was.
    pub fn on_request<T>(
        &mut self,
        asked: Option<Asked>,
        change: impl FnOnce(&mut Direct) -> T,
    ) -> T {
        self.kernel.asked = asked;
        let changed = change(self);
        self.kernel.asked = None;
        changed
    }

    /// Who asked has the answer: the record may go.
    pub fn heard(&self, asked: &Asked) {
        answers::heard(&self.kernel, asked);
    }

    /// What a dead node asked before `epoch` is not asked again.
    pub fn forget_answers(&self, node: u16, epoch: u32) -> Result<()> {
        answers::forget(&self.kernel, node, epoch)
    }
}
