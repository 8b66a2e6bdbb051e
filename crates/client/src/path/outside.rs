//! Host paths that may lead into a Husk tree after all: through links, `..`, or a relative start.
//!
//! A text that does not begin with a mount can only get into one through a symbolic link of the
//! host (or of the host's working directory). That is checked once a path and remembered for the
//! whole image (`Image::known_outside`); afterwards such a path costs one hash lookup, until a
//! program of the image makes a link on the host, or moves one or a directory there. Until
//! then Husk also remembers, for the descriptor of a directory, that no tree is at or below it. A
//! name in such a directory costs nothing more than the host's own call, if no link is followed.
//!
//! Invariants
//! 1. A relative path is looked up from the directory itself. The text then begins with the name of
//!    that directory, which may be outdated or none: removed, renamed meanwhile, of another root.
//! 2. A link that leads nowhere on the host may lead to what only the image has: it is followed
//!    here.
//! 3. Behind a portal the host is asked name by name where `..` or a link is on the way: no call of
//!    the host gets a text that leads back into a tree.
//! 4. A text is outside only if each of its directories is: in a tree the host may have what the
//!    image has replaced.
//!
//! Limits: a name that was seen to lead outside, and that a program outside the image later makes a
//! link into a tree, is missed. A link of the host that leads to another one in a tree is followed
//! by the host, also where the image has replaced that one.

use crate::buffers::Walk;
use crate::path::magic_links::begins_with;
use crate::path::text::lies_below;
use crate::path::{Aim, Base, Start};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::sys::general::{AT_FDCWD, O_CLOEXEC, O_PATH, RENAME_EXCHANGE, RESOLVE_NO_MAGICLINKS};
use husk_abi::{PATH_MAX, nr};
use husk_proto::fs::Kind;
use husk_proto::{Errno, Result, Services};

/// What a path is that goes through a portal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The host's.
    Outside,
    /// It goes on, with what is left of the text, from the directory that the portal stands in.
    Above,
    /// The text leads into a tree, absolute.
    Tree,
}

