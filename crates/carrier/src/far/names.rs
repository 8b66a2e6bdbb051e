//! Names and attributes of another node.

use husk_abi::sys::general::{S_IFDIR, S_IFLNK, S_IFREG};
use husk_kernel::Kernel;
use husk_kernel::descriptor::hosts;
use husk_kernel::fs::directory::list;
use husk_kernel::fs::walk;
use husk_proto::fs::{
    Attributes, Backing, Change, Credentials, Entry, HostIdentity, Kind, Node, Origin, SetExtended,
    Step, Time, Usage, Witness,
};
use husk_proto::{Errno, Inode, Result};
use husk_wire::record::{AttributeCall, Settings, Spot, Wants, What};
use husk_wire::text::{Bytes, List};
use husk_wire::{message, request};

use super::home::there;
use super::{FAR, NOW_S, Room, SHORT, caller, far, kind, moment, name, object, seen};
use crate::Direct;

/// A witness that never holds: no identity is like that.
const NEVER: Witness = Witness { place: 0, seen: [u64::MAX; 2] };

/// What `Change` and a size make of an inode.
fn settings(change: &Change, size: Option<u64>) -> Settings {
    let time = |time: Option<Time>| match time {
        None => None,
        Some(Time::At(ns)) => Some(moment(ns)),
        Some(Time::Now) => Some(husk_wire::record::Moment { seconds: NOW_S, nanoseconds: 0 }),
    };
    let (mode, uid, gid) = (change.mode, change.uid, change.gid);
    Settings {
        mode,
        uid,
        gid,
        accessed: time(change.accessed),
        modified: time(change.modified),
        size,
    }
}

fn spot(dir: Inode, bytes: &[u8]) -> Result<Spot<'_>> {
    Ok(Spot { directory: object(dir), name: name(bytes)? })
}

/// What `Agent::walk` does, on the home's memory. `EAGAIN`: the home is to be asked.
pub(super) fn look_at_home(
    home: &Kernel,
    inode: Inode,
    below: Option<&[u8]>,
    target: &mut Option<&mut [u8]>,
) -> Result<(Attributes, usize)> {
    let found = step_at_home(home, inode, below)?.inode;
    let seen = walk::attributes(home, found)?;
    let length = match target {
        Some(out) if matches!(seen.step.kind, Kind::Symlink | Kind::Socket) => {
            walk::read_link(home, found, out)?
        }
        _ => 0,
    };
    Ok((from_home(seen), length))
}

/// The same without its attributes.
#[inline]
fn step_at_home(home: &Kernel, inode: Inode, below: Option<&[u8]>) -> Result<Step> {
    match below {
        None => walk::step(home, inode),
        Some(_) if walk::is_unlisted(home, inode) => Err(Errno::EAGAIN),
        Some(name) => walk::lookup(home, inode, name),
    }
}

/// As the client is to know it.
fn step_from_home(step: Step) -> Step {
    Step { inode: far(object(step.inode)), unlisted: false, acl: false, ..step }
}

/// The same of all attributes.
fn from_home(seen: Attributes) -> Attributes {
    let step = step_from_home(seen.step);
    Attributes { step, origin: seen.origin.map(|origin| Origin(origin.0 | FAR)), ..seen }
}

