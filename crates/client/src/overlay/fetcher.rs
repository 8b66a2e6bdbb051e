//! What a program may not see of the host itself, or would see with the ids of a user namespace of
//! its own: the supervisor looks at it, as the image's user and in the image's namespace
//! (`docs/adr/0091`).
//!
//! ```text
//!   in another user namespace ─┐
//!   a stat, or a directory's   ├─► the fetcher ─► the import, or nothing
//!   opening, says EACCES      ─┘       └─ none in reach: what the program sees itself, its ids as
//!                                         those of the image; an id without one: EACCES
//! ```
//!
//! Invariants
//! 1. An image has the owners that its own user namespace shows.
//! 2. What one program may not see is for nobody "not there".

use super::lower::Fact;
use crate::buffers::Identity;
use crate::path::Last;
use crate::{Buffers, Client, Host, Memory};
use husk_abi::sys::general::{
    F_DUPFD, F_DUPFD_CLOEXEC, O_APPEND, O_CLOEXEC, O_NOATIME, O_NONBLOCK, O_PATH, O_SYNC,
};
use husk_abi::{NAME_MAX, PATH_MAX, nr};
use husk_proto::fetch::{FETCHER, Fetch, REQUEST_BYTES};
use husk_proto::fs::{Backing, Kind, Origin, want};
use husk_proto::namespace::NOBODY;
use husk_proto::{Credentials, Errno, Inode, Result, Services};

/// Flags that a program may want of a file that the fetcher opens, beside `O_CLOEXEC`.
const OPEN_FLAGS: u32 = O_APPEND | O_NOATIME | O_NONBLOCK | O_SYNC;

/// Whether there was no descriptor left.
fn is_of_numbers(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE)
}

