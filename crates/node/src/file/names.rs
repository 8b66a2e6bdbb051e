//! Serves other nodes' messages on names and attributes.

use husk_abi::sys::general::{S_IFLNK, S_IFMT};
use husk_carrier::{Changes, Direct, made};
use husk_proto::fs::{Change, Fs as _, Kind, Node, Origin, SetExtended};
use husk_proto::{Errno, Inode, Shortcuts as _};
use husk_wire::record::{self, AttributeCall, Entry, Grant, Identity, Step, Wants, What};
use husk_wire::text::{Bytes, List, Name};
use husk_wire::{Failure, Header, message, reply, request};

use crate::CALL_BYTES_MAX;
use crate::agent::{Agent, NUMBERS_END};
use crate::file::bytes::OPEN_FLAGS;
use crate::once::Once;
use crate::translate::{Handled, Who, changed, failure, inode, object, put, time};

/// Entries on a page of a listing.
const PAGE_ENTRIES: usize = 256;
/// Bytes of a page, but for its last entry; and of an entry beside its name, at most.
const PAGE_BYTES: usize = CALL_BYTES_MAX - (8 << 10);
const ENTRY_BYTES: usize = 160;
/// Longest value, or list of names, of extended attributes.
const VALUE_BYTES: usize = 64 << 10;
/// In the flags of what sets an attribute: from now on those of the image count.
const TAKE_OVER: u32 = 4;

/// What was made, the hold where it was opened, and its directory.
type Made = (Inode, Option<Grant>, record::Changed);

/// Sets or removes an attribute.
fn set_extended(
    direct: &mut Direct,
    inode: Inode,
    asked: &request::Extended<'_>,
) -> Result<(), Errno> {
    let (name, value) = (asked.name.bytes(), asked.value.bytes());
    let how = match asked.flags {
        1 => SetExtended::Create,
        2 => SetExtended::Replace,
        3 => SetExtended::Both,
        5 => SetExtended::Imported,
        _ => SetExtended::Any,
    };
    match asked.call {
        AttributeCall::Set if asked.flags == TAKE_OVER => direct.take_extended_over(inode),
        AttributeCall::Set => direct.set_extended(inode, name, Some(value), how),
        _ => direct.set_extended(inode, name, None, how),
    }
}

impl Agent {
    /// One name, or none: the object itself.
    pub fn walk(&mut self, header: &Header, asked: request::Walk<'_>, room: &mut [u8]) -> Handled {
        let found = match asked.names.iter().next() {
            None => inode(asked.directory).map_err(failure)?,
            Some(name) => {
                let dir = self.directory(asked.directory)?;
                self.direct().lookup(dir, name.bytes()).map_err(failure)?.inode
            }
        };
        let attributes = self.direct().attributes(found).map_err(failure)?;
        self.may_see(&attributes)?;
        let linked = matches!(attributes.step.kind, Kind::Symlink | Kind::Socket);
        let mut text = [0; husk_abi::PATH_MAX];
        let target = if linked && asked.wants.has(Wants::TARGET) {
            let length = self.direct().read_link(found, &mut text).map_err(failure)?;
            let text = text.get(..length).unwrap_or(&text[..husk_abi::PATH_MAX - 1]);
            Some(Bytes::new(text).map_err(|_| Failure::Protocol)?)
        } else {
            None
        };
        let (grant, listing) = (None, None);
        let steps = [Step { attributes: self.told(&attributes), grant, listing, target }];
        let steps = List::new(&steps).map_err(|_| Failure::Protocol)?;
        put::<message::Walk>(header, &reply::Walk { steps }, room)
    }

    /// A page of names.
    pub fn list(&mut self, header: &Header, asked: request::ListNames, room: &mut [u8]) -> Handled {
        let dir = self.directory(asked.directory)?;
        let (mut found, mut bytes) = (Vec::<(Vec<u8>, Inode, u64)>::new(), 0);
        let listed = self.direct().list(dir, asked.cookie, &mut |entry| {
            bytes += entry.name.len() + ENTRY_BYTES;
            found.push((entry.name.to_vec(), entry.inode, entry.next));
            found.len() < PAGE_ENTRIES && bytes < PAGE_BYTES
        });
        listed.map_err(failure)?;
        let cookie = found.last().map_or(asked.cookie, |last| last.2);
        let mut entries = Vec::new();
        for (name, inode, next) in &found {
            // One that has gone meanwhile is left out.
            let Ok(attributes) = self.direct().attributes(*inode) else { continue };
            let name = Name::new(name).map_err(|_| Failure::Protocol)?;
            entries.push(Entry { name, cookie: *next, attributes: self.told(&attributes) });
        }
        let entries = List::new(&entries).map_err(|_| Failure::Protocol)?;
        let page = reply::ListNames { entries, cookie, change: 0, grant: None };
        put::<message::ListNames>(header, &page, room)
    }

