//! Path resolution: from a path argument to an object of Husk or of the host.
//!
//! ```text
//!   argument ─► Absolute ─► classify ─┬─► In(directory) ─► walk ─► Husk(target)
//!            └► In(cwd or dirfd)      │                     │
//!                                     └─► Outside           └─► Absolute
//! ```
//! A walk goes back to `Absolute` after an absolute link and when `..` leaves a tree upward. One
//! into a directory that was walked to lately begins there (`dir_cache`).
//!
//! Invariants
//! 1. `Host`: the application's own arguments lead to a host object; nothing was rewritten.
//! 2. `Elsewhere`: the walk's text is the absolute host path to use instead.
//! 3. Search permission is checked on every Husk directory before a name in it is looked at,
//!    length and kind of the name after that, as Linux does.
//! 4. At most `SYMLINKS_MAX` links are followed; every restart follows one link or leaves a tree.

pub(crate) mod cwd;
pub(crate) mod descend;
pub(crate) mod dir_cache;
pub(crate) mod magic_links;
pub(crate) mod mounts;
pub(crate) mod openat2;
pub(crate) mod outside;
pub(crate) mod outside_cache;
pub(crate) mod text;
pub(crate) mod walk_position;

use crate::path::descend::{Walked, count_link};
use crate::path::dir_cache::ROOT;
use crate::path::magic_links::Magic;
use crate::path::mounts::Mounts;
use crate::{Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::{PATH_MAX, SYMLINKS_MAX, nr, sys::general::AT_FDCWD};
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
    /// So does no path at all (NULL), for those few calls that take one.
    pub null: bool,
    /// Stop at the parent: do not look the last name up.
    pub parent: bool,
    /// A trailing slash behind a file is the caller's business.
    pub slash: bool,
    /// A file is to be made: no link is followed behind a trailing slash, `EISDIR`.
    pub create: bool,
    /// What the host has not is `ENOENT`, without asking it a second time: for calls that make
    /// nothing, and would say nothing else first.
    pub absent: bool,
    /// The caller answers for the link of a descriptor of the image in `/proc` itself.
    pub shown: bool,
}

impl Aim {
    const NONE: Aim = Aim {
        follow: false,
        empty: false,
        null: false,
        parent: false,
        slash: false,
        create: false,
        absent: false,
        shown: false,
    };
    pub const FOLLOW: Aim = Aim { follow: true, ..Aim::NONE };
    pub const STAY: Aim = Aim::NONE;
    pub const PARENT: Aim = Aim { parent: true, ..Aim::NONE };
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

/// What a thread keeps of paths.
pub(crate) struct Paths {
    /// The last path looked for in `outside_cache` was there: only then is the next one looked for
    /// before anything else.
    last_was_outside: bool,
    mounts: Mounts,
    /// What each walk has found.
    found: [Target; 2],
}

impl Default for Paths {
    fn default() -> Paths {
        let found = [Target::NONE; 2];
        Paths { last_was_outside: false, mounts: Mounts::default(), found }
    }
}

impl Paths {
    /// What walk `w` has found.
    #[inline(always)]
    pub fn found(&self, w: usize) -> &Target {
        &self.found[w]
    }
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

    /// Nothing found yet.
    const NONE: Target = Target {
        directory: Inode { number: 0, generation: 0 },
        name: (0, 0),
        last: Last::Root,
        step: None,
        slash: false,
    };

    /// The inode there, or `ENOENT`.
    #[inline]
    pub fn inode(&self) -> Result<Inode> {
        self.step.as_ref().map(|step| step.inode).ok_or(Errno::ENOENT)
    }

    /// What is there, or `ENOENT`.
    pub fn existing(&self) -> Result<Step> {
        self.step.ok_or(Errno::ENOENT)
    }
}

/// Where a path leads, the target aside: that is left in `Client::found`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// Into a Husk tree.
    Husk,
    /// To the host, by the absolute path in the walk's text.
    Elsewhere,
    /// To the host, by the application's own arguments.
    Host,
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

/// Where the host looks a text up: what is behind its first `joined` bytes, from `directory`. Those
/// bytes are a name that the directory had once; it may have another by now, or none.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    pub directory: i32,
    pub joined: usize,
}

