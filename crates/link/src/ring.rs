//! The link between two nodes of one host.
//!
//! The side that makes the memory is side 0. It gives the descriptors of the memory and of the
//! doorbells to side 1. A pair restarts in new memory, or under a higher epoch.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use husk_abi::Errno;
use husk_wire::{Fault, Header, Role};

use crate::doorbell::Doorbell;
use crate::lane::{EPOCH, Reader, Room, Writer};
use crate::layout::{CHANNELS_MAX, OUTSTANDING_MAX, PairAt, SLAB_BYTES};
use crate::memory::{Area, Memory};
use crate::pool::Pool;
use crate::{Broken, Ending, Lane, Link, Received, Status, Unsent};

const MAGIC: u64 = u64::from_le_bytes(*b"HUSKRING");
/// Lanes of one direction: the priority lane and the channels.
const LANES_MAX: usize = 1 + CHANNELS_MAX;
/// The priority lane's number.
const PRIORITY: usize = 0;
/// Messages after which a buffering sender wakes its peer without being told to.
const BUFFERED_MAX: u32 = 64;

/// Bytes of memory of a pair with so many channels, 1 to `CHANNELS_MAX`.
pub const fn memory_bytes(channels: usize) -> usize {
    assert!(channels >= 1 && channels <= CHANNELS_MAX);
    PairAt { channels }.bytes()
}

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Who made the memory.
    Maker,
    /// Who got it.
    Guest,
}

/// When a sleeping peer is woken, and when the sender hears of room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// With each message.
    Direct,
    /// With `flush`, or after 64 messages; awake peers see them at once all the same. Room is told
    /// after 64 slots or when there is nothing to read.
    Buffered,
}

