//! Signals of the supervisor, read from a descriptor instead of handled.
//!
//! Invariants
//! 1. A signal the terminal sends reaches the whole process group by itself and is not sent on;
//!    one sent to the supervisor alone is.
//! 2. The program starts with the mask the supervisor was started with.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};

/// Sent on to the program.
const FORWARDED: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// `si_code` of a signal the host kernel raised (a key on the terminal, a hang-up).
const CODE_KERNEL: i32 = 0x80;

/// The supervisor's signals.
pub struct Signals {
    /// Readable when one has come.
    pub descriptor: SignalFd,
    /// The mask before (invariant 2).
    pub original: SigSet,
}

/// What a signal means to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A child changed its state.
    Child,
    /// Send this on to the program.
    Forward(Signal),
    /// Nothing to do.
    Nothing,
}

impl Signals {
    /// Blocks the signals of this thread (and of threads it starts) and opens the descriptor.
    pub fn take() -> nix::Result<Self> {
        let mut taken: SigSet = FORWARDED.into_iter().collect();
        taken.add(Signal::SIGCHLD);
        let original = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { descriptor: SignalFd::with_flags(&taken, flags)?, original })
    }

    /// The next event, `None` when there is none.
    pub fn next(&self) -> Option<Event> {
        self.descriptor.read_signal().ok().flatten().map(|info| classify(&info))
    }
}

fn classify(info: &siginfo) -> Event {
    let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { return Event::Nothing };
    if signal == Signal::SIGCHLD {
        return Event::Child;
    }
    if info.ssi_code == CODE_KERNEL { Event::Nothing } else { Event::Forward(signal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_sent_to_the_supervisor_is_forwarded() {
        let signals = Signals::take().unwrap();
        // To this thread only: the other tests' threads do not block it.
        nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
        assert_eq!(signals.next(), Some(Event::Forward(Signal::SIGUSR1)));
        assert_eq!(signals.next(), None);
    }
}
