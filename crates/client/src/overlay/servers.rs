//! Asking a thread of the supervisor something, at a socket in the image's private directory.
//!
//! ```text
//!   connect ──► a request ──► one byte: 0, and maybe a descriptor with it; or an error number
//! ```
//!
//! Every wait ends: each call waits for as long as the caller says, and a signal ends it `TRIES`
//! times at most.

use crate::layout::put;
use crate::{Client, Host, Memory};
use husk_abi::nr;
use husk_abi::sys::general::O_CLOEXEC;
use husk_abi::sys::net::{
    AF_UNIX, MSG_CMSG_CLOEXEC, MSG_NOSIGNAL, SO_RCVTIMEO_OLD, SO_SNDTIMEO_OLD, SOCK_SEQPACKET,
    SOL_SOCKET,
};
use husk_proto::{Errno, Result, Services};

/// Calls of the host that a signal may interrupt.
const TRIES: u32 = 16;
/// Bytes of `struct sockaddr_un`, and of its family.
const NAME_BYTES: usize = 110;
const FAMILY_BYTES: usize = 2;
/// Where in a message's control bytes the descriptor is, behind `struct cmsghdr`.
const DESCRIPTOR_AT: usize = 2;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Shows `step` a connection to the server of this name. `EPERM`: the image has no private
    /// directory.
    pub(crate) fn with_server<T>(
        &self,
        server: &[u8],
        patience_s: u64,
        step: impl FnOnce(&Self, usize) -> Result<T>,
    ) -> Result<T> {
        let private = self.services.private_path();
        let mut name = [0u8; NAME_BYTES];
        let length = FAMILY_BYTES + private.len() + server.len();
        if private.is_empty() || length >= NAME_BYTES {
            return Err(Errno::EPERM);
        }
        put(&mut name, 0, (AF_UNIX as u16).to_le_bytes());
        name[FAMILY_BYTES..][..private.len()].copy_from_slice(private);
        name[FAMILY_BYTES + private.len()..][..server.len()].copy_from_slice(server);
        let kind = (SOCK_SEQPACKET | O_CLOEXEC) as usize;
        let fd = self.call_again(nr::socket, [AF_UNIX as usize, kind, 0, 0, 0, 0])?;
        let name = core::hint::black_box(name);
        self.limit_waits(fd, patience_s);
        let named = [fd, name.as_ptr() as usize, length, 0, 0, 0];
        let done = self.call_again(nr::connect, named).and_then(|_| step(self, fd));
        self.host_close(fd as u32);
        done
    }

    /// Sends a request.
    pub(crate) fn ask_server(&self, fd: usize, request: &[u8]) -> Result<()> {
        let request = core::hint::black_box(request);
        let (at, flags) = (request.as_ptr() as usize, MSG_NOSIGNAL as usize);
        self.call_again(nr::sendto, [fd, at, request.len(), flags, 0, 0]).map(|_| ())
    }

    /// The answer, which a descriptor comes with.
    pub(crate) fn answer_with_descriptor(&self, fd: usize) -> Result<u32> {
        self.answer(fd)?.ok_or(Errno::EMFILE)
    }

    /// The answer, and the descriptor that may come with it. `EPERM`: the server has gone.
    pub(crate) fn answer(&self, fd: usize) -> Result<Option<u32>> {
        let mut answer = Errno::EPERM.0 as u8;
        let mut control = [0u64; 3];
        let vector = [&raw mut answer as usize, 1];
        let control_at = control.as_mut_ptr() as usize;
        let vector_at = vector.as_ptr() as usize;
        let mut head = [0usize, 0, vector_at, 1, control_at, size_of_val(&control), 0];
        let at = head.as_mut_ptr() as usize;
        let got = self.call_again(nr::recvmsg, [fd, at, MSG_CMSG_CLOEXEC as usize, 0, 0, 0])?;
        let (answer, control, head) = core::hint::black_box((answer, control, head));
        core::hint::black_box(vector);
        match (got, answer) {
            (0, _) => Err(Errno::EPERM),
            (_, 0) => Ok((head[5] > DESCRIPTOR_AT * 8).then_some(control[DESCRIPTOR_AT] as u32)),
            (_, why) => Err(Errno(why.into())),
        }
    }

    /// No wait at this socket is longer.
    fn limit_waits(&self, fd: usize, seconds: u64) {
        let time = core::hint::black_box([seconds, 0]);
        let (level, at) = (SOL_SOCKET as usize, time.as_ptr() as usize);
        for option in [SO_RCVTIMEO_OLD, SO_SNDTIMEO_OLD] {
            let room = size_of_val(&time);
            self.host.call(nr::setsockopt, [fd, level, option as usize, at, room, 0]);
        }
    }

    fn call_again(&self, number: usize, args: [usize; 6]) -> Result<usize> {
        let mut result = Err(Errno::EINTR);
        for _ in 0..TRIES {
            result = Errno::check(self.host.call(number, args)).map(|value| value as usize);
            if result != Err(Errno::EINTR) {
                break;
            }
        }
        result
    }
}
