//! Marks pipes as read by a sleeping reader during a host call that watches them (`poll`).

use crate::reason;
use crate::{After, Call, Verdict};
use husk_proto::pipe::Pipe;

/// Pipes that a call of the host watches, counted as reads in flight: two names in an argument.
#[derive(Default)]
pub(crate) struct Watched {
    pub names: [usize; 6],
    pub count: usize,
}

impl Watched {
    /// Most of them.
    pub const MAX: usize = 12;

    /// One more.
    pub fn add(&mut self, pipe: Pipe) {
        self.names[self.count / 2] |= (pipe.0 as usize) << (self.count % 2 * 32);
        self.count += 1;
    }

    /// A name is never 0: a pipe's first life is 1.
    pub fn pipes(names: &[usize; 6]) -> impl Iterator<Item = Pipe> {
        let halves = names.iter().flat_map(|&pair| [pair as u32, (pair >> 32) as u32]);
        halves.filter(|&name| name != 0).map(Pipe)
    }
}

/// The call itself, during which the host waits for bytes of `watched`.
pub(crate) fn asleep(c: &Call, watched: &Watched) -> Verdict {
    let reason = reason::WATCHING;
    Verdict::PassThen(After { number: c.number, args: watched.names, reason })
}

/// A call that looks at one pipe, as long as it takes.
pub(crate) fn watched_alone(c: &Call, pipe: Pipe) -> Verdict {
    let mut watched = Watched::default();
    watched.add(pipe);
    asleep(c, &watched)
}