/// One side of a pair.
#[derive(Debug)]
pub struct Ring<'m> {
    area: Area<'m>,
    side: usize,
    node: u16,
    channels: usize,
    writers: [Option<Writer<'m>>; LANES_MAX],
    readers: [Option<Reader<'m>>; LANES_MAX],
    /// Pools by the lane that uses them, and the other side's.
    outgoing: [Pool<'m>; LANES_MAX],
    incoming: [Pool<'m>; LANES_MAX],
    bell: Doorbell<'m>,
    mode: Mode,
    unrung: u32,
    /// Own requests that are not answered; the peer's. In memory, too, for who takes over: counted
    /// before and discounted after, so that a death leaves one too many, never too few.
    asked: u32,
    owed: u32,
    /// The lane and role of the message that came last.
    last: Option<(usize, Role)>,
    /// The channel to look at first for the next one.
    turn: usize,
    ended: Option<Ending>,
}

/// An extent that is filled in place and sent without a copy.
#[derive(Debug)]
pub struct Loan {
    number: usize,
    lane: usize,
    /// Where its bytes are, for a call of the host that fills them.
    pub address: usize,
}

impl<'m> Ring<'m> {
    /// Begins as `side`, of node `node`, in memory of `memory_bytes(channels)`; or takes over from
    /// a process of the same node that is gone. `bell` is the peer's. EPROTO: the memory is none
    /// of a ring of this epoch with so many channels.
    pub fn begin(
        memory: &'m Memory,
        side: Side,
        node: u16,
        (epoch, channels): (u32, usize),
        bell: Doorbell<'m>,
        mode: Mode,
    ) -> Result<Self, Errno> {
        let (area, at) = (memory.area(), PairAt { channels });
        if !(1..=CHANNELS_MAX).contains(&channels) || epoch == 0 || epoch > EPOCH {
            return Err(Errno::EINVAL);
        }
        if side == Side::Maker {
            area.word(PairAt::CHANNELS).store(channels as u64, Relaxed);
            area.word(PairAt::EPOCH).store(epoch.into(), Relaxed);
            area.word(PairAt::MAGIC).store(MAGIC, Release);
        }
        let head = [PairAt::MAGIC, PairAt::EPOCH, PairAt::CHANNELS];
        if head.map(|word| area.word(word).load(Acquire)) != [MAGIC, epoch.into(), channels as u64]
        {
            return Err(Errno::EPROTOTYPE);
        }
        let (me, other) = (side as usize, 1 - side as usize);
        let lane = |side: usize, n: usize| match n {
            PRIORITY => at.priority(side),
            _ => at.requests(side, n - 1),
        };
        let lazy = mode == Mode::Buffered;
        let pool = |side: usize, n: usize| Pool::new(area, at.pool(side), n as u64);
        let writers = core::array::from_fn(|n| {
            (n <= channels).then(|| Writer::begin(area, lane(me, n), epoch))
        });
        let outgoing = core::array::from_fn(|n| pool(me, n));
        for (pool, writer) in outgoing.iter().zip(&writers) {
            writer.as_ref().inspect(|writer: &&Writer<'_>| pool.recover(writer.next()));
        }
        area.word(PairAt::state(me)).store(UP, Release);
        let count = |word| area.word(word).load(Relaxed).min(OUTSTANDING_MAX.into()) as u32;
        Ok(Self {
            area,
            side: me,
            node,
            channels,
            writers,
            readers: core::array::from_fn(|n| {
                (n <= channels).then(|| Reader::begin(area, lane(other, n), epoch, lazy))
            }),
            outgoing,
            incoming: core::array::from_fn(|n| pool(other, n)),
            bell,
            mode,
            unrung: 0,
            asked: count(PairAt::asked(me)),
            owed: count(PairAt::owed(me)),
            last: None,
            turn: 0,
            ended: None,
        })
    }

    /// The lane of a message, and who may use its room.
    #[inline]
    fn choose(&self, lane: Lane) -> Result<(usize, Room), Unsent> {
        if let Some(Ending::Broken(broken)) = self.ended {
            return Err(broken.into());
        }
        match lane {
            Lane::Request(channel) => Ok((1 + channel, Room::Shared)),
            Lane::Reply if self.owed == 0 => Err(Unsent::Unasked),
            Lane::Reply => Ok((PRIORITY, Room::Kept)),
            Lane::CallBack => Ok((PRIORITY, Room::Shared)),
        }
    }

    fn count_asked(&mut self, asked: u32) {
        self.asked = asked;
        self.area.word(PairAt::asked(self.side)).store(asked.into(), Relaxed);
    }

    fn count_owed(&mut self, owed: u32) {
        self.owed = owed;
        self.area.word(PairAt::owed(self.side)).store(owed.into(), Relaxed);
    }

    #[inline(always)]
    fn deliver(
        &mut self,
        lane: Lane,
        n: usize,
        header: &Header,
        send: impl FnOnce(&mut Writer<'m>, &mut Pool<'m>) -> Result<(), Unsent>,
    ) -> Result<(), Unsent> {
        let asks = u32::from(header.role == Role::Request);
        if self.asked + asks > OUTSTANDING_MAX {
            return Err(Unsent::Full);
        }
        self.count_asked(self.asked + asks);
        let writer = self.writers.get_mut(n).and_then(Option::as_mut).ok_or(Unsent::NoLane);
        let sent = writer.and_then(|writer| send(writer, &mut self.outgoing[n]));
        if let Err(why) = sent {
            self.count_asked(self.asked - asks);
            return Err(why);
        }
        if lane == Lane::Reply {
            self.count_owed(self.owed - 1);
        }
        self.unrung += 1;
        if self.mode == Mode::Direct || self.unrung >= BUFFERED_MAX {
            self.flush();
        }
        Ok(())
    }

    /// Takes an extent for a long body that is filled in place.
    pub fn lend(&mut self, lane: Lane) -> Result<Loan, Unsent> {
        let (n, _) = self.choose(lane)?;
        let writer = self.writers[n].as_ref().ok_or(Unsent::NoLane)?;
        let number = self.outgoing[n].lend(writer.next()).ok_or(Unsent::Full)?;
        Ok(Loan { number, lane: n, address: self.outgoing[n].address(number) })
    }

    /// Copies bytes into an extent.
    pub fn fill(&self, loan: &Loan, offset: usize, bytes: &[u8]) {
        self.outgoing[loan.lane].fill(loan.number, offset, bytes);
    }

    /// Sends the message whose body is the first `header.length` bytes of the extent, on the lane
    /// that it was taken for, before anything else is sent there.
    pub fn send_lent(&mut self, lane: Lane, header: &Header, loan: Loan) -> Result<(), Unsent> {
        let (n, room) = self.choose(lane)?;
        assert_eq!(n, loan.lane);
        self.deliver(lane, n, header, |writer, _| writer.send_lent(header, loan.number, room))
    }

    /// The message that came last has been handled, but its extent is still looked at.
    pub fn done_keeping(&mut self) {
        self.finish(true);
    }

    /// Whether everything that was sent on the lane for replies and call-backs has been taken.
    pub fn is_drained(&mut self) -> Result<bool, Broken> {
        self.writers[PRIORITY].as_mut().map_or(Ok(true), Writer::is_drained)
    }

    #[inline]
    fn finish(&mut self, keeps: bool) {
        let Some((n, role)) = self.last.take() else { return };
        if role == Role::Request {
            self.count_owed(self.owed + 1);
        }
        let Some(reader) = self.readers[n].as_mut() else { return };
        if keeps {
            reader.done_keeping();
        } else {
            reader.done();
        }
        if role == Role::Reply {
            self.count_asked(self.asked - 1);
        }
    }

    /// Whether a message with this header may come now, on lane `n`.
    #[inline]
    fn judge(&self, n: usize, header: &Header) -> Result<(), Broken> {
        match header.role {
            Role::Request if self.owed >= OUTSTANDING_MAX => Err(Broken::Flood),
            Role::Reply if n != PRIORITY || self.asked == 0 => Err(Fault::Unasked.into()),
            _ => Ok(()),
        }
    }

    /// The lane that has a message, the priority lane first, then each channel in turn.
    #[inline]
    fn find(&mut self) -> Option<usize> {
        let has = |n: usize| self.readers[n].as_ref().is_some_and(Reader::has_message);
        if has(PRIORITY) {
            return Some(PRIORITY);
        }
        let channels = self.channels;
        let in_turn =
            |n| if self.turn + n < channels { self.turn + n } else { self.turn + n - channels };
        let found = (0..channels).map(|n| 1 + in_turn(n)).find(|&n| has(n));
        if let Some(n) = found {
            self.turn = if n < channels { n } else { 0 };
        }
        found
    }
}

impl Link for Ring<'_> {
    #[inline]
    fn send(&mut self, lane: Lane, header: &Header, body: &[u8]) -> Result<(), Unsent> {
        let (n, room) = self.choose(lane)?;
        self.deliver(lane, n, header, |writer, pool| writer.send(header, body, room, pool))
    }

    #[inline]
    fn receive<'r>(&'r mut self, room: &'r mut [u8]) -> Result<Option<Received<'r, 'r>>, Broken> {
        assert!(room.len() >= SLAB_BYTES);
        if let Some(Ending::Broken(broken)) = self.ended {
            return Err(broken);
        }
        let Some(n) = self.find() else {
            // Tells the sender how far it is, where that is put off.
            let readers = self.readers.iter_mut().flatten();
            readers.for_each(Reader::tell);
            return Ok(None);
        };
        let Some(reader) = self.readers[n].as_mut() else { return Ok(None) };
        let came = reader.receive(room, &self.incoming[n]).and_then(|message| match message {
            Some(message) => self.judge(n, &message.header).map(|()| Some(message)),
            None => Ok(None),
        });
        match &came {
            Err(broken) => {
                self.last = None;
                let state = Ending::Broken(*broken);
                self.ended = Some(state);
                self.area.word(PairAt::state(self.side)).store(number_of(state), Release);
            }
            Ok(message) => self.last = message.as_ref().map(|message| (n, message.header.role)),
        }
        came
    }

    #[inline]
    fn done(&mut self) {
        self.finish(false);
    }

    #[inline]
    fn flush(&mut self) {
        if core::mem::take(&mut self.unrung) > 0 {
            self.bell.ring(self.node);
        }
    }

    #[inline]
    fn has_message(&self) -> bool {
        self.readers.iter().flatten().any(Reader::has_message)
    }

    fn status(&self) -> Status {
        if let Some(ending) = self.ended {
            return Status::Ended(ending);
        }
        match self.area.word(PairAt::state(1 - self.side)).load(Acquire) {
            0 => Status::Opening,
            UP => Status::Up,
            number => Status::PeerEnded(ending_of(number)),
        }
    }

    fn end(&mut self, why: Ending) {
        self.ended = Some(why);
        self.area.word(PairAt::state(self.side)).store(number_of(why), Release);
        self.unrung += 1;
        self.flush();
    }
}

const UP: u64 = 1;
const LEFT: u64 = 2;
const FORM: u64 = 3;
const CREDITS: u64 = 4;
const FLOOD: u64 = 5;
/// Behind it, a message's fault.
const MESSAGE: u64 = 16;

fn number_of(ending: Ending) -> u64 {
    match ending {
        Ending::Left => LEFT,
        Ending::Broken(Broken::Form) => FORM,
        Ending::Broken(Broken::Credits) => CREDITS,
        Ending::Broken(Broken::Flood) => FLOOD,
        Ending::Broken(Broken::Message(fault)) => MESSAGE + fault.index() as u64,
    }
}

/// What a peer says that it ended for; a number that means nothing is a form that does not exist.
fn ending_of(number: u64) -> Ending {
    let fault = number.checked_sub(MESSAGE).and_then(|n| Fault::ALL.get(n as usize));
    Ending::Broken(match (number, fault) {
        (LEFT, _) => return Ending::Left,
        (CREDITS, _) => Broken::Credits,
        (FLOOD, _) => Broken::Flood,
        (_, Some(fault)) => Broken::Message(*fault),
        _ => Broken::Form,
    })
}