    /// Where an object is named.
    pub fn above(&mut self, header: &Header, asked: request::Above, room: &mut [u8]) -> Handled {
        let inode = inode(asked.object).map_err(failure)?;
        let dir = self.direct().parent(inode).map_err(failure)?;
        let mut text = [0; 255];
        let length = self.direct().name_of(inode, &mut text).unwrap_or(0);
        let name = Name::new(&text[..length]).ok();
        put::<message::Above>(header, &reply::Above { directory: object(dir), name }, room)
    }

    /// A file or a link; opened, if that is asked for.
    pub fn create(
        &mut self,
        header: &Header,
        asked: request::Create<'_>,
        room: &mut [u8],
    ) -> Handled {
        if asked.flags & !OPEN_FLAGS != 0 {
            return Err(failure(Errno::EINVAL));
        }
        let (made, grant, directory) = match self.before(header, Changes::Names)? {
            Some(words) => self.created_before(header, &asked, words)?,
            None => self.create_now(header, &asked)?,
        };
        let attributes = self.attributes_since(made)?;
        let (copy_stands, hold) = (false, None);
        let answer = reply::Create { attributes, directory, copy_stands, hold, grant };
        put::<message::Create>(header, &answer, room)
    }

    fn create_now(
        &mut self,
        header: &Header,
        asked: &request::Create<'_>,
    ) -> Result<Made, Failure> {
        let dir = self.directory(asked.spot.directory)?;
        let (who, name) = (Who::of(&asked.caller), asked.spot.name.bytes());
        let (who, mode) = (who.credentials(), asked.mode & !S_IFMT);
        if asked.open.is_some() {
            let opened = self.once(header, Changes::Names, |direct| {
                let files = direct.files();
                direct.create_open(&who, files, dir, name, mode, asked.flags, NUMBERS_END)
            });
            let fd = match opened? {
                Once::Now(fd) => fd,
                Once::Before(words) => return self.created_before(header, asked, words),
            };
            let (inode, held) = self.keep(header, fd)?;
            return Ok((inode, Some(held), changed(dir)));
        }
        let node = match asked.target {
            Some(target) if asked.mode & S_IFMT == S_IFLNK => Node::Symlink(target.bytes()),
            _ => Node::File(mode),
        };
        let made = self.make(header, |direct| direct.create(&who, dir, name, node))?;
        Ok((made, None, changed(dir)))
    }

    fn created_before(
        &mut self,
        header: &Header,
        asked: &request::Create<'_>,
        words: [u64; 2],
    ) -> Result<Made, Failure> {
        let (inode, dir) = (made(words), inode(asked.spot.directory).map_err(failure)?);
        let grant = match asked.open {
            Some(_) => {
                let fd = self.open_again(inode, asked.flags)?;
                Some(self.keep(header, fd)?.1)
            }
            None => None,
        };
        Ok((inode, grant, changed(dir)))
    }

    /// Makes something, or tells what was made when that was asked before.
    fn make(
        &mut self,
        header: &Header,
        make: impl FnOnce(&mut Direct) -> Result<Inode, Errno>,
    ) -> Result<Inode, Failure> {
        Ok(match self.once(header, Changes::Names, make)? {
            Once::Now(inode) => inode,
            Once::Before(words) => made(words),
        })
    }

    /// Changes names, unless that was done when it was asked before.
    fn name(
        &mut self,
        header: &Header,
        change: impl FnOnce(&mut Agent) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.before(header, Changes::Names)?.is_some() {
            return Ok(());
        }
        change(self)
    }

