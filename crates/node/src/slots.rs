//! Threads that take requests out of memory that programs of other nodes of this host map.
//!
//! One of them looks for a while after each request, as long as that is worth it: the next one is
//! then taken within less than a microsecond. The others, and after a while that one, sleep.
//!
//! Not here: how a slot changes hands (`husk_link::Slots`), what a request means (`agent`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use husk_link::{Answered, Memory, Robust, SLOTS, Slots};
use rustix::fs::{Mode, OFlags, open};

use crate::agent::Agent;
use crate::dispatch::reply_to;

/// Threads, each with one request at a time.
pub const THREADS: usize = 3;
/// How long a thread looks for the next request.
const LOOK: Duration = Duration::from_micros(40);
/// Looks between two glances at the clock.
const GLANCES: u32 = 16;
/// Looks in vain after which a thread sleeps at once; and how often it looks all the same.
const VAIN_MAX: u32 = 4;
const TRIED_AGAIN: u32 = 32;
/// Between two looks for the slots of dead askers.
const SWEEP: Duration = Duration::from_secs(2);
/// How long an answer lies before its asker is looked for, in spans of `Slots::take_back`.
const UNREAD_SPANS: u32 = 4;

/// The hold that an answer has told of: it ends if nobody takes that. Its name is never another's,
/// so it can be ended late.
#[derive(Clone, Copy, Debug)]
struct UnreadHold {
    turn: u32,
    hold: (u16, u64),
}

/// The memory, its descriptor for those who are to map it, and what was told last in each slot.
#[derive(Clone, Debug)]
pub struct Shared(Arc<(Memory, OwnedFd, Mutex<[Option<UnreadHold>; SLOTS]>)>);

impl Shared {
    /// Makes it; `None`: there is no room for it, and requests come to the socket.
    pub fn make() -> Option<Shared> {
        let memory = Memory::create(c"husk-requests", Slots::BYTES).ok()?;
        let path = format!("/proc/self/fd/{}", memory.descriptor());
        let again = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Shared(Arc::new((memory, again, Mutex::new([None; SLOTS])))))
    }

    /// To be given away.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.1.as_fd()
    }

    fn slots(&self) -> Slots<'_> {
        self.0.0.slots()
    }

    fn told(&self) -> MutexGuard<'_, [Option<UnreadHold>; SLOTS]> {
        // No change of it stops half-way.
        self.0.2.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on requests are asked here, as long as this thread lives.
    pub fn open(&self) {
        self.slots().open(Box::leak(Box::default()));
    }

    /// Notes what is about to be told, until it was taken or is known not to be.
    fn note(&self, answered: Answered, agent: &Agent) {
        if let Some(hold) = agent.unheard {
            self.told()[answered.at] = Some(UnreadHold { turn: answered.turn, hold });
        }
    }

    /// Ends what was told to those who were killed before they heard it.
    fn end_unread(&self, agent: &mut Agent) {
        self.slots().take_back(UNREAD_SPANS, |unread| {
            let told = self.told()[unread.at].take_if(|told| told.turn == unread.turn);
            if let Some(UnreadHold { hold, .. }) = told {
                agent.unheard = Some(hold);
                agent.was_not_heard();
            }
        });
    }
}

/// Whether to look for the next request or to sleep at once, by what came of it before.
#[derive(Debug, Default)]
struct AdaptiveSpin {
    vain: u32,
}

impl AdaptiveSpin {
    fn is_worth_it(&self) -> bool {
        self.vain < VAIN_MAX || self.vain.is_multiple_of(TRIED_AGAIN)
    }

    fn note(&mut self, found: bool) {
        self.vain = if found { 0 } else { self.vain.wrapping_add(1) };
    }
}

/// Answers requests for ever, in rooms of `SLOT_BYTES_MAX` bytes.
pub fn work(shared: &Shared, agent: &mut Agent, [incoming, outgoing]: [&mut [u8]; 2]) {
    let (slots, mut spin) = (shared.slots(), AdaptiveSpin::default());
    let robust: &'static Robust = Box::leak(Box::default());
    if !robust.begin() {
        return;
    }
    let mut swept = Instant::now();
    loop {
        while let Some((taken, length)) = slots.take(robust, incoming) {
            slots.share();
            let length = reply_to(agent, &incoming[..length], || false, outgoing);
            // Before another thread can answer the next request there. What is left of a note that
            // was in vain ends nothing: its turn does not come again.
            shared.note(taken.answered(), agent);
            if slots.answer(taken, length.map(|length| &outgoing[..length])) {
                agent.was_heard();
            } else {
                agent.was_not_heard();
            }
        }
        if spin.is_worth_it() && slots.begin_look() {
            let found = look(&slots);
            slots.end_look();
            spin.note(found);
            if found || slots.has_request() {
                continue;
            }
        } else {
            spin.note(false);
        }
        if swept.elapsed() > SWEEP {
            shared.end_unread(agent);
            swept = Instant::now();
        }
        slots.sleep();
    }
}

/// Whether a request comes within `LOOK`.
fn look(slots: &Slots<'_>) -> bool {
    let begin = Instant::now();
    loop {
        for _ in 0..GLANCES {
            if slots.has_request() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begin.elapsed() > LOOK {
            return false;
        }
    }
}
