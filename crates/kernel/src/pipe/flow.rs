//! Service `pipe`: reading and writing.
//!
//! ```text
//!   take  HOST ─ due? ─ climb ─┬─ no ──► count, host call          put  HOST, LEAVING ─► count,
//!         RING ─ bytes? ─ look out ─ none ─► HOST, again                host call
//!         LEAVING ─ bytes? ─ none ─► HOST, again                   RING ─ room? ─ look out ─ none
//!                                                                       ─► LEAVING, again
//! ```
//!
//! Where the reader of a lane is woken by bells, an empty ring is `Dry`, and a full one whose
//! reader has the same core is `Full`: the client sleeps, or lets the other one run, and asks
//! again.
//!
//! No transaction, no arena: only the pipe's own words (`region::pipes`), so that nothing has to be
//! opened. Locks: readers', then writers'; whoever meets a living holder goes away and sleeps.

use husk_proto::fs::Span;
use husk_proto::pipe::{Emptiness, Flow, Pipe, Withdrawal};
use husk_proto::{Errno, Result};
use husk_region::observe::kill;
use husk_region::rings::pipes::{self, Climb, Held, Holder, Lock, Mode, RING_BYTES};

use crate::Kernel;
use crate::pipe::hooks;
use crate::pipe::lanes;
use crate::pipe::{holder, ring};

/// What is written as a whole or not at all.
const PIPE_BUF: usize = 4096;
/// Longer copies gain nothing without a lock: one that follows close upon the last takes twice its
/// time at worst, but for a locked instruction between them, which waits for the stores before.
const SHORT_BYTES: usize = 256;
/// Bytes after which the other side may go on.
const STEP_BYTES: u64 = 8192;
/// Most bytes of one call through the ring, so that a signal is seen soon.
const BURST_BYTES: usize = 1 << 20;
/// Changes of state followed in one call.
const TURNS_MAX: u32 = 64;

type Copy<'a> = &'a mut dyn FnMut(Span) -> Result<()>;

fn wait(held: Held) -> Flow {
    Flow::Wait { address: held.address, value: held.value }
}

/// After too many turns: out, and in again.
fn again(ring: &pipes::Pipe) -> Flow {
    let (address, _) = ring.front();
    Flow::Wait { address: address & !7, value: u32::MAX }
}

/// `Pipes::pipe_take`.
#[inline]
pub fn take(kernel: &Kernel, pipe: Pipe, length: usize, copy: Copy<'_>) -> Result<Flow> {
    let (ring, me) = (ring(kernel, pipe)?, holder(kernel));
    for _ in 0..TURNS_MAX {
        let flow = match ring.mode() {
            None => return Err(Errno::EBADF),
            Some(Mode::Host) => take_from_host(&ring, me),
            Some(_) => take_from_ring(&ring, me, length, copy)?,
        };
        if let Some(flow) = flow {
            return Ok(flow);
        }
    }
    Ok(again(&ring))
}

fn take_from_host(ring: &pipes::Pipe, me: Holder) -> Option<Flow> {
    // In a set it climbs when the host's call is over (`landed`).
    let due = ring.hook().is_none() && ring.is_due();
    if due && ring.try_lock(Lock::Readers, me) {
        if ring.try_lock(Lock::Writers, me) {
            match ring.climb() {
                Climb::Fetch(bytes) => return Some(Flow::Fetch(spans(ring.back(0), bytes, ring))),
                Climb::Done | Climb::No => ring.unlock(Lock::Writers),
            }
        }
        ring.unlock(Lock::Readers);
    }
    ring.take_off(false).then_some(Flow::Host { done: 0 })
}

/// `bytes` from `(address, in one piece)` on.
fn spans(first: (usize, u64), bytes: u64, ring: &pipes::Pipe) -> [Span; 2] {
    let (address, piece) = first;
    let length = bytes.min(piece);
    let start = ring.start();
    [Span::new(address, length as usize), Span::new(start, (bytes - length) as usize)]
}

