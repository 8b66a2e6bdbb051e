//! The position of a walk with resolve flags: in a tree of the image, or in a host directory.
//!
//! ```text
//!   a name      host ──► the root of a tree, where one begins      tree ──► host, by a portal
//!   `..`        host ──► a tree, from behind a portal              tree ──► host, above its root
//! ```
//!
//! The host is asked one name at a time, from the directory itself, so that it never follows a link
//! that is ours to judge, and says itself what it forbids.
//!
//! Invariants
//! 1. A descriptor that a walk has opened is closed when the walk leaves it (`stand_at`, `leave`).
//! 2. A directory of the host that lies in a tree is that tree's, unless it lies behind a portal.

use crate::layout::{STATX_BYTES, device, get16, get32, get64};
use crate::path::text::{Piece, lies_below};
use crate::{Client, Host, Memory};
use husk_abi::sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH, S_IFDIR, S_IFLNK, S_IFMT,
    STATX_BASIC_STATS, STATX_MNT_ID,
};
use husk_abi::{PATH_MAX, nr};
use husk_proto::fs::{Kind, Step};
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Inode, Result, Services};

/// Which object of the host something is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub mount: u64,
    device: u64,
    inode: u64,
}

/// An object of the host, looked at.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub identity: Identity,
    pub mode: u32,
}

impl Seen {
    pub fn is_directory(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    pub fn is_link(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }
}

/// A directory of the host.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub fd: usize,
    /// Opened by the walk.
    pub own: bool,
    pub identity: Identity,
}

/// Where a walk stands.
#[derive(Clone, Copy)]
pub(crate) enum Ground {
    Tree(Inode),
    Host(Held),
}

impl Ground {
    /// Whether both are the same directory.
    pub fn is(&self, other: &Ground) -> bool {
        match (self, other) {
            (Ground::Tree(one), Ground::Tree(other)) => one == other,
            (Ground::Host(one), Ground::Host(other)) => one.identity == other.identity,
            _ => false,
        }
    }

