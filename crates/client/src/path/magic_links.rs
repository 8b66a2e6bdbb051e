//! Links of `/proc` and `/dev` that stand for Husk objects.
//!
//! `/proc/self/fd/N`, `/dev/fd/N`, `/proc/self/cwd`, `/proc/PID/cwd` lead to the object itself, not
//! to a path;
//! `/proc/self/exe` leads to the program the runtime has loaded, not to the runtime;
//! `/proc/self/map_files/START-END` to the file of the image that is mapped there.

use crate::path::{Aim, Place};
use crate::{Client, Host, Memory};
use husk_abi::proc::put_decimal;
use husk_abi::sys::general::{AT_FDCWD, O_CLOEXEC};
use husk_abi::{PATH_MAX, nr};
use husk_proto::descriptor::Slot;
use husk_proto::process::WorkingDirectory;
use husk_proto::{Errno, Inode, Result, Services};

/// Behind the path of what has lost its name.
const DELETED: &[u8] = b" (deleted)";

/// What a text means.
pub(crate) enum Magic {
    /// Nothing special.
    No,
    /// A Husk object; what is left of the text starts at this place.
    Object(Inode, usize),
    /// The text was replaced by where the link leads.
    Rewritten,
    /// A magic link of the host.
    Host,
}

/// A name below `/proc/self`.
pub(crate) enum Proc {
    Fd(u32),
    WorkingDirectory,
    /// That of another process.
    WorkingDirectoryOf(u32),
    Program,
    /// What this process has mapped.
    Maps,
    /// The file of the image that it has mapped.
    MapFile(Inode),
    /// What is to be known of a descriptor.
    FdInfo(u32),
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Looks for a magic link at the start of the text.
    pub(crate) fn magic(&mut self, w: usize, aim: Aim) -> Result<Magic> {
        let Some((what, rest)) = self.magic_name(w) else { return Ok(Magic::No) };
        let walk = &self.buffers.walks[w];
        let whole = rest == walk.length;
        if aim.parent && walk.whole()[rest..].iter().all(|&b| b == b'/') {
            return self.link_itself(w, what, rest);
        }
        if whole && !aim.follow {
            match what {
                Proc::Fd(fd) if !aim.shown => self.show_link(fd),
                _ => {}
            }
            return Ok(Magic::Host);
        }
        match what {
            Proc::Fd(fd) => {
                let files = self.services.files();
                match self.services.slot(files, fd) {
                    Slot::Husk(d) => {
                        let inode = self.services.description(d)?.inode;
                        Ok(Magic::Object(inode, rest))
                    }
                    // The program's, to which `exe` has led.
                    _ if self.is_kept(fd) => Ok(Magic::Host),
                    // By its inode: the host's file must not be opened for writing.
                    Slot::Host(Some(inode)) => Ok(Magic::Object(inode, rest)),
                    // A directory of the host, from which the path may lead into a tree.
                    _ if !whole => Ok(Magic::No),
                    _ => {
                        self.surrender(fd as usize)?;
                        Ok(Magic::Host)
                    }
                }
            }
            Proc::WorkingDirectory => {
                let directory = self.services.working_directory();
                Ok(directory_found(Some(directory), whole, rest))
            }
            Proc::WorkingDirectoryOf(pid) => {
                let directory = self.directory_of_other(w, pid, rest);
                Ok(directory_found(directory, whole, rest))
            }
            Proc::Program => {
                if let Some(inode) = self.services.program() {
                    return Ok(Magic::Object(inode, rest));
                }
                if let Some(fd) = self.host.program_fd() {
                    let link = husk_abi::proc::descriptor(fd);
                    let length = link.iter().position(|&b| b == 0).unwrap_or(link.len());
                    self.buffers.walks[w].replace_front(rest, &link[..length])?;
                    return Ok(Magic::Rewritten);
                }
                let length = self.host.program_path(&mut self.buffers.link[..PATH_MAX]);
                if length == 0 {
                    return Ok(Magic::Host);
                }
                let path = &self.buffers.link[..length.min(PATH_MAX)];
                self.buffers.walks[w].replace_front(rest, path)?;
                Ok(Magic::Rewritten)
            }
            Proc::MapFile(inode) if whole => {
                // The host follows such links for few users.
                let path = self.buffers.walks[w].for_host();
                Errno::check(self.host.call(nr::faccessat, [AT_FDCWD as usize, path, 0, 0, 0, 0]))?;
                Ok(Magic::Object(inode, rest))
            }
            Proc::Maps | Proc::MapFile(_) | Proc::FdInfo(_) => Ok(Magic::Host),
        }
    }

