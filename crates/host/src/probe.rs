//! What this host's Linux can do, asked without changing anything.

use husk_abi::{Errno, nr};

use crate::syscall;

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;

/// Turns Syscall User Dispatch on and off again for the calling thread, with every address
/// exempt, so that no call is caught meanwhile. `EINVAL`: the host has none.
pub fn syscall_user_dispatch() -> Result<(), Errno> {
    let on = [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 1, usize::MAX - 1, 0, 0];
    let off = [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0];
    // SAFETY: no memory is passed; all addresses are exempt while it is on.
    let (on, _) = unsafe { (syscall(nr::prctl, on), syscall(nr::prctl, off)) };
    Errno::check(on as i64).map(|_| ())
}

/// Takes a memory protection key and gives it back. `ENOSPC` or `EINVAL`: no keys here.
pub fn protection_key() -> Result<(), Errno> {
    // SAFETY: no memory is touched; the key is given back at once.
    let key = unsafe { syscall(nr::pkey_alloc, [0; 6]) };
    let key = Errno::check(key as i64)? as usize;
    // SAFETY: a key nobody uses.
    unsafe { syscall(nr::pkey_free, [key, 0, 0, 0, 0, 0]) };
    Ok(())
}
