//! A talk with a supervisor: for who joins an image, by `husk exec` or by an exec that another node
//! takes. Each `None` is a reason to leave it.

use core::ffi::CStr;

use husk_abi::nr;
use husk_host::calls::{self, raw};
use husk_host::messages::{AF_UNIX, MessageHeader, UnixAddress};

/// Seconds that connecting, and the answer, may take.
pub const PATIENCE_S: i64 = 1;
/// Most bytes of an answer that is understood here.
pub const ANSWER_BYTES_MAX: usize = 256;
const CLOSE_ON_EXEC: usize = 0o2000000;
const SOL_SOCKET: usize = 1;

/// A descriptor that is closed with the scope, or by exec.
pub struct Descriptor(pub usize);

impl Drop for Descriptor {
    fn drop(&mut self) {
        calls::close(self.0);
    }
}

/// A connection to the socket at `path` on which nothing waits longer than `patience_s` seconds.
pub fn connect(path: &CStr, patience_s: i64) -> Option<Descriptor> {
    const STREAM: usize = 1;
    const TIMEOUTS: [usize; 2] = [20, 21];
    // SAFETY: no memory is involved.
    let socket = unsafe { raw(nr::socket, [AF_UNIX.into(), STREAM | CLOSE_ON_EXEC, 0, 0, 0, 0]) };
    let socket = Descriptor(socket.ok()?);
    let patience = [patience_s, 0];
    for option in TIMEOUTS {
        let place = patience.as_ptr() as usize;
        // SAFETY: a `struct timeval` of 16 bytes.
        unsafe { raw(nr::setsockopt, [socket.0, SOL_SOCKET, option, place, 16, 0]) }.ok()?;
    }
    let bytes = path.to_bytes_with_nul();
    let address = UnixAddress::of(bytes)?;
    let place = (&raw const address) as usize;
    // SAFETY: `address` has the kernel's layout, and is longer than what is said.
    unsafe { raw(nr::connect, [socket.0, place, 2 + bytes.len(), 0, 0, 0]) }.ok()?;
    Some(socket)
}

/// Sends all of `letter`.
pub fn send(socket: &Descriptor, letter: &[u8]) -> Option<()> {
    const NOSIGNAL: usize = 0x4000;
    let args = [socket.0, letter.as_ptr() as usize, letter.len(), NOSIGNAL, 0, 0];
    // SAFETY: `letter` is readable for its length.
    let sent = unsafe { raw(nr::sendto, args) }.ok()?;
    (sent == letter.len()).then_some(())
}

/// `struct cmsghdr` with two descriptors.
#[repr(C, align(8))]
#[derive(Default)]
struct Control {
    length: usize,
    level: u32,
    kind: u32,
    descriptors: [u32; 2],
}

const _: () = assert!(size_of::<Control>() == 24);

/// An answer, and the two descriptors that came with it.
pub fn receive<'a>(
    socket: &Descriptor,
    room: &'a mut [u8; ANSWER_BYTES_MAX],
) -> Option<(&'a [u8], [Descriptor; 2])> {
    const CONTROL_BYTES: usize = size_of::<Control>();
    const MESSAGE_CLOSE_ON_EXEC: usize = 0x4000_0000;
    const RIGHTS: u32 = 1;
    let mut control = Control::default();
    let vector = [room.as_mut_ptr() as usize, room.len()];
    let mut message = MessageHeader {
        vectors: vector.as_ptr() as usize,
        vector_count: 1,
        control: (&raw mut control) as usize,
        control_bytes: CONTROL_BYTES,
        ..Default::default()
    };
    let args = [socket.0, (&raw mut message) as usize, MESSAGE_CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the message leads to `room` and `control`, writable for the lengths it says.
    let got = unsafe { raw(nr::recvmsg, args) }.ok()?;
    // What the host could not place is not there, as where a limit on descriptors is reached.
    let carried = control.length.saturating_sub(16) / 4;
    let rights = control.level == SOL_SOCKET as u32 && control.kind == RIGHTS;
    let [region, loader] = control.descriptors.map(|number| Descriptor(number as usize));
    if !rights || carried != 2 {
        // One that did come is closed; numbers that are none of ours are not.
        (carried < 2).then(|| core::mem::forget(loader));
        (carried < 1).then(|| core::mem::forget(region));
        return None;
    }
    Some((room.get(..got)?, [region, loader]))
}

/// Puts `descriptor` under `number`, which exec does not close.
pub fn place(descriptor: &Descriptor, number: usize) -> Option<Descriptor> {
    // SAFETY: no memory is involved; nothing is open under that number.
    unsafe { raw(nr::dup3, [descriptor.0, number, 0, 0, 0, 0]) }.ok().map(Descriptor)
}
