//! Extended attributes: `setxattr` and its kin.
//!
//! ```text
//!   user.*                     files and directories, who may write (read) them
//!   trusted.*                  CAP_SYS_ADMIN; others do not see them
//!   security.*                 anybody reads, CAP_SYS_ADMIN writes (capability: CAP_SETFCAP)
//!   system.posix_acl_*         anybody reads, the owner writes (`acl`)
//!   anything else              EOPNOTSUPP
//! ```
//!
//! Order of errors as in Linux: flags, the name, the value's size, the path, permission, the name's
//! kind. Attributes of an imported object are the host's, read there, until the first change takes
//! all of them over.

use crate::path::{Aim, Spot};
use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::capability::{FOWNER, SETFCAP, SYS_ADMIN};
use husk_abi::sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_ISVTX};
use husk_abi::{PAGE, PATH_MAX, nr};
use husk_proto::fetch::Fetch;
use husk_proto::fs::{Backing, Kind, SetExtended, Step, want};
use husk_proto::{Errno, Inode, Result, Services, acl};

/// Longest name with its NUL.
const NAME_BYTES: usize = 256;
/// Longest value and longest list of names that Linux takes or gives.
const VALUE_MAX: usize = crate::buffers::VALUE_BYTES;
/// Longest list of names of a host object that is taken over.
const LIST_MAX: usize = crate::buffers::BOUNCE_BYTES;
/// Bytes of `struct xattr_args`.
const ARGS_BYTES: usize = 16;
const CAPABILITY: &[u8] = b"security.capability";
/// The same for the host.
const CAPABILITY_TEXT: &[u8] = b"security.capability\0";
const ACCESS_TEXT: &[u8] = b"system.posix_acl_access\0";

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Get,
    Set,
    List,
    Remove,
}

/// The arguments of any of the calls, beside the object.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub wish: Asking,
    name: [u8; NAME_BYTES],
    length: usize,
    /// Where the application has the name, for the host.
    name_at: usize,
    value: usize,
    pub size: usize,
    pub how: SetExtended,
}

