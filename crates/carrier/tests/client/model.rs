//! The obvious slow kernels: everything in ordered maps of one process, to hold the client
//! against when the carrier is not the question.

#[path = "model_descriptors.rs"]
mod descriptors;

use husk_proto::descriptor::{Descriptors, Files, Offsets, Open, Shown, Slot};
use husk_proto::fs::*;
use husk_proto::image::{Cover, Image, Mount, Rewritten, Wish};
use husk_proto::lock::{Mode, Range};
use husk_proto::process::{Process, Processes, Sharing, WorkingDirectory};
use husk_proto::{Credentials, Description, Errno, Inode, Result, Shortcuts};
use std::collections::BTreeMap;

#[path = "model_locks.rs"]
mod locks;

#[derive(Clone)]
struct Node0 {
    step: Step,
    links: u32,
    data: Vec<u8>,
    target: Vec<u8>,
    names: BTreeMap<Vec<u8>, u32>,
    order: Vec<Vec<u8>>,
    parent: u32,
    times: [i64; 3],
    backing: Backing,
    origin: Option<(Vec<u8>, HostIdentity, u64)>,
    removed: bool,
}

/// All services.
pub struct Model {
    nodes: BTreeMap<u32, Node0>,
    next: u32,
    slots: BTreeMap<u32, (Slot, bool, bool)>,
    opens: Vec<(Open, u64)>,
    cwd: WorkingDirectory,
    umask: u32,
    mount: Vec<u8>,
    root: Inode,
    outside: Vec<Vec<u8>>,
    locks: Vec<(u8, u64, Inode, Range, Mode)>,
    pub refused: Vec<usize>,
}

fn ino(number: u32) -> Inode {
    Inode { number, generation: 0 }
}

impl Model {
    pub fn new(mount: &[u8], mode: u32, uid: u32, host_fds: &[u32], overlay: bool) -> Model {
        let mut model = Model {
            nodes: BTreeMap::new(),
            next: 1,
            slots: BTreeMap::new(),
            opens: Vec::new(),
            cwd: WorkingDirectory::Host,
            umask: 0o22,
            mount: mount.to_vec(),
            root: ino(1),
            outside: Vec::new(),
            locks: Vec::new(),
            refused: Vec::new(),
        };
        let root = model.add(Kind::Directory, mode, uid, uid);
        model.node(root).parent = root.number;
        if overlay {
            let node = model.node(root);
            node.step.unlisted = true;
            node.step.mode = 0o777;
            node.origin = Some((mount.to_vec(), HostIdentity::default(), 0));
        }
        for &fd in host_fds {
            model.slots.insert(fd, (Slot::Host(None), false, false));
        }
        model
    }

    fn add(&mut self, kind: Kind, mode: u32, uid: u32, gid: u32) -> Inode {
        let inode = ino(self.next);
        self.next += 1;
        let step = Step { inode, kind, mode, uid, gid, unlisted: false, acl: false };
        let links = if kind == Kind::Directory { 2 } else { 1 };
        self.nodes.insert(
            inode.number,
            Node0 {
                step,
                links,
                data: Vec::new(),
                target: Vec::new(),
                names: BTreeMap::new(),
                order: Vec::new(),
                parent: 0,
                times: [super::clock(); 3],
                backing: Backing::Image,
                origin: None,
                removed: false,
            },
        );
        inode
    }

    fn node(&mut self, inode: Inode) -> &mut Node0 {
        self.nodes.get_mut(&inode.number).expect("an inode")
    }

    fn may(&mut self, who: &Credentials<'_>, dir: Inode) -> Result<()> {
        let node = self.node(dir);
        if node.removed {
            return Err(Errno::ENOENT);
        }
        let step = node.step;
        who.permit(&step, 3)
    }

