//! Processes in a user namespace of their own.
//!
//! ```text
//!   unshare, clone, setns (CLONE_NEWUSER) ──► the number of the image's namespace is noted
//!   who asks, from then on ── another number? ──► /proc/self/uid_map, gid_map
//!       ids of the namespace ◄── maps ──► ids of the image, which files have
//! ```
//!
//! Invariants
//! 1. A file is judged by ids of the image. Capabilities count for what is owned by ids that the
//!    namespace maps.
//! 2. What a program is shown, and what it gives to `chown`, are ids of its namespace.
//! 3. A map names ids of the namespace above. So that this is always the image's, namespaces in
//!    namespaces are refused.
//! 4. Maps are written after the namespace was made, by whom is unknown: until both are there, they
//!    are looked at again each time.

use husk_abi::nr;
use husk_abi::sys::general::{AT_FDCWD, O_CLOEXEC};
use husk_proto::fs::{Attributes, Change};
use husk_proto::namespace::{IdMap, NOBODY, Namespace};
use husk_proto::{Errno, Result, Services};

use crate::{Client, Host, Memory};

const OWN: &[u8] = b"/proc/self/ns/user\0";
const USERS: &[u8] = b"/proc/self/uid_map\0";
const GROUPS: &[u8] = b"/proc/self/gid_map\0";
/// Bytes of a map that are looked at.
const MAP_BYTES: usize = 512;
/// The number of a namespace that cannot be looked at: every one is another then.
const UNKNOWN: u64 = u64::MAX;
/// An id that no file has, of a process whose own are not mapped.
const NO_ID: u32 = u32::MAX - 1;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The process, or one that it makes, is about to enter another user namespace.
    pub fn leave_namespace(&mut self) -> Result<()> {
        self.identify();
        if self.identity.foreign {
            return Err(Errno::ENOSPC);
        }
        if self.services.home_namespace() == 0 {
            let own = self.own_namespace().unwrap_or(UNKNOWN);
            self.services.note_home_namespace(own);
        }
        self.identity.before = Some((self.identity.uid, self.identity.gid));
        self.forget_identity();
        Ok(())
    }

    /// The number of the user namespace of the process.
    pub(crate) fn own_namespace(&self) -> Option<u64> {
        let fact = self.host_fact_at(AT_FDCWD as usize, OWN.as_ptr() as usize, 0);
        fact.ok().map(|fact| fact.identity.inode)
    }

    /// Makes ids of the namespace those of the image.
    #[cold]
    pub(crate) fn identify_within(&mut self) {
        let namespace = Namespace { uids: self.id_map(USERS), gids: self.id_map(GROUPS) };
        self.buffers.groups.namespace = namespace;
        let mine = &mut self.identity;
        (mine.foreign, mine.known) = (true, namespace.is_whole());
        let (uid, gid) = (mine.uid, mine.gid);
        (self.identity.uid, self.identity.gid) = self.outer_ids(uid, gid);
        let mut count = 0;
        for n in 0..self.identity.groups.min(self.buffers.groups.list.len()) {
            if let Some(group) = namespace.gids.outer(self.buffers.groups.list[n]) {
                self.buffers.groups.list[count] = group;
                count += 1;
            }
        }
        self.identity.groups = count;
    }

    /// What these ids of the process are in the image. Those that are not mapped are as they were
    /// before: nobody can change them.
    pub(crate) fn outer_ids(&self, uid: u32, gid: u32) -> (u32, u32) {
        let namespace = &self.buffers.groups.namespace;
        let (user, group) = self.identity.before.unwrap_or((NO_ID, NO_ID));
        (namespace.uids.outer(uid).unwrap_or(user), namespace.gids.outer(gid).unwrap_or(group))
    }

    fn id_map(&self, path: &[u8]) -> IdMap {
        let (path, flags) = (path.as_ptr() as usize, O_CLOEXEC as usize);
        let raw = self.host.call(nr::openat, [AT_FDCWD as usize, path, flags, 0, 0, 0]);
        let Ok(fd) = usize::try_from(raw) else { return IdMap::NONE };
        let mut text = [0u8; MAP_BYTES];
        let read = self.host.call(nr::read, [fd, text.as_mut_ptr() as usize, MAP_BYTES, 0, 0, 0]);
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        let text = core::hint::black_box(text);
        let length = usize::try_from(read).unwrap_or(0).min(MAP_BYTES);
        // A line that is cut off maps nothing.
        let end = text[..length].iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        IdMap::parse(&text[..end])
    }

    /// Attributes as the process is to be shown them.
    #[inline]
    pub(crate) fn shown_within(&mut self, attributes: &mut Attributes) {
        if !self.identity.known || self.identity.foreign {
            self.show_within(attributes);
        }
    }

    #[cold]
    fn show_within(&mut self, attributes: &mut Attributes) {
        if self.services.home_namespace() == 0 {
            return;
        }
        self.identify();
        if self.identity.foreign {
            let (namespace, step) = (&self.buffers.groups.namespace, &mut attributes.step);
            step.uid = namespace.uids.inner(step.uid).unwrap_or(NOBODY);
            step.gid = namespace.gids.inner(step.gid).unwrap_or(NOBODY);
        }
    }

    /// A change of owner as the image makes it. `EINVAL`: there is no such id in the namespace.
    #[inline]
    pub(crate) fn change_within(&self, change: Change) -> Result<Change> {
        if !self.identity.foreign {
            return Ok(change);
        }
        let namespace = &self.buffers.groups.namespace;
        let user = |id| namespace.uids.outer(id).ok_or(Errno::EINVAL);
        let group = |id| namespace.gids.outer(id).ok_or(Errno::EINVAL);
        let (uid, gid) = (change.uid.map(user).transpose()?, change.gid.map(group).transpose()?);
        Ok(Change { uid, gid, ..change })
    }
}
