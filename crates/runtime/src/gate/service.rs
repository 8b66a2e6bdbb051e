//! Dispatches a call that Husk handles: first the runtime's own calls, then the client's.
//!
//! ```text
//!   serve ─► own(): signals, spawn, exec, exit, memory ─► answer
//!        └─► client ─► verdict ─► carry(): value, pass, detour (changed mask, after, wait)
//! ```

use crate::client::programs;
use crate::detour;
use crate::frame::{
    Answer, DETOUR, Detour, Frame, GLANCE_FAILS, GLANCE_PASSES, PASS, THEN_AFTER, THEN_AFTER_AGAIN,
    THEN_AGAIN, THEN_BITS,
};
use crate::gate::{outside, protect, seccomp, trace};
use crate::load;
use crate::mapping::{self, lock_all, page_fault};
use crate::memory::{mappings, mmap_lock};
use crate::process::{exec, limits, placement, spawn};
use crate::signal::{masks, sigaction};
use crate::stubs::{classes, table};
use crate::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::memory::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_TYPE, PROT_EXEC};
use husk_abi::{Errno, nr};
use husk_client::{AGAIN, After, Seen, TIME_AS_ASKED, Verdict};
use husk_host::{calls, syscall};

/// Entry from the gate.
pub extern "C" fn serve(frame: &mut Frame) -> Answer {
    let thread = Thread::current();
    thread.restarts = 0;
    heed_handler(thread, frame);
    if mappings::has_untouched() {
        if table::is_traced() {
            return trace::serve(frame);
        }
        page_fault::reach(thread, frame);
    }
    match outside::answer(thread, frame) {
        Some(answer) => answer,
        None => answered(thread, frame),
    }
}

/// The same of a call that is noted already, or needs no note: it is traced, or starts once more
/// (`fd_race_retry`).
#[inline(never)]
pub fn serve_noted(thread: &mut Thread, frame: &mut Frame) -> Answer {
    heed_handler(thread, frame);
    if mappings::has_untouched() {
        page_fault::reach(thread, frame);
    }
    answered(thread, frame)
}

/// Tells the client whether a handler makes the call: what it has interrupted may be a call of the
/// host's. Who is above its frame has ended, or jumped out of it (that it has changed stacks is not
/// seen); on a stack above all others it counts as running for ever.
#[inline(always)]
fn heed_handler(thread: &mut Thread, frame: &Frame) {
    let handler_at = thread.handler_at.load(Relaxed);
    if handler_at != 0 {
        let runs = frame.rsp < handler_at;
        if !runs {
            thread.handler_at.store(0, Relaxed);
        }
        thread.client.tell_handler(runs);
    }
}

#[inline(always)]
fn answered(thread: &mut Thread, frame: &mut Frame) -> Answer {
    let ways = classes::ways(frame.number);
    if ways & classes::OWN != 0 {
        return own(thread, frame);
    }
    if ways & classes::MOVES != 0 {
        return bytes(thread, frame);
    }
    ask(thread, frame, ways & classes::LOOKS != 0)
}

/// What a look says of call `number`, for the gate.
#[inline(always)]
fn looked(number: usize, fd: usize, args: [usize; 4]) -> i64 {
    let thread = Thread::current();
    thread.restarts = 0;
    match thread.client.glance(number, fd, args) {
        Seen::Value(value) => value,
        // The host may not reach what the call points to.
        Seen::Pass if mappings::has_untouched() => GLANCE_FAILS,
        Seen::Pass => GLANCE_PASSES,
        Seen::Nothing => GLANCE_FAILS,
    }
}

/// Entry from the gate for calls that a look at a descriptor may answer (`husk_client::GLANCED`):
/// the answer, or `GLANCE_PASSES`, or `GLANCE_FAILS`. Nothing in the registers that
/// reading the guard writes; the last two lie on the stack.
pub extern "C" fn glance(
    fd: usize,
    second: usize,
    _: usize,
    _: usize,
    number: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
) -> i64 {
    looked(number, fd, [second, third, fourth, fifth])
}

/// The same for `epoll_wait` alone. What finds nothing needs no room on the stack, and all else is
/// a jump: it takes the same arguments.
pub extern "C" fn glance_at_set(
    fd: usize,
    address: usize,
    third: usize,
    fourth: usize,
    number: usize,
    most: usize,
    timeout: usize,
) -> i64 {
    if Thread::current().client.finds_nothing(fd, address, most, timeout) {
        return 0;
    }
    glance_into_set(fd, address, third, fourth, number, most, timeout)
}

#[inline(never)]
extern "C" fn glance_into_set(
    fd: usize,
    address: usize,
    _: usize,
    _: usize,
    _: usize,
    most: usize,
    timeout: usize,
) -> i64 {
    looked(nr::epoll_wait, fd, [address, most, timeout, 0])
}

/// Entry from the gate for reads and writes of what was a pipe: how many bytes it has moved, or
/// `GLANCE_FAILS`.
pub extern "C" fn swift(fd: usize, address: usize, length: usize, _: usize, number: usize) -> i64 {
    match Thread::current().client.moved_swiftly(number, fd, address, length) {
        0 => GLANCE_FAILS,
        moved => moved as i64,
    }
}

