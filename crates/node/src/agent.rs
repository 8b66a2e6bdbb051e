//! Dispatches a message to the handlers of this node's region.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use husk_carrier::{Asked as Change, Direct, Layout, NOW_S};
use husk_client::Client;
use husk_proto::fs::{Attributes, Backing, Fs as _, Kind, SetBits, Time};
use husk_proto::{Credentials, Errno, Inode};
use husk_wire::handlers::reply as encoded;
use husk_wire::messages::decode;
use husk_wire::record::{self, Changed, Moment, Object, Place, Sort};
use husk_wire::{
    AFAR, Failure, Fault, Field, Header, Kind as Asked, Message, Role, message, reply, request,
};

use crate::file::locks::Lock;
use crate::other_host::afar::{self, Lent};
use crate::plain::Plain;
use crate::planted::planted;
use crate::serve::failure;
use crate::sessions::Sessions;

/// Nanoseconds in a second.
const NS_PER_S: i64 = 1_000_000_000;
/// Attributes have no number of changes yet: nobody keeps a copy that it could void.
const NO_CHANGE: u64 = 0;

/// What one thread of the agent works with.
pub struct Agent {
    /// Reads the host's side of overlays; below it the handlers.
    pub client: Client<Direct, Plain, Plain>,
    /// Who asks.
    pub sessions: Arc<Sessions>,
    /// This node's memory, to be read by others on this host; and whether it goes along with the
    /// answer to the request of now.
    pub memory: Option<(Arc<OwnedFd>, Layout)>,
    pub lends_memory: bool,
    /// The hold that the answer to the request of now has the number of.
    pub unheard: Option<(u16, u64)>,
    /// The lock that the answer to the request of now grants.
    pub unheard_lock: Option<Lock>,
    /// The change that the answer to the request of now tells of.
    pub answered: Option<Change>,
    /// Who asks now is the process that has started this agent.
    pub is_supervisor: bool,
    /// Bytes of a file, a path, a value.
    pub bytes: Vec<u8>,
    /// Who asks now is on another host: nothing of this host's files is open to it.
    pub is_afar: bool,
    /// The host's file that was read last for such a node.
    pub lent: Option<Lent>,
}

/// The answer's header, its body in the room that was given; or why not.
pub type Handled = Result<Header, Failure>;

/// A caller whose groups live as long as this.
pub struct Who {
    groups: Vec<u32>,
    uid: u32,
    gid: u32,
    capabilities: u64,
}

impl Who {
    /// As a message says it.
    pub fn of(said: &record::Credentials<'_>) -> Who {
        let groups = said.groups.iter().collect();
        Who { groups, uid: said.uid, gid: said.gid, capabilities: said.capabilities }
    }

    /// As the handlers take it.
    pub fn credentials(&self) -> Credentials<'_> {
        let (uid, gid, capabilities) = (self.uid, self.gid, self.capabilities);
        Credentials { uid, gid, groups: &self.groups, capabilities, within: None }
    }
}

/// An inode of this node, which may be gone. Generations begin with 1: a number that has never been
/// an inode's has 0, and is taken for nothing.
pub fn inode(object: Object) -> Result<Inode, Errno> {
    let number = u32::try_from(object.number).ok().filter(|number| number >> 31 == 0);
    let is_one = object.generation != 0 || planted!(NeverMade);
    let number = number.filter(|_| is_one).ok_or(Errno::ESTALE)?;
    Ok(Inode { number, generation: object.generation })
}

/// An inode in the place of a hold.
pub fn held(hold: u64) -> Result<Inode, Failure> {
    let (number, generation) = ((hold as u32).into(), (hold >> 32) as u32);
    inode(Object { number, generation }).map_err(failure)
}

/// A time that was set.
pub fn time(moment: Moment) -> Time {
    if moment.seconds == NOW_S {
        return Time::Now;
    }
    Time::At(moment.seconds.saturating_mul(NS_PER_S).saturating_add(moment.nanoseconds.into()))
}

