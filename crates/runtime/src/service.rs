//! What happens to a call of interest: the runtime's own business first, then the client's.
//!
//! ```text
//!   serve ─► own(): signals, spawn, exec, exit, protection ─► answer
//!        └─► client ─► verdict ─► carry(): value, pass, detour (changed mask, after, wait)
//! ```

use crate::gate::{self, Answer, Detour, Frame};
use crate::thread::Thread;
use crate::wire::{self, After, Verdict};
use crate::{classes, exec, mappings, masks, protect, signal, spawn};
use husk_abi::{Errno, nr};
use husk_host::syscall;

/// Entry from the gate.
pub extern "C" fn serve(frame: &mut Frame) -> Answer {
    let thread = Thread::current();
    match frame.number {
        nr::rt_sigaction => signal::sigaction(thread, frame),
        nr::clone | nr::clone3 | nr::fork | nr::vfork => spawn::launch(thread, frame),
        nr::execve | nr::execveat => exec::exec(thread, frame),
        nr::exit => spawn::exit_thread(thread, frame),
        nr::exit_group => exit_group(thread),
        nr::prctl | nr::arch_prctl => protect::control(frame),
        nr::mmap | nr::mprotect | nr::munmap | nr::mremap | nr::madvise | nr::shmat => {
            match protect::range(frame) {
                Some(errno) => Answer::value(errno.as_return()),
                None => mappings::serve(thread, frame).unwrap_or_else(|| memory(thread, frame)),
            }
        }
        nr::close | nr::dup2 | nr::dup3 | nr::fcntl if protect::descriptor(frame) => {
            Answer::value(Errno::EBADF.as_return())
        }
        nr::read
        | nr::write
        | nr::readv
        | nr::writev
        | nr::pread64
        | nr::pwrite64
        | nr::lseek
        | nr::fstat
            if thread.client.is_hosts(frame.args[0]) =>
        {
            Answer::PASSED
        }
        number if classes::is_clients(number) => ask(thread, frame),
        _ => masks::pass(frame),
    }
}

/// A change of memory: only mappings of files can concern the client.
fn memory(thread: &mut Thread, frame: &Frame) -> Answer {
    const MAP_ANONYMOUS: usize = 0x20;
    let of_file = frame.number == nr::mmap && frame.args[3] & MAP_ANONYMOUS == 0;
    if !of_file {
        return Answer::PASSED;
    }
    let verdict = thread.client.call(&frame.call, |verdict| *verdict);
    map(thread, frame, &verdict)
}

fn ask(thread: &mut Thread, frame: &Frame) -> Answer {
    let answer = thread.client.call(&frame.call, |verdict| match verdict {
        Verdict::Return(value) => Answer::value(*value),
        verdict => carry(frame, verdict),
    });
    if answer.action == gate::PASS {
        thread.client.expect_hosts(frame.args[0]);
    }
    answer
}

/// `mmap`: notes what the client mapped, puts rewritten copies in the place of host files.
#[inline(never)]
fn map(thread: &mut Thread, frame: &Frame, verdict: &Verdict) -> Answer {
    const PROT_EXEC: usize = 4;
    const MAP_ANONYMOUS: usize = 0x20;
    const MAP_TYPE: usize = 0xf;
    const MAP_PRIVATE: usize = 2;
    let [_, _, prot, flags, fd, _] = frame.args;
    mappings::keep_noted(&mut thread.client);
    let private = flags & (MAP_TYPE | MAP_ANONYMOUS) == MAP_PRIVATE;
    let code = *verdict == Verdict::Pass && prot & PROT_EXEC != 0 && private;
    let Some(copy) = code.then(|| copy_of(thread, fd)).flatten() else {
        return carry(frame, verdict);
    };
    let mut args = frame.args;
    args[4] = copy;
    // SAFETY: the application's own mapping, of a file with the same contents but for patched
    // call sites.
    let result = unsafe { syscall(nr::mmap, args) as i64 };
    husk_host::calls::close(copy);
    Answer::value(result)
}

#[inline(never)]
fn copy_of(thread: &mut Thread, fd: usize) -> Option<usize> {
    let file = wire::identity(fd)?;
    thread.client.rewritten(&file, |text| wire::descriptor_path(fd, text))
}

fn carry(frame: &Frame, verdict: &Verdict) -> Answer {
    match *verdict {
        Verdict::Return(value) => Answer::value(value),
        Verdict::Pass if frame.number == nr::close_range => protect::close_range(frame),
        Verdict::Pass => masks::pass(frame),
        Verdict::PassThen(ref after) => pass_then(frame, after),
        Verdict::Wait { address, value, timeout_ns } => wait(frame, address, value, timeout_ns),
    }
}

/// A detour that makes the application's own call.
pub fn detour(frame: &Frame) -> Detour {
    Detour {
        args: frame.args,
        number: frame.number,
        then: gate::THEN_LEAVE,
        original: *frame,
        reason: 0,
        noted_number: 0,
        noted_args: [0; 6],
        scratch: [0; 3],
    }
}

/// Where a detour will lie: below the red zone of the application's stack.
pub fn detour_address(frame: &Frame) -> usize {
    const RED_ZONE: usize = 128;
    frame.rsp.wrapping_sub(RED_ZONE + size_of::<Detour>()) & !15
}

/// Puts the detour on the application's stack.
pub fn take(frame: &Frame, detour: &Detour) -> Answer {
    let at = detour_address(frame);
    match crate::memory::write_value(at, detour) {
        Ok(()) => Answer { value: at as i64, action: gate::DETOUR },
        Err(errno) => Answer::value(errno.as_return()),
    }
}

#[inline(never)]
fn pass_then(frame: &Frame, after: &After) -> Answer {
    let mut way = detour(frame);
    masks::apply(frame, &mut way);
    way.then = gate::THEN_AFTER;
    way.reason = after.reason as usize;
    way.noted_number = after.number;
    way.noted_args = after.args;
    take(frame, &way)
}

#[inline(never)]
fn wait(frame: &Frame, address: usize, value: u32, timeout_ns: u64) -> Answer {
    const FUTEX_WAIT: usize = 0;
    const SECOND_NS: u64 = 1_000_000_000;
    let mut way = detour(frame);
    let scratch = detour_address(frame) + core::mem::offset_of!(Detour, scratch);
    way.scratch[0] = (timeout_ns / SECOND_NS) as usize;
    way.scratch[1] = (timeout_ns % SECOND_NS) as usize;
    way.number = nr::futex;
    way.args = [address, FUTEX_WAIT, value as usize, scratch, 0, 0];
    way.then = gate::THEN_AGAIN;
    take(frame, &way)
}

/// Entry from the gate after a detour with `THEN_AFTER`.
pub extern "C" fn serve_after(way: &Detour, result: i64) -> i64 {
    let after = After { number: way.noted_number, args: way.noted_args, reason: way.reason as u32 };
    Thread::current().client.after(after, result)
}

#[inline(never)]
fn exit_group(thread: &mut Thread) -> Answer {
    let last = thread.group().threads.load(core::sync::atomic::Ordering::Relaxed) == 1;
    thread.client.leave(last);
    Answer::PASSED
}

/// A host call that does not sleep, made during the service with the application's arguments.
pub fn host(frame: &Frame) -> i64 {
    // SAFETY: the application's own call and arguments, checked by `protect`.
    unsafe { syscall(frame.number, frame.args) as i64 }
}