    /// The name of a link itself, which ends at `end` of the text: the host judges it. Where it has
    /// no such name, since the descriptor is the image's, that of one that Husk keeps for itself
    /// stands for it: none there can be made, removed or moved.
    #[cold]
    fn link_itself(&mut self, w: usize, what: Proc, end: usize) -> Result<Magic> {
        let Proc::Fd(fd) = what else { return Ok(Magic::Host) };
        if is_standard(self.buffers.walks[w].whole()) || !self.is_husks(fd) {
            return Ok(Magic::Host);
        }
        let kept = husk_abi::proc::descriptor(self.host.kept_fds()[0]);
        let length = kept.iter().position(|&b| b == 0).unwrap_or(kept.len());
        self.buffers.walks[w].replace_front(end, &kept[..length])?;
        Ok(Magic::Rewritten)
    }

    /// The working directory of another process of the image, one of whose threads is `id`, and
    /// whose link `text[..end]` is; the host says who may follow it.
    fn directory_of_other(&mut self, w: usize, id: u32, end: usize) -> Option<WorkingDirectory> {
        let directory = match self.services.working_directory_of(id) {
            None => {
                let process = self.process_of(id).filter(|&process| process != id)?;
                self.services.working_directory_of(process)?
            }
            Some(directory) => directory,
        };
        let text = &mut self.buffers.walks[w].text;
        let kept = core::mem::replace(&mut text[end], 0);
        let (name, out) = (text.as_ptr() as usize, self.buffers.base.as_mut_ptr() as usize);
        let args = [AT_FDCWD as usize, name, out, PATH_MAX, 0, 0];
        let allowed = self.host.call(nr::readlinkat, args) > 0;
        self.buffers.walks[w].text[end] = kept;
        allowed.then_some(directory)
    }

    /// Which magic name the text starts with, however it is spelled, and where it ends.
    pub(crate) fn magic_name(&self, w: usize) -> Option<(Proc, usize)> {
        let text = self.buffers.walks[w].whole();
        // Most texts end here, at their second byte.
        if text.first() != Some(&b'/') || !matches!(text.get(1)?, b'p' | b'd' | b'/' | b'.') {
            return None;
        }
        let mut names = Names::of(text);
        match names.next()?.0 {
            b"proc" => self.proc_name(names),
            b"dev" => device_name(names),
            _ => None,
        }
    }

    fn proc_name(&self, mut names: Names<'_>) -> Option<(Proc, usize)> {
        let (who, _) = names.next()?;
        let (mut name, mut end) = names.next()?;
        if name == b"task" {
            // All threads of a process have the same files.
            decimal(names.next()?.0)?;
            (name, end) = names.next()?;
        }
        let (what, end) = match name {
            b"cwd" => (Proc::WorkingDirectory, end),
            b"exe" => (Proc::Program, end),
            b"maps" | b"smaps" => (Proc::Maps, end),
            b"map_files" => {
                let (range, end) = names.next()?;
                (Proc::MapFile(self.host.mapped(start_of_range(range)?)?.0), end)
            }
            b"fd" | b"fdinfo" => {
                let (number, end) = names.next()?;
                let number = decimal(number)?;
                (if name == b"fd" { Proc::Fd(number) } else { Proc::FdInfo(number) }, end)
            }
            _ => return None,
        };
        let other = match who {
            b"self" | b"thread-self" => None,
            digits => Some(decimal(digits)?).filter(|&id| !self.is_own_thread(id)),
        };
        match (other, what) {
            (None, what) => Some((what, end)),
            (Some(id), Proc::WorkingDirectory) => Some((Proc::WorkingDirectoryOf(id), end)),
            _ => None,
        }
    }

