//! The second net of `--read-only-outside`: Landlock, where the host has it, and no new rights.
//!
//! The client says `EROFS` of what a call would change outside the trees (`husk_client`). What gets
//! past it, a path that changes between the look and the call, or a call that no client sees, the
//! host refuses with `EACCES`. The first program of an image restricts itself before it begins, and
//! all that it starts inherits that; so does each that joins by `husk exec`.
//!
//! Invariants
//! 1. What the runtime does at the host goes on: in the image's private directory all is allowed.
//! 2. What was open for writing at the start may be opened again (`/dev/stdout`).
//! 3. A host without Landlock leaves the client alone with it, and no program fails for that.

use crate::facts::facts;
use crate::thread::Thread;
use core::ffi::CStr;
use husk_abi::nr;
use husk_host::calls;
use husk_runtime::handover;

const WRITE_FILE: u64 = 1 << 1;
/// From `REMOVE_DIR` to `MAKE_SYM`.
const NAMES: u64 = 0x1ff0;
/// Links and renames between directories: from version 2 on.
const REFER: u64 = 1 << 13;
/// From version 3 on.
const TRUNCATE: u64 = 1 << 14;
const VERSION: usize = 1;
const PATH_BENEATH: usize = 1;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const O_PATH: usize = 0o10000000;
const O_CLOEXEC: usize = 0o2000000;
/// Inherited descriptors are looked for below this.
const INHERITED_END: usize = 256;
/// Longest path of the private directory, with its NUL.
const PRIVATE_BYTES: usize = 128;

/// `struct landlock_path_beneath_attr`, which has no padding.
#[repr(C, packed)]
struct Rule {
    allowed: u64,
    parent: i32,
}

/// Restricts this process, and all that it starts, as its image asks for.
pub fn restrict(thread: &mut Thread) {
    if !thread.client.outside_is_sealed() {
        return;
    }
    // SAFETY: passes no memory.
    let _ = unsafe { calls::raw(nr::prctl, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) };
    let mut room = [0; PRIVATE_BYTES];
    let private = thread.client.private_path(&mut room);
    if let Some(rules) = ruleset(private) {
        // SAFETY: our own descriptor.
        let _ = unsafe { calls::raw(nr::landlock_restrict_self, [rules.fd, 0, 0, 0, 0, 0]) };
        calls::close(rules.fd);
        if facts().handover.flags & handover::JOINS != 0 {
            // Programs that came in by other commands cannot look into this one.
            thread.client.forgo_lanes();
        }
    }
}

struct Ruleset {
    fd: usize,
    handled: u64,
}

fn ruleset(private: Option<&CStr>) -> Option<Ruleset> {
    // SAFETY: asks for the version.
    let version =
        unsafe { calls::raw(nr::landlock_create_ruleset, [0, 0, VERSION, 0, 0, 0]) }.ok()?;
    let handled = WRITE_FILE
        | NAMES
        | if version >= 2 { REFER } else { 0 }
        | if version >= 3 { TRUNCATE } else { 0 };
    let args = [(&raw const handled) as usize, size_of_val(&handled), 0, 0, 0, 0];
    // SAFETY: the first field of the structure, and as long as that says.
    let fd = unsafe { calls::raw(nr::landlock_create_ruleset, args) }.ok()?;
    let rules = Ruleset { fd, handled };
    let written = [(c"/proc", WRITE_FILE | TRUNCATE), (c"/dev", WRITE_FILE | TRUNCATE)];
    let private = private.map(|path| (path, u64::MAX));
    written.into_iter().chain(private).for_each(|(path, allowed)| rules.allow(path, allowed));
    (0..INHERITED_END).for_each(|fd| rules.allow_inherited(fd));
    Some(rules)
}

impl Ruleset {
    /// Allows it below a directory.
    fn allow(&self, path: &CStr, allowed: u64) {
        let args = [calls::AT_FDCWD, path.as_ptr() as usize, O_PATH | O_CLOEXEC, 0, 0, 0];
        // SAFETY: the path ends with NUL.
        if let Ok(parent) = unsafe { calls::raw(nr::openat, args) } {
            self.add(parent, allowed);
            calls::close(parent);
        }
    }

    /// Allows what a descriptor that is open for writing does already.
    fn allow_inherited(&self, fd: usize) {
        const F_GETFL: usize = 3;
        const O_ACCMODE: usize = 3;
        // SAFETY: asks for flags of a number, which need not be open.
        let flags = unsafe { calls::raw(nr::fcntl, [fd, F_GETFL, 0, 0, 0, 0]) };
        if flags.is_ok_and(|flags| flags & O_ACCMODE != 0 && flags & O_PATH == 0) {
            self.add(fd, WRITE_FILE | TRUNCATE);
        }
    }

    /// What is no file, or cannot be a rule, needs none.
    fn add(&self, parent: usize, allowed: u64) {
        let rule = Rule { allowed: allowed & self.handled, parent: parent as i32 };
        let args = [self.fd, PATH_BENEATH, (&raw const rule) as usize, 0, 0, 0];
        // SAFETY: the structure that this type of rule has.
        let _ = unsafe { calls::raw(nr::landlock_add_rule, args) };
    }
}