/// What the runtime itself has business with.
#[inline(never)]
fn own(thread: &mut Thread, frame: &mut Frame) -> Answer {
    if classes::parts(frame.number) {
        thread.client.give_back_spares();
        if classes::secludes(frame.number, frame.args) {
            thread.client.forgo_lanes();
        }
    }
    match frame.number {
        nr::rt_sigaction => sigaction::sigaction(thread, frame),
        nr::clone | nr::clone3 | nr::fork | nr::vfork => spawn::launch(thread, frame),
        nr::execve | nr::execveat => exec::exec(thread, frame),
        nr::exit => spawn::exit_thread(thread, frame),
        nr::exit_group => exit_group(thread, frame),
        nr::prctl | nr::arch_prctl => protect::control(thread, frame),
        nr::seccomp => seccomp::seccomp(thread, frame),
        nr::getrlimit | nr::setrlimit | nr::prlimit64 => {
            limits::serve(thread, frame).unwrap_or_else(|| ask(thread, frame, false))
        }
        nr::ptrace => exec::trace(thread, frame),
        nr::mlockall => lock_all::serve(frame),
        nr::pkey_free => protect::free_key(frame),
        nr::sched_setaffinity => placement::set_affinity(thread, frame),
        nr::mmap
        | nr::mprotect
        | nr::pkey_mprotect
        | nr::munmap
        | nr::mremap
        | nr::remap_file_pages
        | nr::madvise
        | nr::shmat => match protect::range(frame) {
            Some(errno) => {
                Answer::value(protect::fences(thread, frame).unwrap_or(errno.as_return()))
            }
            None => {
                let _still = mmap_lock::for_call(frame);
                mapping::serve(thread, frame).unwrap_or_else(|| memory(thread, frame))
            }
        },
        _ => masks::pass(frame),
    }
}

/// A change of memory: only mappings of files can concern the client.
fn memory(thread: &mut Thread, frame: &Frame) -> Answer {
    let of_file = frame.number == nr::mmap && frame.args[3] & MAP_ANONYMOUS == 0;
    if !of_file {
        return Answer::PASSED;
    }
    let verdict = thread.client.call(&frame.call, false, |verdict| *verdict);
    map(thread, frame, &verdict)
}

/// Reads and writes at a descriptor's own place: pipes take a short way.
#[inline(never)]
fn bytes(thread: &mut Thread, frame: &Frame) -> Answer {
    if let Some(answer) = thread.client.piped(&frame.call, |verdict| answer(frame, verdict)) {
        return answer;
    }
    let answer = ask(thread, frame, false);
    if answer.action == DETOUR {
        thread.client.expect_pipe(frame.args[0]);
    }
    answer
}

#[inline(always)]
fn answer(frame: &Frame, verdict: &Verdict) -> Answer {
    match verdict {
        Verdict::Return(value) => Answer::value(*value),
        verdict => carry(frame, verdict),
    }
}

#[inline(always)]
fn ask(thread: &mut Thread, frame: &Frame, looks: bool) -> Answer {
    let answer = thread.client.call(&frame.call, looks, |verdict| answer(frame, verdict));
    if answer.action == PASS {
        thread.client.expect_hosts(frame.args[0]);
    }
    answer
}

/// `mmap`: notes what the client mapped, puts rewritten copies in the place of host files.
#[inline(never)]
fn map(thread: &mut Thread, frame: &Frame, verdict: &Verdict) -> Answer {
    let [_, _, prot, flags, fd, _] = frame.args;
    if let Err(errno) = thread.client.keep_noted() {
        return Answer::value(errno.as_return());
    }
    let private = flags & (MAP_TYPE | MAP_ANONYMOUS) == MAP_PRIVATE;
    let code = *verdict == Verdict::Pass && prot & PROT_EXEC != 0 && private;
    let code = code && !load::reads_code();
    let Some(copy) = code.then(|| copy_of(thread, fd)).flatten() else {
        if *verdict == Verdict::Pass && mapping::is_covered(frame) {
            return Answer::value(cover(thread, frame, frame.args));
        }
        return carry(frame, verdict);
    };
    let mut args = frame.args;
    args[4] = copy;
    let result = cover(thread, frame, args);
    calls::close(copy);
    Answer::value(result)
}

/// Maps a file of the host, over whatever Husk mapping is there.
fn cover(thread: &mut Thread, frame: &Frame, args: [usize; 6]) -> i64 {
    // SAFETY: the application's own mapping, or of a file with the same contents but for patched
    // call sites.
    let result = unsafe { syscall(nr::mmap, args) as i64 };
    let [start, length, ..] = args;
    if result == start as i64 && mapping::is_covered(frame) {
        thread.client.forget_mappings(start, mappings::end_of(start, length));
    }
    result
}

#[inline(never)]
fn copy_of(thread: &mut Thread, fd: usize) -> Option<usize> {
    let file = programs::identity(fd)?;
    thread.client.rewritten(&file, |text| programs::descriptor_path(fd, text))
}