/// Bytes in the ring, the readers' lock taken; or how it goes on without. `stays`: where that would
/// be at the host, and the socket is in a set or polled, the caller decides.
#[inline(always)]
fn reach(
    ring: &pipes::Pipe,
    me: Holder,
    wanted: u64,
    stays: bool,
) -> core::result::Result<u64, Option<Flow>> {
    ring.lock(Lock::Readers, me).map_err(|held| Some(wait(held)))?;
    let mode = ring.mode();
    let mut there = match mode {
        Some(Mode::Ring | Mode::Leaving) => ring.readable(wanted),
        Some(Mode::Climbing) => return Err(take_over(ring, me, Lock::Readers, Lock::Writers)),
        _ => {
            ring.unlock(Lock::Readers);
            return Err(None);
        }
    };
    if there == 0 && mode == Some(Mode::Ring) {
        if stays && (ring.hook().is_some() || ring.is_polled()) {
            ring.unlock(Lock::Readers);
            return Err(Some(Flow::Dry));
        }
        there = ring.look_out_for_bytes();
        if there == 0 && stays && ring.mate().is_none() && ring.is_written_here() {
            ring.unlock(Lock::Readers);
            return Err(Some(Flow::Dry));
        }
    }
    if there == 0 { Err(go_to_host(ring, me)) } else { Ok(there) }
}

#[inline(always)]
fn take_from_ring(
    ring: &pipes::Pipe,
    me: Holder,
    length: usize,
    copy: Copy<'_>,
) -> Result<Option<Flow>> {
    let there = match reach(ring, me, length as u64, true) {
        Ok(there) => there,
        Err(flow) => return Ok(flow),
    };
    let moved = copy_out(ring, there.min(length as u64), copy);
    ring.served();
    ring.unlock(Lock::Readers);
    moved.map(|moved| Some(Flow::Moved(moved)))
}

/// `Pipes::pipe_take_swiftly`.
#[inline(always)]
pub fn take_swiftly(
    kernel: &Kernel,
    pipe: Pipe,
    alone: bool,
    length: usize,
    copy: impl FnOnce(Span) -> Result<()>,
) -> usize {
    let Ok(ring) = ring(kernel, pipe) else { return 0 };
    let locked = |ring: &pipes::Pipe| ring.try_lock(Lock::Readers, holder(kernel));
    let early = (kill::mutant() == 30).then(|| ring.mode());
    let alone = alone && length <= SHORT_BYTES && ring.enter_alone(holder(kernel));
    if !alone && (ring.mode() != Some(Mode::Ring) || !locked(&ring)) {
        return 0;
    }
    let in_use = early.unwrap_or_else(|| ring.mode()) == Some(Mode::Ring);
    let there = if in_use { ring.readable(length as u64) } else { 0 };
    let (address, piece) = ring.front();
    let bytes = there.min(length as u64);
    let fits = bytes != 0 && bytes <= piece.min(STEP_BYTES);
    let short = if fits && !alone { ring.short(bytes) } else { None };
    let address = short.as_ref().map_or(address, |words| words.as_ptr() as usize);
    let done = fits && copy(Span::new(address, bytes as usize)).is_ok();
    if done {
        ring.taken(bytes);
        ring.served();
    }
    if alone {
        ring.leave_alone()
    } else {
        ring.unlock(Lock::Readers)
    }
    if done { bytes as usize } else { 0 }
}

/// `Pipes::pipe_put_swiftly`. Who is alone with a pipe is its reader, and at hand.
#[inline(always)]
pub fn put_swiftly(
    kernel: &Kernel,
    pipe: Pipe,
    alone: bool,
    length: usize,
    copy: impl FnOnce(Span) -> Result<()>,
) -> bool {
    let Ok(ring) = ring(kernel, pipe) else { return false };
    if length > PIPE_BUF {
        return false;
    }
    let early = (kill::mutant() == 30).then(|| ring.mode());
    let alone = alone && length <= SHORT_BYTES && ring.enter_alone(holder(kernel));
    let ready = |ring: &pipes::Pipe| {
        let sleeps = || ring.teller().is_some_and(|set| set.asleep() != 0);
        ring.mode() == Some(Mode::Ring) && !hooks::is_look_due(ring) && !sleeps()
    };
    if !alone && (!ready(&ring) || !ring.try_lock(Lock::Writers, holder(kernel))) {
        return false;
    }
    let bytes = length as u64;
    let in_use = early.unwrap_or_else(|| ring.mode()) == Some(Mode::Ring);
    if in_use {
        ring.rewind(alone);
    }
    let (address, piece) = ring.back(0);
    let fits = in_use && bytes <= piece && ring.room(bytes) >= bytes;
    let done = fits && copy(Span::new(address, length)).is_ok();
    if done {
        if alone {
            ring.given(bytes)
        } else {
            ring.given_short(address, bytes, piece)
        }
        ring.wrote();
    }
    if alone {
        ring.leave_alone()
    } else {
        ring.unlock(Lock::Writers)
    }
    done
}

/// `Pipes::pipe_watch`.
pub fn watch(kernel: &Kernel, pipe: Pipe) -> Result<Flow> {
    look(kernel, pipe, &mut |_, there| Ok(there as usize))
}

