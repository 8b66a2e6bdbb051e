//! Host calls that differ from what the application asked for: how one is laid on its stack.

use crate::frame::{Answer, DETOUR, Detour, Frame, THEN_LEAVE};
use crate::memory;

/// One that makes the application's own call.
pub fn of(frame: &Frame) -> Detour {
    Detour {
        args: frame.args,
        number: frame.number,
        then: THEN_LEAVE,
        original: *frame,
        reason: 0,
        noted_number: 0,
        noted_args: [0; 6],
        scratch: [0; 3],
    }
}

/// Where `bytes` bytes lie below the red zone of the application's stack.
pub fn room_below(rsp: usize, bytes: usize) -> usize {
    const RED_ZONE: usize = 128;
    rsp.wrapping_sub(RED_ZONE + bytes) & !15
}

/// Where a detour will lie.
pub fn address(frame: &Frame) -> usize {
    room_below(frame.rsp, size_of::<Detour>())
}

/// Puts the detour on the application's stack.
pub fn take(frame: &Frame, detour: &Detour) -> Answer {
    take_at(address(frame), detour)
}

/// Puts it at `at`.
pub fn take_at(at: usize, detour: &Detour) -> Answer {
    match memory::write_value(at, detour) {
        Ok(()) => Answer { value: at as i64, action: DETOUR },
        Err(errno) => Answer::value(errno.as_return()),
    }
}
