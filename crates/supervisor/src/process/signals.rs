//! Signals of the supervisor, read from a descriptor instead of handled.
//!
//! Invariants
//! 1. A signal the terminal sends reaches the whole process group by itself and is not sent on;
//!    one sent to the supervisor alone is.
//! 2. The program starts with the mask the supervisor was started with.
//! 3. No signal but SIGKILL and those of its own faults ends the supervisor while an image runs:
//!    what would by default is taken as a wish to end, and the program is asked to (SIGTERM).
//!    One of `ENDING` while no program runs (before it starts, while changes are written back) ends
//!    the supervisor when all is done.
//! 4. A hang-up is always sent on: the host's Linux sends it to a session's leader alone.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

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

/// What somebody sends who wants an end (invariant 3).
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// End a process that is not prepared, and mean nothing to a supervisor but that (invariant 3).
const END_REQUESTS: [Signal; 7] = [
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
];

/// Blocked and never looked at: a write past the limit on file sizes is an error like others.
const DEAF_TO: [Signal; 1] = [Signal::SIGXFSZ];

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

/// What a signal means to whoever asks a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// An end.
    End,
    /// To be stopped (Ctrl-Z).
    Stop,
}

impl Signals {
    /// Blocks the signals of this thread (and of threads it starts) and opens the descriptor.
    pub fn take() -> nix::Result<Self> {
        husk_host::early::hear_of_children();
        let mut taken: SigSet = FORWARDED.into_iter().collect();
        taken.extend(END_REQUESTS);
        taken.add(Signal::SIGCHLD);
        let mut blocked = taken;
        blocked.extend(DEAF_TO);
        let original = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { descriptor: SignalFd::with_flags(&taken, flags)?, original })
    }

    /// Reads all that has come while there was no program to send it to: the last of `ENDING`.
    pub fn ending(&self) -> Option<Signal> {
        let mut ending = None;
        while let Ok(Some(info)) = self.descriptor.read_signal() {
            let signal = Signal::try_from(info.ssi_signo as i32).ok();
            ending = signal.filter(|signal| ENDING.contains(signal)).or(ending);
        }
        ending
    }

    /// The next signal that somebody sent who wants something of this process, while no program
    /// runs.
    pub fn wish(&self) -> Option<Wish> {
        while let Ok(Some(info)) = self.descriptor.read_signal() {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGTSTP) => return Some(Wish::Stop),
                Ok(signal) if ENDING.contains(&signal) || END_REQUESTS.contains(&signal) => {
                    return Some(Wish::End);
                }
                _ => {}
            }
        }
        None
    }

    /// The next event, `None` when there is none.
    pub fn next(&self) -> Option<Event> {
        let info = self.descriptor.read_signal().ok().flatten()?;
        Some(classify(info.ssi_signo as i32, info.ssi_code))
    }
}

fn classify(number: i32, code: i32) -> Event {
    let Ok(signal) = Signal::try_from(number) else { return Event::Nothing };
    if signal == Signal::SIGCHLD {
        return Event::Child;
    }
    if END_REQUESTS.contains(&signal) {
        return Event::Forward(Signal::SIGTERM);
    }
    let group_has_it = code == CODE_KERNEL && signal != Signal::SIGHUP;
    if group_has_it { Event::Nothing } else { Event::Forward(signal) }
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
        nix::sys::signal::raise(Signal::SIGXCPU).unwrap();
        assert_eq!(signals.next(), Some(Event::Forward(Signal::SIGTERM)));
        // Ends nothing.
        nix::sys::signal::raise(Signal::SIGXFSZ).unwrap();
        assert_eq!(signals.next(), None);
    }

    #[test]
    fn a_hang_up_is_sent_on_even_when_the_host_raised_it() {
        let raised = |signal: Signal| classify(signal as i32, CODE_KERNEL);
        assert_eq!(raised(Signal::SIGHUP), Event::Forward(Signal::SIGHUP));
        assert_eq!(raised(Signal::SIGINT), Event::Nothing);
    }
}