    fn sticky(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<Inode> {
        let there = self.lookup(dir, name)?;
        self.may(who, dir)?;
        let over = self.node(dir).step;
        let free = over.mode & 0o1000 == 0 || who.can(3);
        if free || who.uid == over.uid || who.uid == there.uid {
            Ok(there.inode)
        } else {
            Err(Errno::EPERM)
        }
    }

    fn enter(&mut self, dir: Inode, name: &[u8], inode: Inode) {
        let directory = self.node(inode).step.kind == Kind::Directory;
        let node = self.node(dir);
        node.names.insert(name.to_vec(), inode.number);
        node.order.push(name.to_vec());
        node.links += u32::from(directory);
        if directory {
            self.node(inode).parent = dir.number;
        }
    }

    fn leave(&mut self, dir: Inode, name: &[u8]) -> Inode {
        let node = self.node(dir);
        let inode = ino(node.names.remove(name).expect("a name"));
        if let Some(place) = node.order.iter().position(|n| n == name) {
            self.node(dir).order[place] = Vec::new();
        }
        let directory = self.node(inode).step.kind == Kind::Directory;
        self.node(dir).links -= u32::from(directory);
        inode
    }
}

impl Fs for Model {
    fn lookup_witnessed(&mut self, dir: Inode, name: &[u8], witness: &mut Witness) -> Result<Step> {
        *witness = Witness::default();
        self.lookup(dir, name)
    }
    fn step_witnessed(&mut self, inode: Inode, witness: &mut Witness) -> Result<Step> {
        *witness = Witness::default();
        self.step(inode)
    }
    fn list_numbers(
        &mut self,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.list(dir, cookie, emit)
    }
    fn lookup(&mut self, dir: Inode, name: &[u8]) -> Result<Step> {
        let node = self.node(dir);
        if node.step.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let number = *node.names.get(name).ok_or(Errno::ENOENT)?;
        Ok(self.nodes[&number].step)
    }
    fn step(&mut self, inode: Inode) -> Result<Step> {
        self.nodes.get(&inode.number).map(|n| n.step).ok_or(Errno::ESTALE)
    }
    fn attributes(&mut self, inode: Inode) -> Result<Attributes> {
        let node = self.nodes.get(&inode.number).ok_or(Errno::ESTALE)?;
        let host = node.backing == Backing::Host;
        let size = match node.step.kind {
            Kind::Symlink => node.target.len(),
            _ if host => node.origin.as_ref().map_or(0, |o| o.1.size as usize),
            _ => node.data.len(),
        };
        Ok(Attributes {
            step: node.step,
            shown_device: self.device(),
            shown_number: u64::from(inode.number),
            links: node.links,
            size: size as u64,
            blocks_512: 0,
            device: 0,
            accessed_ns: node.times[0],
            modified_ns: node.times[1],
            changed_ns: node.times[2],
            born_ns: 0,
            backing: node.backing,
            extended: Backing::Image,
            origin: node.origin.as_ref().map(|_| Origin(inode.number)),
            replaced: false,
        })
    }
    fn read_link(&mut self, inode: Inode, out: &mut [u8]) -> Result<usize> {
        let node = self.node(inode);
        if !matches!(node.step.kind, Kind::Symlink | Kind::Socket) {
            return Err(Errno::EINVAL);
        }
        let length = node.target.len().min(out.len());
        out[..length].copy_from_slice(&node.target[..length]);
        Ok(node.target.len())
    }
    fn list(
        &mut self,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let node = self.node(dir).clone();
        if node.removed {
            return Err(Errno::ENOENT);
        }
        for (index, name) in node.order.iter().enumerate().skip(cookie as usize) {
            let Some(&number) = node.names.get(name) else { continue };
            let step = self.nodes[&number].step;
            let next = index as u64 + 1;
            let shown_number = u64::from(number);
            let (inode, kind, from_host) = (step.inode, step.kind, false);
            if !emit(Entry { name, inode, shown_number, kind, from_host, next }) {
                break;
            }
        }
        Ok(())
    }
    fn parent(&mut self, dir: Inode) -> Result<Inode> {
        let node = self.node(dir);
        if node.removed { Err(Errno::ENOENT) } else { Ok(ino(node.parent)) }
    }
    fn name_of(&mut self, dir: Inode, out: &mut [u8; 255]) -> Result<usize> {
        let parent = self.parent(dir)?;
        let names = &self.nodes[&parent.number].names;
        let name = names.iter().find(|(_, n)| **n == dir.number).ok_or(Errno::ENOENT)?.0;
        out[..name.len()].copy_from_slice(name);
        Ok(name.len())
    }
    fn create(
        &mut self,
        who: &Credentials<'_>,
        dir: Inode,
        name: &[u8],
        node: Node<'_>,
    ) -> Result<Inode> {
        if self.lookup(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.may(who, dir)?;
        let (kind, mut mode) = match node {
            Node::File(mode) => (Kind::File, mode),
            Node::Directory(mode) => (Kind::Directory, mode),
            Node::Symlink(_) => (Kind::Symlink, 0o777),
            Node::Socket { mode, .. } => (Kind::Socket, mode),
            Node::Special { kind, mode, .. } => (kind, mode),
        };
        let over = self.node(dir).step;
        let inherits = over.mode & 0o2000 != 0;
        if inherits && kind == Kind::Directory {
            mode |= 0o2000;
        }
        let gid = if inherits { over.gid } else { who.gid };
        let inode = self.add(kind, unmasked(mode), who.uid, gid);
        if let Node::Symlink(target) | Node::Socket { text: target, .. } = node {
            self.node(inode).target = target.to_vec();
        }
        self.enter(dir, name, inode);
        Ok(inode)
    }
    fn may_run(&mut self, _: Inode) -> Result<()> {
        Ok(())
    }
    fn may_write(&mut self, _: Inode) -> Result<()> {
        Ok(())
    }
    fn extended(&mut self, _: Inode, _: &[u8], _: &mut [u8]) -> Result<usize> {
        Err(Errno::ENODATA)
    }
    fn list_extended(&mut self, _: Inode, _: bool, _: &[u8], _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
    fn set_extended(&mut self, _: Inode, _: &[u8], _: Option<&[u8]>, _: SetExtended) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn take_extended_over(&mut self, _: Inode) -> Result<()> {
        Ok(())
    }
    fn create_nameless(
        &mut self,
        who: &Credentials<'_>,
        _: Inode,
        mode: u32,
        _: bool,
    ) -> Result<Inode> {
        let inode = self.add(Kind::File, unmasked(mode), who.uid, who.gid);
        self.node(inode).links = 0;
        Ok(inode)
    }
    fn link(&mut self, who: &Credentials<'_>, inode: Inode, dir: Inode, name: &[u8]) -> Result<()> {
        if self.lookup(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.may(who, dir)?;
        self.node(inode).links += 1;
        self.enter(dir, name, inode);
        Ok(())
    }
    fn unlink(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<()> {
        let inode = self.sticky(who, dir, name)?;
        if self.node(inode).step.kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        self.leave(dir, name);
        self.node(inode).links -= 1;
        Ok(())
    }
    fn rmdir(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<()> {
        let inode = self.sticky(who, dir, name)?;
        if self.node(inode).step.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if !self.node(inode).names.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.leave(dir, name);
        self.node(inode).removed = true;
        self.node(inode).links = 0;
        Ok(())
    }
    fn rename(
        &mut self,
        who: &Credentials<'_>,
        source_dir: Inode,
        source: &[u8],
        target_dir: Inode,
        target: &[u8],
        flags: u32,
    ) -> Result<()> {
        let moved = self.lookup(source_dir, source)?;
        let there = self.lookup(target_dir, target).ok();
        let exchange = flags & RENAME_EXCHANGE != 0;
        if flags & RENAME_NOREPLACE != 0 && there.is_some() {
            return Err(Errno::EEXIST);
        }
        if exchange && there.is_none() {
            return Err(Errno::ENOENT);
        }
        let mut at = target_dir;
        while at != self.root {
            if at == moved.inode {
                return Err(Errno::EINVAL);
            }
            at = self.parent(at)?;
        }
        let mut at = source_dir;
        while at != self.root {
            if there.is_some_and(|t| t.inode == at) {
                return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
            }
            at = self.parent(at)?;
        }
        if there.is_some_and(|t| t.inode == moved.inode) {
            return Ok(());
        }
        self.sticky(who, source_dir, source)?;
        self.may(who, target_dir)?;
        if let Some(there) = there {
            let (a, b) = (moved.kind == Kind::Directory, there.kind == Kind::Directory);
            if exchange {
                self.leave(source_dir, source);
                self.leave(target_dir, target);
                self.enter(source_dir, source, there.inode);
                self.enter(target_dir, target, moved.inode);
                return Ok(());
            }
            match (a, b) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) => self.rmdir(who, target_dir, target)?,
                (false, false) => self.unlink(who, target_dir, target)?,
            }
        }
        self.leave(source_dir, source);
        self.enter(target_dir, target, moved.inode);
        Ok(())
    }
    fn change(&mut self, who: &Credentials<'_>, inode: Inode, change: Change) -> Result<()> {
        let step = self.node(inode).step;
        let owner = who.uid == step.uid || who.can(3);
        let now_only =
            [change.accessed, change.modified].iter().all(|t| matches!(t, None | Some(Time::Now)));
        let keeps = change.uid.is_none_or(|uid| who.uid == step.uid && uid == step.uid);
        let joins = change.gid.is_none_or(|gid| who.uid == step.uid && who.in_group(gid));
        let may_give = (keeps && joins) || who.can(0);
        if !may_give || (change.mode.is_some() && !owner) {
            return Err(Errno::EPERM);
        }
        if (change.accessed.is_some() || change.modified.is_some()) && !owner {
            if !now_only {
                return Err(Errno::EPERM);
            }
            who.permit(&step, 2)?;
        }
        let node = self.node(inode);
        if let Some(mode) = change.mode {
            node.step.mode = mode;
        }
        if change.uid.is_some() || change.gid.is_some() {
            if step.kind == Kind::File {
                node.step.mode &= if node.step.mode & 0o10 != 0 { !0o6000 } else { !0o4000 };
            }
            node.step.uid = change.uid.unwrap_or(step.uid);
            node.step.gid = change.gid.unwrap_or(step.gid);
        }
        for (place, time) in [(0, change.accessed), (1, change.modified)] {
            match time {
                Some(Time::Now) => node.times[place] = super::clock(),
                Some(Time::At(ns)) => node.times[place] = ns,
                None => {}
            }
        }
        Ok(())
    }
    fn truncate(&mut self, inode: Inode, size: u64) -> Result<()> {
        self.node(inode).data.resize(size as usize, 0);
        Ok(())
    }
    fn read(
        &mut self,
        inode: Inode,
        offset: u64,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        let node = self.node(inode);
        if node.step.kind != Kind::File || node.backing == Backing::Host {
            return Err(Errno::EIO);
        }
        let start = (offset as usize).min(node.data.len());
        let end = start.saturating_add(length).min(node.data.len());
        if end > start {
            copy(Span::new(node.data[start..].as_ptr() as usize, end - start))?;
        }
        Ok(end - start)
    }
    fn write(
        &mut self,
        inode: Inode,
        place: Place,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<(u64, usize)> {
        let node = self.node(inode);
        let offset = match place {
            Place::At(offset) => offset as usize,
            Place::End => node.data.len(),
        };
        let before = node.data.len();
        node.data.resize(before.max(offset + length), 0);
        let result = copy(Span::new(node.data[offset..].as_mut_ptr() as usize, length));
        if result.is_err() {
            node.data.truncate(before);
        }
        result.map(|()| (offset as u64, length))
    }
    fn receive(
        &mut self,
        inode: Inode,
        offset: u64,
        most: usize,
        take: &mut dyn FnMut(usize) -> Result<usize>,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        let count = take(most)?;
        self.write(inode, Place::At(offset), count, copy).map(|(_, count)| count)
    }
    fn allocate(&mut self, inode: Inode, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let node = self.node(inode);
        if !keep_size && node.data.len() < (offset + length) as usize {
            node.data.resize((offset + length) as usize, 0);
        }
        Ok(())
    }
    fn punch(&mut self, inode: Inode, offset: u64, length: u64) -> Result<()> {
        let node = self.node(inode);
        let end = ((offset + length) as usize).min(node.data.len());
        node.data[(offset as usize).min(end)..end].fill(0);
        Ok(())
    }
    fn seek_data(&mut self, inode: Inode, offset: u64, data: bool) -> Result<u64> {
        let bytes = &self.node(inode).data;
        if offset as usize >= bytes.len() {
            return Err(Errno::ENXIO);
        }
        let page = |at: usize| bytes[at..bytes.len().min(at + 4096)].iter().any(|&b| b != 0);
        let mut at = offset as usize / 4096 * 4096;
        while at < bytes.len() {
            if page(at) == data {
                return Ok(offset.max(at as u64));
            }
            at += 4096;
        }
        if data { Err(Errno::ENXIO) } else { Ok(bytes.len() as u64) }
    }
    fn runs(
        &mut self,
        _: Inode,
        _: u64,
        _: u64,
        _: bool,
        _: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        Err(Errno::ENODEV)
    }
    fn import(&mut self, dir: Inode, entries: &[Imported<'_>]) -> Result<bool> {
        for entry in entries {
            if self.lookup(dir, entry.name).is_ok() {
                continue;
            }
            let inode = self.add(entry.kind, entry.mode, entry.uid, entry.gid);
            let mut path = self.node(dir).origin.clone().ok_or(Errno::EIO)?.0;
            path.push(b'/');
            path.extend_from_slice(entry.name);
            let node = self.node(inode);
            node.origin = Some((path, entry.identity, 0));
            node.target = entry.target.to_vec();
            node.step.unlisted = entry.kind == Kind::Directory;
            node.times = [entry.accessed_ns, entry.identity.modified_ns, entry.identity.changed_ns];
            if entry.kind == Kind::File {
                node.backing = Backing::Host;
            }
            self.enter(dir, entry.name, inode);
        }
        Ok(true)
    }
    fn import_done(&mut self, dir: Inode) -> Result<()> {
        self.node(dir).step.unlisted = false;
        Ok(())
    }
    fn host_path(&mut self, origin: Origin, out: &mut [u8]) -> Result<usize> {
        let path = self.node(ino(origin.0)).origin.clone().ok_or(Errno::EIO)?.0;
        out[..path.len()].copy_from_slice(&path);
        Ok(path.len())
    }
    fn host_identity(&mut self, origin: Origin) -> Result<HostIdentity> {
        Ok(self.node(ino(origin.0)).origin.clone().ok_or(Errno::EIO)?.1)
    }
    fn adopt(&mut self, inode: Inode, donor: Inode) -> Result<bool> {
        let data = std::mem::take(&mut self.node(donor).data);
        let node = self.node(inode);
        if node.backing == Backing::Image {
            return Ok(false);
        }
        (node.data, node.backing) = (data, Backing::Image);
        Ok(true)
    }
    fn whiteouts(
        &mut self,
        _: Inode,
        _: &mut dyn FnMut(&[u8], Origin) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }
    fn usage(&mut self) -> Usage {
        Usage { blocks: 1000, blocks_free: 900, inodes: 1000, inodes_free: 900 }
    }
    fn open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        inode: Inode,
        flags: u32,
        minimum: u32,
        limit: u32,
    ) -> Result<u32> {
        if flags & 0o10000000 == 0 {
            let want = [4, 2, 6, 6][(flags & 3) as usize] | if flags & 0o1000 != 0 { 2 } else { 0 };
            let step = self.node(inode).step;
            who.permit(&step, want)?;
        }
        let fd = self.lowest_free(files, minimum, limit)?;
        if flags & 0o10000000 == 0 && self.attributes(inode)?.backing == Backing::Host {
            return Err(Errno::EIO);
        }
        if flags & 0o1000 != 0 && self.node(inode).step.kind == Kind::File {
            self.node(inode).data.clear();
        }
        let kept = flags & !(0o2000000 | 0o1000 | 0o100 | 0o200);
        self.opens.push((Open { inode, flags: kept }, 0));
        let description = Description(self.opens.len() as u32 - 1);
        self.slots.insert(fd, (Slot::Husk(description), flags & 0o2000000 != 0, false));
        Ok(fd)
    }
    fn create_open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        dir: Inode,
        name: &[u8],
        mode: u32,
        flags: u32,
        limit: u32,
    ) -> Result<u32> {
        self.lowest_free(files, 0, limit)?;
        let inode = self.create(who, dir, name, Node::File(mode))?;
        let all = Credentials { capabilities: u64::MAX, ..*who };
        self.open(&all, files, inode, flags & !0o1000, 0, limit)
    }
}

impl Processes for Model {
    fn prepare_fork(&mut self, _: Sharing) -> Result<Process> {
        Err(Errno::ENOSYS)
    }
    fn cancel_fork(&mut self, _: Process) {}
    fn enter_child(&mut self, _: Process, _: u32) {}
    fn unshare(&mut self, _: Sharing) -> Result<()> {
        Ok(())
    }
    fn finish_exec(&mut self) -> Result<()> {
        Ok(())
    }
    fn exit(&mut self) {}
    fn working_directory(&mut self) -> WorkingDirectory {
        self.cwd
    }
    fn working_directory_of(&mut self, _: u32) -> Option<WorkingDirectory> {
        None
    }
    fn set_working_directory(&mut self, place: WorkingDirectory) -> Result<()> {
        self.cwd = place;
        Ok(())
    }
    fn umask(&mut self) -> u32 {
        self.umask
    }
    fn set_umask(&mut self, mask: u32) -> u32 {
        std::mem::replace(&mut self.umask, mask)
    }
    fn set_program(&mut self, _: Option<Inode>) -> Result<Option<Inode>> {
        Ok(None)
    }
    fn pin(&mut self, _: Inode) -> Result<()> {
        Ok(())
    }
    fn unpin(&mut self, _: Inode) {}
}

/// Pipes are all the host's.
impl husk_proto::pipe::Pipes for Model {}
impl husk_proto::epoll::Epolls for Model {}
impl husk_proto::flight::Flights for Model {}
impl husk_proto::watch::Watches for Model {}
impl husk_proto::volume::Volumes for Model {}

impl Image for Model {
    fn note_outside(&mut self, path: &[u8], _: u64) {
        self.outside.push(path.to_vec());
    }
    fn forget_outside(&mut self) {
        self.outside.clear();
    }
    fn count_unsupported(&mut self, number: usize) {
        self.refused.push(number);
    }
    fn note_sockets(&mut self) {}
    fn request_rewrite(&mut self, _: &HostIdentity, _: &[u8]) {}
    fn next_wish(&mut self, _: &mut [u8]) -> Option<(Wish, HostIdentity, usize)> {
        None
    }
    fn set_rewritten(&mut self, _: &HostIdentity, _: Rewritten) {}
    fn count_start(&mut self, _: &HostIdentity) -> bool {
        false
    }
    fn request_gathered(&mut self, _: &HostIdentity, _: &[u8]) {}
    fn request_recorded(&mut self, _: &HostIdentity, _: &[u8]) {}
    fn set_gathered(&mut self, _: &HostIdentity, _: u64) {}
    fn refuse_to_gather(&mut self, _: &HostIdentity) {}
}

impl Shortcuts for Model {
    fn flags(&self, description: Description) -> Result<u32> {
        Ok(self.opens[description.0 as usize].0.flags)
    }
    fn next_number(&self, _: Files, from: u32) -> Option<u32> {
        self.slots.range(from..).next().map(|(&fd, _)| fd)
    }
    fn current(&self) -> Process {
        Process(1)
    }
    fn is_alone(&self) -> bool {
        true
    }
    fn has_table_alone(&self) -> bool {
        true
    }
    fn files(&self) -> Files {
        Files(1)
    }
    fn mounts(&self) -> usize {
        1
    }
    fn mount(&self, _: usize) -> Mount<'_> {
        Mount { path: &self.mount, root: self.root, cover: Cover::Memory }
    }
    fn device(&self) -> u64 {
        0x55
    }
    fn known_outside(&self, path: &[u8]) -> bool {
        self.outside.iter().any(|p| p == path)
    }
    fn outside_age(&self) -> u64 {
        0
    }
    fn sockets(&self) -> bool {
        true
    }
    fn private_path(&self) -> &[u8] {
        b"/private/"
    }
    fn copies_path(&self) -> &[u8] {
        b""
    }
    fn rewritten(&self, _: &HostIdentity) -> Rewritten {
        Rewritten::Plain
    }
    fn room_to_gather(&self) -> (u64, u64) {
        (0, 0)
    }
}
