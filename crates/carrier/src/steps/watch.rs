//! Operations of `watch` that differ from their handlers.

use husk_kernel::watch;
use husk_proto::Inode;
use husk_proto::watch::Instance;

use crate::Direct;

pub(crate) fn watch_waiting(me: &mut Direct, instance: Instance) -> u32 {
    watch::queue::waiting(&me.kernel, instance).unwrap_or(0)
}

#[inline]
pub(crate) fn watch_note(me: &mut Direct, inode: Inode, what: u32) {
    if watch::any(&me.kernel.session.region) {
        watch::post::alone(&me.kernel, inode, what);
    }
}