/// `Pipes::pipe_peek`.
pub fn peek(
    kernel: &Kernel,
    pipe: Pipe,
    length: usize,
    copy: Copy<'_>,
    behind: &mut dyn FnMut(usize) -> usize,
) -> Result<Flow> {
    look(kernel, pipe, &mut |ring, there| {
        let bytes = there.min(length as u64);
        let pieces = spans(ring.front(), bytes, ring);
        pieces.into_iter().filter(|piece| piece.length > 0).try_for_each(&mut *copy)?;
        let done = bytes as usize;
        // Under both locks nothing comes in between.
        let leaving = done < length && ring.mode() == Some(Mode::Leaving);
        if !leaving || !ring.try_lock(Lock::Writers, holder(kernel)) {
            return Ok(done);
        }
        let all = ring.readable(RING_BYTES) == there;
        let more = if all { behind(done) } else { 0 };
        ring.unlock(Lock::Writers);
        Ok(done + more)
    })
}

/// As `take`, but that the bytes stay where they are, shown to `see` under the readers' lock.
fn look(
    kernel: &Kernel,
    pipe: Pipe,
    see: &mut dyn FnMut(&pipes::Pipe, u64) -> Result<usize>,
) -> Result<Flow> {
    let (ring, me) = (ring(kernel, pipe)?, holder(kernel));
    for _ in 0..TURNS_MAX {
        match ring.mode() {
            None => return Err(Errno::EBADF),
            Some(Mode::Host) => {
                if kill::mutant() == 27 || ring.take_off(false) {
                    return Ok(Flow::Host { done: 0 });
                }
            }
            Some(_) => match reach(&ring, me, RING_BYTES, false) {
                Ok(there) => {
                    let seen = see(&ring, there);
                    ring.unlock(Lock::Readers);
                    return seen.map(Flow::Moved);
                }
                Err(Some(flow)) => return Ok(flow),
                Err(None) => {}
            },
        }
    }
    Ok(again(&ring))
}

/// The ring is empty for its reader, who may have to sleep.
#[cold]
fn go_to_host(ring: &pipes::Pipe, me: Holder) -> Option<Flow> {
    let both = ring.lock(Lock::Writers, me);
    if both.is_ok() {
        ring.go_to_host();
        ring.unlock(Lock::Writers);
    }
    ring.unlock(Lock::Readers);
    both.err().map(wait)
}

/// A climber died: its other lock, too, then the client asks the host what is left.
#[cold]
fn take_over(ring: &pipes::Pipe, me: Holder, mine: Lock, other: Lock) -> Option<Flow> {
    match ring.lock(other, me) {
        Ok(()) => Some(Flow::Settle),
        Err(held) => {
            ring.unlock(mine);
            Some(wait(held))
        }
    }
}

fn copy_out(ring: &pipes::Pipe, bytes: u64, copy: Copy<'_>) -> Result<usize> {
    let mut done = 0;
    while done < bytes {
        let (address, piece) = ring.front();
        let step = piece.min(bytes - done).min(STEP_BYTES);
        let short = ring.short(step);
        let address = short.as_ref().map_or(address, |words| words.as_ptr() as usize);
        match copy(Span::new(address, step as usize)) {
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
            Ok(()) => {}
        }
        ring.taken(step);
        done += step;
    }
    Ok(done as usize)
}

/// `Pipes::pipe_put`.
#[inline]
pub fn put(
    kernel: &Kernel,
    pipe: Pipe,
    length: usize,
    whole: bool,
    copy: Copy<'_>,
) -> Result<Flow> {
    let (ring, me) = (ring(kernel, pipe)?, holder(kernel));
    let whole = whole || length <= PIPE_BUF;
    let mut done = 0;
    for _ in 0..TURNS_MAX {
        match ring.mode() {
            None => return Err(Errno::EBADF),
            Some(Mode::Host) if ring.is_invited() && may_let_run(&ring) => {
                ring.take_invitation();
                return Ok(Flow::Full { done });
            }
            Some(Mode::Host) if ring.is_invited() && ring.await_climb() => {}
            Some(Mode::Host | Mode::Leaving) => {
                if ring.take_off(true) {
                    return Ok(Flow::Host { done });
                }
            }
            Some(Mode::Ring) if done == 0 && hooks::is_look_due(&ring) => return Ok(Flow::Look),
            Some(_) => match put_into_ring(&ring, me, length, whole, &mut done, copy) {
                // What has gone in cannot be asked for again.
                Ok(Some(Flow::Wait { .. })) | Err(_) if done > 0 => return Ok(Flow::Moved(done)),
                Ok(None) => {}
                Ok(Some(flow)) => return Ok(flow),
                Err(errno) => return Err(errno),
            },
        }
    }
    Ok(if done > 0 { Flow::Moved(done) } else { again(&ring) })
}

