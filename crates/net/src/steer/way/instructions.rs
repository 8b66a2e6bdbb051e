//! The program that selects the socket that accepts, in the instructions of eBPF.
//!
//! ```text
//!   later than alive_until? ──────────────► Linux chooses (by hash)
//!   group = source port >> 4
//!   select sockets[kernels[group]] ─fails──► Linux chooses
//!   a SYN? syns[group] += 1
//! ```
//!
//! It passes every connection, so that none is refused whatever is wrong.

use std::mem::offset_of;

use husk_host::bpf::Steering;

/// Registers.
const R0: u64 = 0;
const R1: u64 = 1;
const R2: u64 = 2;
const R3: u64 = 3;
const R4: u64 = 4;
/// The program's context, kept over calls.
const CONTEXT: u64 = 6;
const STEERING: u64 = 7;
const GROUP: u64 = 8;
const STACK: u64 = 10;

/// Functions of the kernel.
const KTIME_GET_NS: i32 = 5;
const LOAD_BYTES: i32 = 26;
const SELECT_REUSEPORT: i32 = 82;

/// Bytes of a TCP header that are looked at, and where: source port, flags.
const HEADER_BYTES: i32 = 14;
const HEADER: i16 = -16;
const FLAGS: i16 = HEADER + 13;
const SYN: i32 = 0x02;
const SYN_ACK: i32 = 0x12;
/// Where the number of the socket is given to the kernel.
const KEY: i16 = -24;

const PSEUDO_MAP_FD: u64 = 1;
const PSEUDO_MAP_VALUE: u64 = 2;

/// One instruction.
const fn op(code: u8, target: u64, source: u64, offset: i16, value: i32) -> u64 {
    code as u64
        | target << 8
        | source << 12
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

const fn set(target: u64, value: i32) -> u64 {
    op(0xb7, target, 0, 0, value)
}

const fn copy(target: u64, source: u64) -> u64 {
    op(0xbf, target, source, 0, 0)
}

const fn add(target: u64, source: u64) -> u64 {
    op(0x0f, target, source, 0, 0)
}

const fn add_value(target: u64, value: i32) -> u64 {
    op(0x07, target, 0, 0, value)
}

const fn call(function: i32) -> u64 {
    op(0x85, 0, 0, 0, function)
}

/// The address of an object, in two instructions.
const fn address(target: u64, kind: u64, descriptor: i32) -> [u64; 2] {
    [op(0x18, target, kind, 0, descriptor), 0]
}

/// The program over two objects: the memory that it shares, and the table of sockets.
pub fn selector(steering: i32, sockets: i32) -> Vec<u64> {
    let steering = address(STEERING, PSEUDO_MAP_VALUE, steering);
    let sockets = address(R2, PSEUDO_MAP_FD, sockets);
    let kernels = offset_of!(Steering, kernels) as i16;
    let syns = offset_of!(Steering, syns) as i16;
    let mut program = vec![
        copy(CONTEXT, R1),
        call(KTIME_GET_NS),
        steering[0],
        steering[1],
        op(0x79, R1, STEERING, 0, 0), // R1 = alive_until_ns
        op(0xbd, R1, R0, PASS, 0),    // R1 <= now
        copy(R1, CONTEXT),
        set(R2, 0),
        copy(R3, STACK),
        add_value(R3, HEADER.into()),
        set(R4, HEADER_BYTES),
        call(LOAD_BYTES),
        op(0x55, R0, 0, PASS, 0), // not loaded
        op(0x69, GROUP, STACK, HEADER, 0),
        op(0xdc, GROUP, 0, 0, 16), // from the network's order of bytes
        op(0x77, GROUP, 0, 0, 4),
        op(0x57, GROUP, 0, 0, 0xfff),
        copy(R2, GROUP),
        op(0x67, R2, 0, 0, 1),
        add(R2, STEERING),
        op(0x69, R1, R2, kernels, 0),
        op(0x63, STACK, R1, KEY, 0),
        copy(R1, CONTEXT),
        sockets[0],
        sockets[1],
        copy(R3, STACK),
        add_value(R3, KEY.into()),
        set(R4, 0),
        call(SELECT_REUSEPORT),
        op(0x55, R0, 0, PASS, 0), // nobody there
        op(0x71, R1, STACK, FLAGS, 0),
        op(0x57, R1, 0, 0, SYN_ACK),
        op(0x55, R1, 0, PASS, SYN), // no new connection
        op(0x67, GROUP, 0, 0, 3),
        add(GROUP, STEERING),
        set(R1, 1),
        op(0xdb, GROUP, R1, syns, 0), // an atomic addition
    ];
    let pass = program.len();
    for (at, one) in program.iter_mut().enumerate() {
        if (*one >> 16) as i16 == PASS {
            let distance = (pass - at - 1) as u64;
            *one = *one & !(0xffff << 16) | distance << 16;
        }
    }
    program.extend([set(R0, 1), op(0x95, 0, 0, 0, 0)]);
    program
}

/// A jump to the end, whose distance is not known yet.
const PASS: i16 = i16::MAX;