/// Longest wait for an answer: a directory may be a long one, on a slow file system.
const PATIENCE_S: u64 = 30;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Looks at all names of a directory of the host, for whoever asks the fetcher.
    pub fn fetch_list(&mut self, directory: Inode) -> Result<()> {
        self.lower.is_fetcher = true;
        self.list_for_others(directory)
    }

    /// The same at one name.
    pub fn fetch_name(&mut self, directory: Inode, name: &[u8]) -> Result<()> {
        self.lower.is_fetcher = true;
        if name.len() > NAME_MAX || !self.services.step(directory)?.unlisted {
            return Ok(());
        }
        self.buffers.bounce[..name.len()].copy_from_slice(name);
        self.import_named(directory, name.len())
    }

    /// The same at what an object is like.
    pub fn fetch_renewed(&mut self, inode: Inode) -> Result<()> {
        self.lower.is_fetcher = true;
        self.renew_for_others(inode)
    }

    /// The same at its extended attributes.
    pub fn fetch_extended(&mut self, inode: Inode) -> Result<()> {
        self.lower.is_fetcher = true;
        self.take_over(inode)
    }

    /// Opens a file of the host to be read, which the image lets `who` read or write. It is the one
    /// that was looked at: what stands in its place since has its own rights.
    pub fn fetch_opened(
        &mut self,
        inode: Inode,
        flags: u32,
        who: &Credentials<'_>,
    ) -> Result<usize> {
        let origin = self.judge_asker(inode, who)?;
        // Nobody waits for what may be a FIFO by now.
        let place = self.open_unlinked(origin, O_PATH | O_CLOEXEC)?;
        let opened = self.reopen(place, origin, flags);
        self.host_close(place as u32);
        opened
    }

    /// The same of one that is not where the image saw it. `find` opens it where it is (`O_PATH`).
    pub fn fetch_found(
        &mut self,
        inode: Inode,
        flags: u32,
        who: &Credentials<'_>,
        find: impl FnOnce() -> Option<usize>,
    ) -> Result<usize> {
        let origin = self.judge_asker(inode, who)?;
        self.reopen(find().ok_or(Errno::ENOENT)?, origin, flags)
    }

    /// Where a file of the host was seen that the image lets `who` read or write.
    fn judge_asker(&mut self, inode: Inode, who: &Credentials<'_>) -> Result<Origin> {
        self.lower.is_fetcher = true;
        let attributes = self.services.attributes(inode)?;
        let origin = attributes.origin.ok_or(Errno::ESTALE)?;
        if attributes.backing != Backing::Host || attributes.step.kind != Kind::File {
            return Err(Errno::ESTALE);
        }
        self.become_asker(who);
        let (reads, step) = (self.permit(&attributes.step, want::READ), &attributes.step);
        let may = reads.or_else(|_| self.permit(step, want::WRITE));
        self.forget_identity();
        may.map(|()| origin)
    }

    fn reopen(&mut self, place: usize, origin: Origin, flags: u32) -> Result<usize> {
        let (seen, fact) = (self.services.host_identity(origin)?, self.host_fact(place, None)?);
        let found = fact.identity;
        if fact.kind != Kind::File || seen.object() != found.object() {
            return Err(Errno::EACCES);
        }
        let path = husk_abi::proc::descriptor(place as u32);
        self.host_open(path.as_ptr() as usize, flags & OPEN_FLAGS | O_CLOEXEC)
    }

    fn become_asker(&mut self, who: &Credentials<'_>) {
        let groups = who.groups.len().min(self.buffers.groups.list.len());
        self.buffers.groups.list[..groups].copy_from_slice(&who.groups[..groups]);
        let (uid, gid, capabilities) = (who.uid, who.gid, who.capabilities);
        let known = Identity { known: true, uid, gid, capabilities, groups, ..Identity::default() };
        self.identity = known;
    }

    /// Has the fetcher open a file of the host to be read, which the image lets this program read,
    /// or write: at the lowest number.
    #[cold]
    pub(crate) fn open_fetched(&mut self, inode: Inode, flags: u32) -> Result<usize> {
        if !self.may_lack_rights() {
            return Err(Errno::EACCES);
        }
        match self.ask_to_open(Fetch::Open(flags), inode, flags) {
            Err(errno) if !is_of_numbers(errno) && errno != Errno::ESTALE => Err(Errno::EACCES),
            other => other,
        }
    }

    /// Has the fetcher find a file that the image has moved, and that the host has no longer where
    /// the image saw it, by another name. `ENOENT`: it has none.
    #[cold]
    pub(crate) fn open_moved(&mut self, inode: Inode, origin: Origin, flags: u32) -> Result<usize> {
        let able = !self.lower.is_fetcher && self.services.fetcher().is_some();
        if !able || !self.has_moved(inode, origin)? {
            return Err(Errno::ENOENT);
        }
        match self.ask_to_open(Fetch::Find(flags), inode, flags) {
            Err(errno) if !is_of_numbers(errno) => Err(Errno::ENOENT),
            other => other,
        }
    }

    /// Whether the name by which `inode` was found is not that of `origin`.
    fn has_moved(&mut self, inode: Inode, origin: Origin) -> Result<bool> {
        let target = *self.paths.found(0);
        let is_walked = target.step.is_some_and(|step| step.inode == inode);
        let named = match is_walked && target.last == Last::Name {
            true => self.target_path(&target),
            false => self.path_of(inode),
        };
        // What has no name has no other one either.
        let Ok(length) = named else { return Ok(true) };
        let Buffers { link, bounce, .. } = &mut *self.buffers;
        bounce[..length].copy_from_slice(&link[..length]);
        let end = self.services.host_path(origin, &mut self.buffers.link[..PATH_MAX])?;
        Ok(self.buffers.link[..end] != self.buffers.bounce[..length])
    }

    fn ask_to_open(&mut self, what: Fetch, inode: Inode, flags: u32) -> Result<usize> {
        let got = self.ask_fetcher(&what.encode(inode))?.ok_or(Errno::EMFILE)?;
        let how = if flags & O_CLOEXEC != 0 { F_DUPFD_CLOEXEC } else { F_DUPFD };
        let lowest = self.host.call(nr::fcntl, [got as usize, how as usize, 0, 0, 0, 0]);
        self.host_close(got);
        Errno::check(lowest).map(|fd| fd as usize)
    }

    /// Whether what the host shows of ids is not what the image has.
    pub(crate) fn sees_other_ids(&mut self) -> bool {
        self.identify();
        self.identity.foreign && !self.lower.is_fetcher
    }

    /// Whether the fetcher has other rights than who asks.
    pub(crate) fn may_lack_rights(&mut self) -> bool {
        self.identify();
        let fetcher = self.services.fetcher();
        fetcher.is_some_and(|uid| self.identity.foreign || uid != self.identity.uid)
            && !self.lower.is_fetcher
    }

    /// Has the fetcher do it; `name` with `Fetch::Name` alone.
    #[cold]
    pub(crate) fn fetch(&mut self, what: Fetch, inode: Inode, name: &[u8]) -> Result<()> {
        if self.lower.is_fetcher || self.services.fetcher().is_none() || name.len() > NAME_MAX {
            return Err(Errno::EACCES);
        }
        let mut request = [0; REQUEST_BYTES + NAME_MAX];
        request[..REQUEST_BYTES].copy_from_slice(&what.encode(inode));
        request[REQUEST_BYTES..][..name.len()].copy_from_slice(name);
        self.ask_fetcher(&request[..REQUEST_BYTES + name.len()]).map(|_| ())
    }

    /// `EACCES`: it is not in reach.
    fn ask_fetcher(&self, request: &[u8]) -> Result<Option<u32>> {
        let mut reached = false;
        let answer = self.with_server(FETCHER, PATIENCE_S, |client, fd| {
            reached = true;
            client.ask_server(fd, request)?;
            client.answer(fd)
        });
        if reached { answer } else { Err(Errno::EACCES) }
    }

    /// Has it list a directory that says `EACCES` here.
    #[cold]
    pub(crate) fn fetch_instead(&mut self, directory: Inode) -> Result<()> {
        match self.fetch(Fetch::List, directory, b"") {
            Err(errno @ (Errno::ESTALE | Errno::ENOENT)) => Err(errno),
            other => other.map_err(|_| Errno::EACCES),
        }
    }

    /// Makes ids that the host has shown those of the image. `EACCES`: what they are there is not
    /// known. What stands for all that has none in a namespace may stand for something else.
    pub(crate) fn own_ids(&self, fact: &mut Fact) -> Result<()> {
        if self.identity.foreign && !self.lower.is_fetcher {
            let namespace = &self.buffers.groups.namespace;
            let known = |id: Option<u32>| id.ok_or(Errno::EACCES);
            let shown = |id: u32| if id == NOBODY { None } else { Some(id) };
            fact.uid = known(shown(fact.uid).and_then(|id| namespace.uids.outer(id)))?;
            fact.gid = known(shown(fact.gid).and_then(|id| namespace.gids.outer(id)))?;
        }
        Ok(())
    }
}
