//! Waiting for a lock of a file.

use husk_proto::lock::*;
use husk_proto::{Admin as _, Inode, Result};

use crate::Direct;

/// Who has waited so long for a file's lock looks for the dead.
const BURY_NS: i64 = 500_000_000;

#[inline]
pub(crate) fn lock(
    me: &mut Direct,
    owner: Owner,
    inode: Inode,
    range: Range,
    mode: Mode,
    wait: bool,
) -> Result<Outcome> {
    let outcome = husk_kernel::lock::lock(&me.kernel, owner, inode, range, mode, wait)?;
    if !wait {
        return Ok(outcome);
    }
    if outcome == Outcome::Granted {
        me.blocked_ns = 0;
        return Ok(outcome);
    }
    let now_ns = me.now();
    if me.blocked_ns == 0 {
        me.blocked_ns = now_ns;
    } else if now_ns.saturating_sub(me.blocked_ns) >= BURY_NS {
        // Whoever holds it may be dead, and whoever buries the dead is, too.
        me.blocked_ns = now_ns;
        me.scan_dead()?;
        return husk_kernel::lock::lock(&me.kernel, owner, inode, range, mode, wait);
    }
    Ok(outcome)
}
