//! Between what messages say and what handlers take: inodes, callers, times, attributes, errors.
//!
//! Plain functions, without state.

use husk_carrier::NOW_S;
use husk_proto::fs::{Attributes, Backing, Kind, Time};
use husk_proto::{Credentials, Errno, Inode};
use husk_wire::handlers::reply as encoded;
use husk_wire::messages::decode;
use husk_wire::record::{self, Changed, Moment, Object, Place, Sort};
use husk_wire::{Failure, Fault, Field, Header, Message};

use crate::planted::planted;

/// Nanoseconds in a second.
const NS_PER_S: i64 = 1_000_000_000;
/// Attributes have no number of changes yet: nobody keeps a copy that it could void.
const NO_CHANGE: u64 = 0;

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

/// What is told of an inode to a node of this host.
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

/// What is told of it to a node on another host: nothing of this one.
pub fn told_afar(found: &Attributes) -> record::Attributes {
    record::Attributes { on_host: false, extended_on_host: false, origin: None, ..told(found) }
}

/// What is told of an inode that has no name any more, and was freed.
pub fn nothing(object: Object) -> record::Attributes {
    let moment = Moment { seconds: 0, nanoseconds: 0 };
    record::Attributes {
        place: Place { home: 0, object },
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        device: 0,
        size: 0,
        blocks: 0,
        accessed: moment,
        modified: moment,
        changed: moment,
        born: moment,
        change: 0,
        shown_device: 0,
        shown_number: 0,
        sort: Sort::File,
        on_host: false,
        extended_on_host: false,
        origin: None,
    }
}

/// What a handler's error is to another node.
pub fn failure(errno: Errno) -> Failure {
    if errno == Errno::ESTALE { Failure::Gone } else { Failure::Errno(errno) }
}

/// What a request asks for.
pub fn take<'a, B: Field<'a>>(header: &Header, body: &'a [u8]) -> Result<B, Fault> {
    decode(header, body)
}

/// Puts an answer into the room.
pub fn put<M: Message>(header: &Header, answer: &M::Reply<'_>, room: &mut [u8]) -> Handled {
    encoded::<M>(header, answer, room).map_err(|_| Failure::Busy)
}
