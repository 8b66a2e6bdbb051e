//! What a volume with policy `async` owes: syncs that are acknowledged and not durable yet.
//!
//! ```text
//!   sync ─► its place in the log ─► acknowledged ─┐
//!   sync ─► its place in the log ─► acknowledged ─┤ at most `most_ns` after the first:
//!                                                 └─► one write, durable
//! ```
//!
//! 1. Between the first acknowledgement that a crash may take and the last one less than the
//!    policy's time goes by: when it has, nothing more is acknowledged before the write.
//!
//! Time is an argument here; the log keeps the order.

use husk_proto::volume::Policy;

const NS_PER_MS: u64 = 1_000_000;

/// What is owed.
#[derive(Debug, Default)]
pub struct Owed {
    /// `None`: nothing may be.
    most_ns: Option<u64>,
    /// When the oldest of it was acknowledged, or a little earlier.
    since_ns: Option<u64>,
}

impl Owed {
    /// Nothing yet.
    pub fn new(policy: Policy) -> Self {
        let most_ns = match policy {
            Policy::Async(most_ms) => Some(u64::from(most_ms) * NS_PER_MS),
            Policy::Fsync | Policy::Immediate => None,
        };
        Self { most_ns, since_ns: None }
    }

    /// Whether syncs may be acknowledged before they are durable.
    pub fn may_be(&self) -> bool {
        self.most_ns.is_some()
    }

    /// One was, at that time.
    pub fn add(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    /// All is durable.
    pub fn pay(&mut self) {
        self.since_ns = None;
    }

    /// How long until it is due; `None`: nothing is owed.
    pub fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let due_ns = self.since_ns? + self.most_ns?;
        Some(due_ns.saturating_sub(now_ns))
    }

    /// Whether it is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.due_in_ns(now_ns) == Some(0)
    }
}
