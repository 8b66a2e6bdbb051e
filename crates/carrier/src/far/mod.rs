//! Operations on objects of another node: a message to that node's agent, and its answer.
//!
//! ```text
//!   Direct::lookup(dir) ── dir is of this node ──► handler on this node's region
//!                      '── dir is far ──► request ─► link ─► agent of the home ─► same handler
//! ```
//!
//! A far inode is one whose number has `FAR`: no region has so many. Such numbers are never stored.
//! What a table, a working directory or a mount is to name is a *stand-in*: a file without a name
//! of this node's region, whose owner and group are number and generation at home (`stand_in`).
//! The client above sees far inodes only: they are put in the place of stand-ins as they leave
//! here.
//!
//! Invariants
//! 1. No copy of a name, of attributes or of bytes outlives the call that asked for it, so none is
//!    ever stale: the home is asked each time, or looked at where that is on this host (`home`).
//!    Two copies are made for good: descriptors of unmodified host files, as on one node, and what
//!    memory maps (`mapped`).
//! 2. A change has happened at home when its call returns; the home decides it in one transaction.
//! 3. When no answer comes because the agent was killed, the request is sent again, as such
//!    (`Header::again`). A change is made once: the home keeps its answer until then. Who carries
//!    messages between hosts sends theirs again, nobody else does.
//!
//! Not here: what a node without a home elsewhere does. It never comes here.

mod bytes;
mod home;
mod leases;
mod locks;
mod mapped;
mod names;
mod onlooker;
pub(crate) mod operations;
mod passed;
mod stand_in;

pub use bytes::AT_END;
pub use husk_kernel::fs::walk::Stamp;
pub use onlooker::Onlooker;

use husk_abi::memory::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use husk_abi::nr;
use husk_host::calls;
use husk_link::{
    ANSWER_S, CALL_BYTES_MAX, Next, PATH_BYTES_MAX, SLOT_BYTES_MAX, Unanswered, call, nap,
};
use husk_proto::fs::{Attributes, Backing, Credentials, Imported, Kind, Origin, SetBits, Step};
use husk_proto::image::Cover;
use husk_proto::{Errno, Inode, Result};
use husk_wire::messages::{ALL, KINDS, decode_reply, encode};
use husk_wire::record::{Leaves, Moment, Object, Sort};
use husk_wire::text::{List, Name};
use husk_wire::{AFAR, Failure, Header, Message, Retry, Role};

use crate::Direct;

/// Marks the number of an inode, or of an origin, that another node is the home of.
pub(crate) const FAR: u32 = 1 << 31;
/// Bytes of a request, or an answer, without bytes of files or listings.
const SHORT: usize = 6 << 10;
/// Times that something is asked again: the agent was killed in between.
const ASKED_MAX: u32 = 64;
/// Times that a home is asked again which is busy, and between two.
const BUSY_MAX: u32 = 200;
const BUSY_NAP_NS: u64 = 5_000_000;
const NS_PER_S: i64 = 1_000_000_000;
/// In the place of seconds: the home's clock.
pub const NOW_S: i64 = i64::MIN;

/// Among the flags of what sets an attribute: from now on those of the image count.
pub const TAKE_OVER: u32 = 4;

const _: () = assert!(KINDS <= husk_kernel::image::REQUEST_KINDS_MAX as usize);

/// Whether another node is the home of an inode.
#[inline(always)]
pub(crate) fn is_far(inode: Inode) -> bool {
    inode.number & FAR != 0
}

/// As a message has it.
fn object(inode: Inode) -> Object {
    Object { number: (inode.number & !FAR).into(), generation: inode.generation }
}

/// As the client has it.
fn far(object: Object) -> Inode {
    Inode { number: object.number as u32 | FAR, generation: object.generation }
}

/// An inode in the place of a hold: nothing is kept open at home for reads and writes.
fn hold(inode: Inode) -> u64 {
    u64::from(inode.generation) << 32 | u64::from(inode.number & !FAR)
}

fn name(bytes: &[u8]) -> Result<Name<'_>> {
    Name::new(bytes).map_err(|_| Errno::EINVAL)
}

fn caller<'a>(who: &Credentials<'a>) -> Result<husk_wire::record::Credentials<'a>> {
    let groups = List::new(who.groups).map_err(|_| Errno::EINVAL)?;
    // Those held in another user namespace than the image's are not told of.
    let capabilities = if who.within.is_none() { who.capabilities } else { 0 };
    let (uid, gid) = (who.uid, who.gid);
    Ok(husk_wire::record::Credentials { uid, gid, capabilities, groups })
}

fn nanoseconds(moment: Moment) -> i64 {
    moment.seconds.saturating_mul(NS_PER_S).saturating_add(moment.nanoseconds.into())
}

fn moment(ns: i64) -> Moment {
    Moment { seconds: ns.div_euclid(NS_PER_S), nanoseconds: ns.rem_euclid(NS_PER_S) as u32 }
}

