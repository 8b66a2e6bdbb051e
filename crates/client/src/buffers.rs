//! Sizes of a thread's buffers, the state of a path walk, and the identity of a thread.

use husk_abi::PATH_MAX;
use husk_proto::Credentials;
use husk_proto::namespace::Namespace;

/// Longest text of a path in the middle of a walk: a link's target before what is left.
pub(crate) const TEXT_MAX: usize = 2 * PATH_MAX;
/// Supplementary groups a client knows of.
pub(crate) const GROUPS_MAX: usize = 256;
/// Bytes moved at once between two files, and of a host listing.
pub(crate) const BOUNCE_BYTES: usize = 16384;
/// Longest value of an extended attribute.
pub(crate) const VALUE_BYTES: usize = 65536;

/// Bytes of records of a listing that are copied to the application at once: a page of them, for
/// pages touched are faults.
pub(crate) const BATCH_BYTES: usize = 4096;

/// A path being walked: `text[at..length]` is what is left.
#[repr(C)]
pub(crate) struct Walk {
    pub at: usize,
    pub length: usize,
    pub text: [u8; TEXT_MAX + 8],
}

/// Supplementary groups, and the user namespace if it is not the image's: what is long of who asks.
pub(crate) struct Groups {
    pub list: [u32; GROUPS_MAX],
    pub namespace: Namespace,
}

/// Who the thread is, as the host says; asked once, again after calls that change it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Identity {
    pub known: bool,
    /// Credentials have changed since the program began.
    pub changed: bool,
    /// Real user and group, once `access` has asked.
    pub real: Option<(u32, u32)>,
    pub uid: u32,
    pub gid: u32,
    pub capabilities: u64,
    pub permitted: u64,
    pub groups: usize,
    /// Is in another user namespace than the image.
    pub foreign: bool,
    /// User and group before it made one.
    pub before: Option<(u32, u32)>,
}

impl Identity {
    /// The credentials for operations.
    #[inline]
    pub fn credentials<'a>(&self, known: &'a Groups) -> Credentials<'a> {
        let groups = &known.list[..self.groups.min(GROUPS_MAX)];
        let within = if self.foreign { Some(&known.namespace) } else { None };
        let (uid, gid, capabilities) = (self.uid, self.gid, self.capabilities);
        Credentials { uid, gid, groups, capabilities, within }
    }
}
