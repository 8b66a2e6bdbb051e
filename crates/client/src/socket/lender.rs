//! Sockets of programs of other users: the host does not let us take them (`pidfd_getfd`), the
//! supervisor of an image of root may, and lends them (`docs/adr/0088`).
//!
//! ```text
//!   connect to the lender ──► the name of a lane ──► a descriptor of the socket that reads from it
//! ```
//!
//! 1. Every wait here ends after `PATIENCE_S`: locks of a ring may be held meanwhile.
//! 2. Who makes lanes in an image with a lender has met it before. So has who has inherited some.

use crate::{Client, Host, Memory};
use core::sync::atomic::{AtomicU8, Ordering};
use husk_proto::pipe::{LENDER, Pipe};
use husk_proto::{Result, Services};

/// Longest wait for the lender in one call, s.
const PATIENCE_S: u64 = 2;

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
        let met = self.with_server(LENDER, PATIENCE_S, |_, _| Ok(()));
        met.is_ok()
    }

    /// A descriptor of the socket that reads from `lane`. `EPIPE`: no process has it any more.
    #[cold]
    pub(crate) fn lent(&self, lane: Pipe) -> Result<u32> {
        self.with_server(LENDER, PATIENCE_S, |client, lender| {
            client.ask_server(lender, &lane.0.to_le_bytes())?;
            client.answer_with_descriptor(lender)
        })
    }
}
