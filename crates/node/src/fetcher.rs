//! The client of the supervisor's fetcher, which looks at the host for programs of an image that
//! may not, or would see the ids of another user namespace (`docs/adr/0091`).

use std::os::fd::{AsRawFd, OwnedFd};

use husk_carrier::Direct;
use husk_client::{Buffers, Client};
use husk_proto::fetch::{Fetch, Request};
use husk_proto::{Credentials, Errno, Inode};

use crate::plain::{Plain, owned};

/// One thread's; it answers for as long as its process lives.
pub struct Fetcher {
    client: Client<Direct, Plain, Plain>,
}

impl Fetcher {
    /// With the rights of this process.
    pub fn new(direct: Direct) -> Fetcher {
        let buffers = Box::leak(Box::new(Buffers::new()));
        Fetcher { client: Client::new(direct, Plain, Plain, buffers) }
    }

    /// Does what a request of `who` asks for; the descriptor that it asks for. `find` opens a host
    /// file that is not where the image saw it (`O_PATH`).
    pub fn answer(
        &mut self,
        request: &[u8],
        who: &Credentials<'_>,
        find: impl FnOnce(Inode) -> Option<OwnedFd>,
    ) -> Result<Option<OwnedFd>, Errno> {
        let Request { what, inode, name } = Fetch::decode(request).ok_or(Errno::EINVAL)?;
        match what {
            Fetch::List => self.client.fetch_list(inode)?,
            Fetch::Name => self.client.fetch_name(inode, name)?,
            Fetch::Renew => self.client.fetch_renewed(inode)?,
            Fetch::Extended => self.client.fetch_extended(inode)?,
            Fetch::Open(flags) => {
                let fd = self.client.fetch_opened(inode, flags, who)?;
                return Ok(Some(owned(fd)));
            }
            Fetch::Find(flags) => {
                let mut place = None;
                let find = || place.insert(find(inode)?).as_raw_fd().try_into().ok();
                let fd = self.client.fetch_found(inode, flags, who, find)?;
                return Ok(Some(owned(fd)));
            }
        }
        Ok(None)
    }
}
