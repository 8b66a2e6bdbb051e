//! `husk node add` and `husk node remove`: other hosts of an image that is up.
//!
//! ```text
//!   husk node add NAME HOST ──► supervisor ── begins a session ──► (programs go on)
//!        ◄── it is up, or why not ── tick: what has become of it
//! ```
//!
//! Invariants
//! 1. The supervisor waits for no host: it answers when one is up, has failed, or has left.
//! 2. Who has gone before that does not want the host any more.
//! 3. Whoever follows the supervisor begins a session with each host again: what it needs for that
//!    is left to the keeper.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use crate::hosts::{News, START_MAX, settle_hosts};
use crate::image::work::Work;
use crate::named::commands::ask::asked_within;
use crate::named::message::{Answer, Ask, Status};
use crate::named::place::Name;
use crate::output::failure::Failure;
use crate::output::say;

/// How much longer than a host may take its supervisor may take to say so.
const MORE: Duration = Duration::from_secs(15);
/// How long a host may take to end, all that it may wait for included.
const END_MAX: Duration = Duration::from_secs(60);

/// Adds `host` to the image called `typed`.
pub fn add(typed: &OsStr, host: &str) -> Result<(), Failure> {
    let name = Name::parse(typed)?;
    let ask = Ask::AddHost { host: one(host)? };
    asked_within(&name, &ask, START_MAX + MORE).map(drop)
}

/// Takes `host` out of it, though programs run there if `force` is set; what went on with it.
pub fn remove(typed: &OsStr, host: &str, force: bool) -> Result<Option<String>, Failure> {
    let name = Name::parse(typed)?;
    let ask = Ask::RemoveHost { host: one(host)?, force };
    match asked_within(&name, &ask, END_MAX)?.0 {
        Answer::Host { line } => Ok(line),
        _ => Ok(None),
    }
}

fn one(host: &str) -> Result<String, Failure> {
    settle_hosts(&[host.to_owned()])
        .map_err(|failure| Failure { remedy: "name it as for ssh".to_owned(), ..failure })?;
    Ok(host.to_owned())
}

/// Who waits for a host.
#[derive(Default)]
pub struct Hosting {
    adding: Vec<(String, UnixStream)>,
    leaving: Vec<(UnixStream, Receiver<Option<String>>)>,
}

/// What is to be told, and to whom.
pub type Told = (UnixStream, Answer);

impl Hosting {
    /// Begins a session with a host for `asker`. An answer: it cannot be.
    pub fn add(
        &mut self,
        (work, status, name): (&mut Work, &Status, &Name),
        host: String,
        asker: UnixStream,
    ) -> Option<Told> {
        let begun = may_have(work, status)
            .and_then(|()| work.add_host((&name.to_string(), status.root), &host));
        match begun {
            Ok(()) => {
                self.adding.push((host, asker));
                None
            }
            Err(failure) => Some((asker, Answer::Refused(failure))),
        }
    }

    /// Takes a host out of the image for `asker`. An answer: it cannot be.
    pub fn remove(
        &mut self,
        work: &mut Work,
        (host, force): (&str, bool),
        asker: UnixStream,
    ) -> Option<Told> {
        let leaving = match work.remove_host(host, force) {
            Ok(leaving) => leaving,
            Err(failure) => return Some((asker, Answer::Refused(failure))),
        };
        let (tell, told) = channel();
        thread::spawn(move || {
            let account = leaving.end();
            // Who does not listen has ended.
            let _ = tell.send(account.map(|account| account.line()));
        });
        self.leaving.push((asker, told));
        None
    }

    /// What there is to tell by now, and whether other hosts are in the image than before.
    pub fn tick(
        &mut self,
        work: &mut Work,
        is_closed: impl Fn(&UnixStream) -> bool,
    ) -> (Vec<Told>, bool) {
        let (mut all, mut changed) = (Vec::new(), false);
        for (host, news) in work.host_news() {
            let waits = self.adding.iter().position(|(adding, _)| *adding == host);
            let asker = waits.map(|at| self.adding.remove(at).1);
            let answer = match news {
                News::Up => Answer::Host { line: None },
                News::Failed(failure) => {
                    if asker.is_none() {
                        say(&failure.to_string());
                    }
                    Answer::Refused(failure)
                }
                // Its starter has said so.
                News::Lost(_) => continue,
            };
            changed = true;
            all.extend(asker.map(|asker| (asker, answer)));
        }
        for (host, _) in self.adding.extract_if(.., |(_, asker)| is_closed(asker)) {
            work.give_up_host(&host);
        }
        let mut at = 0;
        while let Some((_, told)) = self.leaving.get(at) {
            match told.try_recv() {
                Err(TryRecvError::Empty) => at += 1,
                told => {
                    let (asker, _) = self.leaving.remove(at);
                    all.push((asker, Answer::Host { line: told.unwrap_or_default() }));
                    changed = true;
                }
            }
        }
        (all, changed)
    }
}

/// Whether programs of an image may run on other hosts.
fn may_have(work: &Work, status: &Status) -> Result<(), Failure> {
    let in_the_way = [
        (status.part_of.is_some(), "a node of another image has none"),
        (status.nodes > 1, "--nodes does not work with them yet"),
        (status.read_only_outside, "--read-only-outside does not work with them yet"),
        (!work.image.volumes.is_empty(), "--volume does not work with them yet"),
    ];
    match in_the_way.iter().find(|(is, _)| *is) {
        None => Ok(()),
        Some((_, why)) => {
            let remedy = "make another image: husk up --on HOST NAME";
            Err(Failure::new("cannot use other hosts", *why, remedy))
        }
    }
}