fn kind(sort: Sort) -> Kind {
    match sort {
        Sort::File => Kind::File,
        Sort::Directory => Kind::Directory,
        Sort::Symlink => Kind::Symlink,
        Sort::Portal => Kind::Portal,
        Sort::Fifo => Kind::Fifo,
        Sort::Socket => Kind::Socket,
        Sort::CharacterDevice => Kind::CharacterDevice,
        Sort::BlockDevice => Kind::BlockDevice,
    }
}

/// What the home says of an inode.
fn seen(said: &husk_wire::record::Attributes) -> Attributes {
    let inode = far(said.place.object);
    let (mode, uid, gid) = (said.mode, said.uid, said.gid);
    let backing = |on_host| if on_host { Backing::Host } else { Backing::Image };
    Attributes {
        step: Step { inode, kind: kind(said.sort), mode, uid, gid, unlisted: false, acl: false },
        shown_device: said.shown_device,
        shown_number: said.shown_number,
        links: said.links,
        size: said.size,
        blocks_512: said.blocks,
        device: said.device as u32,
        accessed_ns: nanoseconds(said.accessed),
        modified_ns: nanoseconds(said.modified),
        changed_ns: nanoseconds(said.changed),
        born_ns: nanoseconds(said.born),
        backing: backing(said.on_host),
        extended: backing(said.extended_on_host),
        origin: said.origin.map(|origin| Origin(origin | FAR)),
        replaced: false,
    }
}

/// Memory for long messages.
struct Room {
    at: usize,
    length: usize,
}

impl Room {
    /// For one message.
    fn new() -> Result<Room> {
        Room::of(CALL_BYTES_MAX)
    }

    fn of(length: usize) -> Result<Room> {
        let (prot, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: a fresh mapping anywhere.
        let at = unsafe { calls::raw(nr::mmap, [0, length, prot, flags, -1isize as usize, 0]) }?;
        Ok(Room { at, length })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a mapping of our own, of that length, zero or as it was filled.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut u8, self.length) }
    }

    /// As pairs of words.
    fn pairs(&mut self) -> &mut [[u64; 2]] {
        let count = self.length / size_of::<[u64; 2]>();
        // SAFETY: the same mapping, which begins with a page; all words are sound.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut [u64; 2], count) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing leads to any more.
        let _ = unsafe { calls::raw(nr::munmap, [self.at, self.length, 0, 0, 0, 0]) };
    }
}

