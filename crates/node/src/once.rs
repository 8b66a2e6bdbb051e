//! Each change is made once: a request that is sent again is answered from its record.
//!
//! ```text
//!   request ─► `before`: its record is there ─► the same answer
//!          '─► `once`: the change, and its record in the same transaction
//!   answer taken ─► `was_heard`: the record may go
//! ```
//!
//! Invariants
//! 1. What failed has changed nothing and has no record: it is done again.
//! 2. Bytes that a program on another host writes have none: they are gathered there, come in
//!    several messages under one number, and are never sent again.
//! 3. A file that was opened is opened again by its inode, and what the first try has opened is
//!    closed then (`holds`): nobody knows whether the asker has heard of it.

use husk_abi::sys::general::{O_CLOEXEC, O_CREAT, O_EXCL, O_TRUNC};
use husk_carrier::{ANSWERED, Asked, Changes, Direct};
use husk_proto::fs::Credentials;
use husk_proto::{Errno, Fs as _, Inode, Shortcuts as _};
use husk_wire::{AFAR, Failure, Header, Kind, record};

use crate::agent::{Agent, NUMBERS_END};
use crate::planted::planted;
use crate::translate::{failure, nothing, object};

/// What a request came to.
#[derive(Debug)]
pub enum Once<T> {
    /// Just now.
    Now(T),
    /// When it was asked before.
    Before([u64; 2]),
}

/// How its record is named.
pub fn asked(header: &Header, changes: Changes) -> Option<Asked> {
    let is_gathered = header.source >= AFAR && header.kind == Kind::WriteHome as u16;
    if is_gathered || planted!(NoRecord) {
        return None;
    }
    let epoch = if planted!(EpochNotInRecords) { 0 } else { header.epoch };
    let (node, request, kind) = (header.source, header.request, header.kind);
    Some(Asked { node, epoch, request, kind, changes, written: 0 })
}

impl Agent {
    /// What a request came to when it was asked before, if it was done.
    pub fn before(
        &mut self,
        header: &Header,
        changes: Changes,
    ) -> Result<Option<[u64; 2]>, Failure> {
        let Some(asked) = asked(header, changes) else { return Ok(None) };
        let before = self.direct().answer(&asked, header.again).map_err(failure)?;
        if before.is_some() {
            self.answered = Some(asked);
        }
        Ok(before)
    }

    /// Makes the change that is asked for, and takes its record with it.
    pub fn once<T>(
        &mut self,
        header: &Header,
        changes: Changes,
        change: impl FnOnce(&mut Direct) -> Result<T, Errno>,
    ) -> Result<Once<T>, Failure> {
        let asked = asked(header, changes);
        match self.direct().on_request(asked, change) {
            Ok(answer) => {
                self.answered = asked;
                Ok(Once::Now(answer))
            }
            // Another try of it was made meanwhile.
            Err(errno) if errno == ANSWERED || header.again => {
                match self.before(header, changes)? {
                    Some(words) => Ok(Once::Before(words)),
                    None => Err(failure(errno)),
                }
            }
            Err(errno) => Err(failure(errno)),
        }
    }

    /// Opens a file again that was opened for this request before.
    pub fn open_again(&mut self, inode: Inode, flags: u32) -> Result<u32, Failure> {
        let who = Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None };
        let direct = self.direct();
        let (files, flags) = (direct.files(), flags & !(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC));
        // Gone since: the agent died between making it and keeping it open, and somebody else has
        // taken its name.
        let opened = direct.open(&who, files, inode, flags, 0, NUMBERS_END);
        opened.map_err(|_| failure(Errno::EIO))
    }

    /// Attributes of what was changed before, which may be gone by now.
    pub fn attributes_since(&mut self, inode: Inode) -> Result<record::Attributes, Failure> {
        match self.attributes(inode) {
            Err(Failure::Gone) => Ok(nothing(object(inode))),
            other => other,
        }
    }

    /// The asker has taken the answer to the request of now.
    pub fn was_heard(&mut self) {
        if let Some(asked) = self.answered.take() {
            self.direct().heard(&asked);
            if planted!(ForgottenOnceSent) {
                let _ = self.direct().forget_answers(asked.node, u32::MAX);
            }
        }
    }
}