    fn is_own_thread(&self, id: u32) -> bool {
        let process = self.process_id();
        let args = [process as usize, id as usize, 0, 0, 0, 0];
        id == process || self.host.call(nr::tgkill, args) == 0
    }

    /// The process of a thread of another one, as the host tells it.
    #[cold]
    fn process_of(&mut self, thread: u32) -> Option<u32> {
        const LABEL: &[u8] = b"\nTgid:\t";
        let mut name = *b"/proc/0000000000/status\0";
        let digits = put_decimal(&mut name[6..16], thread);
        name.copy_within(16.., 6 + digits);
        let (here, flags) = (AT_FDCWD as usize, O_CLOEXEC as usize);
        let name = core::hint::black_box(name);
        let opened = self.host.call(nr::openat, [here, name.as_ptr() as usize, flags, 0, 0, 0]);
        let fd = Errno::check(opened).ok()? as usize;
        let (out, room) = (self.buffers.base.as_mut_ptr() as usize, PATH_MAX);
        let length = self.host.call(nr::read, [fd, out, room, 0, 0, 0]);
        self.host_close(fd as u32);
        let text = &self.buffers.base[..usize::try_from(length).ok()?];
        let at = text.windows(LABEL.len()).position(|part| part == LABEL)? + LABEL.len();
        let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        decimal(&text[at..at + digits])
    }

    /// `readlink` of a magic link that stands for a Husk object: its path into `link`.
    pub(crate) fn magic_target(&mut self, w: usize) -> Result<Option<usize>> {
        let Some((what, rest)) = self.magic_name(w) else { return Ok(None) };
        let text = self.buffers.walks[w].whole();
        if rest != text.len() || is_standard(text) {
            return Ok(None);
        }
        let inode = match what {
            Proc::Fd(fd) => {
                let files = self.services.files();
                match self.services.slot(files, fd) {
                    Slot::Husk(d) => self.services.description(d)?.inode,
                    Slot::Host(Some(inode)) => inode,
                    _ => return Ok(None),
                }
            }
            Proc::WorkingDirectory => match self.services.working_directory() {
                WorkingDirectory::Husk(inode) => inode,
                WorkingDirectory::Host => return Ok(None),
            },
            Proc::WorkingDirectoryOf(pid) => match self.directory_of_other(w, pid, rest) {
                Some(WorkingDirectory::Husk(inode)) => inode,
                _ => return Ok(None),
            },
            Proc::Program => return Ok(Some(self.program_link(w)).filter(|&length| length > 0)),
            Proc::MapFile(inode) => inode,
            Proc::Maps | Proc::FdInfo(_) => return Ok(None),
        };
        match self.path_of(inode) {
            Err(Errno::ENOENT) => Ok(Some(self.path_of_nameless(inode))),
            other => other.map(Some),
        }
    }

    /// What `/proc/self/exe` shows, into `link`; its length, 0 = what the host shows is right. A
    /// program that was moved is shown where it is now; one that was removed, where it was.
    fn program_link(&mut self, w: usize) -> usize {
        let length = self.host.program_path(&mut self.buffers.link[..PATH_MAX]);
        let path = &self.buffers.link[..length];
        let Some(inode) = self.services.program() else { return length };
        let other = &mut self.buffers.walks[1 - w];
        if path.ends_with(DELETED) || length >= other.text.len() {
            return length;
        }
        other.text[..length].copy_from_slice(path);
        (other.at, other.length, other.text[length]) = (0, length, 0);
        let found = self.find_text(AT_FDCWD, 1 - w, Aim::STAY);
        let same = matches!(found, Ok(Place::Husk(target))
            if target.step.is_some_and(|step| step.inode == inode));
        match (same, self.path_of(inode)) {
            (false, Ok(length)) => length,
            (false, Err(Errno::ENOENT)) => self.path_of_removed(inode),
            _ => self.host.program_path(&mut self.buffers.link[..PATH_MAX]),
        }
    }