fn moment(ns: i64) -> Moment {
    Moment { seconds: ns.div_euclid(NS_PER_S), nanoseconds: ns.rem_euclid(NS_PER_S) as u32 }
}

fn sort(kind: Kind) -> Sort {
    match kind {
        Kind::File => Sort::File,
        Kind::Directory => Sort::Directory,
        Kind::Symlink => Sort::Symlink,
        Kind::Portal => Sort::Portal,
        Kind::Fifo => Sort::Fifo,
        Kind::Socket => Sort::Socket,
        Kind::CharacterDevice => Sort::CharacterDevice,
        Kind::BlockDevice => Sort::BlockDevice,
    }
}

/// As a message has it.
pub fn object(inode: Inode) -> Object {
    Object { number: inode.number.into(), generation: inode.generation }
}

/// A change that nobody counts yet.
pub fn changed(inode: Inode) -> Changed {
    Changed { object: object(inode), change: NO_CHANGE }
}

/// What is told of an inode.
pub fn told(found: &Attributes) -> record::Attributes {
    record::Attributes {
        place: Place { home: 0, object: object(found.step.inode) },
        mode: found.step.mode,
        links: found.links,
        uid: found.step.uid,
        gid: found.step.gid,
        device: found.device.into(),
        size: found.size,
        blocks: found.blocks_512,
        accessed: moment(found.accessed_ns),
        modified: moment(found.modified_ns),
        changed: moment(found.changed_ns),
        born: moment(found.born_ns),
        change: NO_CHANGE,
        shown_device: found.shown_device,
        shown_number: found.shown_number,
        sort: sort(found.step.kind),
        on_host: found.backing == Backing::Host,
        extended_on_host: found.extended == Backing::Host,
        origin: found.origin.map(|origin| origin.0),
    }
}

impl Agent {
    /// A thread's.
    pub fn new(client: Client<Direct, Plain, Plain>, sessions: Arc<Sessions>) -> Agent {
        Agent {
            client,
            sessions,
            memory: None,
            lends_memory: false,
            unheard: None,
            unheard_lock: None,
            answered: None,
            is_supervisor: false,
            bytes: Vec::new(),
            is_afar: false,
            lent: None,
        }
    }

    /// Handles a request; its answer's body is put into `room`.
    pub fn handle(&mut self, header: &Header, body: &[u8], room: &mut [u8]) -> Handled {
        (self.lends_memory, self.unheard, self.answered) = (false, None, None);
        self.unheard_lock = None;
        if header.role != Role::Request && !planted!(PostedIsDone) {
            let fault = if header.role == Role::Reply { Fault::Unasked } else { Fault::Role };
            self.sessions.refuse(header.source, fault);
            return Err(Failure::Protocol);
        }
        if self.sessions.is_fenced(header) {
            return Err(Failure::Fenced);
        }
        self.is_afar = header.source >= AFAR;
        let handled = self.dispatch(header, body, room).unwrap_or_else(|fault| {
            self.sessions.refuse(header.source, fault);
            Err(Failure::Protocol)
        });
        if handled.is_err() {
            self.was_not_heard();
            self.close_first_tries(header, None);
        }
        // Who watches what has changed is told, as by any process.
        self.client.tell();
        handled
    }

