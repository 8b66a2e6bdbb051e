//! From a path argument to an object: Husk's, the host's, or the host's by another path.
//!
//! ```text
//!   argument ─► Absolute ─► classify ─┬─► In(directory) ─► walk ─► Husk(target)
//!            └► In(cwd or dirfd)      │                     │
//!                                     └─► Outside           └─► Absolute
//! ```
//! A walk goes back to `Absolute` after an absolute link and when `..` leaves a tree upward.
//!
//! Invariants
//! 1. `Host`: the application's own arguments lead to a host object; nothing was rewritten.
//! 2. `Elsewhere`: the walk's text is the absolute host path to use instead.
//! 3. Search permission is checked on every Husk directory before a name in it is looked at,
//!    length and kind of the name after that, as Linux does.
//! 4. At most `SYMLINKS_MAX` links are followed; every restart follows one link or leaves a tree.

use crate::buffers::Walk;
use crate::magic::Magic;
use crate::walk::Piece;
use crate::{Call, Client, Host, Memory};
use husk_abi::{NAME_MAX, PATH_MAX, SYMLINKS_MAX, nr, sys::general::AT_FDCWD};
use husk_proto::descriptor::Slot;
use husk_proto::fs::{Kind, Step};
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Inode, Result, Services};

/// Starts of a walk over one path, links and departures from trees together.
const RESTARTS_MAX: usize = 2 * SYMLINKS_MAX;

/// Where in a call's arguments a path stands.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub directory: Option<usize>,
    pub path: usize,
}

/// The path is argument `path`, relative to the working directory.
pub(crate) const fn plain(path: usize) -> Spot {
    Spot { directory: None, path }
}

/// The path is argument `directory + 1`, relative to descriptor argument `directory`.
pub(crate) const fn at(directory: usize) -> Spot {
    Spot { directory: Some(directory), path: directory + 1 }
}

/// How to treat the end of the path.
#[derive(Clone, Copy, Default)]
pub(crate) struct Aim {
    /// Follow a symbolic link at the end.
    pub follow: bool,
    /// An empty path means the directory argument itself.
    pub empty: bool,
    /// Stop at the parent: do not look the last name up.
    pub parent: bool,
    /// A trailing slash behind a file is the caller's business.
    pub slash: bool,
}

impl Aim {
    pub const FOLLOW: Aim = Aim { follow: true, empty: false, parent: false, slash: false };
    pub const STAY: Aim = Aim { follow: false, empty: false, parent: false, slash: false };
    pub const PARENT: Aim = Aim { follow: false, empty: false, parent: true, slash: false };
}

/// What the last component was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    /// A name in `Target::directory`.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The root of a tree, or an open object itself.
    Root,
}

/// An object of a Husk tree, or the place where one would be.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Where the last name stands (of `Last::Name`).
    pub directory: Inode,
    /// The last name within the walk's text.
    pub name: (usize, usize),
    pub last: Last,
    /// What is there; `None` = nothing, or not looked up (`Aim::parent`).
    pub step: Option<Step>,
    /// The path ends in a slash.
    pub slash: bool,
}

impl Target {
    /// A directory reached without a name, or an open object.
    pub fn whole(step: Step, last: Last) -> Target {
        Target { directory: step.inode, name: (0, 0), last, step: Some(step), slash: false }
    }

    /// What is there, or `ENOENT`.
    pub fn existing(&self) -> Result<Step> {
        self.step.ok_or(Errno::ENOENT)
    }
}

/// Where a path leads.
pub(crate) enum Place {
    /// Into a Husk tree.
    Husk(Target),
    /// To the host, by the absolute path in the walk's text.
    Elsewhere,
    /// To the host, by the application's own arguments.
    Host,
}

/// Where the next stretch of a walk begins.
pub(crate) enum Start {
    /// The text is absolute and has not been looked at.
    Absolute,
    /// At this directory, with what is left of the text.
    In(Step),
    /// At the end: the object itself.
    Object(Step),
    /// On the host.
    Outside,
}

/// How a stretch of a walk ended.
enum Walked {
    Done(Target),
    Absolute,
    Outside,
}

/// What one name led to.
enum Entered {
    Below(Step),
    Link,
    Ended(Walked),
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Resolves the path of `call` at `spot` with walk `w`.
    pub(crate) fn find(&mut self, call: &Call, w: usize, spot: Spot, aim: Aim) -> Result<Place> {
        let directory = spot.directory.map_or(AT_FDCWD, |i| call.args[i] as i32);
        self.find_at(directory, call.args[spot.path], w, aim)
    }

