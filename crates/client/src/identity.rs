//! Credentials: file-system ids, groups and capabilities, fetched from the host when first needed.
//!
//! Credentials belong to a thread on Linux, and so they do here: each thread's client asks for
//! its own and forgets them when a passed call may have changed them (`passthrough`).

use crate::buffers::GROUPS_MAX;
use crate::{Call, Client, Host, Memory};
use husk_abi::{capability::FSETID, nr, sys::general::RLIMIT_NOFILE};
use husk_proto::fs::{CAPABILITY, SetBits, SetExtended, WHO_WRITES};
use husk_proto::{Errno, Inode, Services};

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Descriptor limit assumed when the host does not tell.
const LIMIT_DEFAULT: u32 = 1024;

/// Whose ids judge: the effective ones, or as `access` does the real ones.
#[derive(Default)]
pub(crate) struct Judging {
    /// The first look into a Husk tree is to be by the real ids.
    as_real: bool,
    /// User, group and capabilities put aside meanwhile.
    effective: Option<(u32, u32, u64)>,
}

impl Judging {
    /// The first look into a Husk tree is by the real ids, if `real`.
    pub fn by_real_ids(&mut self, real: bool) {
        self.as_real = real;
    }

    /// Whether it is to be.
    pub fn is_by_real_ids(&self) -> bool {
        self.as_real
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Makes sure `identity` is current.
    #[inline]
    pub(crate) fn identify(&mut self) {
        if !self.identity.known {
            self.fetch_identity();
        }
    }

    /// Whether a call sets ids to what they are, as servers do that are to run as who starts them:
    /// the process stays the same to others, who do not care for its groups.
    pub(crate) fn keeps_identity(&self, c: &Call) -> bool {
        let (ids, fs_id, count) = match c.number {
            nr::setgroups => return true,
            nr::setuid => (nr::getresuid, nr::setfsuid, 1),
            nr::setreuid => (nr::getresuid, nr::setfsuid, 2),
            nr::setresuid => (nr::getresuid, nr::setfsuid, 3),
            nr::setgid => (nr::getresgid, nr::setfsgid, 1),
            nr::setregid => (nr::getresgid, nr::setfsgid, 2),
            nr::setresgid => (nr::getresgid, nr::setfsgid, 3),
            _ => return false,
        };
        let mut own = [0u32; 3];
        let [real, effective, saved] = [0, 1, 2].map(|n| &raw mut own[n] as usize);
        self.host.call(ids, [real, effective, saved, 0, 0, 0]);
        let own = core::hint::black_box(own);
        let of_files = self.host.call(fs_id, [u32::MAX as usize, 0, 0, 0, 0, 0]) as u32;
        let same = |id: u32| own == [id; 3] && of_files == id;
        c.args[..count].iter().all(|&id| same(id as u32) || count > 1 && id as u32 == u32::MAX)
    }

    #[cold]
    fn fetch_identity(&mut self) {
        let asking = u32::MAX as usize;
        self.identity.uid = self.host.call(nr::setfsuid, [asking, 0, 0, 0, 0, 0]) as u32;
        self.identity.gid = self.host.call(nr::setfsgid, [asking, 0, 0, 0, 0, 0]) as u32;
        let groups = self.buffers.groups.list.as_mut_ptr() as usize;
        let count = self.host.call(nr::getgroups, [GROUPS_MAX, groups, 0, 0, 0, 0]);
        self.identity.groups = count.max(0) as usize;
        let mut header = [CAPABILITY_VERSION, 0];
        let mut data = [0u32; 6];
        let (h, d) = (header.as_mut_ptr() as usize, data.as_mut_ptr() as usize);
        let raw = self.host.call(nr::capget, [h, d, 0, 0, 0, 0]);
        let data = core::hint::black_box(data);
        if raw == 0 {
            self.identity.capabilities = u64::from(data[0]) | u64::from(data[3]) << 32;
            self.identity.permitted = u64::from(data[1]) | u64::from(data[4]) << 32;
        }
        self.identity.real = None;
        self.identity.known = true;
        self.identity.foreign = false;
        match self.services.home_namespace() {
            0 => {}
            home if self.own_namespace() == Some(home) => {}
            _ => self.identify_within(),
        }
        self.learn_bars();
    }

    /// A passed call may have changed who asks.
    pub(crate) fn forget_identity(&mut self) {
        self.identity.known = false;
        self.identity.changed = true;
    }

    /// Changes the content of `inode`. Where it matters who does, because the file lends rights,
    /// that is judged first, and a program's capabilities go.
    #[inline]
    pub(crate) fn changing<T>(
        &mut self,
        inode: Inode,
        mut change: impl FnMut(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match change(self) {
            Err(WHO_WRITES) => {
                let leaves = self.judge_writer(inode)?;
                self.services.leave_set_bits(leaves);
                let result = change(self);
                self.services.leave_set_bits(SetBits::Ask);
                result
            }
            other => other,
        }
    }

    #[cold]
    fn judge_writer(&mut self, inode: Inode) -> Result<SetBits, Errno> {
        self.identify();
        match self.services.set_extended(inode, CAPABILITY, None, SetExtended::Any) {
            Ok(()) | Err(Errno::ENODATA) => {}
            Err(errno) => return Err(errno),
        }
        let gid = self.services.step(inode)?.gid;
        let who = self.credentials();
        Ok(match who.can(FSETID) {
            true => SetBits::All,
            false if who.in_group(gid) => SetBits::Marks,
            false => SetBits::Nothing,
        })
    }

    /// Judges by the real ids from now on, as `access` does, until `become_effective`.
    pub(crate) fn become_real(&mut self) {
        self.judging.as_real = false;
        let (uid, gid) = self.real_ids();
        let mine = &mut self.identity;
        let namespace = &self.buffers.groups.namespace;
        let root = if mine.foreign { namespace.uids.inner(uid) } else { Some(uid) };
        let capabilities = if root == Some(0) { mine.permitted } else { 0 };
        if (mine.uid, mine.gid, mine.capabilities) != (uid, gid, capabilities) {
            self.judging.effective = Some((mine.uid, mine.gid, mine.capabilities));
            (mine.uid, mine.gid, mine.capabilities) = (uid, gid, capabilities);
        }
    }

    /// Judges by the effective ids again.
    #[inline]
    pub(crate) fn become_effective(&mut self) {
        self.judging.as_real = false;
        if let Some((uid, gid, capabilities)) = self.judging.effective.take() {
            let mine = &mut self.identity;
            (mine.uid, mine.gid, mine.capabilities) = (uid, gid, capabilities);
        }
    }

    /// Real user and group, for `access`.
    #[inline]
    pub(crate) fn real_ids(&mut self) -> (u32, u32) {
        match self.identity.real {
            Some(ids) => ids,
            None => self.fetch_real_ids(),
        }
    }

    #[cold]
    fn fetch_real_ids(&mut self) -> (u32, u32) {
        let uid = self.host.call(nr::getuid, [0; 6]) as u32;
        let gid = self.host.call(nr::getgid, [0; 6]) as u32;
        let ids = if self.identity.foreign { self.outer_ids(uid, gid) } else { (uid, gid) };
        self.identity.real = Some(ids);
        ids
    }

    /// Soft limit of descriptor numbers.
    #[inline]
    pub(crate) fn descriptor_limit(&mut self) -> u32 {
        if self.numbers.known_limit() == 0 {
            let limit = self.fetch_limit();
            self.numbers.learn_limit(limit);
        }
        self.numbers.known_limit()
    }

    #[cold]
    fn fetch_limit(&mut self) -> u32 {
        let mut limit = [0u64; 2];
        let address = limit.as_mut_ptr() as usize;
        let args = [0, RLIMIT_NOFILE as usize, 0, address, 0, 0];
        let raw = self.host.call(nr::prlimit64, args);
        let limit = core::hint::black_box(limit);
        if raw == 0 { limit[0].clamp(1, u64::from(u32::MAX)) as u32 } else { LIMIT_DEFAULT }
    }

    /// Runs `step` with the cached limit, and once more with a fresh one if that was too low.
    pub(crate) fn with_limit<T>(
        &mut self,
        mut step: impl FnMut(&mut Self, u32) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let limit = self.descriptor_limit();
        match step(self, limit) {
            Err(Errno::EMFILE) => {
                self.numbers.forget_limit();
                let fresh = self.descriptor_limit();
                if fresh > limit { step(self, fresh) } else { Err(Errno::EMFILE) }
            }
            other => other,
        }
    }
}
