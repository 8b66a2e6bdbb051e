//! Settings of a network interface through `ioctl(SIOCETHTOOL)`: the parts of a packet that select
//! its receive queue, and whether packets are merged (GRO); and interfaces of which a program
//! carries the packets (TUN).

use core::mem::size_of;

use husk_abi::{Errno, nr};

use crate::syscall;

const SIOCETHTOOL: usize = 0x8946;
const SIOCGIFHWADDR: usize = 0x8927;
const TUNSETIFF: usize = 0x4004_54ca;
const SOL_SOCKET: usize = 1;
const SO_BINDTOIFINDEX: usize = 62;
const SO_NETNS_COOKIE: usize = 71;
/// `IFF_TUN | IFF_NO_PI`: packets of IP, and nothing before them.
const TUN: usize = 0x1001;
const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;
const GET_FLOW_HASH: u32 = 0x29;
const SET_FLOW_HASH: u32 = 0x2a;
/// `IFNAMSIZ`.
const NAME_BYTES: usize = 16;

/// `struct ifreq`.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    data: usize,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Request>() == 40);

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    value: u32,
}

/// The head of `struct ethtool_rxnfc`, and room for what Linux may copy of the rest.
#[repr(C)]
struct Flow {
    command: u32,
    kind: u32,
    fields: u64,
    rest: [u64; 30],
}

/// A request about an interface.
fn named(interface: &str) -> Result<Request, Errno> {
    let mut name = [0; NAME_BYTES];
    // One byte stays zero: the name ends there.
    let Some(room) = name[..NAME_BYTES - 1].get_mut(..interface.len()) else {
        return Err(Errno::ENODEV);
    };
    room.copy_from_slice(interface.as_bytes());
    Ok(Request { name, data: 0, rest: [0; 2] })
}

/// One request; `socket` is any socket of the interface's network namespace.
fn ask<T>(socket: i32, interface: &str, data: &mut T) -> Result<(), Errno> {
    let mut request = named(interface)?;
    request.data = core::ptr::from_mut(data) as usize;
    let address = core::ptr::from_mut(&mut request) as usize;
    let arguments = [socket as usize, SIOCETHTOOL, address, 0, 0, 0];
    // SAFETY: the request and what it names live until the call is over; `Value` and `Flow` have
    // the layouts that their commands say, `Flow` with more room than the host's structure.
    let raw = unsafe { syscall(nr::ioctl, arguments) };
    Errno::check(raw as i64).map(|_| ())
}

/// The hardware address, as far as six bytes hold it.
pub fn hardware_address(socket: i32, interface: &str) -> Result<[u8; 6], Errno> {
    let mut request = named(interface)?;
    let address = core::ptr::from_mut(&mut request) as usize;
    // SAFETY: the request lives until the call is over, which writes a name of 16 bytes into it.
    let raw = unsafe { syscall(nr::ioctl, [socket as usize, SIOCGIFHWADDR, address, 0, 0, 0]) };
    Errno::check(raw as i64)?;
    // Two bytes of the kind of address come first.
    let [_, _, address @ ..] = core::hint::black_box(&request).data.to_ne_bytes();
    Ok(address)
}

/// A number of the socket's network namespace that no other one gets until the machine is started
/// again. `ENOPROTOOPT`: Linux before 5.14.
pub fn namespace_cookie(socket: i32) -> Result<u64, Errno> {
    number(socket, SO_NETNS_COOKIE, size_of::<u64>())
}

/// Number of the interface that a socket is bound to (`SO_BINDTODEVICE`); 0: to none.
pub fn bound_to(socket: i32) -> Result<u64, Errno> {
    number(socket, SO_BINDTOIFINDEX, size_of::<u32>())
}

/// An option of a socket that is a number of at most eight bytes.
fn number(socket: i32, option: usize, bytes: usize) -> Result<u64, Errno> {
    let (mut number, mut length) = (0u64, bytes.min(size_of::<u64>()) as u32);
    let value = core::ptr::from_mut(&mut number) as usize;
    let bytes = core::ptr::from_mut(&mut length) as usize;
    let arguments = [socket as usize, SOL_SOCKET, option, value, bytes, 0];
    // SAFETY: both live until the call is over, which writes at most the eight bytes of the first.
    let raw = unsafe { syscall(nr::getsockopt, arguments) };
    Errno::check(raw as i64)?;
    Ok(core::hint::black_box(number))
}

/// Whether packets are merged. `EOPNOTSUPP`: the device cannot.
pub fn gro(socket: i32, interface: &str) -> Result<bool, Errno> {
    let mut value = Value { command: GET_GRO, value: 0 };
    ask(socket, interface, &mut value)?;
    Ok(value.value != 0)
}

/// Lets packets be merged, or not.
pub fn set_gro(socket: i32, interface: &str, on: bool) -> Result<(), Errno> {
    ask(socket, interface, &mut Value { command: SET_GRO, value: on.into() })
}

/// By which parts of a packet of this kind (`ethtool.h`'s `..._FLOW`) its queue is chosen: `RXH_*`.
/// `EOPNOTSUPP`: the device does not choose, or does not say how.
pub fn flow_hash(socket: i32, interface: &str, kind: u32) -> Result<u64, Errno> {
    let mut flow = Flow { command: GET_FLOW_HASH, kind, fields: 0, rest: [0; 30] };
    ask(socket, interface, &mut flow)?;
    Ok(flow.fields)
}

/// Chooses queues by these parts.
pub fn set_flow_hash(socket: i32, interface: &str, kind: u32, fields: u64) -> Result<(), Errno> {
    ask(socket, interface, &mut Flow { command: SET_FLOW_HASH, kind, fields, rest: [0; 30] })
}

/// Makes an interface of this name, of which `tun`, a new descriptor of `/dev/net/tun`, carries the
/// packets: reads give those that are sent, writes those that arrive. It goes with the descriptor.
pub fn make_tun(tun: i32, interface: &str) -> Result<(), Errno> {
    let mut request = named(interface)?;
    request.data = TUN;
    let address = core::ptr::from_mut(&mut request) as usize;
    // SAFETY: the request lives until the call is over, which reads its flags and its name, and
    // writes the name that it has chosen into the room for it.
    let raw = unsafe { syscall(nr::ioctl, [tun as usize, TUNSETIFF, address, 0, 0, 0]) };
    Errno::check(raw as i64).map(|_| ())
}