    /// The same, its descriptor another's to close.
    pub fn lent(&self) -> Ground {
        match *self {
            Ground::Host(held) => Ground::Host(Held { own: false, ..held }),
            tree => tree,
        }
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Where paths relative to descriptor `directory` begin.
    pub(crate) fn ground_of(&mut self, directory: i32) -> Result<Ground> {
        let known = if directory == AT_FDCWD {
            match self.services.working_directory() {
                WorkingDirectory::Husk(inode) => Some(inode),
                WorkingDirectory::Host => None,
            }
        } else {
            self.inode_behind(directory as usize)?
        };
        let Some(inode) = known else {
            return self.settle(directory as usize, false);
        };
        match self.services.step(inode)?.kind {
            Kind::Directory => Ok(Ground::Tree(inode)),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Where a directory of the host is: in a tree, or there. Closes `fd` unless it is kept.
    pub(crate) fn settle(&mut self, fd: usize, own: bool) -> Result<Ground> {
        let settled = self.settled(fd, own);
        if own && !matches!(settled, Ok(Ground::Host(_))) {
            self.host_close(fd as u32);
        }
        settled
    }

    fn settled(&mut self, fd: usize, own: bool) -> Result<Ground> {
        let seen = self.look_at(fd)?;
        if !seen.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let here = Ground::Host(Held { fd, own, identity: seen.identity });
        let length = self.held_path(fd)?;
        Ok(self.tree_at(length)?.map_or(here, Ground::Tree))
    }

    /// The directory of a tree that `base[..length]`, a real path of the host, lies in.
    pub(crate) fn tree_at(&mut self, length: usize) -> Result<Option<Inode>> {
        let Some(step) = self.step_at(length)? else { return Ok(None) };
        match step.kind {
            Kind::Portal => Ok(None),
            Kind::Directory => Ok(Some(self.covering_root(step.inode).unwrap_or(step.inode))),
            _ => Err(Errno::ENOENT),
        }
    }

    /// What a tree has at `base[..length]`, a real path of the host; a portal on the way to it.
    pub(crate) fn step_at(&mut self, length: usize) -> Result<Option<Step>> {
        let mut best: Option<(usize, Inode)> = None;
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            let longer = best.is_none_or(|(length, _)| mount.path.len() > length);
            if longer && lies_below(&self.buffers.base[..length], mount.path) {
                best = Some((mount.path.len(), mount.root));
            }
        }
        let Some((at, root)) = best else { return Ok(None) };
        self.directory_below(root, at, length).map(Some)
    }

    /// The real path of a directory of the host, in `base`; its length.
    pub(crate) fn held_path(&mut self, fd: usize) -> Result<usize> {
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = match fd as i32 {
            AT_FDCWD => self.working_path(base),
            _ => self.descriptor_path(fd as u32, base),
        };
        Errno::check(length).map(|length| (length as usize).min(PATH_MAX))
    }

    /// What the host has at the name `piece` of the text, from directory `fd`: a new descriptor.
    pub(crate) fn reach(
        &mut self,
        fd: usize,
        piece: Piece,
        flags: u32,
        resolve: u64,
    ) -> Result<usize> {
        self.with_text(piece, |client, name| client.open_place(fd, name, flags, resolve))
    }

    /// The place that the host has at an address of a text.
    pub(crate) fn open_place(
        &self,
        fd: usize,
        name: usize,
        flags: u32,
        resolve: u64,
    ) -> Result<usize> {
        let how = core::hint::black_box([u64::from(flags | O_PATH | O_CLOEXEC), 0, resolve]);
        let args = [fd, name, how.as_ptr() as usize, size_of_val(&how), 0, 0];
        Errno::check(self.host.call(nr::openat2, args)).map(|fd| fd as usize)
    }

    /// `ask`s with the address of the name `piece` of the text, which ends there meanwhile.
    pub(crate) fn with_text<T>(&mut self, piece: Piece, ask: impl FnOnce(&Self, usize) -> T) -> T {
        let text = &mut self.buffers.walks[0].text;
        let kept = core::mem::replace(&mut text[piece.end], 0);
        let name = text[piece.start..].as_ptr() as usize;
        let answer = ask(self, name);
        self.buffers.walks[0].text[piece.end] = kept;
        answer
    }

    /// The host's root.
    pub(crate) fn host_root(&mut self) -> Result<Ground> {
        self.hold(c"/".as_ptr() as usize).map(Ground::Host)
    }

    /// The directory that the host has by an absolute path.
    pub(crate) fn hold(&self, path: usize) -> Result<Held> {
        let fd = self.open_place(AT_FDCWD as usize, path, O_DIRECTORY, 0)?;
        match self.look_at(fd) {
            Ok(seen) => Ok(Held { fd, own: true, identity: seen.identity }),
            Err(errno) => {
                self.host_close(fd as u32);
                Err(errno)
            }
        }
    }

    /// Which object of the host a descriptor shows.
    pub(crate) fn look_at(&self, fd: usize) -> Result<Seen> {
        let mut out = [0u8; STATX_BYTES];
        let (empty, asked) = (c"".as_ptr() as usize, STATX_BASIC_STATS | STATX_MNT_ID);
        let flags = AT_EMPTY_PATH as usize;
        let args = [fd, empty, flags, asked as usize, out.as_mut_ptr() as usize, 0];
        Errno::check(self.host.call(nr::statx, args))?;
        let out = core::hint::black_box(out);
        let identity = Identity {
            mount: get64(&out, 144),
            device: device(get32(&out, 136), get32(&out, 140)),
            inode: get64(&out, 32),
        };
        Ok(Seen { identity, mode: u32::from(get16(&out, 28)) })
    }

    /// Has a walk go on from another place; what it stood on is closed.
    pub(crate) fn stand_at(&self, here: &mut Ground, there: Ground) {
        self.leave(*here);
        *here = there;
    }

    /// Closes what a walk stood on.
    pub(crate) fn leave(&self, ground: Ground) {
        if let Ground::Host(Held { fd, own: true, .. }) = ground {
            self.host_close(fd as u32);
        }
    }
}