/// Whether the reader would run if its writer, which has no room, let it.
fn may_let_run(ring: &pipes::Pipe) -> bool {
    (ring.is_polled() || ring.mate().is_none()) && ring.is_read_here()
}

fn put_into_ring(
    ring: &pipes::Pipe,
    me: Holder,
    length: usize,
    whole: bool,
    done: &mut usize,
    copy: Copy<'_>,
) -> Result<Option<Flow>> {
    if let Err(held) = ring.lock(Lock::Writers, me) {
        return Ok(Some(wait(held)));
    }
    match ring.mode() {
        Some(Mode::Ring) => {}
        Some(Mode::Climbing) => return Ok(take_over(ring, me, Lock::Writers, Lock::Readers)),
        _ => {
            ring.unlock(Lock::Writers);
            return Ok(None);
        }
    }
    let result = if whole {
        copy_in_whole(ring, length as u64, copy).map(|all| *done = if all { length } else { 0 })
    } else {
        copy_in_steps(ring, length, done, copy)
    };
    ring.wrote();
    let full = result.is_ok() && *done < length;
    let fits = !whole || length as u64 <= RING_BYTES;
    let stays = full && fits && *done < BURST_BYTES && may_let_run(ring);
    if full && !stays {
        ring.leave();
    }
    ring.unlock(Lock::Writers);
    result.map(|()| match full {
        false => Some(Flow::Moved(length)),
        true => stays.then_some(Flow::Full { done: *done }),
    })
}

/// All bytes under one store of the head; false: there is no room.
fn copy_in_whole(ring: &pipes::Pipe, bytes: u64, copy: Copy<'_>) -> Result<bool> {
    let fits = bytes <= RING_BYTES && (ring.room(bytes) >= bytes || ring.look_out_for_room(bytes));
    if !fits {
        return Ok(false);
    }
    let mut done = 0;
    while done < bytes {
        let (address, piece) = ring.back(done);
        let step = piece.min(bytes - done);
        copy(Span::new(address, step as usize))?;
        done += step;
    }
    ring.given(bytes);
    Ok(true)
}

/// As many bytes as find room, in steps that the reader may take at once.
fn copy_in_steps(
    ring: &pipes::Pipe,
    length: usize,
    done: &mut usize,
    copy: Copy<'_>,
) -> Result<()> {
    while *done < length && *done < BURST_BYTES {
        let left = (length - *done) as u64;
        let wanted = left.min(STEP_BYTES);
        if ring.room(wanted) == 0 && !ring.look_out_for_room(wanted) {
            return Ok(());
        }
        let (address, piece) = ring.back(0);
        let step = piece.min(ring.room(wanted)).min(wanted);
        copy(Span::new(address, step as usize))?;
        ring.given(step);
        ring.wrote();
        *done += step as usize;
    }
    Ok(())
}

/// `Pipes::pipe_landed`.
#[inline]
pub fn landed(kernel: &Kernel, pipe: Pipe, writes: bool, bytes: u64) {
    if let Ok(ring) = ring(kernel, pipe) {
        if !writes && bytes > 0 && ring.is_unused() && ring.mode().is_some() {
            lanes::met_stranger(&ring);
        }
        ring.land(writes, bytes);
        // Without bytes it may have been an end.
        if !writes && bytes > 0 && (ring.hook().is_some() || ring.is_polled()) {
            ring.climb_if_even(holder(kernel));
        }
    }
}

/// `Pipes::pipe_join_writer`.
#[inline]
pub fn join_writer(kernel: &Kernel, pipe: Pipe) {
    let found = ring(kernel, pipe).ok().filter(|ring| ring.mate().is_none());
    if let Some(ring) = found.filter(pipes::Pipe::is_written_here) {
        ring.climb_if_even(holder(kernel));
    }
}

fn unlock_both(ring: &pipes::Pipe) {
    ring.unlock(Lock::Writers);
    ring.unlock(Lock::Readers);
}

/// `Pipes::pipe_fetched`.
pub fn fetched(kernel: &Kernel, pipe: Pipe, bytes: u64) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.climbed(bytes);
        unlock_both(&ring);
    }
}

/// `Pipes::pipe_settled`.
pub fn settled(kernel: &Kernel, pipe: Pipe, bytes: u64) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.settle(bytes);
        unlock_both(&ring);
    }
}

