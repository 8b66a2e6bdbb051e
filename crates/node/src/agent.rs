//! What one thread of the agent works with: this node's handlers, and what it knows of
//! who asks now. What a message asks for is in `file`; which handler gets it, in `dispatch`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use husk_carrier::{Asked as Change, Direct, Layout};
use husk_client::Client;
use husk_proto::Inode;
use husk_proto::fs::{Attributes, Fs as _, SetBits};
use husk_proto::lock::Range;
use husk_wire::Failure;
use husk_wire::record::{self, Object};

use crate::plain::Plain;
use crate::sessions::Sessions;
use crate::translate::{self, failure, inode};

/// Most files that are open for other nodes at once.
pub const NUMBERS_END: u32 = 1 << 16;

/// A lock that is granted to a descriptor table of another node.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// Whose: its node, and the number of the table there.
    pub node: u16,
    pub files: u32,
    /// Of what.
    pub inode: Inode,
    pub range: Range,
}

/// A file of this host that is read for others.
#[derive(Debug)]
pub struct Lent {
    /// Whose bytes they are.
    pub inode: Inode,
    /// Open to be read.
    pub file: File,
}

/// What one thread of the agent works with.
pub struct Agent {
    /// Reads the host's side of overlays; below it the handlers.
    pub client: Client<Direct, Plain, Plain>,
    /// Who asks.
    pub sessions: Arc<Sessions>,
    /// This node's memory, to be read by others on this host; and whether it goes along with the
    /// answer to the request of now.
    pub memory: Option<(Arc<OwnedFd>, Layout)>,
    pub lends_memory: bool,
    /// The hold that the answer to the request of now has the number of.
    pub unheard: Option<(u16, u64)>,
    /// The lock that the answer to the request of now grants.
    pub unheard_lock: Option<Lock>,
    /// The change that the answer to the request of now tells of.
    pub answered: Option<Change>,
    /// Who asks now is the process that has started this agent.
    pub is_supervisor: bool,
    /// Bytes of a file, a path, a value.
    pub bytes: Vec<u8>,
    /// Who asks now is on another host: nothing of this host's files is open to it.
    pub is_afar: bool,
    /// The host's file that was read last for such a node.
    pub lent: Option<Lent>,
}

impl Agent {
    /// A thread's.
    pub fn new(client: Client<Direct, Plain, Plain>, sessions: Arc<Sessions>) -> Agent {
        Agent {
            client,
            sessions,
            memory: None,
            lends_memory: false,
            unheard: None,
            unheard_lock: None,
            answered: None,
            is_supervisor: false,
            bytes: Vec::new(),
            is_afar: false,
            lent: None,
        }
    }

    /// The handlers.
    pub fn direct(&mut self) -> &mut Direct {
        self.client.services()
    }

    /// What the next change of content leaves of set-id bits, as who asks has judged.
    pub fn leave(&mut self, leaves: record::Leaves) {
        self.direct().leave_set_bits(match leaves {
            record::Leaves::Marks => SetBits::Marks,
            record::Leaves::Nothing => SetBits::Nothing,
            record::Leaves::All => SetBits::All,
            record::Leaves::Ask => SetBits::Ask,
        });
    }

    /// Attributes as a message has them.
    pub fn attributes(&mut self, inode: Inode) -> Result<record::Attributes, Failure> {
        let found = self.direct().attributes(inode).map_err(failure)?;
        Ok(self.told(&found))
    }

    /// What is told of an inode to who asks now.
    pub fn told(&self, found: &Attributes) -> record::Attributes {
        if self.is_afar { translate::told_afar(found) } else { translate::told(found) }
    }

    /// A directory, its names read from the host if they had not been.
    pub fn directory(&mut self, object: Object) -> Result<Inode, Failure> {
        let dir = inode(object).map_err(failure)?;
        self.client.list_for_others(dir).map_err(failure)?;
        Ok(dir)
    }
}