impl Base {
    /// The text is as it was given, and absolute.
    pub(crate) const ROOT: Base = Base { directory: AT_FDCWD, joined: 0 };
}

/// Where the next stretch of a walk begins.
pub(crate) enum Start {
    /// The text is absolute and has not been looked at.
    Absolute,
    /// The same: it was relative, and the host's directory stands before it now.
    Joined(Base),
    /// At this directory, with what is left of the text; what the whole text starts from, if what
    /// it leads to may be remembered.
    In(Inode, Option<Inode>),
    /// At this directory, known from earlier, with what is left of the text from this place on.
    Known(Inode, usize),
    /// At the end: the object itself.
    Object(Inode),
    /// On the host.
    Outside,
}

impl Start {
    /// What a path that starts here is known by.
    #[inline(always)]
    fn key(&self) -> Option<Inode> {
        match *self {
            Start::Absolute => Some(ROOT),
            Start::In(_, key) => key,
            _ => None,
        }
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Resolves the path of `call` at `spot` with walk `w`.
    pub(crate) fn find(&mut self, call: &Call, w: usize, spot: Spot, aim: Aim) -> Result<Place> {
        let lead = self.locate(call, w, spot, aim)?;
        Ok(self.place(lead, w))
    }

    /// The same, the target left in `found[w]`: for calls that many programs make often. Moving a
    /// target right after its fields were written makes the processor wait.
    #[inline]
    pub(crate) fn locate(&mut self, call: &Call, w: usize, spot: Spot, aim: Aim) -> Result<Lead> {
        let directory = spot.directory.map_or(AT_FDCWD, |i| call.args[i] as i32);
        self.locate_at(directory, call.args[spot.path], w, aim)
    }

    /// Resolves the path at address `path` relative to `directory`.
    pub(crate) fn find_at(
        &mut self,
        directory: i32,
        path: usize,
        w: usize,
        aim: Aim,
    ) -> Result<Place> {
        let lead = self.locate_at(directory, path, w, aim)?;
        Ok(self.place(lead, w))
    }

    fn place(&self, lead: Lead, w: usize) -> Place {
        match lead {
            Lead::Husk => Place::Husk(self.paths.found[w]),
            Lead::Elsewhere => Place::Elsewhere,
            Lead::Host => Place::Host,
        }
    }

    fn locate_at(&mut self, directory: i32, path: usize, w: usize, aim: Aim) -> Result<Lead> {
        if path == 0 && aim.empty && aim.null {
            // Whoever looks at the text afterwards finds none, not that of an earlier call.
            (self.buffers.walks[w].at, self.buffers.walks[w].length) = (0, 0);
            return self.find_open(directory, w);
        }
        let name = self.read_path(path, w)?;
        if self.buffers.walks[w].length == 0 {
            return if aim.empty { self.find_open(directory, w) } else { Err(Errno::ENOENT) };
        }
        let stays = !aim.follow || aim.parent;
        let bare = stays && name == 0 && directory != AT_FDCWD;
        if bare && self.is_in_outlying(directory, w) {
            return Ok(Lead::Host);
        }
        let age = if bare { self.age_of_table() } else { None };
        let mut start = self.start(directory, w)?;
        if let Some(key) = start.key()
            && let Some(inode) = self.recall(w, key, name)
        {
            self.prepare();
            if let Some(lead) = self.look_in(w, inode, name, aim)? {
                return Ok(lead);
            }
            start = Start::Known(inode, name);
        }
        if !matches!(start, Start::Absolute) {
            let lead = self.resolve(w, start, aim)?;
            if let (Lead::Host, Some(age)) = (lead, age) {
                self.note_outlying(directory as u32, w, age);
            }
            return Ok(lead);
        }
        if self.lately_outside(w, aim) {
            self.paths.last_was_outside = true;
            return Ok(Lead::Host);
        }
        self.locate_absolute(w, aim)
    }

    /// The way of an absolute text that nothing is known of.
    #[inline(never)]
    fn locate_absolute(&mut self, w: usize, aim: Aim) -> Result<Lead> {
        let lead = self.resolve(w, Start::Absolute, aim)?;
        if lead == Lead::Host {
            self.note_lately(w, aim);
        }
        Ok(lead)
    }

    /// Copies the path at address `source` into walk `w`; where its last name begins.
    #[inline]
    pub(crate) fn read_path(&mut self, source: usize, w: usize) -> Result<usize> {
        let walk = &mut self.buffers.walks[w];
        let length = self.memory.read_string(source, &mut walk.text[..PATH_MAX])?;
        (walk.at, walk.length) = (0, length);
        Ok(walk.behind_last_slash())
    }

    /// Resolves the text in walk `w`.
    pub(crate) fn find_text(&mut self, directory: i32, w: usize, aim: Aim) -> Result<Place> {
        let start = self.start(directory, w)?;
        let lead = self.resolve(w, start, aim)?;
        Ok(self.place(lead, w))
    }

    /// Where the text in walk `w` begins.
    #[inline(always)]
    fn start(&mut self, directory: i32, w: usize) -> Result<Start> {
        if self.buffers.walks[w].is_absolute() {
            return Ok(Start::Absolute);
        }
        self.start_relative(directory, w)
    }

    /// An empty path with `AT_EMPTY_PATH`: what `directory` stands for.
    fn find_open(&mut self, directory: i32, w: usize) -> Result<Lead> {
        let inode = if directory == AT_FDCWD {
            match self.services.working_directory() {
                WorkingDirectory::Husk(inode) => inode,
                WorkingDirectory::Host => return Ok(Lead::Host),
            }
        } else {
            match self.inode_behind(directory as usize)? {
                Some(inode) => inode,
                None => return Ok(Lead::Host),
            }
        };
        self.arrive(w, inode, Last::Root)
    }

    /// A directory reached without a name, or an open object, is the target.
    #[inline(never)]
    pub(crate) fn arrive(&mut self, w: usize, inode: Inode, last: Last) -> Result<Lead> {
        self.prepare();
        self.paths.found[w] = Target::whole(self.services.step(inode)?, last);
        Ok(Lead::Husk)
    }

    /// The inode a descriptor shows, if it is Husk's or a shadow; `None` = host.
    pub(crate) fn inode_behind(&mut self, fd: usize) -> Result<Option<Inode>> {
        let files = self.services.files();
        Ok(match self.services.slot(files, fd as u32) {
            Slot::Husk(description) => Some(self.services.description(description)?.inode),
            _ if self.is_kept(fd as u32) => return Err(Errno::EBADF),
            Slot::Host(shows) => shows,
            Slot::Free => None,
        })
    }

    #[inline(always)]
    fn start_relative(&mut self, directory: i32, w: usize) -> Result<Start> {
        if directory != AT_FDCWD {
            return self.start_at_descriptor(directory, w);
        }
        match self.services.working_directory() {
            WorkingDirectory::Husk(inode) => Ok(Start::In(inode, Some(inode))),
            WorkingDirectory::Host => self.join_host_directory(w, None),
        }
    }

    #[inline(never)]
    fn start_at_descriptor(&mut self, directory: i32, w: usize) -> Result<Start> {
        match self.inode_behind(directory as usize)? {
            Some(inode) => Ok(Start::In(inode, Some(inode))),
            None => self.join_host_directory(w, Some(directory)),
        }
    }

    #[inline]
    fn resolve(&mut self, w: usize, mut start: Start, aim: Aim) -> Result<Lead> {
        // A relative path begins behind what is above its directory, whatever becomes of the text.
        let from_root = matches!(start, Start::Absolute);
        let (mut changed, mut links) = (false, 0);
        for _ in 0..RESTARTS_MAX {
            match start {
                Start::Absolute | Start::Joined(_) => {
                    let base = if let Start::Joined(base) = start { base } else { Base::ROOT };
                    start = self.classify(w, aim, base, &mut links)?;
                    changed |= matches!(start, Start::Absolute);
                }
                Start::Object(inode) => return self.arrive(w, inode, Last::Root),
                Start::Outside if changed => return Ok(Lead::Elsewhere),
                Start::Outside => return Ok(Lead::Host),
                Start::In(..) | Start::Known(..) => {
                    self.prepare();
                    if from_root && self.paths.mounts.bars_some() {
                        self.pass_parents(w)?;
                    }
                    match self.walk(w, start, aim, &mut links)? {
                        Walked::Done => return Ok(Lead::Husk),
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
    pub(crate) fn prepare(&mut self) {
        self.identify();
        if !self.paths.mounts.are_known() {
            self.learn_mounts();
        }
        if self.judging.is_by_real_ids() {
            self.become_real();
        }
    }

    /// Decides where an absolute text begins: a mount, a magic link, or the host.
    #[inline]
    fn classify(&mut self, w: usize, aim: Aim, base: Base, links: &mut usize) -> Result<Start> {
        match self.enter_mount(w) {
            Some(root) => Ok(Start::In(root, Some(ROOT))),
            None => self.classify_outside(w, aim, base, links),
        }
    }

    #[inline(never)]
    fn classify_outside(
        &mut self,
        w: usize,
        aim: Aim,
        base: Base,
        links: &mut usize,
    ) -> Result<Start> {
        match self.magic(w, aim)? {
            Magic::No => {}
            Magic::Object(inode, rest) => {
                self.buffers.walks[w].at = rest;
                let left = self.buffers.walks[w].rest();
                let (ends, slash) = (left.iter().all(|&b| b == b'/'), !left.is_empty());
                if !ends {
                    return Ok(Start::In(inode, None));
                }
                if slash && aim.create {
                    return Err(Errno::EISDIR);
                }
                if slash && self.services.step(inode)?.kind != Kind::Directory {
                    return Err(Errno::ENOTDIR);
                }
                return Ok(Start::Object(inode));
            }
            Magic::Rewritten => {
                count_link(links)?;
                return Ok(Start::Absolute);
            }
            Magic::Host => return Ok(Start::Outside),
        }
        self.leads_into_mount(w, aim, base)
    }

    /// Whether what was found is a portal; then the text is its host path.
    #[inline]
    pub(crate) fn found_portal(&mut self, w: usize) -> Result<bool> {
        match &self.paths.found[w].step {
            Some(step) if step.kind == Kind::Portal => {
                let (portal, end) = (step.inode, self.buffers.walks[w].length);
                self.portal_text(w, portal, end)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether an existing target is a portal; then the text is its host path.
    #[inline]
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

    /// Has `act` done to what is there at `spot`; the host does it itself to what is the host's.
    pub(crate) fn on_existing(
        &mut self,
        c: &Call,
        spot: Spot,
        aim: Aim,
        act: impl FnOnce(&mut Self, Step) -> Answer,
    ) -> Answer {
        match self.find(c, 0, spot, aim)? {
            Place::Husk(target) => {
                let step = target.existing()?;
                if self.is_portal(0, &target)? {
                    return Ok(Verdict::Return(self.call_elsewhere(c, spot)));
                }
                act(self, step)
            }
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    /// Makes the host call with the text of walk 0 in place of the path at `spot`.
    pub(crate) fn call_elsewhere(&mut self, call: &Call, spot: Spot) -> i64 {
        let mut args = call.args;
        args[spot.path] = self.buffers.walks[0].for_host();
        if let Some(directory) = spot.directory {
            args[directory] = AT_FDCWD as usize;
        }
        match self.may_call_elsewhere(&Call { number: call.number, args }) {
            Ok(()) => self.host.call(call.number, args),
            Err(errno) => errno.as_return(),
        }
    }

    /// Process id of the caller.
    pub(crate) fn process_id(&self) -> u32 {
        self.host.call(nr::getpid, [0; 6]) as u32
    }
}