    /// Resolves the path at address `path` relative to `directory`.
    pub(crate) fn find_at(
        &mut self,
        directory: i32,
        path: usize,
        w: usize,
        aim: Aim,
    ) -> Result<Place> {
        if path == 0 && aim.empty {
            return self.find_open(directory);
        }
        let walk = &mut self.buffers.walks[w];
        let length = self.memory.read_string(path, &mut walk.text[..PATH_MAX])?;
        (walk.at, walk.length) = (0, length);
        if length == 0 {
            return if aim.empty { self.find_open(directory) } else { Err(Errno::ENOENT) };
        }
        self.find_text(directory, w, aim)
    }

    /// Resolves the text in walk `w`.
    pub(crate) fn find_text(&mut self, directory: i32, w: usize, aim: Aim) -> Result<Place> {
        let start = if self.buffers.walks[w].is_absolute() {
            Start::Absolute
        } else {
            self.start_relative(directory, w)?
        };
        self.resolve(w, start, aim)
    }

    /// An empty path with `AT_EMPTY_PATH`: what `directory` stands for.
    fn find_open(&mut self, directory: i32) -> Result<Place> {
        self.identify();
        let inode = if directory == AT_FDCWD {
            match self.services.working_directory() {
                WorkingDirectory::Husk(inode) => inode,
                WorkingDirectory::Host => return Ok(Place::Host),
            }
        } else {
            match self.inode_behind(directory as usize)? {
                Some(inode) => inode,
                None => return Ok(Place::Host),
            }
        };
        let step = self.services.step(inode)?;
        Ok(Place::Husk(Target::whole(step, Last::Root)))
    }

    /// The inode a descriptor shows, if it is Husk's or a shadow; `None` = host.
    pub(crate) fn inode_behind(&mut self, fd: usize) -> Result<Option<Inode>> {
        let files = self.services.files();
        Ok(match self.services.slot(files, fd as u32) {
            Slot::Husk(description) => Some(self.services.description(description)?.inode),
            Slot::Host(shows) => shows,
            Slot::Free => None,
        })
    }

    fn start_relative(&mut self, directory: i32, w: usize) -> Result<Start> {
        let inode = if directory == AT_FDCWD {
            match self.services.working_directory() {
                WorkingDirectory::Husk(inode) => inode,
                WorkingDirectory::Host => return self.join_host_directory(w, None),
            }
        } else {
            match self.inode_behind(directory as usize)? {
                Some(inode) => inode,
                None => return self.join_host_directory(w, Some(directory)),
            }
        };
        let step = self.services.step(inode)?;
        if step.kind == Kind::Directory { Ok(Start::In(step)) } else { Err(Errno::ENOTDIR) }
    }

    fn resolve(&mut self, w: usize, mut start: Start, aim: Aim) -> Result<Place> {
        let mut changed = false;
        let mut links = 0;
        for _ in 0..RESTARTS_MAX {
            match start {
                Start::Absolute => {
                    start = self.classify(w, aim, &mut links)?;
                    changed |= matches!(start, Start::Absolute);
                }
                Start::Object(step) => {
                    self.prepare();
                    return Ok(Place::Husk(Target::whole(step, Last::Root)));
                }
                Start::Outside if changed => return Ok(Place::Elsewhere),
                Start::Outside => return Ok(Place::Host),
                Start::In(directory) => {
                    self.prepare();
                    match self.walk(w, directory, aim, &mut links)? {
                        Walked::Done(target) => return Ok(Place::Husk(target)),
                        Walked::Absolute => start = Start::Absolute,
                        Walked::Outside => start = Start::Outside,
                    }
                    changed = true;
                }
            }
        }
        Err(Errno::ELOOP)
    }

    /// What only paths into a Husk tree need: a program that opens none never asks for it.
    #[inline]
    fn prepare(&mut self) {
        self.identify();
        if !self.mounts_known {
            self.learn_mounts();
        }
    }

    /// Decides where an absolute text begins: a mount, a magic link, or the host.
    fn classify(&mut self, w: usize, aim: Aim, links: &mut usize) -> Result<Start> {
        if let Some(start) = self.enter_mount(w)? {
            return Ok(start);
        }
        match self.magic(w, aim)? {
            Magic::No => {}
            Magic::Object(step, rest) => {
                self.buffers.walks[w].at = rest;
                let ends = self.buffers.walks[w].rest().iter().all(|&b| b == b'/');
                return Ok(if ends { Start::Object(step) } else { Start::In(step) });
            }
            Magic::Rewritten => {
                count_link(links)?;
                return Ok(Start::Absolute);
            }
            Magic::Host => return Ok(Start::Outside),
        }
        self.leads_into_mount(w, aim)
    }

