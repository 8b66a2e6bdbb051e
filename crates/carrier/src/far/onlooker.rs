//! The home's memory, looked at by a process of this host that belongs to no node: it judges
//! whether what was told to another host is still so.
//!
//! Invariants
//! 1. It sees what the agent would answer at that moment, or says that it does not know.
//! 2. It changes nothing, and nobody at home waits for it.

use husk_kernel::Kernel;
use husk_kernel::fs::walk::{self, Stamp};
use husk_proto::fs::Attributes;
use husk_proto::{Inode, Result};
use husk_region::Session;
use husk_wire::{Header, Kind, Role};

use super::home::ask_for_memory;
use super::names::look_at_home;

/// Looks at the home's memory. One in a process.
#[derive(Debug)]
pub struct Onlooker {
    kernel: Kernel,
}

impl Onlooker {
    /// Asks the agent that listens at `home` for its memory.
    pub fn begin(home: &[u8]) -> Option<Onlooker> {
        let header = Header { request: 1, ..Header::new(Kind::Memory, Role::Request) };
        let (region, _) = ask_for_memory(home, &header, |_| false)?;
        Some(Onlooker { kernel: Kernel::new(Session::that_looks(region), 0) })
    }

    /// What the home's agent would say of `inode`, or of what `name` leads to in it, now; and the
    /// length of a link's target, of which what fits is put into `target`. `EAGAIN`: it is being
    /// changed, or the host has to be asked.
    pub fn look(
        &self,
        inode: Inode,
        name: Option<&[u8]>,
        target: Option<&mut [u8]>,
    ) -> Result<(Attributes, usize)> {
        let mut target = target;
        look_at_home(&self.kernel, inode, name, &mut target)
    }

    /// What moves as soon as `look` would say something else; `None`: nothing that is known of.
    pub fn stamp(&self, inode: Inode, name: Option<&[u8]>) -> Option<Stamp> {
        walk::stamp(&self.kernel, inode, name)
    }

    /// Whether it has not moved since: nothing is looked at.
    pub fn is_still(&self, stamp: &Stamp) -> bool {
        walk::is_still(&self.kernel, stamp)
    }

    /// The directory that has a name of `inode`, and the name.
    pub fn above<'t>(&self, inode: Inode, text: &'t mut [u8; 255]) -> Result<(Inode, &'t [u8])> {
        let dir = walk::parent(&self.kernel, inode)?;
        let length = walk::name_of(&self.kernel, inode, text).unwrap_or(0);
        Ok((dir, &text[..length]))
    }
}
