//! Many datagrams in one call, and options of sockets that have no safe wrapper elsewhere.

use core::mem::size_of;

use husk_abi::{Errno, nr};

use crate::messages::MessageHeader;
use crate::syscall;

const SOL_SOCKET: usize = 1;
const SOL_UDP: usize = 17;
const SO_BUSY_POLL: usize = 46;
const SO_ATTACH_REUSEPORT_CBPF: usize = 51;
const UDP_GRO: usize = 104;
const MSG_WAITFORONE: usize = 0x10000;

/// Datagrams in one call.
pub const BATCH: usize = 32;

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Part {
    address: usize,
    bytes: usize,
}

/// `struct mmsghdr` of x86-64.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    header: MessageHeader,
    bytes: usize,
}

const _: () = assert!(size_of::<Message>() == 64);

fn set<T>(socket: i32, level: usize, option: usize, value: &T) -> Result<(), Errno> {
    let address = core::ptr::from_ref(value) as usize;
    let arguments = [socket as usize, level, option, address, size_of::<T>(), 0];
    // SAFETY: the value is read in the call only, with its size.
    let raw = unsafe { syscall(nr::setsockopt, arguments) };
    Errno::check(raw as i64).map(|_| ())
}

/// Lets receivers poll the device's queue for so long before they sleep. More than the host's
/// `net.core.busy_read` needs CAP_NET_ADMIN.
pub fn set_busy_poll(socket: i32, us: i32) -> Result<(), Errno> {
    set(socket, SOL_SOCKET, SO_BUSY_POLL, &us)
}

/// Lets several datagrams of one size come as one.
pub fn set_gro(socket: i32) -> Result<(), Errno> {
    set(socket, SOL_UDP, UDP_GRO, &1i32)
}

/// One instruction of classic BPF.
#[repr(C)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

#[repr(C)]
struct Program {
    instructions: u16,
    first: *const Instruction,
}

/// Of the sockets that share a port with this one, lets that one receive a packet whose number in
/// the order of `bind` is the core that the packet came to, modulo `sockets`. Needs no privilege.
pub fn select_by_core(socket: i32, sockets: u32) -> Result<(), Errno> {
    const CORE: u32 = 0xffff_f000 + 36; // SKF_AD_OFF + SKF_AD_CPU
    let step = |code, value| Instruction { code, if_true: 0, if_false: 0, value };
    // A = core; A %= sockets; return A.
    let steps = [step(0x20, CORE), step(0x94, sockets.max(1)), step(0x16, 0)];
    let program = Program { instructions: steps.len() as u16, first: steps.as_ptr() };
    // The instructions live until the call is over.
    set(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Receives what is there, at least one datagram: up to one for each buffer. `lengths` says how
/// long each is.
pub fn receive_many<const SIZE: usize>(
    socket: i32,
    buffers: &mut [[u8; SIZE]; BATCH],
    lengths: &mut [usize; BATCH],
) -> Result<usize, Errno> {
    let part =
        |buffer: &mut [u8; SIZE]| Part { address: buffer.as_mut_ptr() as usize, bytes: SIZE };
    let parts = buffers.each_mut().map(part);
    let mut messages = parts.each_ref().map(message);
    let first = messages.as_mut_ptr() as usize;
    let arguments = [socket as usize, first, BATCH, MSG_WAITFORONE, 0, 0];
    // SAFETY: messages, parts and buffers live until the call is over, and are of these lengths.
    let raw = unsafe { syscall(nr::recvmmsg, arguments) };
    let count = Errno::check(raw as i64)? as usize;
    for (length, message) in lengths.iter_mut().zip(&messages[..count.min(BATCH)]) {
        // `unsigned int`, followed by padding.
        *length = message.bytes as u32 as usize;
    }
    Ok(count.min(BATCH))
}

/// Sends a datagram many times to where the socket is connected to; how often it was sent.
pub fn send_many(socket: i32, datagram: &[u8]) -> Result<usize, Errno> {
    let part = Part { address: datagram.as_ptr() as usize, bytes: datagram.len() };
    let mut messages = [message(&part); BATCH];
    let arguments = [socket as usize, messages.as_mut_ptr() as usize, BATCH, 0, 0, 0];
    // SAFETY: messages, part and datagram live until the call is over; the datagram is only read.
    let raw = unsafe { syscall(nr::sendmmsg, arguments) };
    Errno::check(raw as i64).map(|count| count as usize)
}

fn message(part: &Part) -> Message {
    let vectors = core::ptr::from_ref(part) as usize;
    Message { header: MessageHeader { vectors, vector_count: 1, ..Default::default() }, bytes: 0 }
}