fn lock_both(ring: &pipes::Pipe, me: Holder) -> core::result::Result<(), Held> {
    ring.lock(Lock::Readers, me)?;
    ring.lock(Lock::Writers, me).inspect_err(|_| ring.unlock(Lock::Readers))
}

/// `Pipes::pipe_show`.
pub fn show(kernel: &Kernel, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.pin();
        if ring.is_private() {
            ring.intrude();
        }
    }
}

/// `Pipes::pipe_empty`.
pub fn empty(kernel: &Kernel, pipe: Pipe) -> Emptiness {
    let Ok(ring) = ring(kernel, pipe) else { return Emptiness::Empty };
    if matches!(ring.mode(), Some(Mode::Host) | None) {
        return Emptiness::Empty;
    }
    if let Err(held) = lock_both(&ring, holder(kernel)) {
        return Emptiness::Wait { address: held.address, value: held.value };
    }
    let empty = match ring.mode() {
        // By now it may be another pipe's.
        Some(Mode::Host) | None => true,
        Some(Mode::Climbing) => false,
        Some(_) => ring.go_to_host(),
    };
    unlock_both(&ring);
    if empty { Emptiness::Empty } else { Emptiness::Bytes }
}

/// `Pipes::pipe_withdraw`.
pub fn withdraw(kernel: &Kernel, pipe: Pipe, stuck: bool) -> Result<Withdrawal> {
    let ring = ring(kernel, pipe)?;
    if matches!(ring.mode(), Some(Mode::Host) | None) {
        return Ok(Withdrawal::Nothing);
    }
    let me = holder(kernel);
    if let Err(held) = ring.check_idle(me).and_then(|()| lock_both(&ring, me)) {
        return Ok(Withdrawal::Wait { address: held.address, value: held.value });
    }
    match ring.mode() {
        // By now it may be another pipe's.
        Some(Mode::Host) | None => {
            unlock_both(&ring);
            return Ok(Withdrawal::Nothing);
        }
        Some(Mode::Climbing) => return Ok(Withdrawal::Settle),
        Some(_) => {}
    }
    match ring.begin_withdrawal(stuck) {
        None => {
            unlock_both(&ring);
            Ok(Withdrawal::Writing)
        }
        Some(0) => {
            ring.go_to_host();
            unlock_both(&ring);
            Ok(Withdrawal::Nothing)
        }
        Some(bytes) => Ok(Withdrawal::Bytes(spans(ring.front(), bytes, &ring))),
    }
}

/// `Pipes::pipe_withdrawing`.
pub fn withdrawing(kernel: &Kernel, pipe: Pipe, behind: u64) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.withdrawing(behind);
    }
}

/// `Pipes::pipe_unsettled`.
pub fn unsettled(kernel: &Kernel, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe) {
        unlock_both(&ring);
    }
}

/// `Pipes::pipe_is_leaving`.
pub fn is_leaving(kernel: &Kernel, pipe: Pipe) -> bool {
    ring(kernel, pipe).is_ok_and(|ring| ring.mode() == Some(Mode::Leaving))
}

/// `Pipes::pipe_is_even`.
pub fn is_even(kernel: &Kernel, pipe: Pipe) -> bool {
    ring(kernel, pipe).is_ok_and(|ring| ring.is_even())
}

/// `Pipes::pipe_at_host`.
pub fn at_host(kernel: &Kernel, pipe: Pipe) -> u64 {
    ring(kernel, pipe).map_or(0, |ring| ring.at_host())
}

/// `Pipes::pipe_withdrawn`.
pub fn withdrawn(kernel: &Kernel, pipe: Pipe, bytes: u64) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.withdrew(bytes);
        ring.go_to_host();
        unlock_both(&ring);
    }
}

/// `Pipes::pipe_waiting`.
pub fn waiting(kernel: &Kernel, pipe: Pipe) -> u64 {
    match ring(kernel, pipe) {
        Ok(ring) if matches!(ring.mode(), Some(Mode::Ring | Mode::Leaving)) => ring.waiting(),
        _ => 0,
    }
}

/// `Pipes::pipe_pin`.
pub fn pin(kernel: &Kernel, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.pin();
    }
}

/// `Pipes::pipe_has_reader`.
pub fn has_reader(kernel: &Kernel, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.has_reader();
    }
}

/// `Pipes::pipe_leave`.
pub fn leave(kernel: &Kernel, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe) {
        ring.leave();
    }
}

/// `Pipes::pipe_leave_if_full`.
pub fn leave_if_full(kernel: &Kernel, pipe: Pipe) {
    if let Ok(ring) = ring(kernel, pipe)
        && ring.waiting() + PIPE_BUF as u64 > RING_BYTES
    {
        ring.leave();
    }
}
