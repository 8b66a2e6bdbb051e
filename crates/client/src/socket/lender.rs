//! Sockets of programs of other users: the host does not let us take them (`pidfd_getfd`), the
//! supervisor of an image of root may, and lends them (`docs/adr/0088`).
//!
//! ```text
//!   connect to the lender ──► the name of a lane ──► a descriptor of the socket that reads from it
//! ```
//!
//! 1. Every wait here ends after `PATIENCE_S`: locks of a ring may be held meanwhile.
//! 2. Who makes lanes in an image with a lender has met it before. So has who has inherited some.

use crate::layout::put;
use crate::{Client, Host, Memory};
use core::sync::atomic::{AtomicU8, Ordering};
use husk_abi::nr;
use husk_abi::sys::general::O_CLOEXEC;
use husk_abi::sys::net::{
    AF_UNIX, MSG_CMSG_CLOEXEC, MSG_NOSIGNAL, SO_RCVTIMEO_OLD, SO_SNDTIMEO_OLD, SOCK_SEQPACKET,
    SOL_SOCKET,
};
use husk_proto::pipe::{LENDER, Pipe};
use husk_proto::{Errno, Result, Services};

/// Longest wait for the lender in one call, s.
const PATIENCE_S: u64 = 2;
/// Calls of the host that a signal may interrupt.
const TRIES: u32 = 16;
/// Bytes of `struct sockaddr_un`, and of its family.
const NAME_BYTES: usize = 110;
const FAMILY_BYTES: usize = 2;
/// Where in a message's control bytes the descriptor is, behind `struct cmsghdr`.
const DESCRIPTOR_AT: usize = 2;

/// Whether this program can connect to the lender: not asked yet, yes, no.
static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const MET: u8 = 1;
const NOT_MET: u8 = 2;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether this program can connect to the lender, as it was when it was asked first.
    pub(crate) fn knows_lender(&self) -> bool {
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => {
                let met = self.meets_lender();
                KNOWN.store(if met { MET } else { NOT_MET }, Ordering::Relaxed);
                met
            }
            known => known == MET,
        }
    }

    /// Whether it can now.
    #[cold]
    pub(crate) fn meets_lender(&self) -> bool {
        let met = self.with_lender(|_, _| Ok(()));
        met.is_ok()
    }

    /// A descriptor of the socket that reads from `lane`. `EPIPE`: no process has it any more.
    #[cold]
    pub(crate) fn lent(&self, lane: Pipe) -> Result<u32> {
        self.with_lender(|client, lender| {
            let asked = core::hint::black_box(lane.0.to_le_bytes());
            let at = asked.as_ptr() as usize;
            let flags = MSG_NOSIGNAL as usize;
            client.call_again(nr::sendto, [lender, at, asked.len(), flags, 0, 0])?;
            client.receive_lent(lender)
        })
    }

    fn receive_lent(&self, lender: usize) -> Result<u32> {
        let mut answer = Errno::EPERM.0 as u8;
        let mut control = [0u64; 3];
        let vector = [&raw mut answer as usize, 1];
        let control_at = control.as_mut_ptr() as usize;
        let vector_at = vector.as_ptr() as usize;
        let mut head = [0usize, 0, vector_at, 1, control_at, size_of_val(&control), 0];
        let at = head.as_mut_ptr() as usize;
        let got = self.call_again(nr::recvmsg, [lender, at, MSG_CMSG_CLOEXEC as usize, 0, 0, 0])?;
        let (answer, control, head) = core::hint::black_box((answer, control, head));
        core::hint::black_box(vector);
        match (got, answer) {
            // It has gone.
            (0, _) => Err(Errno::EPERM),
            (_, 0) if head[5] > DESCRIPTOR_AT * 8 => Ok(control[DESCRIPTOR_AT] as u32),
            (_, 0) => Err(Errno::EMFILE),
            (_, why) => Err(Errno(why.into())),
        }
    }

    /// Shows `step` a connection to the lender.
    fn with_lender<T>(&self, step: impl FnOnce(&Self, usize) -> Result<T>) -> Result<T> {
        let private = self.services.private_path();
        let mut name = [0u8; NAME_BYTES];
        let length = FAMILY_BYTES + private.len() + LENDER.len();
        if private.is_empty() || length >= NAME_BYTES {
            return Err(Errno::EPERM);
        }
        put(&mut name, 0, (AF_UNIX as u16).to_le_bytes());
        name[FAMILY_BYTES..][..private.len()].copy_from_slice(private);
        name[FAMILY_BYTES + private.len()..][..LENDER.len()].copy_from_slice(LENDER);
        let kind = (SOCK_SEQPACKET | O_CLOEXEC) as usize;
        let lender = self.call_again(nr::socket, [AF_UNIX as usize, kind, 0, 0, 0, 0])?;
        let name = core::hint::black_box(name);
        self.limit_waits(lender);
        let named = [lender, name.as_ptr() as usize, length, 0, 0, 0];
        let done = self.call_again(nr::connect, named).and_then(|_| step(self, lender));
        self.host_close(lender as u32);
        done
    }

    /// Invariant 1.
    fn limit_waits(&self, fd: usize) {
        let time = core::hint::black_box([PATIENCE_S, 0]);
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
