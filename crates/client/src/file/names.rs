//! Names: `mkdir`, `mknod`, `unlink`, `rename`, `link`, `symlink`, `readlink`.
//!
//! Order of errors as in Linux: the parent's walk, then what the last component is (`.`, `..`,
//! root, trailing slash), then the operation's own (`EEXIST`, permission, ...).

use crate::buffers::TEXT_MAX;
use crate::path::{Aim, Last, Place, Spot, Target, at};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::PATH_MAX;
use husk_abi::capability::{DAC_READ_SEARCH, FOWNER};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, S_IFBLK,
    S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK, S_ISVTX,
};
use husk_proto::fs::{
    HostIdentity, Kind, Node, RENAME_EXCHANGE, RENAME_NOREPLACE, Step, masked, want,
};
use husk_proto::{Errno, Inode, Result, Services};

/// `RENAME_WHITEOUT`.
const RENAME_WHITEOUT: u32 = 4;
/// Directories climbed from a name to the root of its tree.
const DEPTH_MAX: usize = 1 << 16;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `mkdir`, `mkdirat`.
    pub(crate) fn mkdir(&mut self, c: &Call, spot: Spot, mode: usize) -> Answer {
        match self.find(c, 0, spot, Aim::PARENT)? {
            Place::Husk(target) => {
                if target.last != Last::Name {
                    return Err(Errno::EEXIST);
                }
                let mode = masked(mode as u32 & 0o1777, self.services.umask());
                self.create(0, &target, Node::Directory(mode))
            }
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    fn create(&mut self, w: usize, target: &Target, node: Node<'_>) -> Answer {
        for last in [false, true] {
            let name = self.buffers.walks[w].name(target);
            let who = self.identity.credentials(&self.buffers.groups);
            match self.services.create(&who, target.directory, name, node) {
                Err(Errno::EEXIST) if !last && self.has_gone(w, target) => {}
                other => return other.and_then(|_| value(0)),
            }
        }
        Err(Errno::EEXIST)
    }

    /// Whether a name that is in the way has gone: the image had it from the host, which has
    /// removed it since from the same directory, and nobody has changed it here. Then the image
    /// forgets it, too.
    #[cold]
    pub(crate) fn has_gone(&mut self, w: usize, target: &Target) -> bool {
        let name = self.buffers.walks[w].name(target);
        let Ok(step) = self.services.lookup(target.directory, name) else { return false };
        let Ok(path) = self.host_text(step.inode) else { return false };
        let there = self.host_fact_at(AT_FDCWD as usize, path, AT_SYMLINK_NOFOLLOW);
        let is_gone = step.kind != Kind::Directory && there.err() == Some(Errno::ENOENT);
        if !is_gone || !self.is_above(target.directory, path) {
            return false;
        }
        let name = self.buffers.walks[w].name(target);
        self.services.forget(target.directory, name, step.inode).unwrap_or(false)
    }

    /// Whether the host's directory above `path`, which `host_text` has made, is the one that `dir`
    /// shows. It may have moved since: then `path` says nothing of it.
    fn is_above(&mut self, dir: Inode, path: usize) -> bool {
        let origin = self.services.attributes(dir).ok().and_then(|now| now.origin);
        let known = origin.and_then(|origin| self.services.host_identity(origin).ok());
        let text = &mut self.buffers.link;
        let length = text.iter().position(|&byte| byte == 0).unwrap_or(0);
        let Some(slash) = text[..length].iter().rposition(|&byte| byte == b'/') else {
            return false;
        };
        text[slash.max(1)] = 0;
        let above = self.host_fact_at(AT_FDCWD as usize, path, AT_SYMLINK_NOFOLLOW).ok();
        let of = |identity: HostIdentity| identity.object();
        known.zip(above).is_some_and(|(known, above)| of(known) == of(above.identity))
    }

    /// A new name that is no directory may not end in a slash: `EEXIST` or `ENOENT`.
    pub(crate) fn refuse_slash(&mut self, w: usize, target: &Target) -> Result<()> {
        if target.last != Last::Name {
            return Err(Errno::EEXIST);
        }
        if !target.slash {
            return Ok(());
        }
        let name = self.buffers.walks[w].name(target);
        self.services.lookup(target.directory, name)?;
        Err(Errno::EEXIST)
    }

    /// `mknod`, `mknodat`. What kind it is to be is judged before the path.
    pub(crate) fn mknod(&mut self, c: &Call, spot: Spot, mode: usize, device: usize) -> Answer {
        let kind = match mode as u32 & S_IFMT {
            0 | S_IFREG => Kind::File,
            S_IFIFO => Kind::Fifo,
            S_IFSOCK => Kind::Socket,
            S_IFCHR => Kind::CharacterDevice,
            S_IFBLK => Kind::BlockDevice,
            S_IFDIR => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        };
        match self.find(c, 0, spot, Aim::PARENT)? {
            Place::Husk(target) => {
                self.refuse_slash(0, &target)?;
                let mode = masked(mode as u32 & 0o7777, self.services.umask());
                let device = if kind.is_device() { device as u32 } else { 0 };
                let special = Node::Special { kind, mode, device };
                let node = if kind == Kind::File { Node::File(mode) } else { special };
                self.create(0, &target, node)
            }
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    /// `unlink`, `rmdir`, `unlinkat`.
    pub(crate) fn remove(&mut self, c: &Call, spot: Spot, directory: bool) -> Answer {
        match self.find(c, 0, spot, Aim::PARENT)? {
            Place::Husk(target) => self.remove_target(&target, directory),
            Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
            Place::Host => Ok(Verdict::Pass),
        }
    }

    /// `unlinkat`.
    pub(crate) fn unlinkat(&mut self, c: &Call) -> Answer {
        if c.args[2] & !(AT_REMOVEDIR as usize) != 0 {
            return Err(Errno::EINVAL);
        }
        self.remove(c, at(0), c.args[2] != 0)
    }

    fn remove_target(&mut self, target: &Target, directory: bool) -> Answer {
        match (target.last, directory) {
            (Last::Name, _) => {}
            (_, false) => return Err(Errno::EISDIR),
            (Last::Dot, true) => return Err(Errno::EINVAL),
            (Last::DotDot, true) => return Err(Errno::ENOTEMPTY),
            (Last::Root, true) => return Err(Errno::EBUSY),
        }
        let name = self.buffers.walks[0].name(target);
        let who = self.identity.credentials(&self.buffers.groups);
        if directory {
            let step = self.services.lookup(target.directory, name)?;
            if self.covering_root(step.inode).is_some() {
                return Err(Errno::EBUSY);
            }
            if step.unlisted {
                self.import(step.inode)?;
            }
            let name = self.buffers.walks[0].name(target);
            let who = self.identity.credentials(&self.buffers.groups);
            if step.kind != Kind::Directory {
                // Permission on the parent is judged before the kind, as Linux does.
                let parent = self.services.step(target.directory)?;
                self.permit(&parent, want::WRITE | want::EXECUTE)?;
                let who = self.credentials();
                let mine = who.uid == step.uid || who.uid == parent.uid || who.can(FOWNER);
                let sticky = parent.mode & S_ISVTX != 0;
                return Err(match sticky && !mine {
                    true => Errno::EPERM,
                    false if self.leads_to_directory(&step)? => Errno::EBUSY,
                    false => Errno::ENOTDIR,
                });
            }
            self.services.rmdir(&who, target.directory, name)?;
            return value(0);
        }
        if target.slash {
            let step = self.services.lookup(target.directory, name)?;
            let directory = self.leads_to_directory(&step)?;
            return Err(if directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        match self.services.unlink(&who, target.directory, name) {
            Err(Errno::EBUSY) => Err(self.why_busy(target)?),
            other => other.and_then(|()| value(0)),
        }
    }

    /// Why a name stays on which the host has mounted something.
    #[cold]
    fn why_busy(&mut self, target: &Target) -> Result<Errno> {
        let name = self.buffers.walks[0].name(target);
        let step = self.services.lookup(target.directory, name)?;
        let directory = self.leads_to_directory(&step)?;
        Ok(if directory { Errno::EISDIR } else { Errno::EBUSY })
    }

    /// Whether a name leads to a directory: of the image, or, at a portal, one that the host has
    /// mounted there. The text is its host path then.
    #[cold]
    fn leads_to_directory(&mut self, step: &Step) -> Result<bool> {
        if step.kind != Kind::Portal {
            return Ok(step.kind == Kind::Directory);
        }
        let end = self.buffers.walks[0].length;
        self.portal_text(0, step.inode, end)?;
        let path = self.buffers.walks[0].for_host();
        let fact = self.host_fact_at(AT_FDCWD as usize, path, AT_SYMLINK_NOFOLLOW)?;
        Ok(fact.kind == Kind::Directory)
    }

    /// Resolves both paths; a mixed pair is `EXDEV`, two host paths are called on the host.
    fn find_both(&mut self, c: &Call, source: (Spot, Aim), target: Spot) -> Result<Both> {
        let first = self.find(c, 0, source.0, source.1)?;
        let first = match first {
            Place::Husk(found) if found.step.is_some_and(|s| s.kind == Kind::Portal) => {
                return Err(Errno::EXDEV);
            }
            Place::Husk(found) if !source.1.parent => {
                found.existing()?;
                Place::Husk(found)
            }
            other => other,
        };
        let second = match self.find(c, 1, target, Aim::PARENT) {
            Err(errno) if matches!(first, Place::Host) && !source.1.parent => {
                // What is missing of both is told of the first.
                let missing = self.apart_from(c, source, &first);
                return Err(if missing == Errno::EXDEV { errno } else { missing });
            }
            other => other?,
        };
        match (first, second) {
            (Place::Husk(first), Place::Husk(second)) => {
                self.check_same_tree(&first, &second)?;
                Ok(Both::Husk(first, second))
            }
            (Place::Husk(_), Place::Elsewhere) => Err(self.apart(1)),
            (from @ (Place::Host | Place::Elsewhere), Place::Husk(_)) if !source.1.parent => {
                Err(self.apart_from(c, source, &from))
            }
            (Place::Elsewhere, Place::Husk(_)) => Err(self.apart(0)),
            (Place::Husk(_), Place::Host) => Err(self.apart_by(c, target)),
            (Place::Host, Place::Husk(_)) => Err(self.apart_by(c, source.0)),
            (Place::Host, Place::Host) => Ok(Both::Pass),
            (first, second) => {
                let mut args = c.args;
                if let Place::Elsewhere = first {
                    args[source.0.path] = self.buffers.walks[0].for_host();
                    if let Some(index) = source.0.directory {
                        args[index] = AT_FDCWD as usize;
                    }
                }
                if let Place::Elsewhere = second {
                    args[target.path] = self.buffers.walks[1].for_host();
                    if let Some(index) = target.directory {
                        args[index] = AT_FDCWD as usize;
                    }
                }
                self.may_call_elsewhere(&Call { number: c.number, args })?;
                let raw = self.host.call(c.number, args);
                if raw == 0 {
                    self.services.forget_outside();
                }
                Ok(Both::Answered(raw))
            }
        }
    }

    /// `EXDEV` for names in different trees, as between mounts of Linux. An open object without a
    /// name belongs to any.
    fn check_same_tree(&mut self, first: &Target, second: &Target) -> Result<()> {
        let named = first.last == Last::Name && second.last == Last::Name;
        if !named || first.directory == second.directory || self.services.mounts() < 2 {
            return Ok(());
        }
        let same = self.root_of(first.directory)? == self.root_of(second.directory)?;
        if same { Ok(()) } else { Err(Errno::EXDEV) }
    }

    /// The root above a directory.
    fn root_of(&mut self, mut directory: Inode) -> Result<Inode> {
        for _ in 0..DEPTH_MAX {
            let parent = self.services.parent(directory)?;
            if parent == directory {
                return Ok(directory);
            }
            directory = parent;
        }
        Err(Errno::ELOOP)
    }

    /// Why nothing moves between a tree and the host path in walk `w`: its directory is missing,
    /// or it is another file system.
    #[cold]
    fn apart(&mut self, w: usize) -> Errno {
        let walk = &mut self.buffers.walks[w];
        let end = walk.directory_length();
        let kept = core::mem::replace(&mut walk.text[end], 0);
        let path = walk.text.as_ptr() as usize;
        let raw = self.host.call(nr::faccessat, [AT_FDCWD as usize, path, 0, 0, 0, 0]);
        self.buffers.walks[w].text[end] = kept;
        Errno::check(raw).err().unwrap_or(Errno::EXDEV)
    }

    /// Why nothing moves between a tree and a directory that only the host knows: its number is
    /// none of an open directory, or it is another file system.
    #[cold]
    fn apart_by(&mut self, c: &Call, spot: Spot) -> Errno {
        let directory = spot.directory.map_or(AT_FDCWD as usize, |index| c.args[index]);
        if self.memory.peek(c.args[spot.path]).is_ok_and(|first| first == b'/') {
            return Errno::EXDEV;
        }
        let args = [directory, c"".as_ptr() as usize, 0, AT_EMPTY_PATH as usize, 0, 0];
        Errno::check(self.host.call(nr::faccessat2, args)).err().unwrap_or(Errno::EXDEV)
    }

    /// Why no link of a host object is made in a tree: it is missing, or in another file system.
    #[cold]
    fn apart_from(&mut self, c: &Call, (spot, aim): (Spot, Aim), place: &Place) -> Errno {
        if self.linked_descriptor(0).is_ok_and(|found| found.is_some()) {
            return Errno::EXDEV;
        }
        let (directory, path) = match place {
            Place::Elsewhere => (AT_FDCWD as usize, self.buffers.walks[0].for_host()),
            _ => {
                let directory = spot.directory.map_or(AT_FDCWD as usize, |index| c.args[index]);
                (directory, c.args[spot.path])
            }
        };
        let stay = if aim.follow { 0 } else { AT_SYMLINK_NOFOLLOW as usize };
        let flags = stay | if aim.empty { AT_EMPTY_PATH as usize } else { 0 };
        let args = [directory, path, 0, flags, 0, 0];
        Errno::check(self.host.call(nr::faccessat2, args)).err().unwrap_or(Errno::EXDEV)
    }

    /// `rename`, `renameat`, `renameat2`.
    pub(crate) fn rename(&mut self, c: &Call, source: Spot, target: Spot, flags: u32) -> Answer {
        let known = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
        let exclusive = RENAME_NOREPLACE | RENAME_WHITEOUT;
        if flags & !known != 0 || (flags & RENAME_EXCHANGE != 0 && flags & exclusive != 0) {
            return Err(Errno::EINVAL);
        }
        let (from, to) = match self.find_both(c, (source, Aim::PARENT), target)? {
            Both::Husk(from, to) => (from, to),
            Both::Pass => return self.then_named(c),
            Both::Answered(raw) => return Ok(Verdict::Return(raw)),
        };
        if from.last != Last::Name {
            return Err(Errno::EBUSY);
        }
        if to.last != Last::Name {
            let busy = flags & RENAME_NOREPLACE == 0;
            return Err(if busy { Errno::EBUSY } else { Errno::EEXIST });
        }
        if flags & RENAME_WHITEOUT != 0 {
            return self.refuse(c.number, Errno::EINVAL);
        }
        self.prepare_rename(&from, &to, flags)?;
        let source = self.buffers.walks[0].name(&from);
        let target = self.buffers.walks[1].name(&to);
        let who = self.identity.credentials(&self.buffers.groups);
        match self.services.rename(&who, from.directory, source, to.directory, target, flags) {
            Err(Errno::EBUSY) if flags & RENAME_EXCHANGE == 0 => {
                let source = self.buffers.walks[0].name(&from);
                let moved = self.services.lookup(from.directory, source)?;
                let target = self.buffers.walks[1].name(&to);
                let replaced = self.services.lookup(to.directory, target).ok();
                Err(self.why_it_stays(&moved, replaced.as_ref())?)
            }
            other => other.and_then(|()| value(0)),
        }
    }

    /// Why nothing is moved from or to a name on which something is mounted: what is wrong with
    /// the kinds of both comes first.
    #[cold]
    fn why_it_stays(&mut self, moved: &Step, replaced: Option<&Step>) -> Result<Errno> {
        let Some(replaced) = replaced else { return Ok(Errno::EBUSY) };
        let moves_directory = self.leads_to_directory(moved)?;
        Ok(match (moves_directory, self.leads_to_directory(replaced)?) {
            (true, false) => Errno::ENOTDIR,
            (false, true) => Errno::EISDIR,
            _ => Errno::EBUSY,
        })
    }

    /// What Linux checks before the move itself, and listings it will need.
    fn prepare_rename(&mut self, from: &Target, to: &Target, flags: u32) -> Result<()> {
        let source = self.buffers.walks[0].name(from);
        let target = self.buffers.walks[1].name(to);
        let moved = self.services.lookup(from.directory, source)?;
        let replaced = match self.services.lookup(to.directory, target) {
            Ok(step) => Some(step),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        let slash = moved.kind != Kind::Directory && from.slash;
        let stays = slash || self.covering_root(moved.inode).is_some();
        if flags & RENAME_NOREPLACE != 0 && replaced.is_some() {
            // Both names were not looked at together: the move itself judges them.
            return if stays || to.slash { Err(Errno::EEXIST) } else { Ok(()) };
        }
        if flags & RENAME_EXCHANGE != 0 {
            let Some(other) = replaced else {
                return if stays || to.slash { Err(Errno::ENOENT) } else { Ok(()) };
            };
            if to.slash && other.kind != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
        }
        let exchange = flags & RENAME_EXCHANGE != 0;
        if moved.kind != Kind::Directory && (from.slash || (to.slash && !exchange)) {
            return Err(Errno::ENOTDIR);
        }
        if replaced.is_some_and(|step| step.inode == moved.inode) {
            // Both names are those of one object: nothing happens.
            return Ok(());
        }
        let pinned_down = |step: Step| self.covering_root(step.inode).is_some();
        if pinned_down(moved) || replaced.is_some_and(pinned_down) {
            return Err(match exchange {
                true => Errno::EBUSY,
                false => self.why_it_stays(&moved, replaced.as_ref())?,
            });
        }
        match replaced {
            Some(step) if step.unlisted && !exchange => self.import(step.inode),
            _ => Ok(()),
        }
    }

    /// `link`, `linkat`.
    pub(crate) fn link(&mut self, c: &Call, source: Spot, target: Spot, flags: usize) -> Answer {
        if flags & !((AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) as usize) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & AT_EMPTY_PATH as usize != 0 && !self.may_link_open(c, source)? {
            return Err(Errno::ENOENT);
        }
        let aim = Aim {
            follow: flags & AT_SYMLINK_FOLLOW as usize != 0,
            empty: flags & AT_EMPTY_PATH as usize != 0,
            ..Aim::default()
        };
        let (from, to) = match self.find_both(c, (source, aim), target) {
            Ok(Both::Husk(from, to)) => (from, to),
            Ok(Both::Pass) => return self.then_named(c),
            Ok(Both::Answered(raw)) => return Ok(Verdict::Return(raw)),
            Err(Errno::EXDEV) => return Err(self.link_apart(c, target)),
            Err(errno) => return Err(errno),
        };
        let step = from.existing()?;
        self.refuse_slash(1, &to)?;
        if step.kind == Kind::Directory {
            let name = self.buffers.walks[1].name(&to);
            let there = self.services.lookup(to.directory, name).is_ok();
            return Err(if there { Errno::EEXIST } else { Errno::EPERM });
        }
        let name = self.buffers.walks[1].name(&to);
        let who = self.identity.credentials(&self.buffers.groups);
        self.services.link(&who, step.inode, to.directory, name)?;
        value(0)
    }

    /// Whether an empty path may name what a descriptor shows. Linux allows it to those who may
    /// read everything, and to the thread that opened it, unless its credentials changed since.
    #[cold]
    fn may_link_open(&mut self, c: &Call, spot: Spot) -> Result<bool> {
        let empty = self.memory.peek(c.args[spot.path])? == 0;
        self.identify();
        let may_all = self.credentials().can(DAC_READ_SEARCH);
        Ok(!empty || may_all || !self.identity.changed)
    }

    /// What is told of a link to another file system: what is wrong with the new name comes first.
    #[cold]
    fn link_apart(&mut self, c: &Call, spot: Spot) -> Errno {
        let refused = match self.find(c, 1, spot, Aim::PARENT) {
            Ok(Place::Husk(target)) => self.refuse_name(&target),
            Ok(Place::Host) => {
                let directory = spot.directory.map_or(AT_FDCWD as usize, |index| c.args[index]);
                self.refuse_host_name(directory, c.args[spot.path])
            }
            Ok(Place::Elsewhere) => {
                let path = self.buffers.walks[1].for_host();
                self.refuse_host_name(AT_FDCWD as usize, path)
            }
            Err(errno) => Err(errno),
        };
        refused.err().unwrap_or(Errno::EXDEV)
    }

    /// Whether the host would take a new name: asked by a link that it never makes, of a file of
    /// another file system.
    fn refuse_host_name(&mut self, directory: usize, path: usize) -> Result<()> {
        let other = c"/proc/self/status".as_ptr() as usize;
        let args = [AT_FDCWD as usize, other, directory, path, 0, 0];
        Errno::check(self.host.call(nr::linkat, args)).map(|_| ())
    }

    /// Whether a new name that is no directory may be in its directory.
    fn refuse_name(&mut self, target: &Target) -> Result<()> {
        self.refuse_slash(1, target)?;
        let name = self.buffers.walks[1].name(target);
        match self.services.lookup(target.directory, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => match self.services.attributes(target.directory)?.links {
                0 => Err(Errno::ENOENT),
                _ => Ok(()),
            },
            Err(errno) => Err(errno),
        }
    }

    /// `symlink`, `symlinkat`: the target's text is argument `text`.
    pub(crate) fn symlink(&mut self, c: &Call, text: usize, spot: Spot) -> Answer {
        let out = &mut self.buffers.walks[1].text[..PATH_MAX];
        let length = self.memory.read_string(c.args[text], out)?;
        if length == 0 {
            return Err(Errno::ENOENT);
        }
        match self.find(c, 0, spot, Aim::PARENT)? {
            Place::Husk(target) => {
                self.refuse_slash(0, &target)?;
                let [walk, link] = &self.buffers.walks;
                let name = walk.name(&target);
                let node = Node::Symlink(&link.text[..length.min(TEXT_MAX)]);
                let who = self.identity.credentials(&self.buffers.groups);
                self.services.create(&who, target.directory, name, node)?;
                value(0)
            }
            Place::Elsewhere => {
                let raw = self.call_elsewhere(c, spot);
                self.services.forget_outside();
                Ok(Verdict::Return(raw))
            }
            Place::Host => self.then_named(c),
        }
    }

    /// `readlink`, `readlinkat`: into `out`, at most `room` bytes.
    pub(crate) fn readlink(&mut self, c: &Call, spot: Spot, out: usize, room: usize) -> Answer {
        if room as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let aim = Aim { empty: spot.directory.is_some(), shown: true, ..Aim::STAY };
        match self.find(c, 0, spot, aim)? {
            Place::Husk(target) => {
                let step = target.existing()?;
                if step.kind != Kind::Symlink {
                    // An empty path to what is no link is "no such file" in Linux.
                    let empty = target.last == Last::Root && self.buffers.walks[0].length == 0;
                    return Err(if empty { Errno::ENOENT } else { Errno::EINVAL });
                }
                let link = &mut self.buffers.link[..PATH_MAX];
                let length = self.services.read_link(step.inode, link)?;
                self.give_link(length, out, room)
            }
            place => {
                if let Some(length) = self.magic_target(0)? {
                    return self.give_link(length, out, room);
                }
                match place {
                    Place::Elsewhere => Ok(Verdict::Return(self.call_elsewhere(c, spot))),
                    _ => Ok(Verdict::Pass),
                }
            }
        }
    }

    fn give_link(&mut self, length: usize, out: usize, room: usize) -> Answer {
        let length = length.min(room).min(PATH_MAX);
        self.memory.write(out, &self.buffers.link[..length])?;
        value(length as u64)
    }

    /// The absolute path of `inode` into `link`; its length. `ENOENT` when it was removed.
    pub(crate) fn path_of(&mut self, inode: Inode) -> Result<usize> {
        let mut start = PATH_MAX;
        let mut here = inode;
        // Built from the end of `base` towards its front.
        for _ in 0..PATH_MAX {
            let parent = self.services.parent(here)?;
            if parent == here {
                return self.finish_path(here, start);
            }
            let mut name = [0u8; 255];
            let length = self.services.name_of(here, &mut name)?;
            if length + 1 > start {
                return Err(Errno::ENAMETOOLONG);
            }
            start -= length + 1;
            self.buffers.base[start] = b'/';
            self.buffers.base[start + 1..start + 1 + length].copy_from_slice(&name[..length]);
            here = parent;
        }
        Err(Errno::ENAMETOOLONG)
    }

    fn finish_path(&mut self, root: Inode, start: usize) -> Result<usize> {
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            if mount.root != root {
                continue;
            }
            let prefix = if mount.path == b"/" { b"" } else { mount.path };
            let rest = PATH_MAX - start;
            if prefix.len() + rest > PATH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            self.buffers.link[..prefix.len()].copy_from_slice(prefix);
            let place = prefix.len()..prefix.len() + rest;
            self.buffers.link[place].copy_from_slice(&self.buffers.base[start..PATH_MAX]);
            return Ok(prefix.len() + rest);
        }
        Err(Errno::ENOENT)
    }

    /// `getcwd`.
    pub(crate) fn getcwd(&mut self, c: &Call) -> Answer {
        use husk_proto::process::WorkingDirectory;
        let WorkingDirectory::Husk(inode) = self.services.working_directory() else {
            return Ok(Verdict::Pass);
        };
        let length = self.path_of(inode)?;
        if length + 1 > c.args[1] {
            return Err(Errno::ERANGE);
        }
        self.buffers.link[length] = 0;
        self.memory.write(c.args[0], &self.buffers.link[..length + 1])?;
        value(length as u64 + 1)
    }
}

/// Two resolved paths.
enum Both {
    Husk(Target, Target),
    Pass,
    Answered(i64),
}