    /// A directory.
    pub fn make_directory(
        &mut self,
        header: &Header,
        asked: request::MakeDirectory<'_>,
        room: &mut [u8],
    ) -> Handled {
        let (who, node) = (Who::of(&asked.caller), Node::Directory(asked.mode & !S_IFMT));
        let (who, name) = (who.credentials(), asked.spot.name.bytes());
        let made = match self.before(header, Changes::Names)? {
            Some(words) => made(words),
            None => {
                let dir = self.directory(asked.spot.directory)?;
                self.make(header, |direct| direct.create(&who, dir, name, node))?
            }
        };
        let dir = inode(asked.spot.directory).map_err(failure)?;
        let (attributes, directory) = (self.attributes_since(made)?, changed(dir));
        let (copy_stands, grant) = (false, None);
        let answer = reply::MakeDirectory { attributes, directory, copy_stands, grant };
        put::<message::MakeDirectory>(header, &answer, room)
    }

    /// One more name.
    pub fn link(&mut self, header: &Header, asked: request::Link<'_>, room: &mut [u8]) -> Handled {
        let dir = inode(asked.spot.directory).map_err(failure)?;
        let (who, inode) = (Who::of(&asked.caller), inode(asked.object).map_err(failure)?);
        let (who, name) = (who.credentials(), asked.spot.name.bytes());
        self.name(header, |agent| {
            let dir = agent.directory(asked.spot.directory)?;
            let link = |direct: &mut Direct| direct.link(&who, inode, dir, name);
            agent.once(header, Changes::Names, link).map(drop)
        })?;
        let (attributes, directory) = (self.attributes_since(inode)?, changed(dir));
        let answer = reply::Link { attributes, directory, copy_stands: false };
        put::<message::Link>(header, &answer, room)
    }

    /// One name fewer.
    pub fn remove(
        &mut self,
        header: &Header,
        asked: request::Remove<'_>,
        room: &mut [u8],
    ) -> Handled {
        let dir = inode(asked.spot.directory).map_err(failure)?;
        let (who, name) = (Who::of(&asked.caller), asked.spot.name.bytes());
        let who = who.credentials();
        // Where it was removed before, nobody remembers what it was.
        let mut gone = None;
        self.name(header, |agent| {
            let dir = agent.directory(asked.spot.directory)?;
            let there = agent.direct().lookup(dir, name).map_err(failure)?.inode;
            gone = Some(there);
            if asked.what == What::Directory {
                agent.client.list_for_others(there).map_err(failure)?;
            }
            let remove = |direct: &mut Direct| match asked.what {
                What::File => direct.unlink(&who, dir, name),
                What::Directory => direct.rmdir(&who, dir, name),
            };
            agent.once(header, Changes::Names, remove).map(drop)
        })?;
        let (object, directory) = (changed(gone.unwrap_or(dir)), changed(dir));
        let (copy_stands, is_last, is_held) = (false, false, false);
        let answer = reply::Remove { object, directory, copy_stands, is_last, is_held };
        put::<message::Remove>(header, &answer, room)
    }

    /// Another name.
    pub fn rename(
        &mut self,
        header: &Header,
        asked: request::Rename<'_>,
        room: &mut [u8],
    ) -> Handled {
        let [source, target] = [asked.source, asked.target].map(|spot| inode(spot.directory));
        let (source, target) = (source.map_err(failure)?, target.map_err(failure)?);
        self.name(header, |agent| agent.rename_now(header, &asked))?;
        let (source, target) = (changed(source), changed(target));
        let answer = reply::Rename { source, target, copies_stand: false, displaced: None };
        put::<message::Rename>(header, &answer, room)
    }

    fn rename_now(&mut self, header: &Header, asked: &request::Rename<'_>) -> Result<(), Failure> {
        let source = self.directory(asked.source.directory)?;
        let target = self.directory(asked.target.directory)?;
        let (from, to) = (asked.source.name.bytes(), asked.target.name.bytes());
        if let Ok(there) = self.direct().lookup(target, to)
            && there.unlisted
        {
            self.client.list_for_others(there.inode).map_err(failure)?;
        }
        let who = Who::of(&asked.caller);
        let who = who.credentials();
        let rename =
            |direct: &mut Direct| direct.rename(&who, source, from, target, to, asked.flags);
        self.once(header, Changes::Names, rename).map(drop)
    }