    /// What stands for the path of a program that has no name any more, into `link`: where it was,
    /// if this process runs it.
    pub(crate) fn path_of_removed(&mut self, inode: Inode) -> usize {
        if self.services.program() != Some(inode) {
            return self.path_of_nameless(inode);
        }
        let room = PATH_MAX - DELETED.len();
        let length = self.host.program_path(&mut self.buffers.link[..room]);
        match self.buffers.link[..length].ends_with(DELETED) {
            true => length,
            false if length == 0 => self.path_of_nameless(inode),
            false => {
                let end = length + DELETED.len();
                self.buffers.link[length..end].copy_from_slice(DELETED);
                end
            }
        }
    }

    /// What stands for the path of an object that has no name any more: its number, into `link`.
    pub(crate) fn path_of_nameless(&mut self, inode: Inode) -> usize {
        let link = &mut self.buffers.link;
        link[..2].copy_from_slice(b"/#");
        let end = 2 + put_decimal(&mut link[2..12], inode.number);
        link[end..end + DELETED.len()].copy_from_slice(DELETED);
        end + DELETED.len()
    }

    /// The Husk descriptor whose link in `/proc` the text of walk `w` is.
    pub(crate) fn linked_descriptor(&mut self, w: usize) -> Result<Option<u32>> {
        let Some((Proc::Fd(fd), rest)) = self.magic_name(w) else { return Ok(None) };
        let whole = rest == self.buffers.walks[w].length;
        Ok((whole && self.described(fd as usize)?.is_some()).then_some(fd))
    }
}

/// What a link to a working directory means; `None`: one that is not for us to follow.
fn directory_found(directory: Option<WorkingDirectory>, whole: bool, rest: usize) -> Magic {
    match directory {
        Some(WorkingDirectory::Husk(inode)) => Magic::Object(inode, rest),
        _ if !whole => Magic::No,
        _ => Magic::Host,
    }
}

fn device_name(mut names: Names<'_>) -> Option<(Proc, usize)> {
    let (name, end) = names.next()?;
    let fd = match name {
        b"fd" => {
            let (number, end) = names.next()?;
            return Some((Proc::Fd(decimal(number)?), end));
        }
        b"stdin" => 0,
        b"stdout" => 1,
        b"stderr" => 2,
        _ => return None,
    };
    (end == names.text.len()).then_some((Proc::Fd(fd), end))
}

/// Whether a text is that of `/dev/stdin` or its kin: links of the host to the links of `/proc`.
pub(crate) fn is_standard(text: &[u8]) -> bool {
    let mut names = Names::of(text);
    names.next().is_some_and(|(name, _)| name == b"dev")
        && names.next().is_some_and(|(name, _)| name.starts_with(b"std"))
}

/// Whether the first name of an absolute text is this, however it is spelled.
pub(crate) fn begins_with(text: &[u8], name: &[u8]) -> bool {
    text.first() == Some(&b'/') && Names::of(text).next().is_some_and(|(first, _)| first == name)
}

/// The names of a text, each with the place where it ends. A path has as many spellings as there
/// are slashes and `.` between its names; `..` is a name here, since it depends on links.
struct Names<'a> {
    text: &'a [u8],
    at: usize,
}

impl Names<'_> {
    fn of(text: &[u8]) -> Names<'_> {
        Names { text, at: 0 }
    }
}

impl<'a> Iterator for Names<'a> {
    type Item = (&'a [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.at + self.text[self.at..].iter().position(|&b| b != b'/')?;
            let length = self.text[start..].iter().position(|&b| b == b'/');
            self.at = length.map_or(self.text.len(), |length| start + length);
            match &self.text[start..self.at] {
                b"." => {}
                name => return Some((name, self.at)),
            }
        }
    }
}

/// Where a range of addresses begins, as `map_files` names it: `START-END`.
fn start_of_range(name: &[u8]) -> Option<usize> {
    let end = name.iter().position(|&b| b == b'-').filter(|end| (1..=16).contains(end))?;
    let digit = |b: &u8| char::from(*b).to_digit(16).map(|digit| digit as usize);
    name[..end].iter().try_fold(0, |sum, b| Some(sum << 4 | digit(b)?))
}

/// A number as `/proc` has it.
fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 || digits[0] == b'0' && digits.len() > 1 {
        return None;
    }
    digits
        .iter()
        .try_fold(0u32, |sum, &b| b.is_ascii_digit().then(|| sum * 10 + u32::from(b - b'0')))
}
