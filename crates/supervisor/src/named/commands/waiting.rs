//! What a person sees and types while a supervisor writes back for `husk sync` or `husk down`: the
//! progress line, the closing line, Ctrl-C.
//!
//! ```text
//!   Ctrl-C before the work begins ─► this command ends, and nothing has happened
//!          the first after that   ─► what is left is said
//!          the second             ─► STOP to the supervisor, which answers as the work stands then
//!          the third              ─► this command ends; the supervisor is left to itself
//! ```

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use husk_host::end::{end_by, is_ignored};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::enter::ANSWER_MAX;
use crate::named::message::{Answer, Ask, STOP, ask_patiently, send};
use crate::output::interrupts::{Heard, WISHES, hear, left};
use crate::output::progress::{Onlooker, Over, Progress};
use crate::output::{say, say_over};
use crate::write_back::progress::ProgressLine;
use crate::write_back::tally::Tally;

/// Somebody waits for a supervisor.
#[derive(Default)]
pub struct Waiting {
    progress: Arc<Progress>,
    line: Option<ProgressLine>,
    known: Arc<Known>,
    hears: Option<Onlooker>,
}

/// What the thread that hears of signals has to know, and says.
#[derive(Debug, Default)]
struct Known {
    /// The last signal.
    last: AtomicI32,
    /// A supervisor is at work.
    begun: AtomicBool,
    /// The way to it.
    stream: Mutex<Option<UnixStream>>,
}

impl Known {
    fn stream(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// For who neither sees nor types anything.
    pub fn unseen() -> Waiting {
        Waiting::default()
    }

    /// From now on, until `end`. Called by the only thread there is.
    pub fn begin() -> Waiting {
        let (progress, known) = (Arc::<Progress>::default(), Arc::<Known>::default());
        let hears = signals().ok().map(|signals| {
            let (progress, known) = (Arc::clone(&progress), Arc::clone(&known));
            let began = Instant::now();
            let mut on = move |signal, heard| on_signal(signal, heard, &known, &progress, began);
            Onlooker::begin(move |over: &Over| hear(over, signals, &mut on))
        });
        let line = Some(ProgressLine::new(&progress));
        Waiting { progress, line, known, hears }
    }

    /// Asks over `stream`, as often as it takes to be answered; see `ask_patiently`.
    pub(in crate::named) fn ask(&self, stream: &UnixStream, ask: &Ask) -> io::Result<Answer> {
        *self.known.stream() = stream.try_clone().ok();
        let answer = ask_patiently(stream, ask, ANSWER_MAX, &mut |done, total, bytes| {
            self.known.begun.store(true, Ordering::Relaxed);
            self.progress.set(done, total);
            self.progress.set_bytes(bytes);
        });
        *self.known.stream() = None;
        answer
    }

    /// Clears the progress line, has `tell` say what there is to say, closes with a line about what
    /// was done, and ends this process if it was asked to end meanwhile.
    pub fn end(mut self, done: &Tally, tell: impl FnOnce()) {
        drop(self.hears.take());
        let closing = self.line.take().and_then(|line| line.closing(done));
        tell();
        closing.iter().for_each(|line| say(line));
        let last = self.known.last.load(Ordering::Relaxed);
        if last != 0 {
            end_by(last);
        }
    }
}

/// The signals somebody sends who wants an end, by descriptor; not those that this process ignores.
fn signals() -> nix::Result<File> {
    let heard: SigSet = WISHES.into_iter().filter(|one| !is_ignored(*one as i32)).collect();
    heard.thread_block()?;
    let descriptor = SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    Ok(OwnedFd::from(descriptor).into())
}

fn on_signal(signal: Signal, heard: Heard, known: &Known, progress: &Progress, began: Instant) {
    let begun = known.begun.load(Ordering::Relaxed);
    known.last.store(signal as i32, Ordering::Relaxed);
    match heard {
        Heard::Wish(1) if begun => say_over(&left(progress, began.elapsed())),
        Heard::Wish(2) if begun => {
            // One that has been killed has nothing to stop.
            let _ = known.stream().as_ref().map(|stream| send(stream, STOP, &[]));
        }
        Heard::Wish(_) => end_by(signal as i32),
        Heard::Gone => {}
    }
}
