//! Sockets: names, messages, bytes.

pub(crate) mod addresses;
pub(crate) mod lanes;
pub(crate) mod lender;
pub(crate) mod messages;
pub(crate) mod name;
pub(crate) mod peers;
pub(crate) mod ring_drain;
pub(crate) mod scm_rights;
pub(crate) mod streams;
pub(crate) mod tcp;
pub(crate) mod udp;

use husk_proto::flight::Flight;

/// What a thread keeps of messages.
#[derive(Default)]
pub(crate) struct Streams {
    /// Flights of this thread so far (`scm_rights`).
    flights: u32,
}

impl Streams {
    /// The next one of thread `tid`.
    fn next_flight(&mut self, tid: u32) -> Flight {
        self.flights = self.flights.wrapping_add(1);
        Flight::new(tid, self.flights)
    }
}
