//! Classic BPF on the host, to steer connections without privilege: a program that says which of
//! the sockets that share a port accepts a connection, by its index in the kernel's list of them.
//! And what it takes to find out which socket has which index.

use core::mem::size_of;
use core::net::IpAddr;

use husk_abi::cbpf::{INSTRUCTIONS_MAX, Instruction};
use husk_abi::{Errno, nr};

use crate::syscall;

const SOL_SOCKET: usize = 1;
const IPPROTO_TCP: usize = 6;
const SO_ATTACH_REUSEPORT_CBPF: usize = 51;
const SO_MEMINFO: usize = 55;
const TCP_MD5SIG: usize = 14;
/// `SK_MEMINFO_DROPS`, the last of `SK_MEMINFO_VARS`.
const DROPS: usize = 8;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    first: *const Instruction,
}

/// Sets an option of a socket.
///
/// # Safety
/// `T` is what Linux reads for it, and addresses in it are valid.
unsafe fn set<T>(socket: i32, level: usize, option: usize, value: &T) -> Result<(), Errno> {
    let address = core::ptr::from_ref(value) as usize;
    let arguments = [socket as usize, level, option, address, size_of::<T>(), 0];
    // SAFETY: the value is read in the call only; the caller vouches for what it names.
    let raw = unsafe { syscall(nr::setsockopt, arguments) };
    Errno::check(raw as i64).map(|_| ())
}

/// Lets a program select among all sockets that share a port with this one; it replaces any other.
/// It sees the bytes behind the head of a segment, and what is before them by negative offsets. A
/// result that is no index leaves the choice to Linux. `ENOMEM`: the program is longer than
/// `net.core.optmem_max`.
pub fn attach_selector(socket: i32, instructions: &[Instruction]) -> Result<(), Errno> {
    if instructions.len() > INSTRUCTIONS_MAX {
        return Err(Errno::ENOMEM);
    }
    let program = Program { length: instructions.len() as u16, first: instructions.as_ptr() };
    // SAFETY: the instructions live until the call is over, and are as many as it says.
    unsafe { set(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program) }
}

/// Segments that came to a socket, and that it has dropped.
pub fn drops(socket: i32) -> Result<u32, Errno> {
    let mut figures = [0u32; DROPS + 1];
    let mut bytes = size_of::<[u32; DROPS + 1]>() as u32;
    let address = core::ptr::from_mut(&mut figures) as usize;
    let length = core::ptr::from_mut(&mut bytes) as usize;
    let arguments = [socket as usize, SOL_SOCKET, SO_MEMINFO, address, length, 0];
    // SAFETY: Linux writes at most as many bytes as it is told, and how many, in the call only.
    let raw = unsafe { syscall(nr::getsockopt, arguments) };
    Errno::check(raw as i64).map(|_| figures[DROPS])
}

/// `struct tcp_md5sig`.
#[repr(C)]
struct Signature {
    address: [u8; 128],
    flags: u8,
    prefix_bits: u8,
    key_bytes: u16,
    interface: i32,
    key: [u8; 80],
}

const _: () = assert!(size_of::<Signature>() == 216);

/// Lets a socket sign the segments that it sends there (TCP MD5, RFC 2385). Who has no such key, as
/// every usual server, drops them and answers nothing. `ENOPROTOOPT`: Linux is built without that.
pub fn sign_segments(socket: i32, to: IpAddr) -> Result<(), Errno> {
    let mut address = [0; 128];
    match to {
        IpAddr::V4(ip) => {
            address[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            address[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            address[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            address[8..24].copy_from_slice(&ip.octets());
        }
    }
    let mut key = [0; 80];
    key[..4].copy_from_slice(b"husk");
    let signature =
        Signature { address, flags: 0, prefix_bits: 0, key_bytes: 4, interface: 0, key };
    // SAFETY: no addresses.
    unsafe { set(socket, IPPROTO_TCP, TCP_MD5SIG, &signature) }
}