/// Ancestors tried for one path that does not exist.
const ANCESTORS_MAX: usize = 64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Puts the path of the host's working directory, or of descriptor `fd`, before the text.
    pub(crate) fn join_host_directory(&mut self, w: usize, fd: Option<i32>) -> Result<Start> {
        if self.services.mounts() == 0 {
            return Ok(Start::Outside);
        }
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = match fd {
            None => self.working_path(base),
            Some(fd) => self.descriptor_path(fd as u32, base),
        };
        let length = usize::try_from(length).unwrap_or(0).min(PATH_MAX);
        if length == 0 || self.buffers.base[0] != b'/' {
            return Ok(Start::Outside);
        }
        let walk = &mut self.buffers.walks[w];
        let relative = walk.length;
        walk.join(&self.buffers.base[..length])?;
        let joined = walk.length - relative;
        Ok(Start::Joined(Base { directory: fd.unwrap_or(AT_FDCWD), joined }))
    }

    /// Whether the text, one name that no link is followed of, is the host's for sure: it is in a
    /// directory with no tree at or below it.
    #[inline(always)]
    pub(crate) fn is_in_outlying(&self, directory: i32, w: usize) -> bool {
        self.services.is_outlying(directory as u32) && self.buffers.walks[w].whole() != b".."
    }

    /// The age of what is known of the host's paths, if nobody else has this process's numbers.
    #[inline]
    pub(crate) fn age_of_table(&self) -> Option<u64> {
        self.services.has_table_alone().then(|| self.services.outside_age())
    }

    /// One name in directory `fd` of the host has turned out to be the host's, and walk `w` is its
    /// whole text: remembers the directory, if no tree lies at or below it, and none of the
    /// descriptors' links.
    #[cold]
    pub(crate) fn note_outlying(&self, fd: u32, w: usize, age: u64) {
        let text = self.buffers.walks[w].whole();
        let above = &text[..self.buffers.walks[w].directory_length()];
        let magic = begins_with(text, b"proc") || begins_with(text, b"dev");
        let mut mounts = 0..self.services.mounts();
        if text.first() == Some(&b'/')
            && above != b"/"
            && !magic
            && !mounts.any(|index| lies_below(self.services.mount(index).path, above))
        {
            self.services.note_outlying(fd, age);
        }
    }

    /// Number `to` is a directory in directory `from` of the host, or the same one: what is known
    /// of that holds for it.
    pub(crate) fn pass_outlying_on(&self, from: u32, to: i64) {
        let age = self.services.outside_age();
        if to >= 0 && self.services.is_outlying(from) {
            self.services.note_outlying(to as u32, age);
        }
    }

    /// The host's name of its working directory at `out` (`PATH_MAX` bytes), be it only what the
    /// directory was called before it was removed; its length or an error.
    pub(crate) fn working_path(&self, out: usize) -> i64 {
        match self.host.call(nr::getcwd, [out, PATH_MAX, 0, 0, 0, 0]) {
            length @ 1.. => length - 1,
            _ => self.link_text(b"/proc/thread-self/cwd\0", out),
        }
    }

    fn link_text(&self, name: &[u8], out: usize) -> i64 {
        let args = [AT_FDCWD as usize, name.as_ptr() as usize, out, PATH_MAX, 0, 0];
        self.host.call(nr::readlinkat, args)
    }

    /// The host's name of descriptor `fd` at `out` (`PATH_MAX` bytes); its length or an error.
    pub(crate) fn descriptor_path(&self, fd: u32, out: usize) -> i64 {
        self.link_text(&husk_abi::proc::descriptor(fd), out)
    }

    /// Decides whether an absolute host text leads into a mount; rewrites it if so. `ENOENT`: it
    /// leads nowhere, and the caller takes that for an answer (`Aim::absent`).
    pub(crate) fn leads_into_mount(&mut self, w: usize, aim: Aim, base: Base) -> Result<Start> {
        let walk = &self.buffers.walks[w];
        // A slash behind a link follows it, whatever the flags.
        let slash = walk.whole().ends_with(b"/") && !aim.create;
        let follow = (aim.follow || slash) && !aim.parent;
        let end = if follow { walk.length } else { walk.directory_length() };
        if !follow && self.names_a_mount(w, base)? {
            return Ok(Start::Absolute);
        }
        let walk = &self.buffers.walks[w];
        if self.services.mounts() == 0 || self.services.known_outside(&walk.text[..end]) {
            return Ok(Start::Outside);
        }
        if walk.is_odd() && self.enters_by_dots(w, base)? {
            return Ok(Start::Absolute);
        }
        // That a name of the directory is missing says nothing.
        let absent = aim.absent && end > base.joined;
        let age = self.services.outside_age();
        match self.last_link(w, end, base) {
            Err(Errno::ENOENT) if absent => return Err(Errno::ENOENT),
            Err(errno @ (Errno::EINVAL | Errno::ENOENT)) => {
                if self.names_a_mount(w, base)? {
                    return Ok(Start::Absolute);
                }
                if errno == Errno::EINVAL {
                    self.services.note_outside(&self.buffers.walks[w].text[..end], age);
                }
                return Ok(Start::Outside);
            }
            _ => {}
        }
        if absent && !self.buffers.walks[w].whole().starts_with(b"/proc/") {
            if self.is_missing_outside(w, end, base) {
                return Err(Errno::ENOENT);
            }
            let directory = self.buffers.walks[w].directory_length();
            let between = base.joined < directory && directory < end;
            let text = &self.buffers.walks[w].text[..directory];
            if between && !self.services.known_outside(text) {
                // A directory that is missing says all there is to say, at half the price.
                match self.trace(w, directory, base)? {
                    (Start::Outside, true) => return Err(Errno::ENOENT),
                    (Start::Outside, false) => {}
                    (start, _) => return Ok(start),
                }
            }
        }
        match self.trace(w, end, base)? {
            (Start::Outside, true) if absent => Err(Errno::ENOENT),
            (start, _) => Ok(start),
        }
    }

    /// What the host says of the last name of the text, if that is followed, as a link, where the
    /// directory is known: `EINVAL` says that it is none, and so leads nowhere else, as one that is
    /// missing does. One question, where a trace costs three, or six.
    fn last_link(&mut self, w: usize, end: usize, base: Base) -> Result<u64> {
        let walk = &self.buffers.walks[w];
        let (text, above) = (&walk.text[..end], walk.directory_of(end));
        // A slash behind a name hides from `names_a_mount` what it is.
        let plain = end == walk.length && !text.ends_with(b"/") && !walk.is_odd();
        let inner = base.joined < above && above < end;
        let magic = || begins_with(text, b"proc") || begins_with(text, b"dev");
        if !plain || !inner || magic() || !self.services.known_outside(&text[..above]) {
            return Ok(0);
        }
        Errno::check(self.link_at(w, end, base))
    }

    /// Whether the first name of `text[..end]` that is not known lies in a directory that is, and
    /// is missing there: one question for each name that a search tries, where a trace costs five.
    fn is_missing_outside(&mut self, w: usize, end: usize, base: Base) -> bool {
        let mut name = end;
        loop {
            let walk = &self.buffers.walks[w];
            let above = walk.directory_of(name);
            if above <= base.joined || above >= name {
                return false;
            }
            if self.services.known_outside(&walk.text[..above]) {
                return self.link_at(w, name, base) == Errno::ENOENT.as_return();
            }
            name = above;
        }
    }

    /// Where `text[..end]`, or the nearest ancestor that is there, leads; whether it is missing.
    fn trace(&mut self, w: usize, mut end: usize, base: Base) -> Result<(Start, bool)> {
        let mut missing = None;
        let age = self.services.outside_age();
        for _ in 0..ANCESTORS_MAX {
            match self.real_way(w, end, base) {
                Ok((length, everybodys)) => {
                    if self.is_nowhere(length) {
                        if let Some(start) = self.through_proc(w, end, base)? {
                            return Ok((start, false));
                        }
                        if !self.is_shown_by_proc(w, end)
                            && let Some(start) = self.through_link(w, end, base)?
                        {
                            return Ok((start, false));
                        }
                        return Ok((Start::Outside, missing == Some(true)));
                    }
                    let age = everybodys.then_some(age);
                    return Ok((self.judge(w, end, base, length, age)?, missing == Some(true)));
                }
                Err(errno) => {
                    let absent = errno == Errno::ENOENT;
                    if absent && let Some(start) = self.through_link(w, end, base)? {
                        return Ok((start, false));
                    }
                    if (absent || errno == Errno::ENOTDIR)
                        && let Some(start) = self.through_proc(w, end, base)?
                    {
                        return Ok((start, false));
                    }
                    missing = missing.or(Some(absent));
                }
            }
            let walk = &self.buffers.walks[w];
            let shorter = walk.directory_of(end);
            if shorter >= end || self.services.known_outside(&walk.text[..shorter]) {
                break;
            }
            end = shorter;
        }
        Ok((Start::Outside, missing == Some(true)))
    }

    /// Puts what a link of the host says in place of its name, `text[..end]`, which the host has
    /// not found. `None`: that is no link.
    fn through_link(&mut self, w: usize, end: usize, base: Base) -> Result<Option<Start>> {
        let end = self.buffers.walks[w].without_slashes(end);
        let length = self.link_at(w, end, base);
        let Ok(length @ 1..) = usize::try_from(length) else { return Ok(None) };
        let target = &self.buffers.link[..length.min(PATH_MAX)];
        let walk = &mut self.buffers.walks[w];
        if target[0] == b'/' {
            walk.replace_front(end, target)?;
            return Ok(Some(Start::Absolute));
        }
        let name = walk.text[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let front = self.buffers.base.get_mut(..name + length).ok_or(Errno::ENAMETOOLONG)?;
        front[..name].copy_from_slice(&walk.text[..name]);
        front[name..].copy_from_slice(target);
        walk.replace_front(end, front)?;
        Ok(Some(Start::Joined(base)))
    }

    /// The text of the link `text[..end]` into `link`, slashes at its end aside; its length or an
    /// error.
    fn link_at(&mut self, w: usize, end: usize, base: Base) -> i64 {
        let end = self.buffers.walks[w].without_slashes(end);
        let link = self.buffers.link.as_mut_ptr() as usize;
        self.ask_at(w, end, base, |host, directory, name| {
            host.call(nr::readlinkat, [directory, name, link, PATH_MAX, 0, 0])
        })
    }

    /// Whether `base[..length]` is no name of a file that programs know: what stands there for a
    /// descriptor of ours is none, and a FIFO's node has another one.
    fn is_nowhere(&self, length: usize) -> bool {
        let (name, private) = (&self.buffers.base[..length], self.services.private_path());
        !name.starts_with(b"/")
            || name.starts_with(b"/memfd:")
            || !private.is_empty() && name.starts_with(private)
    }

    /// Whether `text[..end]`, which leads to what is no file's name, is itself such a link of
    /// `/proc`, and not one to it.
    fn is_shown_by_proc(&mut self, w: usize, end: usize) -> bool {
        let above = self.buffers.walks[w].directory_of(end);
        let Ok(length) = self.real_path(w, above, Base::ROOT) else { return true };
        self.buffers.base[..length].starts_with(b"/proc/")
    }

    /// Puts the real name of the directory of descriptors in place of one that a link of the host
    /// gives it, so that ours are found in it. `None`: that is no such directory, or its own name.
    fn through_proc(&mut self, w: usize, end: usize, base: Base) -> Result<Option<Start>> {
        let above = self.buffers.walks[w].directory_of(end);
        if above <= base.joined {
            return Ok(None);
        }
        let Ok(length) = self.real_path(w, above, base) else { return Ok(None) };
        let (real, walk) = (&self.buffers.base[..length], &mut self.buffers.walks[w]);
        if !holds_descriptors(real) || *real == walk.text[..above] {
            return Ok(None);
        }
        walk.replace_front(above, real)?;
        Ok(Some(Start::Absolute))
    }

    /// What the host says of `text[..end]`: `ask` is given the directory to look from and the name.
    pub(crate) fn ask_at(
        &mut self,
        w: usize,
        end: usize,
        base: Base,
        ask: impl FnOnce(&H, usize, usize) -> i64,
    ) -> i64 {
        let inner = end > base.joined;
        let (directory, at) = if inner { (base.directory, base.joined) } else { (AT_FDCWD, 0) };
        let text = &mut self.buffers.walks[w].text;
        let kept = core::mem::replace(&mut text[end], 0);
        let answer = ask(&self.host, directory as usize, text[at..].as_ptr() as usize);
        self.buffers.walks[w].text[end] = kept;
        answer
    }

    /// The real path of `text[..end]` in `base`; its length.
    fn real_path(&mut self, w: usize, end: usize, base: Base) -> Result<usize> {
        self.real_way(w, end, base).map(|(length, _)| length)
    }

    /// The same, and whether everybody comes there by that text: no link of `/proc` to what a
    /// process has open, or where it is, lies on the way.
    fn real_way(&mut self, w: usize, end: usize, base: Base) -> Result<(usize, bool)> {
        let text = &self.buffers.walks[w].text[..end];
        if end + 1 == base.joined && !text.ends_with(b" (deleted)") {
            // The host has just said so.
            self.buffers.base[..end].copy_from_slice(text);
            return Ok((end, !is_fleeting(text)));
        }
        let flags = O_PATH | O_CLOEXEC;
        let how = [u64::from(flags), 0, u64::from(RESOLVE_NO_MAGICLINKS)];
        let mut fd = self.ask_at(w, end, base, |host, directory, name| {
            let (how, bytes) = (how.as_ptr() as usize, size_of_val(&how));
            host.call(nr::openat2, [directory, name, how, bytes, 0, 0])
        });
        let by_magic = Errno::check(fd) == Err(Errno::ELOOP);
        // Where the host knows no such question, or may not be asked, the letters have to do.
        let by_letters = matches!(Errno::check(fd), Err(Errno::ENOSYS | Errno::EPERM));
        if by_letters || by_magic {
            fd = self.ask_at(w, end, base, |host, directory, name| {
                host.call(nr::openat, [directory, name, flags as usize, 0, 0, 0])
            });
        }
        let fd = Errno::check(fd)? as usize;
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = self.descriptor_path(fd as u32, base);
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        let length = usize::try_from(length).map_err(|_| Errno::EIO)?;
        let everybodys = !by_magic && !is_fleeting(&self.buffers.walks[w].text[..end]);
        Ok((length.min(PATH_MAX), everybodys))
    }

    /// `base[..length]` is where `text[..end]` really is: into a mount, or to be remembered, with
    /// the age from before it was asked, if that is so for everybody.
    fn judge(
        &mut self,
        w: usize,
        end: usize,
        base: Base,
        length: usize,
        age: Option<u64>,
    ) -> Result<Start> {
        // A slash at the end asks for a directory, and the host may have one where the image has
        // none.
        let name = self.buffers.walks[w].without_slashes(end);
        let (real, walk) = (&self.buffers.base[..length], &mut self.buffers.walks[w]);
        let holds = holds_descriptors(real);
        if end < walk.length && holds && *real != walk.text[..end] {
            // By this name ours are found in it.
            walk.replace_front(end, real)?;
            return Ok(Start::Absolute);
        }
        let by_letters = *real == walk.text[..name];
        let inside = self.is_inside(length);
        if (inside || !by_letters) && self.enters_above(w, name, base)? {
            return Ok(Start::Absolute);
        }
        if inside {
            // Looking at the directories has used the buffer.
            let Ok(length) = self.real_path(w, name, base) else { return Ok(Start::Outside) };
            self.buffers.walks[w].replace_front(name, &self.buffers.base[..length])?;
            return Ok(Start::Absolute);
        }
        // Of what is missing there the host does not know whether it is ours.
        if let Some(age) = age.filter(|_| !holds) {
            self.services.note_outside(&self.buffers.walks[w].text[..end], age);
        }
        Ok(Start::Outside)
    }

    /// Whether a directory of `text[..end]`, which leads elsewhere than its letters say, is in a
    /// mount: the first one becomes the mount's path, for what is below it only the image knows
    /// (invariant 4). Behind one that cannot be opened there is nothing.
    #[cold]
    fn enters_above(&mut self, w: usize, end: usize, base: Base) -> Result<bool> {
        let (mut at, last) = (base.joined, self.buffers.walks[w].directory_of(end));
        if is_fleeting(&self.buffers.walks[w].text[..end]) {
            return Ok(false);
        }
        while at < last {
            let walk = &self.buffers.walks[w];
            let (start, behind) = walk.name_within(at, last);
            at = behind;
            if at == start || self.services.known_outside(&walk.text[..at]) {
                continue;
            }
            let age = self.services.outside_age();
            let Ok((length, everybodys)) = self.real_way(w, at, base) else { return Ok(false) };
            if self.is_inside(length) {
                self.buffers.walks[w].replace_front(at, &self.buffers.base[..length])?;
                return Ok(true);
            }
            if everybodys && !holds_descriptors(&self.buffers.base[..length]) {
                self.services.note_outside(&self.buffers.walks[w].text[..at], age);
            }
        }
        Ok(false)
    }

    /// Where a text leads that begins with the host path of a portal, `text[..above]`: a directory
    /// of the host in a tree, in which `..` or a link may lead back into trees.
    pub(crate) fn behind_portal(&mut self, w: usize, above: usize, aim: Aim) -> Result<Behind> {
        let walk = &self.buffers.walks[w];
        let names =
            || walk.text[above..walk.length].split(|&b| b == b'/').filter(|n| !n.is_empty());
        let ends_in_dots = names().next_back().is_some_and(|name| name == b"..");
        let slash = walk.whole().ends_with(b"/") && !aim.create;
        let follow = (aim.follow || slash || ends_in_dots) && !aim.parent;
        let end = if follow { walk.length } else { walk.directory_length() };
        if end <= above || self.services.known_outside(&walk.text[..end]) {
            return Ok(Behind::Outside);
        }
        let (age, mut at, mut everybodys) = (self.services.outside_age(), above, true);
        if !names().any(|name| name == b"..")
            && let Ok((length, is_everybodys)) = self.real_way(w, end, Base::ROOT)
            && lies_below(&self.buffers.base[..length], &self.buffers.walks[w].text[..above])
        {
            (at, everybodys) = (end, is_everybodys);
        }
        while at < end {
            at = self.buffers.walks[w].name_within(at, end).1;
            match self.leaves_portal(w, at, above, &mut everybodys)? {
                None => {}
                Some(behind) => return Ok(behind),
            }
        }
        if everybodys {
            self.services.note_outside(&self.buffers.walks[w].text[..end], age);
        }
        Ok(Behind::Outside)
    }

    /// Whether `text[..at]` ends what `behind_portal` asks: it leads into a tree, which the text
    /// says plainly then, or nowhere.
    fn leaves_portal(
        &mut self,
        w: usize,
        at: usize,
        above: usize,
        everybodys: &mut bool,
    ) -> Result<Option<Behind>> {
        let length = match self.real_way(w, at, Base::ROOT) {
            Ok((length, is_everybodys)) => {
                *everybodys &= is_everybodys;
                length
            }
            Err(Errno::ENOENT) if self.through_link(w, at, Base::ROOT)?.is_some() => {
                return Ok(Some(Behind::Tree));
            }
            Err(_) => return Ok(Some(Behind::Outside)),
        };
        let (real, walk) = (&self.buffers.base[..length], &mut self.buffers.walks[w]);
        let portal = &walk.text[..above];
        if lies_below(real, portal) {
            return Ok(None);
        }
        let parent = portal.iter().rposition(|&b| b == b'/').unwrap_or(0).max(1);
        if *real == portal[..parent] {
            walk.replace_front(at, b"")?;
            return Ok(Some(Behind::Above));
        }
        match self.step_at(length) {
            Ok(Some(step)) if step.kind != Kind::Portal => {}
            // The image has removed it: the walk says so.
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Ok(_) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        // Looking into the tree has used the buffer.
        let length = self.real_path(w, at, Base::ROOT)?;
        self.buffers.walks[w].replace_front(at, &self.buffers.base[..length])?;
        Ok(Some(Behind::Tree))
    }

    /// Passes a call that makes a name on the host, which may change where paths lead.
    pub(crate) fn then_named(&mut self, c: &Call) -> Answer {
        match self.services.mounts() {
            0 => Ok(Verdict::Pass),
            _ => crate::reason::then(c, crate::reason::NAMED),
        }
    }

    /// The host has done so.
    #[cold]
    pub(crate) fn note_named(&mut self, after: &After) {
        let a = &after.args;
        let moved = match after.number {
            nr::rename | nr::link => Some((AT_FDCWD as usize, a[1])),
            nr::renameat | nr::linkat => Some((a[2], a[3])),
            nr::renameat2 if a[4] & RENAME_EXCHANGE as usize == 0 => Some((a[2], a[3])),
            _ => None,
        };
        let plain = moved.is_some_and(|(directory, name)| {
            let fact = self.host_fact(directory, Some(name));
            fact.is_ok_and(|fact| !matches!(fact.kind, Kind::Symlink | Kind::Directory))
        });
        if !plain {
            self.services.forget_outside();
        }
    }

    /// Whether a text with `.` and `..` enters a mount by its letters, and the host agrees: then
    /// that much of it becomes the mount's path. The rest is walked: what it says depends on links.
    fn enters_by_dots(&mut self, w: usize, base: Base) -> Result<bool> {
        let Some(end) = self.entrance(w) else { return Ok(false) };
        let Ok(length) = self.real_path(w, end, base) else { return Ok(false) };
        let inside = self.is_inside(length);
        if inside {
            self.buffers.walks[w].replace_front(end, &self.buffers.base[..length])?;
        }
        Ok(inside)
    }

    /// Whether the last name of a text is that of a mount in its directory; if so the text becomes
    /// the mount's path. For names that are not followed: their directory is all that is traced.
    fn names_a_mount(&mut self, w: usize, base: Base) -> Result<bool> {
        let walk = &self.buffers.walks[w];
        let (end, from) = (walk.directory_length(), walk.behind_last_slash());
        let length = walk.length - from;
        let has_name = |path: &[u8], walk: &Walk| path.ends_with(&walk.text[from - 1..walk.length]);
        let mounts = 0..self.services.mounts();
        let is_one = |index| has_name(self.services.mount(index).path, walk);
        if from == 0 || length == 0 || !mounts.clone().any(is_one) || end <= base.joined {
            return Ok(false);
        }
        let Ok(above) = self.real_path(w, end, base) else { return Ok(false) };
        for index in mounts {
            let path = self.services.mount(index).path;
            let above = if above == 1 { 0 } else { above };
            let is_there = path.len() == above + 1 + length
                && path.starts_with(&self.buffers.base[..above])
                && has_name(path, &self.buffers.walks[w]);
            if is_there {
                let whole = self.buffers.walks[w].length;
                self.buffers.walks[w].replace_front(whole, path)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The end of the first name of a text at which it is in a mount, by its letters.
    fn entrance(&mut self, w: usize) -> Option<usize> {
        let (mut length, mut at) = (0, 0);
        let whole = self.buffers.walks[w].length;
        while at < whole {
            let rest = &self.buffers.walks[w].text[at..whole];
            let end =
                at + rest.iter().skip(1).position(|&b| b == b'/').map_or(rest.len(), |n| n + 1);
            let piece = &self.buffers.walks[w].text[at..end];
            let out = &mut self.buffers.base[..PATH_MAX];
            length = match piece.strip_prefix(b"/").unwrap_or(piece) {
                b"" | b"." => length,
                b".." => out[..length].iter().rposition(|&b| b == b'/').unwrap_or(0),
                _ => {
                    out.get_mut(length..length + piece.len())?.copy_from_slice(piece);
                    length + piece.len()
                }
            };
            if self.is_inside(length) {
                return Some(end);
            }
            at = end;
        }
        None
    }

    /// Whether `base[..length]` lies in a mount.
    fn is_inside(&self, length: usize) -> bool {
        let text = &self.buffers.base[..length];
        (0..self.services.mounts()).any(|n| lies_below(text, self.services.mount(n).path))
    }

    /// Refuses a Husk object for a call that does not serve it, counted.
    #[cold]
    pub(crate) fn refuse<T>(&mut self, number: usize, errno: Errno) -> Result<T> {
        self.services.count_unsupported(number);
        Err(errno)
    }
}

/// Whether a name leads to whatever a process has there at the moment.
fn is_fleeting(text: &[u8]) -> bool {
    const LINKS: [&[u8]; 7] = [b"fd", b"cwd", b"root", b"exe", b"map_files", b"maps", b"smaps"];
    let link = |name: &[u8]| LINKS.contains(&name) || name.starts_with(b"std");
    (begins_with(text, b"proc") || begins_with(text, b"dev"))
        && text.split(|&byte| byte == b'/').any(link)
}

/// Whether a real path is that of a directory of descriptors, ours or the host's.
fn holds_descriptors(real: &[u8]) -> bool {
    real.starts_with(b"/proc/") && real.ends_with(b"/fd")
}
