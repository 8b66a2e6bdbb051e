//! The client of the supervisor's fetcher, which looks at the host for programs of an image that
//! may not, or would see the ids of another user namespace (`docs/adr/0091`).

use husk_carrier::Direct;
use husk_client::{Buffers, Client};
use husk_proto::Errno;
use husk_proto::fetch::Fetch;

use crate::plain::Plain;

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

    /// Does what a request asks for.
    pub fn answer(&mut self, request: &[u8]) -> Result<(), Errno> {
        let (what, inode, name) = Fetch::decode(request).ok_or(Errno::EINVAL)?;
        match what {
            Fetch::List => self.client.fetch_list(inode),
            Fetch::Name => self.client.fetch_name(inode, name),
            Fetch::Renew => self.client.fetch_renewed(inode),
            Fetch::Extended => self.client.fetch_extended(inode),
        }
    }
}
