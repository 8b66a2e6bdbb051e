//! eBPF on the host, to steer connections: a program in the kernel selects which of several sockets
//! that listen on one port (`SO_REUSEPORT`) accepts a connection.
//!
//! ```text
//!   Steering (memory shared with the program)      Objects: sockets
//!     kernels[flow group] ─┐                         [kernel] -> listening socket
//!     syns[flow group] ◄───┴── program ──selects──────┘
//! ```
//!
//! Invariants
//! 1. Memory shared with a program is accessed atomically: it may run at any time on any core.
//! 2. The kernel frees the objects with their last descriptor and the last socket that the program
//!    is attached to.

use core::marker::PhantomData;
use core::mem::size_of;
use core::ops::Deref;
use core::sync::atomic::{AtomicU16, AtomicU64};

use husk_abi::{Errno, nr};

use crate::syscall;

const MAP_CREATE: usize = 0;
const MAP_UPDATE_ELEM: usize = 2;
const MAP_DELETE_ELEM: usize = 3;
const PROG_LOAD: usize = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_REUSEPORT_SOCKARRAY: u32 = 20;
const MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_SK_REUSEPORT: u32 = 21;
const SK_REUSEPORT_SELECT_OR_MIGRATE: u32 = 40;
const SOL_SOCKET: usize = 1;
const SO_ATTACH_REUSEPORT_EBPF: usize = 52;
const SO_DETACH_REUSEPORT_BPF: usize = 68;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;

/// Flow groups of a steering program.
pub const GROUPS: usize = 4096;

/// What a steering program reads and counts. Its offsets are in the program's instructions.
#[repr(C)]
pub struct Steering {
    /// Until when the program steers, in nanoseconds of `CLOCK_MONOTONIC`; later, Linux chooses.
    pub alive_until_ns: AtomicU64,
    /// Which socket accepts the connections of each group.
    pub kernels: [AtomicU16; GROUPS],
    /// Connections that have come, by group.
    pub syns: [AtomicU64; GROUPS],
}

const _: () = assert!(core::mem::offset_of!(Steering, kernels) == 8);
const _: () = assert!(core::mem::offset_of!(Steering, syns) == 8 + 2 * GROUPS);

/// An object of the host's, closed in the end.
pub struct Object(i32);

impl Object {
    /// Its descriptor, for instructions that name it.
    pub fn number(&self) -> i32 {
        self.0
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: a descriptor that nobody else closes.
        unsafe { syscall(nr::close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// One `bpf` call.
///
/// # Safety
/// Addresses in `attributes` are valid for what `command` does with them.
unsafe fn bpf<T>(command: usize, attributes: &T) -> Result<i32, Errno> {
    let address = core::ptr::from_ref(attributes) as usize;
    // SAFETY: the attributes are read in the call only; the caller vouches for what they name.
    let raw = unsafe { syscall(nr::bpf, [command, address, size_of::<T>(), 0, 0, 0]) };
    Errno::check(raw as i64).map(|value| value as i32)
}

#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

fn map(kind: u32, value_bytes: u32, entries: u32, flags: u32) -> Result<Object, Errno> {
    let attributes = MapAttributes { kind, key_bytes: 4, value_bytes, entries, flags };
    // SAFETY: no addresses.
    unsafe { bpf(MAP_CREATE, &attributes) }.map(Object)
}

/// Memory that is shared with a program, as one element of an array.
pub fn steering() -> Result<Object, Errno> {
    map(MAP_TYPE_ARRAY, size_of::<Steering>() as u32, 1, MMAPABLE)
}

/// A table of listening sockets; sockets leave it when they are closed.
pub fn sockets(entries: u32) -> Result<Object, Errno> {
    map(MAP_TYPE_REUSEPORT_SOCKARRAY, 8, entries, 0)
}

#[repr(C)]
struct ElementAttributes {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn element(command: usize, map: &Object, index: u32, value: Option<&u64>) -> Result<(), Errno> {
    let attributes = ElementAttributes {
        map: map.0 as u32,
        pad: 0,
        key: core::ptr::from_ref(&index) as u64,
        value: value.map_or(0, |value| core::ptr::from_ref(value) as u64),
        flags: 0,
    };
    // SAFETY: key and value live until the call is over; both have the sizes of the map's.
    unsafe { bpf(command, &attributes) }.map(|_| ())
}

/// Puts a listening socket into a table; the table holds no reference to it. `EBUSY`: it is in
/// another one.
pub fn set_socket(table: &Object, index: u32, socket: i32) -> Result<(), Errno> {
    element(MAP_UPDATE_ELEM, table, index, Some(&(socket as u64)))
}

/// Takes out what stands there; `ENOENT` where nothing does.
pub fn clear_socket(table: &Object, index: u32) -> Result<(), Errno> {
    element(MAP_DELETE_ELEM, table, index, None)
}

#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log: [u32; 2],
    log_address: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_kind: u32,
}

/// Loads a program that selects a socket for each connection, also for those whose socket goes.
/// `EPERM`: no privilege (CAP_BPF and CAP_NET_ADMIN).
pub fn load_selector(instructions: &[u64]) -> Result<Object, Errno> {
    let attributes = ProgramAttributes {
        kind: PROG_TYPE_SK_REUSEPORT,
        instructions: instructions.len() as u32,
        first: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log: [0; 2],
        log_address: 0,
        version: 0,
        flags: 0,
        name: *b"husk_steer\0\0\0\0\0\0",
        interface: 0,
        attach_kind: SK_REUSEPORT_SELECT_OR_MIGRATE,
    };
    // SAFETY: the instructions and the licence live until the call is over.
    unsafe { bpf(PROG_LOAD, &attributes) }.map(Object)
}

fn set_option(socket: i32, option: usize, value: i32) -> Result<(), Errno> {
    let address = core::ptr::from_ref(&value) as usize;
    let arguments = [socket as usize, SOL_SOCKET, option, address, size_of::<i32>(), 0];
    // SAFETY: the value is read in the call only.
    let raw = unsafe { syscall(nr::setsockopt, arguments) };
    Errno::check(raw as i64).map(|_| ())
}

/// Lets a program select among all sockets that share a port with this one.
pub fn attach_selector(socket: i32, program: &Object) -> Result<(), Errno> {
    set_option(socket, SO_ATTACH_REUSEPORT_EBPF, program.0)
}

/// Takes away the program that selects among them; `ENOENT` where there is none.
pub fn detach_selector(socket: i32) -> Result<(), Errno> {
    set_option(socket, SO_DETACH_REUSEPORT_BPF, 0)
}

/// The memory of a `steering` object in this process.
pub struct Shared {
    address: usize,
    memory: PhantomData<Steering>,
}

impl Shared {
    /// Maps it.
    pub fn of(object: &Object) -> Result<Shared, Errno> {
        let arguments =
            [0, size_of::<Steering>(), PROT_READ_WRITE, MAP_SHARED, object.0 as usize, 0];
        // SAFETY: new memory at an address that the host chooses.
        let raw = unsafe { syscall(nr::mmap, arguments) };
        let address = Errno::check(raw as i64)? as usize;
        Ok(Shared { address, memory: PhantomData })
    }
}

impl Deref for Shared {
    type Target = Steering;

    #[inline]
    fn deref(&self) -> &Steering {
        // SAFETY: mapped as long as this value lives, page-aligned, large enough, and atomic.
        unsafe { &*(self.address as *const Steering) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; no reference outlives this value.
        unsafe { syscall(nr::munmap, [self.address, size_of::<Steering>(), 0, 0, 0, 0]) };
    }
}
