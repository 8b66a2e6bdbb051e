//! Calls that carry a signal mask and sleep: signals that are ours first (`signal::KEPT`) are
//! taken out of a copy of the mask.
//!
//! The copy lies in the detour on the application's stack, so the call stays interruptible.

use crate::detour;
use crate::frame::{Answer, Detour, Frame};
use crate::memory;
use crate::thread::actions::KEPT;
use core::mem::offset_of;
use husk_abi::nr;

/// Passes a call on; with a clean copy of its mask when one of ours is in it.
#[inline(always)]
pub fn pass(frame: &Frame) -> Answer {
    if place(frame).is_none() { Answer::PASSED } else { pass_mask(frame) }
}

#[inline(never)]
fn pass_mask(frame: &Frame) -> Answer {
    let mut way = detour::of(frame);
    if apply(frame, &mut way) { detour::take(frame, &way) } else { Answer::PASSED }
}

/// Which argument points to the mask and which holds its size; pselect6 has them in one block.
fn place(frame: &Frame) -> Option<(usize, usize)> {
    match frame.number {
        nr::ppoll => Some((3, 4)),
        // Of which the gate sees to the mask itself, but for diversions.
        nr::rt_sigprocmask => Some((1, 3)),
        nr::epoll_pwait | nr::epoll_pwait2 => Some((4, 5)),
        nr::rt_sigsuspend => Some((0, 1)),
        nr::rt_sigtimedwait => Some((0, 3)),
        nr::signalfd | nr::signalfd4 => Some((1, 2)),
        nr::pselect6 => Some((5, 5)),
        _ => None,
    }
}

/// Changes `way` to use a copy without ours. False: there is nothing to change.
#[inline(never)]
pub fn apply(frame: &Frame, way: &mut Detour) -> bool {
    let Some((pointer, size)) = place(frame) else { return false };
    let scratch = detour::address(frame) + offset_of!(Detour, scratch);
    let block = frame.args[pointer];
    let (mask_at, bytes) = if frame.number == nr::pselect6 {
        let mut pair = [0usize; 2];
        if block == 0 || memory::read_value(block, &mut pair).is_err() {
            return false;
        }
        (pair[0], pair[1])
    } else {
        (block, frame.args[size])
    };
    if mask_at == 0 || bytes != 8 {
        return false;
    }
    let Ok(mask) = memory::word(mask_at) else { return false };
    let clean = mask & !(KEPT as usize);
    if clean == mask {
        return false;
    }
    // A block for pselect6, then the mask itself.
    way.scratch = [scratch + 16, 8, clean];
    way.args[pointer] = if frame.number == nr::pselect6 { scratch } else { scratch + 16 };
    true
}
