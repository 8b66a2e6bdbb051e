//! `openat2` with resolve flags: a walk that stays where the caller says.
//!
//! ```text
//!   RESOLVE_BENEATH        a way out of the directory it starts from is EXDEV
//!   RESOLVE_IN_ROOT        that directory is `/`, and its own parent
//!   RESOLVE_NO_SYMLINKS    a link is ELOOP
//!   RESOLVE_NO_XDEV        another tree is EXDEV
//!   RESOLVE_NO_MAGICLINKS, RESOLVE_CACHED    nothing to do: there are none, all lies in memory
//! ```
//!
//! Slower than `descend`, and apart from it, so that the common walk asks nothing about flags.
//! Not here: paths that start or go on outside of the image's trees; they are refused (`ENOSYS`).

use crate::descend::{Walked, count_link};
use crate::path::{Aim, Last, Target};
use crate::walk::Piece;
use crate::{Client, Host, Memory};
use husk_abi::NAME_MAX;
use husk_abi::sys::general::{
    RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use husk_proto::fs::{Kind, Step, want};
use husk_proto::{Errno, Inode, Result, Services};

const NO_XDEV: u64 = RESOLVE_NO_XDEV as u64;
const NO_SYMLINKS: u64 = RESOLVE_NO_SYMLINKS as u64;
const BENEATH: u64 = RESOLVE_BENEATH as u64;
const IN_ROOT: u64 = RESOLVE_IN_ROOT as u64;
/// Both, of which only one may be asked for.
pub(crate) const SCOPE: u64 = BENEATH | IN_ROOT;
/// Names and links in one walk.
const STEPS_MAX: usize = 1 << 16;

/// Where a walk may go.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    root: Inode,
    resolve: u64,
}

impl Scope {
    /// Below `root`, with these flags. `EINVAL` for flags that exclude each other.
    pub fn new(root: Inode, resolve: u64) -> Result<Scope> {
        if resolve & SCOPE == SCOPE { Err(Errno::EINVAL) } else { Ok(Scope { root, resolve }) }
    }

    fn has(&self, flag: u64) -> bool {
        self.resolve & flag != 0
    }

    /// Where an absolute text leads; `None` = anywhere, as ever.
    fn top(&self) -> Result<Option<Inode>> {
        match self.resolve & SCOPE {
            BENEATH => Err(Errno::EXDEV),
            IN_ROOT => Ok(Some(self.root)),
            _ if self.has(NO_XDEV) => Err(Errno::EXDEV),
            _ => Ok(None),
        }
    }
}

/// What a step came to.
enum Stepped {
    On(Inode),
    Done,
    /// At an absolute text: what is left of the walk's.
    Absolute,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Walks the text of walk 0 within `scope`; what it finds is left in `found[0]`, or in the text
    /// what an absolute link out of the tree leaves.
    pub(crate) fn walk_scoped(&mut self, scope: Scope, aim: Aim) -> Result<Walked> {
        let absolute = self.buffers.walks[0].is_absolute();
        let start = if absolute { scope.top()? } else { Some(scope.root) };
        let Some(start) = start else { return Ok(Walked::Absolute) };
        if absolute && self.services.step(start)?.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.walk_scoped_from(scope, start, aim)
    }

    /// The same for what is left of the text, from `here` on.
    pub(crate) fn walk_scoped_from(
        &mut self,
        scope: Scope,
        here: Inode,
        aim: Aim,
    ) -> Result<Walked> {
        self.prepare();
        let mut here = here;
        let (mut links, mut last) = (0, Last::Root);
        for _ in 0..STEPS_MAX {
            let Some(piece) = self.buffers.walks[0].next() else {
                return self.arrive(0, here, last).map(|_| Walked::Done);
            };
            let directory = self.services.step(here)?;
            if directory.kind != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            self.credentials().permit(&directory, want::EXECUTE)?;
            if let Some(dots) = self.buffers.walks[0].dots(piece) {
                last = dots;
                here = if dots == Last::Dot { here } else { self.above(scope, here)? };
                continue;
            }
            last = Last::Root;
            match self.step_scoped(scope, directory, piece, aim, &mut links)? {
                Stepped::On(inode) => here = inode,
                Stepped::Done => return Ok(Walked::Done),
                Stepped::Absolute => return Ok(Walked::Absolute),
            }
        }
        Err(Errno::ELOOP)
    }

    /// The parent of a directory, as far as the scope goes.
    fn above(&mut self, scope: Scope, here: Inode) -> Result<Inode> {
        if here == scope.root && scope.has(SCOPE) {
            return Ok(scope.top()?.unwrap_or(here));
        }
        match self.services.parent(here)? {
            parent if parent != here => Ok(parent),
            _ if scope.has(NO_XDEV) => Err(Errno::EXDEV),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn step_scoped(
        &mut self,
        scope: Scope,
        directory: Step,
        piece: Piece,
        aim: Aim,
        links: &mut usize,
    ) -> Result<Stepped> {
        if piece.end - piece.start > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if directory.unlisted {
            self.import_for(0, directory.inode, piece)?;
        }
        let name = &self.buffers.walks[0].text[piece.start..piece.end];
        let found = match self.services.lookup(directory.inode, name) {
            Err(Errno::ENOENT) if piece.last => None,
            other => Some(self.across(scope, other?)?),
        };
        let through = !piece.last || piece.slash;
        match found {
            Some(step) if step.kind == Kind::Symlink && (through || aim.follow) => {
                if scope.has(NO_SYMLINKS) {
                    return Err(Errno::ELOOP);
                }
                count_link(links)?;
                let absolute = self.expand(0, step.inode, piece.end)?;
                let next = if absolute { scope.top()? } else { Some(directory.inode) };
                Ok(next.map_or(Stepped::Absolute, Stepped::On))
            }
            Some(step) if step.kind == Kind::Portal && scope.has(NO_XDEV) => Err(Errno::EXDEV),
            Some(step) if step.kind == Kind::Portal && through => Err(Errno::ENOSYS),
            Some(step) if !piece.last => Ok(Stepped::On(step.inode)),
            step => {
                let (name, last) = ((piece.start, piece.end), Last::Name);
                let directory = directory.inode;
                self.found[0] = Target { directory, name, last, step, slash: piece.slash };
                Ok(Stepped::Done)
            }
        }
    }

    /// The root of the tree that covers what was found, if one does.
    fn across(&mut self, scope: Scope, step: Step) -> Result<Step> {
        match self.covering_root(step.inode) {
            None => Ok(step),
            Some(_) if scope.has(NO_XDEV) => Err(Errno::EXDEV),
            Some(root) => self.services.step(root),
        }
    }
}