impl Asked {
    pub fn name(&self) -> &[u8] {
        &self.name[..self.length]
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Of a path.
    pub(crate) fn extended_path(&mut self, c: &Call, aim: Aim, wish: Asking) -> Answer {
        let asked = self.asked(wish, [c.args[1], c.args[2], c.args[3], c.args[4]])?;
        self.extended_found(c, crate::path::plain(0), aim, asked)
    }

    fn extended_found(&mut self, c: &Call, spot: Spot, aim: Aim, asked: Asked) -> Answer {
        self.on_existing(c, spot, aim, |client, step| client.extended_of(step, asked))
    }

    /// Of a descriptor.
    pub(crate) fn extended_open(&mut self, c: &Call, wish: Asking) -> Answer {
        let Some(inode) = self.inode_opened(c.args[0])? else { return Ok(Verdict::Pass) };
        let asked = self.asked(wish, [c.args[1], c.args[2], c.args[3], c.args[4]])?;
        self.identify();
        let step = self.services.step(inode)?;
        self.extended_of(step, asked)
    }

    /// The calls that name a directory: their value stands in a structure, if they have one.
    pub(crate) fn extended_at(&mut self, c: &Call, wish: Asking) -> Answer {
        let flags = c.args[2] as u32;
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let words = match wish {
            Asking::List => [c.args[3], c.args[4], 0, 0],
            Asking::Remove => [c.args[3], 0, 0, 0],
            Asking::Get | Asking::Set => self.value_arguments(c)?,
        };
        let asked = self.asked(wish, words)?;
        let aim = Aim { null: true, ..crate::file::attributes::aim_of(c.args[2]) };
        self.extended_found(c, crate::path::at(0), aim, asked)
    }

    fn value_arguments(&mut self, c: &Call) -> Result<[usize; 4]> {
        match c.args[5] {
            size if size < ARGS_BYTES => return Err(Errno::EINVAL),
            size if size > PAGE => return Err(Errno::E2BIG),
            _ => {}
        }
        let words = &mut self.buffers.bounce[..c.args[5]];
        self.memory.read(c.args[4], words)?;
        if words[ARGS_BYTES..].iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        let half = |at| crate::layout::get32(words, at) as usize;
        Ok([c.args[3], crate::layout::get64(words, 0) as usize, half(8), half(12)])
    }

    /// Reads the arguments: name, value, its size, flags; of a list: room and its size.
    fn asked(&mut self, wish: Asking, words: [usize; 4]) -> Result<Asked> {
        let [name_at, value, size, flags] = words;
        let (name, how) = ([0; NAME_BYTES], SetExtended::Any);
        let mut asked = Asked { wish, name, length: 0, name_at, value, size, how };
        if wish == Asking::List {
            (asked.value, asked.size) = (name_at, value);
            return Ok(asked);
        }
        if wish == Asking::Set {
            asked.how = match flags as u32 {
                0 => SetExtended::Any,
                1 => SetExtended::Create,
                2 => SetExtended::Replace,
                3 => SetExtended::Both,
                _ => return Err(Errno::EINVAL),
            };
        }
        asked.length = match self.memory.read_string(name_at, &mut asked.name) {
            Ok(0) | Err(Errno::ENAMETOOLONG) => return Err(Errno::ERANGE),
            other => other?,
        };
        if wish == Asking::Set && size > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        if wish == Asking::Set && size > 0 {
            self.memory.read(value, &mut self.buffers.value[..size])?;
        }
        Ok(asked)
    }

    fn extended_of(&mut self, step: Step, mut asked: Asked) -> Answer {
        if acl::is_list(asked.name()) {
            self.may_list(&step, &mut asked)?;
        } else if asked.wish != Asking::List {
            self.may_extend(&step, &asked)?;
        }
        let on_host = self.services.attributes(step.inode)?.extended == Backing::Host;
        match asked.wish {
            Asking::Get | Asking::List if on_host => self.extended_on_host(step.inode, asked),
            Asking::Get => self.get_extended(step.inode, asked),
            Asking::List => self.list_extended(step.inode, asked),
            Asking::Set | Asking::Remove => {
                if on_host {
                    self.take_over(step.inode)?;
                }
                self.change_extended(step.inode, asked)
            }
        }
    }

    /// Who may; then whether there are attributes of this kind.
    fn may_extend(&mut self, step: &Step, asked: &Asked) -> Result<()> {
        let who = self.credentials();
        let (writes, name) = (matches!(asked.wish, Asking::Set | Asking::Remove), asked.name());
        let hidden = if writes { Errno::EPERM } else { Errno::ENODATA };
        if name.starts_with(b"trusted.") {
            if !who.can(SYS_ADMIN) {
                return Err(hidden);
            }
        } else if !name.starts_with(b"security.") && !name.starts_with(b"system.") {
            if name.starts_with(b"user.") {
                if !matches!(step.kind, Kind::File | Kind::Directory) {
                    return Err(hidden);
                }
                let sticky = step.kind == Kind::Directory && step.mode & S_ISVTX != 0;
                if sticky && writes && who.uid != step.uid && !who.can(FOWNER) {
                    return Err(Errno::EPERM);
                }
            }
            self.permit(step, if writes { want::WRITE } else { want::READ })?;
        }
        let who = self.credentials();
        if writes && name.starts_with(b"security.") {
            let needed = if name == CAPABILITY { SETFCAP } else { SYS_ADMIN };
            if asked.wish == Asking::Set && name == CAPABILITY {
                self.check_capability(asked.size)?;
            }
            if !who.can(needed) {
                return Err(Errno::EPERM);
            }
        }
        kind_of_name(asked)
    }

    /// Capabilities of a file (`struct vfs_cap_data`), as far as their shape goes; in `value`.
    fn check_capability(&self, size: usize) -> Result<()> {
        let version = crate::layout::get32(&self.buffers.value, 0) >> 24;
        if matches!((version, size), (2, 20) | (3, 24)) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn get_extended(&mut self, inode: Inode, asked: Asked) -> Answer {
        self.memory.ready()?;
        let out = &mut self.buffers.value;
        let length = self.services.extended(inode, asked.name(), out)?;
        self.give(asked, length)
    }

    fn list_extended(&mut self, inode: Inode, asked: Asked) -> Answer {
        let trusted = self.credentials().can(SYS_ADMIN);
        let length = self.services.list_extended(inode, trusted, &[], &mut self.buffers.bounce)?;
        if length <= self.buffers.bounce.len() || asked.size == 0 {
            return self.give(asked, length);
        }
        self.list_in_parts(inode, asked, trusted)
    }

    /// A list that the bounce buffer cannot hold, in parts: each goes on behind the last name of
    /// the one before, so a name that is there throughout is listed once.
    #[cold]
    fn list_in_parts(&mut self, inode: Inode, asked: Asked, trusted: bool) -> Answer {
        let (mut used, mut after, mut known) = (0, [0; NAME_BYTES], 0);
        let room = asked.size.min(VALUE_MAX);
        loop {
            let out = &mut self.buffers.bounce;
            let left = self.services.list_extended(inode, trusted, &after[..known], out)?;
            if used + left > room {
                return Err(if room == VALUE_MAX { Errno::E2BIG } else { Errno::ERANGE });
            }
            let end = out.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let part = (end + 1).min(left);
            self.memory.write(asked.value + used, &out[..part])?;
            used += part;
            if part == left {
                return value(used as u64);
            }
            let last = out[..end].rsplit(|&byte| byte == 0).next().unwrap_or(&[]);
            known = last.len().min(NAME_BYTES);
            after[..known].copy_from_slice(&last[..known]);
        }
    }

    /// So much of the buffer to the application; without room for it only its length.
    fn give(&mut self, asked: Asked, length: usize) -> Answer {
        if asked.size > 0 {
            if length > asked.size {
                return Err(Errno::ERANGE);
            }
            let found = match asked.wish {
                Asking::List => &self.buffers.bounce[..length],
                _ => &self.buffers.value[..length],
            };
            self.memory.write(asked.value, found)?;
        }
        value(length as u64)
    }

    /// The path of the host object behind `inode`, in `link` and with its NUL: its address.
    pub(crate) fn host_text(&mut self, inode: Inode) -> Result<usize> {
        let origin = self.services.attributes(inode)?.origin.ok_or(Errno::EIO)?;
        let length = self.services.host_path(origin, &mut self.buffers.link[..PATH_MAX])?;
        self.buffers.link[length.min(PATH_MAX)] = 0;
        Ok(self.buffers.link.as_ptr() as usize)
    }

    fn extended_on_host(&mut self, inode: Inode, asked: Asked) -> Answer {
        let path = self.host_text(inode)?;
        let (place, size) = (asked.value, asked.size);
        Ok(Verdict::Return(match asked.wish {
            Asking::List => self.host.call(nr::llistxattr, [path, place, size, 0, 0, 0]),
            _ => self.host.call(nr::lgetxattr, [path, asked.name_at, place, size, 0, 0]),
        }))
    }

    /// Takes the host object's attributes over. Done again from the start after a death.
    #[cold]
    pub(crate) fn take_over(&mut self, inode: Inode) -> Result<()> {
        if self.sees_other_ids() {
            return self.fetch(Fetch::Extended, inode, b"");
        }
        self.memory.ready()?;
        let path = self.host_text(inode)?;
        let list = self.buffers.bounce.as_mut_ptr() as usize;
        let room = self.buffers.value.as_mut_ptr() as usize;
        let length =
            match Errno::check(self.host.call(nr::llistxattr, [path, list, LIST_MAX, 0, 0, 0])) {
                Err(Errno::EOPNOTSUPP) => 0,
                Err(Errno::ERANGE) => return Err(Errno::ENOSPC),
                other => other? as usize,
            };
        let mut at = 0;
        while at < length {
            let rest = &self.buffers.bounce[at..length];
            let end = at + rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
            let args = [path, list + at, room, VALUE_MAX, 0, 0];
            match Errno::check(self.host.call(nr::lgetxattr, args)) {
                // Gone meanwhile, or of a kind that an image does not have.
                Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
                Err(Errno::ERANGE) => return Err(Errno::ENOSPC),
                got => {
                    let kept = Some(&self.buffers.value[..got? as usize]);
                    let name = &self.buffers.bounce[at..end];
                    self.services.set_extended(inode, name, kept, SetExtended::Imported)?;
                }
            }
            at = end + 1;
        }
        self.services.take_extended_over(inode)
    }

    /// Where the host's file has a program's capabilities, the image has them from now on: who
    /// writes to a file, or gives it away, takes them from it.
    pub(crate) fn take_capabilities_over(&mut self, inode: Inode) -> Result<()> {
        self.take_over_with(inode, CAPABILITY_TEXT)
    }

    /// The same of a file of which the host's is open as `fd`.
    pub(crate) fn take_capabilities_from(&mut self, inode: Inode, fd: usize) -> Result<()> {
        if self.services.attributes(inode)?.extended == Backing::Image {
            return Ok(());
        }
        match self.host.call(nr::fgetxattr, [fd, CAPABILITY_TEXT.as_ptr() as usize, 0, 0, 0, 0]) {
            ..1 => Ok(()),
            _ => self.take_over(inode),
        }
    }

    /// Where the host's object has an access list, the image has it from now on: `chmod` changes
    /// it.
    pub(crate) fn take_list_over(&mut self, inode: Inode) -> Result<()> {
        self.take_over_with(inode, ACCESS_TEXT)
    }

    /// Takes all over where the host's object still has them, and has the one with this name.
    fn take_over_with(&mut self, inode: Inode, name: &[u8]) -> Result<()> {
        if self.services.attributes(inode)?.extended == Backing::Image {
            return Ok(());
        }
        let path = self.host_text(inode)?;
        match self.host.call(nr::lgetxattr, [path, name.as_ptr() as usize, 0, 0, 0, 0]) {
            ..1 => Ok(()),
            _ => self.take_over(inode),
        }
    }

    fn change_extended(&mut self, inode: Inode, asked: Asked) -> Answer {
        let mut kept = None;
        if asked.wish == Asking::Set {
            self.memory.ready()?;
            if asked.size > 0 {
                self.memory.read(asked.value, &mut self.buffers.value[..asked.size])?;
            }
            kept = Some(&self.buffers.value[..asked.size]);
        }
        self.services.set_extended(inode, asked.name(), kept, asked.how)?;
        value(0)
    }
}

/// Whether an image has attributes of this name.
fn kind_of_name(asked: &Asked) -> Result<()> {
    const KINDS: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let name = asked.name();
    if KINDS.contains(&name) {
        return Err(Errno::EINVAL);
    }
    match KINDS.iter().any(|kind| name.starts_with(kind)) {
        true => Ok(()),
        false => Err(Errno::EOPNOTSUPP),
    }
}