#[inline(never)]
fn carry(frame: &Frame, verdict: &Verdict) -> Answer {
    match *verdict {
        Verdict::Return(value) => Answer::value(value),
        Verdict::Pass if frame.number == nr::close_range => protect::close_range(frame),
        Verdict::Pass if protect::descriptor(frame) => Answer::value(Errno::EBADF.as_return()),
        Verdict::Pass => masks::pass(frame),
        Verdict::PassThen(ref after) => pass_then(frame, after, 0),
        Verdict::PassRest { ref after, done } => pass_then(frame, after, done),
        Verdict::Instead { ref call, room } => instead(frame, call, room),
        Verdict::Wait { address, value, timeout_ns } => wait(frame, address, value, timeout_ns),
        Verdict::Ready { fd, events } => ready(frame, fd, events),
    }
}

/// The host call, `done` bytes of its buffer less, then back to the client.
#[inline(never)]
fn pass_then(frame: &Frame, after: &After, done: usize) -> Answer {
    const SECOND_NS: usize = 1_000_000_000;
    let mut way = detour::of(frame);
    masks::apply(frame, &mut way);
    match frame.number {
        nr::epoll_wait | nr::epoll_pwait if after.is_of_set() => {
            way.args[3] = after.args[5];
        }
        nr::epoll_pwait2 if after.is_of_set() && after.args[5] != TIME_AS_ASKED => {
            way.scratch[..2]
                .copy_from_slice(&[after.args[5] / SECOND_NS, after.args[5] % SECOND_NS]);
            way.args[3] = detour::address(frame) + core::mem::offset_of!(Detour, scratch);
        }
        // From where, stands behind what has been moved already.
        nr::sendfile => way.args[3] -= done,
        _ if done > 0 => {
            way.args[1] += done;
            way.args[2] -= done;
        }
        _ => {}
    }
    note(&mut way, after);
    detour::take(frame, &way)
}

/// `after` is what is left to do behind the call; in the upper half of why, who passed it.
fn note(way: &mut Detour, after: &After) {
    way.then = THEN_AFTER;
    way.reason = after.reason as usize | (Thread::current().client.pid() as usize) << 32;
    way.noted_number = after.number;
    way.noted_args = after.args;
}

/// Another call than the application's, with `room` bytes for it between red zone and detour.
#[inline(never)]
fn instead(frame: &Frame, call: &After, room: usize) -> Answer {
    let mut way = detour::of(frame);
    (way.number, way.args) = (call.number, call.args);
    note(&mut way, call);
    let room = detour::room_below(frame.rsp, room);
    detour::take_at((room - size_of::<Detour>()) & !15, &way)
}

#[inline(never)]
fn wait(frame: &Frame, address: usize, value: u32, timeout_ns: u64) -> Answer {
    const FUTEX_WAIT: usize = 0;
    const SECOND_NS: u64 = 1_000_000_000;
    let mut way = detour::of(frame);
    let scratch = detour::address(frame) + core::mem::offset_of!(Detour, scratch);
    way.scratch[0] = (timeout_ns / SECOND_NS) as usize;
    way.scratch[1] = (timeout_ns % SECOND_NS) as usize;
    way.number = nr::futex;
    way.args = [address, FUTEX_WAIT, value as usize, scratch, 0, 0];
    way.then = THEN_AGAIN;
    detour::take(frame, &way)
}

/// Sleeps until a descriptor of the host is ready.
#[inline(never)]
fn ready(frame: &Frame, fd: usize, events: u16) -> Answer {
    const FOR_EVER: usize = usize::MAX;
    let mut way = detour::of(frame);
    let scratch = detour::address(frame) + core::mem::offset_of!(Detour, scratch);
    way.scratch[0] = fd as u32 as usize | (events as usize) << 32;
    way.number = nr::poll;
    way.args = [scratch, 1, FOR_EVER, 0, 0, 0];
    way.then = THEN_AGAIN;
    detour::take(frame, &way)
}

/// Entry from the gate after a detour with `THEN_AFTER`.
pub extern "C" fn serve_after(way: &mut Detour, result: i64) -> i64 {
    let thread = Thread::current();
    let mut value = match way.then as u32 as usize {
        THEN_AFTER | THEN_AFTER_AGAIN => {
            let (number, args) = (way.noted_number, way.noted_args);
            let after = After { number, args, reason: way.reason as u32 };
            thread.client.after(after, (way.reason >> 32) as u32, result)
        }
        _ => result,
    };
    if value == AGAIN {
        value = Errno::EINTR.as_return();
        way.then = way.then >> THEN_BITS << THEN_BITS | THEN_AFTER_AGAIN;
    }
    match way.then >> THEN_BITS {
        0 => {}
        call => trace::ended(thread, call as u32, value),
    }
    value
}

#[inline(never)]
fn exit_group(thread: &mut Thread, frame: &Frame) -> Answer {
    let last = thread.group().threads.load(Relaxed) == 1;
    if !last {
        thread.client.leave_pipes();
    }
    thread.client.leave(last);
    if last {
        // Within the service: in a handler that came before the host's call, the process would have
        // no record, or somebody else's.
        calls::exit_group(frame.args[0]);
    }
    Answer::PASSED
}