    /// Attributes, or the length.
    pub fn set_attributes(
        &mut self,
        header: &Header,
        asked: request::SetAttributes<'_>,
        room: &mut [u8],
    ) -> Handled {
        let inode = inode(asked.object).map_err(failure)?;
        let (who, to) = (Who::of(&asked.caller), asked.settings);
        let changes = if to.size.is_some() { Changes::Bytes } else { Changes::Attributes };
        if self.before(header, changes)?.is_none() {
            self.leave(asked.leaves);
            if let Some(size) = to.size {
                self.own_for_afar(inode, size)?;
            }
            let set = |direct: &mut Direct| match to.size {
                Some(size) => direct.truncate(inode, size),
                None => {
                    let (mode, uid, gid) = (to.mode, to.uid, to.gid);
                    let (accessed, modified) = (to.accessed.map(time), to.modified.map(time));
                    let change = Change { mode, uid, gid, accessed, modified };
                    direct.change(&who.credentials(), inode, change)
                }
            };
            self.once(header, changes, set)?;
        }
        let attributes = self.attributes_since(inode)?;
        put::<message::SetAttributes>(header, &reply::SetAttributes { attributes }, room)
    }

    /// Extended attributes.
    pub fn extended(
        &mut self,
        header: &Header,
        asked: request::Extended<'_>,
        room: &mut [u8],
    ) -> Handled {
        self.may_ask(&asked)?;
        let inode = inode(asked.object).map_err(failure)?;
        let sets = matches!(asked.call, AttributeCall::Set | AttributeCall::Remove);
        if sets {
            if self.before(header, Changes::Attributes)?.is_none() {
                let set = |direct: &mut Direct| set_extended(direct, inode, &asked);
                self.once(header, Changes::Attributes, set)?;
            }
            let value = Bytes::new(&[]).map_err(|_| failure(Errno::E2BIG))?;
            return put::<message::Extended>(header, &reply::Extended { value, change: 0 }, room);
        }
        let name = asked.name.bytes();
        let mut out = core::mem::take(&mut self.bytes);
        out.clear();
        out.resize(VALUE_BYTES, 0);
        let direct = self.direct();
        let length = match asked.call {
            AttributeCall::List => direct.list_extended(inode, asked.flags != 0, name, &mut out),
            _ => direct.extended(inode, name, &mut out),
        };
        let length = length.map_err(failure);
        self.bytes = out;
        let value = self.bytes.get(..length?).ok_or(failure(Errno::E2BIG))?;
        let value = Bytes::new(value).map_err(|_| failure(Errno::E2BIG))?;
        put::<message::Extended>(header, &reply::Extended { value, change: 0 }, room)
    }

    /// Where the host has what was imported.
    pub fn host_file(
        &mut self,
        header: &Header,
        asked: request::HostFile,
        room: &mut [u8],
    ) -> Handled {
        let mut text = [0; husk_abi::PATH_MAX];
        let origin = Origin(asked.origin);
        let direct = self.direct();
        let length = direct.host_path(origin, &mut text).map_err(failure)?;
        let found = direct.host_identity(origin).map_err(failure)?;
        let path = text.get(..length).ok_or(failure(Errno::ENAMETOOLONG))?;
        let path = Bytes::new(path).map_err(|_| failure(Errno::ENAMETOOLONG))?;
        let (device, inode, size) = (found.device, found.inode, found.size);
        let (modified_ns, changed_ns) = (found.modified_ns, found.changed_ns);
        let identity = Identity { device, inode, size, modified_ns, changed_ns };
        put::<message::HostFile>(header, &reply::HostFile { path, identity }, room)
    }

    /// Makes a host file the image's own, or looks at it again.
    pub fn own(&mut self, header: &Header, asked: request::Own, room: &mut [u8]) -> Handled {
        let inode = inode(asked.object).map_err(failure)?;
        let done = match asked.keep {
            Some(keep) => self.client.own_for_others(inode, keep),
            None => self.client.renew_for_others(inode),
        };
        done.map_err(failure)?;
        let attributes = self.attributes(inode)?;
        put::<message::Own>(header, &reply::Own { attributes }, room)
    }

    /// Room in the image.
    pub fn room(&mut self, header: &Header, _: request::Room, room: &mut [u8]) -> Handled {
        let usage = self.direct().usage();
        let (blocks, blocks_free) = (usage.blocks, usage.blocks_free);
        let (inodes, inodes_free) = (usage.inodes, usage.inodes_free);
        let answer = reply::Room { blocks, blocks_free, inodes, inodes_free };
        put::<message::Room>(header, &answer, room)
    }
}