    fn dispatch(
        &mut self,
        header: &Header,
        body: &[u8],
        room: &mut [u8],
    ) -> Result<Handled, Fault> {
        Ok(match Asked::of(header.kind) {
            Some(asked) if self.is_afar && afar::is_refused(asked) => {
                Err(failure(Errno::EOPNOTSUPP))
            }
            Some(Asked::Walk) => self.walk(header, take(header, body)?, room),
            Some(Asked::ListNames) => self.list(header, take(header, body)?, room),
            Some(Asked::Above) => self.above(header, take(header, body)?, room),
            Some(Asked::Create) => self.create(header, take(header, body)?, room),
            Some(Asked::MakeDirectory) => self.make_directory(header, take(header, body)?, room),
            Some(Asked::Link) => self.link(header, take(header, body)?, room),
            Some(Asked::Remove) => self.remove(header, take(header, body)?, room),
            Some(Asked::Rename) => self.rename(header, take(header, body)?, room),
            Some(Asked::SetAttributes) => self.set_attributes(header, take(header, body)?, room),
            Some(Asked::Extended) => self.extended(header, take(header, body)?, room),
            Some(Asked::HostFile) => self.host_file(header, take(header, body)?, room),
            Some(Asked::Own) => self.own(header, take(header, body)?, room),
            Some(Asked::Room) => self.room(header, take(header, body)?, room),
            Some(Asked::Open) => self.open(header, take(header, body)?, room),
            Some(Asked::Return) => self.give_back(header, take(header, body)?, room),
            Some(Asked::Read) => self.read(header, take(header, body)?, room),
            Some(Asked::WriteHome) => self.write(header, take(header, body)?, room),
            Some(Asked::Space) => self.space(header, take(header, body)?, room),
            Some(Asked::Lock) => self.lock(header, take(header, body)?, room),
            Some(Asked::Unlock) => self.unlock(header, take(header, body)?, room),
            Some(Asked::PassDescription) => self.pass(header, take(header, body)?, room),
            Some(Asked::DescriptionIo) => self.transfer(header, take(header, body)?, room),
            Some(Asked::Epoch) => self.epoch(header, take(header, body)?, room),
            Some(Asked::Memory) => self.lend_memory(header, take(header, body)?, room),
            _ => Err(Failure::Unserved),
        })
    }

    /// Our memory, to be read by a process of another node.
    fn lend_memory(
        &mut self,
        header: &Header,
        request::Memory {}: request::Memory,
        room: &mut [u8],
    ) -> Handled {
        let memory = self.memory.as_ref().ok_or(failure(Errno::EOPNOTSUPP))?;
        let Layout { kernels, memory_bytes } = memory.1;
        self.lends_memory = true;
        put::<message::Memory>(header, &reply::Memory { kernels, memory_bytes }, room)
    }

    /// A node is dead: what it had open is closed.
    fn epoch(&mut self, header: &Header, asked: request::Epoch<'_>, room: &mut [u8]) -> Handled {
        if !self.is_supervisor && !planted!(AnyoneTellsDeaths) {
            self.sessions.refuse(header.source, Fault::Role);
            return Err(Failure::Protocol);
        }
        for node in asked.dead.iter() {
            self.bury(node, asked.epoch);
        }
        put::<message::Epoch>(header, &reply::Epoch { epoch: asked.epoch }, room)
    }

    /// The handlers.
    pub fn direct(&mut self) -> &mut Direct {
        self.client.services()
    }

    /// What the next change of content leaves of set-id bits, as who asks has judged.
    pub fn leave(&mut self, leaves: record::Leaves) {
        self.direct().leave_set_bits(match leaves {
            record::Leaves::Marks => SetBits::Marks,
            record::Leaves::Nothing => SetBits::Nothing,
            record::Leaves::All => SetBits::All,
            record::Leaves::Ask => SetBits::Ask,
        });
    }

    /// Attributes as a message has them.
    pub fn attributes(&mut self, inode: Inode) -> Result<record::Attributes, Failure> {
        let found = self.direct().attributes(inode).map_err(failure)?;
        Ok(self.told(&found))
    }

    /// What is told of an inode to who asks now.
    pub fn told(&self, found: &Attributes) -> record::Attributes {
        if self.is_afar { afar::told(found) } else { told(found) }
    }

    /// A directory, its names read from the host if they had not been.
    pub fn directory(&mut self, object: Object) -> Result<Inode, Failure> {
        let dir = inode(object).map_err(failure)?;
        self.client.list_for_others(dir).map_err(failure)?;
        Ok(dir)
    }
}

fn take<'a, B: Field<'a>>(header: &Header, body: &'a [u8]) -> Result<B, Fault> {
    decode(header, body)
}

/// Puts an answer into the room.
pub fn put<M: Message>(header: &Header, answer: &M::Reply<'_>, room: &mut [u8]) -> Handled {
    encoded::<M>(header, answer, room).map_err(|_| Failure::Busy)
}
