//! The pins of mappings: what becomes of them is told to the image, and the table is changed.
//!
//! Invariant: one entry of `memory::mappings` = one pin.

use crate::memory::guard;
use crate::memory::mappings::{self, Entry, Noted, Step};
use crate::thread::client::ThreadClient;
use husk_abi::{Errno, PAGE, nr};
use husk_client::Mapping;
use husk_host::calls;
use husk_proto::Inode;
use husk_proto::process::Processes;

impl ThreadClient {
    /// One more pin.
    pub fn pin(&mut self, inode: Inode) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            // A gone inode has nothing left to keep.
            let _ = served.services().pin(inode);
        }
    }

    /// One less.
    pub fn unpin(&mut self, inode: Inode) {
        let _open = guard::open();
        if let Some(served) = self.served() {
            served.services().unpin(inode);
        }
    }

    /// The client mapped a Husk file; kept until the call is over (`take_noted`).
    pub fn note_mapping(&mut self, mapping: &Mapping, inode: Inode) {
        self.noted = Some((*mapping, inode));
    }

    /// What the last call mapped.
    pub fn take_noted(&mut self) -> Option<(Mapping, Inode)> {
        self.noted.take()
    }

    /// Maps pages of a pinned file in that nobody has touched (`Client::map_in`); bytes.
    pub fn map_in(&mut self, inode: Inode, mapping: &Mapping) -> usize {
        let _open = guard::open();
        self.served().map_or(0, |served| served.map_in(inode, mapping))
    }

    /// Maps a file once more, at the place given, and notes it.
    pub fn map_anew(&mut self, inode: Inode, mapping: &Mapping) -> Result<(), Errno> {
        let _open = guard::open();
        let Some(served) = self.served() else { return Err(Errno::ENOMEM) };
        served.map_anew(inode, *mapping)?;
        self.keep_noted()
    }

    /// Forgets what lay in `start..end`.
    pub fn forget_mappings(&mut self, start: usize, end: usize) {
        loop {
            match mappings::cut(start, end) {
                Step::Unpin(inode) => self.unpin(inode),
                Step::Pin(inode) => self.pin(inode),
                Step::Done => return,
            }
        }
    }

    /// Notes a new protection of `start..end`.
    pub fn protect_mappings(&mut self, start: usize, end: usize, prot: usize) {
        for at in [start, end] {
            if let Step::Pin(inode) = mappings::split(at) {
                self.pin(inode);
            }
        }
        mappings::set_protection(start, end, prot);
    }

    /// The entry at `address`, with those joined to it that go on where it ends, up to `end`: parts
    /// that `mprotect` has made and unmade are one again. While the addresses are kept still.
    pub fn joined_mapping(&mut self, address: usize, end: usize) -> Option<Entry> {
        while let Step::Unpin(inode) = mappings::join_next(address, end) {
            self.unpin(inode);
        }
        mappings::at(address)
    }

    /// Takes over what the client has just mapped: whatever lay there before is gone. `ENOMEM`: it
    /// is one too many, and is unmapped again.
    #[inline(never)]
    pub fn keep_noted(&mut self) -> Result<(), Errno> {
        let Some((mapping, inode)) = self.take_noted() else { return Ok(()) };
        let (address, length) = (mapping.address, mapping.length);
        self.forget_mappings(address, address + length.next_multiple_of(PAGE));
        let noted = mappings::note(&mapping, inode);
        if noted == Noted::Kept {
            return Ok(());
        }
        self.unpin(inode);
        if noted == Noted::Joined {
            return Ok(());
        }
        // SAFETY: what the client has mapped a moment ago; the application does not know of it yet.
        let _ = unsafe { calls::raw(nr::munmap, [address, length, 0, 0, 0, 0]) };
        Err(Errno::ENOMEM)
    }
}