impl Direct {
    /// Asks the home of all names; `outgoing` is room for the request.
    fn ask<'r, M: Message>(
        &self,
        request: &M::Request<'_>,
        outgoing: &mut [u8],
        incoming: &'r mut [u8],
    ) -> Result<M::Reply<'r>> {
        let length = encode(request, outgoing).map_err(|_| Errno::E2BIG)?;
        let (body, header) = (&outgoing[..length], self.header(M::KIND, length as u32));
        let mut busy = 0;
        let length = loop {
            let length = self.deliver(&header, body, M::RETRY, incoming)?;
            let status = Header::split(&incoming[..length]).map_err(|_| Errno::EIO)?.0.status;
            if Failure::of(status) != Some(Failure::Busy) || busy == BUSY_MAX {
                break length;
            }
            busy += 1;
            nap(BUSY_NAP_NS);
        };
        let (header, body) = Header::split(&incoming[..length]).map_err(|_| Errno::EIO)?;
        match decode_reply::<M>(&header, body).map_err(|_| Errno::EIO)? {
            Ok(reply) => Ok(reply),
            Err(Failure::Errno(errno)) => Err(errno),
            Err(Failure::Gone) => Err(Errno::ESTALE),
            Err(_) => Err(Errno::EIO),
        }
    }

    /// Of a request with a body of `length` bytes.
    fn header(&self, kind: husk_wire::Kind, length: u32) -> Header {
        let (source, behalf) = (self.node(), self.kernel.session.pid());
        let request = husk_kernel::image::next_request(&self.kernel, kind as u16);
        Header { source, length, request, behalf, ..Header::new(kind, Role::Request) }
    }

    /// Where the agent of the home listens.
    fn home_path<'p>(&self, path: &'p mut [u8; PATH_BYTES_MAX]) -> Result<&'p [u8]> {
        let told = husk_kernel::image::home_path(&self.kernel);
        let path = path.get_mut(..told.len()).ok_or(Errno::ENAMETOOLONG)?;
        path.copy_from_slice(told);
        Ok(path)
    }

    fn deliver(
        &self,
        header: &Header,
        body: &[u8],
        retry: Retry,
        incoming: &mut [u8],
    ) -> Result<usize> {
        if !self.is_away {
            // At home, only a message that is no honest node's speaks of what is elsewhere.
            return Err(Errno::ESTALE);
        }
        let mut path = [0; PATH_BYTES_MAX];
        let path = self.home_path(&mut path)?;
        let is_afar = header.source >= AFAR;
        let mut head = header.encode();
        for _ in 0..ASKED_MAX {
            let unanswered = match self.send(path, header.kind, [&head, body], incoming) {
                Ok(length) => return Ok(length),
                Err(unanswered) => unanswered,
            };
            match unanswered.next(retry) {
                // Of a change, only who carries it to the home knows that it is not on its way.
                Next::Again if is_afar && unanswered == Unanswered::Lost && retry.is_once() => {
                    return Err(Errno::EIO);
                }
                Next::Again if unanswered == Unanswered::Lost => {
                    head = Header { again: true, ..*header }.encode();
                }
                Next::Again => {}
                Next::Fails(errno) => return Err(errno),
            }
        }
        Err(Errno::EIO)
    }

    /// Sends a message to the agent that listens at `path`: what is short goes through its memory.
    /// Who locks asks by a socket, which says at once that nobody waits for the answer any more.
    fn send(
        &self,
        path: &[u8],
        kind: u16,
        parts: [&[u8]; 2],
        incoming: &mut [u8],
    ) -> core::result::Result<usize, Unanswered> {
        let fits = incoming.len() <= SLOT_BYTES_MAX && kind != husk_wire::Kind::Lock as u16;
        if let Some(slots) = self.home_slots().filter(|_| fits) {
            match slots.call(self.kernel.session.pid(), parts, incoming, ANSWER_S) {
                Ok(Some(length)) => return Ok(length),
                Ok(None) => {}
                Err(why) => {
                    if why == Unanswered::Late {
                        // Nobody waits so long twice.
                        home::leave_slots();
                    }
                    return Err(why);
                }
            }
        }
        call(path, parts, incoming, ANSWER_S)
    }

    /// What this thread's changes of content leave of set-id bits.
    fn leaves(&self) -> Leaves {
        match self.kernel.set_bits {
            SetBits::Marks => Leaves::Marks,
            SetBits::Nothing => Leaves::Nothing,
            SetBits::All => Leaves::All,
            SetBits::Ask => Leaves::Ask,
        }
    }

    /// The number of this node; 0: the home of all names.
    pub fn node(&self) -> u16 {
        husk_kernel::image::node(&self.kernel)
    }

    /// Says which node this is, and of which home: where that listens, and its supervisor. Before
    /// the first program.
    pub fn set_node(&mut self, node: u16, home: &[u8], pid: u32) -> Result<()> {
        husk_kernel::image::set_node(&self.kernel, node, home, pid)?;
        self.is_away = node != 0;
        Ok(())
    }

    /// Says how many nodes this one is the home of, how the names of the others begin, and who
    /// supervises it; 0: whoever does is replaced if it is killed.
    pub fn set_nodes(&mut self, nodes: u16, base: &[u8], pid: u32) -> Result<()> {
        husk_kernel::image::set_nodes(&self.kernel, nodes, base, pid)
    }

    /// How the names of the other nodes begin that this one is the home of.
    pub fn nodes_base(&self) -> &[u8] {
        husk_kernel::image::home_path(&self.kernel)
    }

    /// The supervisor of the home of all names; 0: an image of one node, or with a name.
    pub fn home_pid(&self) -> u32 {
        husk_kernel::image::home_pid(&self.kernel)
    }

    /// How many nodes this one is the home of; 0: none but itself.
    #[inline]
    pub fn nodes(&self) -> u16 {
        husk_kernel::image::nodes(&self.kernel)
    }

    /// Requests that processes of this node have sent to the home.
    pub fn requests(&self) -> u64 {
        husk_kernel::image::requests(&self.kernel)
    }

    /// The same by kind: name and number of those of which there were any.
    pub fn requests_by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of = |kind| husk_kernel::image::requests_of(&self.kernel, kind as u16);
        ALL.iter().map(move |one| (one.name, of(one.kind))).filter(|(_, count)| *count > 0)
    }

    /// The next turn of who places processes on nodes.
    pub fn next_node_turn(&mut self) -> u64 {
        husk_kernel::image::next_turn(&self.kernel)
    }

    /// Adds a tree of the home.
    pub fn add_far_mount(
        &mut self,
        path: &[u8],
        cover: Cover,
        root: Inode,
        device: u64,
    ) -> Result<()> {
        // Its owner says which object of the home it stands for.
        let stands = Imported {
            uid: root.number,
            gid: root.generation,
            links: 0,
            ..Imported::top(path, 0o755)
        };
        let now_ns = self.now();
        let own = husk_kernel::fs::overlay::make_root(&self.kernel, &stands, false, now_ns)?;
        husk_kernel::image::add_mount(&self.kernel, path, own, cover, device)
    }

    /// The device that a mount's objects show.
    pub fn mount_device(&self, index: usize) -> u64 {
        husk_kernel::image::mount_device(&self.kernel, index)
    }
}