    /// If the text lies below a mount: starts at that mount's root.
    pub(crate) fn enter_mount(&mut self, w: usize) -> Result<Option<Start>> {
        let walk = &mut self.buffers.walks[w];
        let mut best: Option<(usize, Inode)> = None;
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            let longer = best.is_none_or(|(length, _)| mount.path.len() > length);
            if longer && crate::walk::lies_below(walk.whole(), mount.path) {
                best = Some((mount.path.len(), mount.root));
            }
        }
        let Some((length, root)) = best else { return Ok(None) };
        walk.at = length;
        Ok(Some(Start::In(self.services.step(root)?)))
    }

    /// Walks the text from `directory` until it ends or leaves the tree.
    fn walk(
        &mut self,
        w: usize,
        mut directory: Step,
        aim: Aim,
        links: &mut usize,
    ) -> Result<Walked> {
        let mut last = Last::Root;
        loop {
            let Some(piece) = self.buffers.walks[w].next() else {
                return Ok(Walked::Done(Target::whole(directory, last)));
            };
            if directory.kind != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            self.identity.credentials(&self.buffers.groups).permit(&directory, 1)?;
            match &self.buffers.walks[w].text[piece.start..piece.end] {
                b"." => last = Last::Dot,
                b".." => match self.up(w, directory, piece.end)? {
                    Some(step) => (directory, last) = (step, Last::DotDot),
                    None => return Ok(Walked::Absolute),
                },
                name if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
                _ => {
                    last = Last::Root;
                    match self.enter(w, directory, piece, aim, links)? {
                        Entered::Below(step) => directory = step,
                        Entered::Link => {}
                        Entered::Ended(walked) => return Ok(walked),
                    }
                }
            }
        }
    }

    /// One name of a walk.
    #[inline]
    fn enter(
        &mut self,
        w: usize,
        directory: Step,
        piece: Piece,
        aim: Aim,
        links: &mut usize,
    ) -> Result<Entered> {
        if directory.unlisted {
            self.import_for(w, directory.inode, piece)?;
        }
        let mut target = Target {
            directory: directory.inode,
            name: (piece.start, piece.end),
            last: Last::Name,
            step: None,
            slash: piece.slash,
        };
        if piece.last && aim.parent {
            return Ok(Entered::Ended(Walked::Done(target)));
        }
        let name = &self.buffers.walks[w].text[piece.start..piece.end];
        let step = match self.services.lookup(directory.inode, name) {
            Ok(step) => self.cross(step)?,
            Err(Errno::ENOENT) if piece.last => return Ok(Entered::Ended(Walked::Done(target))),
            Err(errno) => return Err(errno),
        };
        let through = !piece.last || piece.slash;
        match step.kind {
            Kind::Symlink if through || aim.follow => {
                count_link(links)?;
                let absolute = self.expand(w, step.inode, piece.end)?;
                Ok(if absolute { Entered::Ended(Walked::Absolute) } else { Entered::Link })
            }
            Kind::Portal if through => {
                self.portal_text(w, step.inode, piece.end)?;
                Ok(Entered::Ended(Walked::Outside))
            }
            _ if piece.last => {
                if piece.slash && step.kind != Kind::Directory && !aim.slash {
                    return Err(Errno::ENOTDIR);
                }
                target.step = Some(step);
                Ok(Entered::Ended(Walked::Done(target)))
            }
            _ => Ok(Entered::Below(step)),
        }
    }

    /// Reads the host listing of a directory, or the one name where listing is forbidden.
    #[cold]
    fn import_for(&mut self, w: usize, directory: Inode, piece: Piece) -> Result<()> {
        match self.import(directory) {
            Err(Errno::EACCES) => self.import_name(directory, w, (piece.start, piece.end)),
            other => other,
        }
    }

    /// The root that covers a directory, if another mount does.
    #[inline]
    fn cross(&mut self, step: Step) -> Result<Step> {
        if self.buffers.nested_count == 0 || step.kind != Kind::Directory {
            return Ok(step);
        }
        match self.buffers.nested_root(step.inode) {
            Some(root) => self.services.step(root),
            None => Ok(step),
        }
    }

    /// The parent of `directory`; `None` after rewriting the text to go on above the mount.
    fn up(&mut self, w: usize, directory: Step, keep: usize) -> Result<Option<Step>> {
        let parent = self.services.parent(directory.inode)?;
        if parent != directory.inode {
            return Ok(Some(self.services.step(parent)?));
        }
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            if mount.root == parent {
                let cut = mount.path.iter().rposition(|&b| b == b'/').unwrap_or(0).max(1);
                let above = mount.path.get(..cut).unwrap_or(b"/");
                self.buffers.walks[w].replace_front(keep, above)?;
                return Ok(None);
            }
        }
        Ok(Some(directory))
    }

    /// Puts a link's target before what is left; `true` when it is absolute.
    fn expand(&mut self, w: usize, link: Inode, keep: usize) -> Result<bool> {
        let length = self.services.read_link(link, &mut self.buffers.link[..PATH_MAX])?;
        if length == 0 {
            return Err(Errno::ENOENT);
        }
        let target = self.buffers.link.get(..length.min(PATH_MAX)).unwrap_or(&[]);
        let walk: &mut Walk = &mut self.buffers.walks[w];
        walk.replace_front(keep, target)?;
        Ok(walk.is_absolute())
    }

    /// Makes the text the host path of a portal, followed by what is left.
    pub(crate) fn portal_text(&mut self, w: usize, portal: Inode, keep: usize) -> Result<()> {
        let origin = self.services.attributes(portal)?.origin.ok_or(Errno::EIO)?;
        let length = self.services.host_path(origin, &mut self.buffers.link[..PATH_MAX])?;
        let path = &self.buffers.link[..length.min(PATH_MAX)];
        self.buffers.walks[w].replace_front(keep, path)
    }

    /// Whether an existing target is a portal; then the text is its host path.
    pub(crate) fn is_portal(&mut self, w: usize, target: &Target) -> Result<bool> {
        match target.step {
            Some(step) if step.kind == Kind::Portal => {
                let end = self.buffers.walks[w].length;
                self.portal_text(w, step.inode, end)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Makes the host call with the text of walk 0 in place of the path at `spot`.
    pub(crate) fn call_elsewhere(&mut self, call: &Call, spot: Spot) -> i64 {
        let mut args = call.args;
        args[spot.path] = self.buffers.walks[0].for_host();
        if let Some(directory) = spot.directory {
            args[directory] = AT_FDCWD as usize;
        }
        self.host.call(call.number, args)
    }

    /// Finds out which directories of Husk trees are covered by other mounts.
    #[cold]
    fn learn_mounts(&mut self) {
        self.mounts_known = true;
        self.buffers.nested_count = 0;
        let count = self.services.mounts();
        for index in 0..if count > 1 { count } else { 0 } {
            if let Some((covered, root)) = self.covered_directory(index) {
                let place = self.buffers.nested_count;
                self.buffers.nested[place] =
                    [covered.number, covered.generation, root.number, root.generation];
                self.buffers.nested_count += 1;
            }
        }
    }

    /// The directory of another tree under mount `index`, if it lies in one.
    fn covered_directory(&mut self, index: usize) -> Option<(Inode, Inode)> {
        let mount = self.services.mount(index);
        let (root, mut length, mut below) = (mount.root, 0, None);
        let path = self.buffers.base.get_mut(..mount.path.len())?;
        path.copy_from_slice(mount.path);
        for other in (0..self.services.mounts()).filter(|&o| o != index) {
            let other = self.services.mount(other);
            let inside = crate::walk::lies_below(path, other.path);
            if inside && other.path.len() > length {
                (length, below) = (other.path.len(), Some(other.root));
            }
        }
        let (mut here, end) = (below?, path.len());
        let mut at = length;
        while at < end {
            let start = at + 1;
            let rest = &self.buffers.base[start..end];
            at = start + rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
            if self.services.step(here).ok()?.unlisted {
                self.import(here).ok()?;
            }
            here = self.services.lookup(here, &self.buffers.base[start..at]).ok()?.inode;
        }
        Some((here, root))
    }

    /// Process id of the caller.
    pub(crate) fn process_id(&self) -> u32 {
        self.host.call(nr::getpid, [0; 6]) as u32
    }
}

fn count_link(links: &mut usize) -> Result<()> {
    *links += 1;
    if *links > SYMLINKS_MAX { Err(Errno::ELOOP) } else { Ok(()) }
}
