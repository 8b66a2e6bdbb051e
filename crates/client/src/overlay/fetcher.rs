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
use crate::{Client, Host, Memory};
use husk_abi::NAME_MAX;
use husk_proto::fetch::{FETCHER, Fetch, REQUEST_BYTES};
use husk_proto::namespace::NOBODY;
use husk_proto::{Errno, Inode, Result, Services};

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
        self.with_server(FETCHER, PATIENCE_S, |client, fd| {
            client.ask_server(fd, &request[..REQUEST_BYTES + name.len()])?;
            client.answer(fd).map(|_| ())
        })
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