impl Direct {
    /// An inode, or what `below` leads to in it; the target of a link goes into `target`, the whole
    /// length of which is returned.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_look(
        &mut self,
        inode: Inode,
        below: Option<&[u8]>,
        target: Option<&mut [u8]>,
    ) -> Result<(Attributes, usize)> {
        let plain = below.is_none() && target.is_none();
        if let Some(known) = self.recent.get().filter(|known| known.step.inode == inode && plain) {
            return Ok((known, 0));
        }
        let mut target = target;
        if let Some(seen) = self.peek(|home| look_at_home(home, there(inode), below, &mut target)) {
            let (found, length) = seen?;
            self.recent.set(Some(found));
            return Ok((found, length));
        }
        let (mut outgoing, mut incoming) = ([0; SHORT], [0; SHORT]);
        let names = [name(below.unwrap_or(b"x"))?];
        let names = if below.is_some() { &names[..] } else { &[] };
        let wants = if target.is_some() { Wants::TARGET } else { Wants::default() };
        let nobody = Credentials { uid: 0, gid: 0, groups: &[], capabilities: 0, within: None };
        let asked = request::Walk {
            directory: object(inode),
            names: List::new(names).map_err(|_| Errno::EINVAL)?,
            wants,
            caller: caller(&nobody)?,
        };
        let said = self.ask::<message::Walk>(&asked, &mut outgoing, &mut incoming)?;
        let step = said.steps.iter().next().ok_or(Errno::EIO)?;
        let length = step.target.map_or(0, |text| text.bytes().len());
        if let (Some(out), Some(text)) = (target, step.target) {
            let count = out.len().min(length);
            out[..count].copy_from_slice(&text.bytes()[..count]);
        }
        let found = seen(&step.attributes);
        self.recent.set(Some(found));
        Ok((found, length))
    }

    /// `Fs::attributes`. They are long, and are not moved about.
    #[inline(never)]
    pub(crate) fn far_attributes(&mut self, inode: Inode) -> Result<Attributes> {
        if let Some(home) = &self.home {
            match walk::attributes(home, there(inode)) {
                Ok(mut seen) => {
                    seen.step = step_from_home(seen.step);
                    seen.origin = seen.origin.map(|origin| Origin(origin.0 | FAR));
                    return Ok(seen);
                }
                Err(Errno::EAGAIN | Errno::EIO) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.far_look(inode, None, None).map(|found| found.0)
    }

    /// `Fs::step` and, with a name, `Fs::lookup`.
    #[inline(never)]
    pub(crate) fn far_step(&mut self, inode: Inode, below: Option<&[u8]>) -> Result<Step> {
        let known = self.recent.get().filter(|known| known.step.inode == inode && below.is_none());
        if let Some(known) = known {
            return Ok(known.step);
        }
        match self.peek(|home| step_at_home(home, there(inode), below)) {
            Some(seen) => seen.map(step_from_home),
            None => self.far_look(inode, below, None).map(|found| found.0.step),
        }
    }

    /// The same, with what it rests on in the home's memory.
    #[inline(never)]
    pub(crate) fn far_step_witnessed(
        &mut self,
        inode: Inode,
        below: Option<&[u8]>,
        witness: &mut Witness,
    ) -> Result<Step> {
        let seen = self.peek(|home| match below {
            None => walk::step_witnessed(home, there(inode), witness),
            Some(_) if walk::is_unlisted(home, there(inode)) => Err(Errno::EAGAIN),
            Some(name) => walk::lookup_witnessed(home, there(inode), name, witness),
        });
        match seen {
            Some(seen) => seen.map(step_from_home),
            None => {
                *witness = NEVER;
                self.far_look(inode, below, None).map(|found| found.0.step)
            }
        }
    }

    /// `Fs::holds`: all witnesses of this process are the home's.
    #[inline]
    pub(crate) fn far_holds(&self, witnesses: &[Witness]) -> bool {
        self.home.as_ref().is_some_and(|home| walk::holds(home, witnesses))
    }

    /// `Fs::parent`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_parent(&mut self, inode: Inode) -> Result<Inode> {
        self.far_above(inode, None).map(|found| found.0)
    }

    /// `Fs::has_host_bytes`, where the home has just been asked.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_has_host_bytes(&self, inode: Inode) -> bool {
        match (self.recent.get(), &self.home) {
            (Some(known), _) if known.step.inode == inode => known.backing == Backing::Host,
            (_, Some(home)) => hosts::has_host_bytes(home, there(inode)),
            _ => false,
        }
    }

    /// `Fs::read_link`.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_read_link(&mut self, inode: Inode, out: &mut [u8]) -> Result<usize> {
        self.far_look(inode, None, Some(out)).map(|found| found.1)
    }

    /// The call is over, or something has changed.
    pub(crate) fn far_forget(&self) {
        self.recent.set(None);
        self.recent_identity.set(None);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_list(
        &mut self,
        dir: Inode,
        mut cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let begin = cookie;
        let seen = self.peek(|home| {
            if walk::step(home, there(dir))?.unlisted {
                return Err(Errno::EAGAIN);
            }
            list::list(home, there(dir), begin, true, &mut |entry| {
                cookie = entry.next;
                emit(Entry { inode: far(object(entry.inode)), from_host: false, ..entry })
            })
        });
        // Behind what has been emitted the home goes on.
        if let Some(seen) = seen {
            return seen;
        }
        let mut room = Room::new()?;
        loop {
            let asked = request::ListNames { directory: object(dir), cookie, change: 0 };
            let page = self.ask::<message::ListNames>(&asked, &mut [0; 64], room.bytes())?;
            if page.entries.is_empty() {
                return Ok(());
            }
            for entry in page.entries.iter() {
                let inode = far(entry.attributes.place.object);
                let (shown_number, next) = (entry.attributes.shown_number, entry.cookie);
                let (name, kind) = (entry.name.bytes(), kind(entry.attributes.sort));
                if !emit(Entry { name, inode, shown_number, kind, from_host: false, next }) {
                    return Ok(());
                }
            }
            cookie = page.cookie;
        }
    }

    /// The directory that has a name of `inode`, and the name.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_above(
        &mut self,
        inode: Inode,
        out: Option<&mut [u8; 255]>,
    ) -> Result<(Inode, usize)> {
        let (mut room, mut incoming) = ([0; 255], [0; 512]);
        let seen = self.peek(|home| {
            let dir = walk::parent(home, there(inode))?;
            Ok((far(object(dir)), walk::name_of(home, there(inode), &mut room).unwrap_or(0)))
        });
        let (dir, text) = match seen {
            Some(seen) => seen.map(|(dir, length)| (dir, &room[..length]))?,
            None => {
                let asked = request::Above { object: object(inode) };
                let said = self.ask::<message::Above>(&asked, &mut [0; 64], &mut incoming)?;
                (far(said.directory), said.name.map_or(&[][..], |name| name.bytes()))
            }
        };
        if let Some(out) = out {
            if text.is_empty() {
                return Err(Errno::ENOENT);
            }
            out[..text.len()].copy_from_slice(text);
        }
        Ok((dir, text.len()))
    }

    /// Makes something; `flags` as of open, for a file that is to be opened.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_create(
        &mut self,
        who: &Credentials<'_>,
        dir: Inode,
        bytes: &[u8],
        node: Node<'_>,
    ) -> Result<Inode> {
        self.far_forget();
        let (mut outgoing, mut incoming) = ([0; SHORT + 4096], [0; 1024]);
        let (spot, caller) = (spot(dir, bytes)?, caller(who)?);
        let (mode, target) = match node {
            Node::Directory(mode) => {
                let asked = request::MakeDirectory { spot, mode: mode | S_IFDIR, caller };
                let room = (&mut outgoing[..], &mut incoming[..]);
                let said = self.ask::<message::MakeDirectory>(&asked, room.0, room.1)?;
                return Ok(far(said.attributes.place.object));
            }
            Node::File(mode) => (mode | S_IFREG, None),
            Node::Symlink(target) => {
                let target = Bytes::new(target).map_err(|_| Errno::ENAMETOOLONG)?;
                (0o777 | S_IFLNK, Some(target))
            }
            // The host's object behind it would be in the directory of one node only.
            Node::Socket { .. } | Node::Special { .. } => return Err(Errno::EPERM),
        };
        let (device, flags, open, own) = (0, 0, None, None);
        let asked = request::Create { spot, mode, device, target, flags, open, own, caller };
        let said = self.ask::<message::Create>(&asked, &mut outgoing, &mut incoming)?;
        Ok(far(said.attributes.place.object))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_link(
        &mut self,
        who: &Credentials<'_>,
        inode: Inode,
        dir: Inode,
        bytes: &[u8],
    ) -> Result<()> {
        self.far_forget();
        let (object, spot, caller) = (object(inode), spot(dir, bytes)?, caller(who)?);
        let asked = request::Link { object, spot, caller };
        self.ask::<message::Link>(&asked, &mut [0; SHORT], &mut [0; 1024]).map(drop)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_remove(
        &mut self,
        who: &Credentials<'_>,
        dir: Inode,
        bytes: &[u8],
        what: What,
    ) -> Result<()> {
        self.far_forget();
        let asked = request::Remove { spot: spot(dir, bytes)?, what, caller: caller(who)? };
        self.ask::<message::Remove>(&asked, &mut [0; SHORT], &mut [0; 1024]).map(drop)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn far_rename(
        &mut self,
        who: &Credentials<'_>,
        source: (Inode, &[u8]),
        target: (Inode, &[u8]),
        flags: u32,
    ) -> Result<()> {
        self.far_forget();
        let (source, target) = (spot(source.0, source.1)?, spot(target.0, target.1)?);
        let asked = request::Rename { source, target, flags, caller: caller(who)? };
        self.ask::<message::Rename>(&asked, &mut [0; SHORT], &mut [0; 1024]).map(drop)
    }

    /// Changes attributes, or the length.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_change(
        &mut self,
        who: &Credentials<'_>,
        inode: Inode,
        change: Change,
        size: Option<u64>,
    ) -> Result<()> {
        self.far_forget();
        let settings = settings(&change, size);
        let (object, leaves, caller) = (object(inode), self.leaves(), caller(who)?);
        let asked = request::SetAttributes { object, settings, leaves, caller };
        self.ask::<message::SetAttributes>(&asked, &mut [0; SHORT], &mut [0; 1024]).map(drop)
    }

    /// A value, or the names, of extended attributes; how long all of it is.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_extended(
        &mut self,
        inode: Inode,
        (call, flags): (AttributeCall, u32),
        (key, value): (&[u8], &[u8]),
        out: &mut [u8],
    ) -> Result<usize> {
        self.far_forget();
        let (mut there, mut back) = (Room::new()?, Room::new()?);
        let nobody = Credentials { uid: 0, gid: 0, groups: &[], capabilities: 0, within: None };
        let asked = request::Extended {
            object: object(inode),
            call,
            name: Bytes::new(key).map_err(|_| Errno::ERANGE)?,
            value: Bytes::new(value).map_err(|_| Errno::E2BIG)?,
            flags,
            caller: caller(&nobody)?,
        };
        let said = self.ask::<message::Extended>(&asked, there.bytes(), back.bytes())?;
        let bytes = said.value.bytes();
        if bytes.len() <= out.len() {
            let (head, rest) = out.split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            if call == AttributeCall::List {
                rest.fill(0);
            }
        }
        Ok(bytes.len())
    }

    /// How an attribute is to be set, as the flags of the message say it.
    pub(crate) fn far_how(how: SetExtended) -> u32 {
        match how {
            SetExtended::Any => 0,
            SetExtended::Create => 1,
            SetExtended::Replace => 2,
            SetExtended::Both => 3,
            SetExtended::Imported => 5,
        }
    }

    /// The path of a host object into `out`, its length, and what identifies it.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_host_file(
        &mut self,
        origin: Origin,
        out: &mut [u8],
    ) -> Result<(usize, HostIdentity)> {
        let mut incoming = [0; SHORT];
        let asked = request::HostFile { origin: origin.0 & !FAR };
        let said = self.ask::<message::HostFile>(&asked, &mut [0; 64], &mut incoming)?;
        let path = said.path.bytes();
        let count = path.len().min(out.len());
        out[..count].copy_from_slice(&path[..count]);
        let identity = HostIdentity {
            device: said.identity.device,
            inode: said.identity.inode,
            size: said.identity.size,
            modified_ns: said.identity.modified_ns,
            changed_ns: said.identity.changed_ns,
        };
        self.recent_identity.set(Some((origin, identity)));
        Ok((path.len(), identity))
    }

    /// What identifies a host object.
    pub(crate) fn far_identity(&mut self, origin: Origin) -> Result<HostIdentity> {
        match self.recent_identity.take().filter(|known| known.0 == origin) {
            Some((_, identity)) => Ok(identity),
            None => self.far_host_file(origin, &mut []).map(|(_, identity)| identity),
        }
    }

    /// Makes a host file the image's own (`keep` bytes of it), or has the home look at it again.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_own(&mut self, inode: Inode, keep: Option<u64>) -> Result<()> {
        self.far_forget();
        let asked = request::Own { object: object(inode), keep };
        self.ask::<message::Own>(&asked, &mut [0; 128], &mut [0; 1024]).map(drop)
    }

    /// What the home has room for.
    #[cold]
    #[inline(never)]
    pub(crate) fn far_usage(&mut self) -> Result<Usage> {
        let said = self.ask::<message::Room>(&request::Room {}, &mut [0; 64], &mut [0; 256])?;
        let (blocks, blocks_free) = (said.blocks, said.blocks_free);
        let (inodes, inodes_free) = (said.inodes, said.inodes_free);
        Ok(Usage { blocks, blocks_free, inodes, inodes_free })
    }
}
