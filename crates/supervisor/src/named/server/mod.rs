//! The supervisor of a named image: answers requests, cleans up after processes, ends the image.
//!
//! ```text
//!   signal descriptor ─┐                 ┌─ SIGTERM and the like: as `down --force`
//!   socket ────────────┤                 ├─ a new talk
//!   talks ─────────────┼─ poll, 25 ms ───┼─ a whole letter: answer it, close the talk
//!   long answers ──────┤                 ├─ there is room for more of it
//!   pidfds of programs ┤                 ├─ one has ended: reap
//!   the tick ──────────┘                 └─ tick: killed grandchildren, memory, FIFOs
//! ```
//!
//! Invariants
//! 1. No talk holds up another, nor the tick, until the image ends: letters are read as they come,
//!    and one that is not whole within `TALK_MAX` is not read to its end; an answer is sent as it
//!    is taken, for `ANSWER_MAX`; who asks for the end while programs run waits a moment aside.
//! 2. Who is another user, or counts processes by other numbers, gets no descriptor.
//!    An end whose asker has gone before it began is none.
//! 3. What others find the image by is made again within `LOOK_EVERY` of its loss.
//! 4. A program is noticed at once when it ends; so is one it started, unless it came after the
//!    last tick.

pub(super) mod hosting;
pub(super) mod pulse;
pub(super) mod refused;
pub(super) mod sync;
pub(super) mod tend;
pub(super) mod turns;

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{PidfdFlags, pidfd_open};

use self::hosting::{Hosting, Told};
use self::sync::{DISCARDS, Syncing};
use self::tend::{log_to, write_facts};
use super::keeper::kept::Kept;
use crate::image::Newcomer;
use crate::image::work::Work;
use crate::memory::full;
use crate::named::message::{
    Answer, Ask, LETTER_BYTES_MAX, Letter, Status, VERSION, Whole, answer, line, send_some,
};
use crate::named::mount;
use crate::named::place::{Ended, Held};
use crate::nodes::PartOf;
use crate::output::failure::Failure;
use crate::output::progress::Progress;
use crate::output::say;
use crate::process::main_loop::Burial;
use crate::process::oom;
use crate::process::reaper::{self, QUIET, Stragglers};
use crate::process::signals::{Event, Signals};
use crate::run::request::reason;
use crate::write_back::Outcome;
use crate::write_back::plan::derived;
use crate::write_back::plan::scan::Run;
use crate::write_back::record::ledger::Ledger;
use crate::write_back::record::manifest;
use crate::write_back::tally::Tally;

/// Between two looks for the dead nobody tells us about.
const TICK: Duration = Duration::from_millis(25);
/// Between two looks whether others still find the image.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a letter may take to arrive.
const TALK_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take to be taken.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Talks at a time; more wait in the socket's queue.
const TALKS_MAX: usize = 128;
/// Read at a time: more than most letters are long.
const READ_BYTES: usize = 2 << 10;

/// One image and those who talk to its supervisor.
pub struct Server {
    /// Its name.
    pub held: Held,
    /// What it is made of.
    pub made: Made,
    talks: Vec<Talk>,
    replies: Vec<Reply>,
    ends: Vec<End>,
    syncing: Option<Syncing>,
    hosting: Hosting,
    unfound: Option<String>,
    /// Whether there are notes of write-backs that have not ended.
    noted: bool,
}

/// What a supervisor is made of.
pub struct Made {
    /// The image.
    pub work: Work,
    /// The runtime for its programs.
    pub loader: OwnedFd,
    /// Where others connect.
    pub listener: UnixListener,
    /// What reaches the supervisor itself.
    pub signals: Signals,
    /// What `husk ls` shows, apart from what changes.
    pub status: Status,
    /// Rewritten copies not wanted.
    pub trap_only: bool,
}

/// A connection, and what has come over it.
pub struct Talk {
    stream: UnixStream,
    peer: Pid,
    letter: Vec<u8>,
    since: Instant,
}

/// An answer that is longer than a socket holds, and how much of it is on its way.
struct Reply {
    stream: UnixStream,
    text: Vec<u8>,
    sent: usize,
    since: Instant,
}

/// What a wait was for.
struct Ready {
    signals: bool,
    ends: bool,
    listener: bool,
}

/// How the image is to end, and who wants to know.
struct End {
    discard: bool,
    force: bool,
    asker: Option<UnixStream>,
    /// The asker understands signs of life.
    told: bool,
    since: Instant,
}

/// What has become of an end.
enum Over {
    /// The image has ended; who asked for it.
    Ended(Option<UnixStream>),
    /// It goes on.
    Stays,
}

impl End {
    fn new(discard: bool, force: bool, asker: Option<UnixStream>) -> End {
        End { discard, force, asker, told: false, since: Instant::now() }
    }
}

/// Programs of the image, whoever started them.
struct Programs<'a>(&'a mut Work);

impl Stragglers for Programs<'_> {
    fn none_left(&mut self) -> bool {
        self.0.tick();
        self.0.living().is_empty()
    }

    fn left(&mut self) -> Vec<Pid> {
        self.0.living()
    }
}

impl Server {
    /// Nobody has connected yet.
    pub fn new(held: Held, made: Made) -> Server {
        let (talks, replies, ends, hosting) = Default::default();
        let (syncing, unfound, noted) = (None, None, false);
        Server { held, made, talks, replies, ends, syncing, hosting, unfound, noted }
    }

    /// Leaves to the keeper at the other end of `stream` what is needed to go on without us.
    pub fn kept_by(&self, stream: io::Result<UnixStream>) -> io::Result<Kept> {
        Kept::begin(&self.held.place.name, stream?, &self.made, self.held.lock.as_fd())
    }

    /// Serves until the image has ended.
    pub fn serve(mut self, kept: Kept) {
        derived::keep_in(self.held.place.indexes());
        let asker = self.serve_until_end(&kept);
        kept.over();
        drop(self);
        // Who waits for the end is the last to hear of it.
        drop(asker);
    }

    /// The last asker, if there was one.
    fn serve_until_end(&mut self, kept: &Kept) -> Option<UnixStream> {
        let (mut next_tick, mut next_look) = (Instant::now(), Instant::now());
        if let Some(ended) = self.held.place.ended() {
            // Where another supervisor was killed after it, before it could say so.
            self.part(ended, None);
            return None;
        }
        if let Some(discard) = self.held.place.is_ending() {
            // Where another supervisor was killed in the middle of it.
            if let Over::Ended(asker) = self.end(End::new(discard, true, None), kept) {
                return asker;
            }
        }
        loop {
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK_EVERY;
                self.look_after(kept);
                let part = self.made.status.part_of.as_ref();
                if part.is_some_and(PartOf::has_lost_home)
                    && let Over::Ended(asker) = self.end(End::new(true, true, None), kept)
                {
                    return asker;
                }
            }
            let ready = self.wait();
            if ready.ends {
                self.made.work.bury();
            }
            self.end_sync();
            self.replies.retain_mut(|reply| reply.go_on().is_ok_and(|whole| !whole));
            let signalled = if ready.signals { self.signalled() } else { None };
            let wish = signalled.or_else(|| self.listen(ready.listener));
            self.ends.extend(wish);
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.made.work.tick();
                self.look_at_hosts(kept);
            }
            if let Some(end) = self.due()
                && let Over::Ended(asker) = self.end(end, kept)
            {
                return asker;
            }
        }
    }

    /// Sees to it that others find the image, whatever was removed, and knows of its keeper, and of
    /// write-backs.
    fn look_after(&mut self, kept: &Kept) {
        // Who comes to a part of another image comes from a program of that, and nothing looks.
        let is_part = self.made.status.part_of.is_some();
        self.noted = !is_part && manifest::any(&manifest::places());
        let (keeper, note) = kept.state();
        if (keeper, &note) != (self.made.status.keeper, &self.made.status.note) {
            (self.made.status.keeper, self.made.status.note) = (keeper, note);
            // For people only.
            let _ = write_facts(&self.held, &self.made.status);
        }
        if self.held.is_whole() {
            return;
        }
        let why = match self.be_found(kept) {
            Ok(()) => {
                "the link by which others find the image was removed, and has been made again"
                    .to_owned()
            }
            Err(problem) => format!("others cannot find the image: {}", reason(&problem)),
        };
        if self.unfound.as_ref() != Some(&why) {
            say(&why);
            self.unfound = Some(why);
        }
    }

    /// Tells who waits for other hosts, and leaves to the keeper which there are.
    fn look_at_hosts(&mut self, kept: &Kept) {
        let (told, changed) = self.hosting.tick(&mut self.made.work, is_closed);
        told.into_iter().for_each(|told| self.reply(told));
        if !changed {
            return;
        }
        self.made.status.hosts = self.made.work.host_names();
        // For people, and for who finds the image in a program.
        let written = write_facts(&self.held, &self.made.status);
        let left = written.and_then(|()| kept.update(&self.made, self.held.lock.as_fd()));
        if let Err(problem) = left {
            say(&format!("cannot record its other hosts: {}", reason(&problem)));
        }
    }

    fn reply(&mut self, (asker, told): Told) {
        // Who does not listen is not told.
        self.replies.extend(Reply::begin(asker, &told, &[]).ok().flatten());
    }

    fn be_found(&mut self, kept: &Kept) -> io::Result<()> {
        self.held.restore()?;
        // Nobody reaches the one before.
        self.held.place.stop_listening();
        self.made.listener = self.held.place.listen()?;
        write_facts(&self.held, &self.made.status)?;
        log_to(&self.held.place)?;
        kept.update(&self.made, self.held.lock.as_fd())
    }

    /// Sleeps until something happens or the tick; what is to be looked at. Who enters the image
    /// waits for each call that is made here.
    fn wait(&self) -> Ready {
        let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut all = vec![watched(self.made.signals.descriptor.as_fd())];
        let ends = self.made.work.ends().map(watched);
        let (listens, buries) = (self.has_room(), ends.is_some());
        all.extend(ends);
        if listens {
            all.push(watched(self.made.listener.as_fd()));
        }
        all.extend(self.talks.iter().map(|talk| watched(talk.stream.as_fd())));
        let room = |fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT);
        all.extend(self.replies.iter().map(|reply| room(reply.stream.as_fd())));
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        if poll(&mut all, Some(&tick)).is_err() {
            // An interrupted wait is as good as a tick: all is looked at.
            return Ready { signals: true, ends: true, listener: true };
        }
        let mut seen = all.iter().map(|one| !one.revents().is_empty());
        let mut next = |there| there && seen.next() == Some(true);
        Ready { signals: next(true), ends: next(buries), listener: next(listens) }
    }

    /// Whether another talk may begin.
    fn has_room(&self) -> bool {
        self.talks.len() + self.replies.len() + self.ends.len() < TALKS_MAX
    }

    /// A wish to end that came as a signal: nothing may be lost, and nobody is there to ask.
    fn signalled(&mut self) -> Option<End> {
        let mut end = None;
        while let Some(event) = self.made.signals.next() {
            if let Event::Forward(Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) = event {
                say("asked to end by a signal");
                end = Some(End::new(self.made.status.discard, true, None));
            }
        }
        end
    }

    /// New talks, if somebody waits for one, and what comes over those there are; the end, if one
    /// asks for it.
    fn listen(&mut self, knocked: bool) -> Option<End> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let mut more = knocked && self.has_room();
        while more && let Ok(stream) = accept_with(&self.made.listener, flags) {
            // Who comes alone is answered before it is asked for others.
            let alone = self.talks.is_empty();
            self.talks.extend(Talk::begin(stream.into()));
            more = !alone && self.has_room();
        }
        let mut next = 0;
        while let Some(talk) = self.talks.get_mut(next) {
            let read = talk.read();
            if matches!(read, Ok(false)) {
                next += 1;
                continue;
            }
            let talk = self.talks.remove(next);
            // Those behind who asks for the end are heard in the next round: it may be refused.
            let end = read.ok().and_then(|_| self.serve_one(talk));
            if end.is_some() {
                return end;
            }
        }
        None
    }

    /// The end that is to be now; who cannot have one is told.
    fn due(&mut self) -> Option<End> {
        self.ends.retain(|end| end.asker.as_ref().is_none_or(|asker| !is_closed(asker)));
        if self.ends.is_empty() {
            return None;
        }
        let left = self.made.work.living_anywhere();
        let now = |end: &End| end.force || left.is_empty();
        if let Some(index) = self.ends.iter().position(now) {
            return Some(self.ends.remove(index));
        }
        // The rest of a pipeline ends by itself in a moment.
        let over: Vec<End> = self.ends.extract_if(.., |end| end.since.elapsed() >= QUIET).collect();
        over.into_iter().for_each(|end| self.refuse_end(end.asker, &left));
        None
    }

    fn serve_one(&mut self, talk: Talk) -> Option<End> {
        let (told, descriptors) = match talk.ask() {
            Ok(Ask::Down { discard, force }) => {
                let discard = discard || self.made.status.discard;
                let told = talk.is_of_this_version();
                return Some(End { told, ..End::new(discard, force, Some(talk.stream)) });
            }
            Ok(Ask::Join { pid, inherited, passed, umask, here }) => {
                let (inherited, passed) = (&inherited[..], &passed[..]);
                self.join(talk, &Newcomer { pid, inherited, passed, umask, here });
                return None;
            }
            Ok(Ask::Region) => (
                Answer::Region { pid: self.made.status.pid },
                vec![self.made.work.image.region.as_fd()],
            ),
            Ok(Ask::Sync { paths }) => {
                self.sync(talk.stream, paths.into_iter().map(PathBuf::from).collect());
                return None;
            }
            Ok(Ask::AddHost { host }) => {
                let Made { work, status, .. } = &mut self.made;
                let image = (work, &*status, &self.held.place.name);
                let told = self.hosting.add(image, host, talk.stream);
                told.into_iter().for_each(|told| self.reply(told));
                return None;
            }
            Ok(Ask::RemoveHost { host, force }) => {
                let work = &mut self.made.work;
                let told = self.hosting.remove(work, (&host, force), talk.stream);
                told.into_iter().for_each(|told| self.reply(told));
                return None;
            }
            Ok(Ask::Look) => (Answer::Look(self.look()), vec![]),
            Ok(Ask::Processes) => {
                let living = self.made.work.living().into_iter();
                (Answer::Processes(living.map(|pid| pid.as_raw() as u32).collect()), vec![])
            }
            Err(failure) => (Answer::Refused(failure), vec![]),
        };
        // Who does not listen is not told.
        let reply = Reply::begin(talk.stream, &told, &descriptors).ok().flatten();
        self.replies.extend(reply);
        None
    }

    /// Begins to write back, or says why not.
    fn sync(&mut self, asker: UnixStream, paths: Vec<PathBuf>) {
        let name = &self.held.place.name;
        let refuse = |why: &str, remedy: &str| {
            Failure::new(format!("cannot sync image {name}"), why, remedy)
        };
        let overlays = self.made.work.image.overlays();
        let begun = if self.made.status.discard {
            Err((asker, refuse(DISCARDS, "copy what you need: husk cp NAME:PATH TARGET")))
        } else if overlays.is_empty() {
            let why = "it has no overlay: there is nothing to write back";
            Err((asker, refuse(why, "make one with --overlay")))
        } else if self.syncing.is_some() {
            Err((asker, refuse("another `husk sync` is running", "try again when that has ended")))
        } else {
            let number = self.made.status.number;
            let started_ns = self.made.work.image.started_ns;
            let run = Run { number, started_ns, live: true };
            Syncing::begin(asker, &self.held.place, run, overlays, paths)
        };
        match begun {
            Ok(syncing) => self.syncing = Some(syncing),
            Err((asker, failure)) => {
                // Who does not listen is not told.
                let told = Answer::Refused(failure);
                self.replies.extend(Reply::begin(asker, &told, &[]).ok().flatten());
            }
        }
    }

    /// Tells how a write-back went that is over.
    fn end_sync(&mut self) {
        if let Some(syncing) = self.syncing.take_if(|syncing| syncing.is_over()) {
            let (asker, told) = syncing.end();
            self.replies.extend(Reply::begin(asker, &told, &[]).ok().flatten());
        }
    }

    fn look(&self) -> Status {
        let work = &self.made.work;
        let (processes, full) = (work.living().len() as u32, full::lines(&work.image.direct));
        let requests = work.image.direct.requests();
        Status { processes, full, requests, ..self.made.status.clone() }
    }

    /// Answers who wants to join, and watches it; it waits for nothing but the answer.
    fn join(&mut self, talk: Talk, newcomer: &Newcomer<'_>) {
        let (told, pidfd) = match self.admit(&talk, newcomer) {
            Ok((told, pidfd)) => (told, pidfd),
            Err(failure) => (Answer::Refused(failure), None),
        };
        let descriptors = match told {
            Answer::Refused(_) => vec![],
            _ => vec![self.made.work.image.region.as_fd(), self.made.loader.as_fd()],
        };
        let peer = talk.peer;
        // Who does not listen is not told.
        let reply = Reply::begin(talk.stream, &told, &descriptors).ok().flatten();
        self.replies.extend(reply);
        if pidfd.is_some() {
            oom::give_way(newcomer.pid);
        }
        // Where no descriptor could be had, the tick finds it.
        if let Some(pidfd) = pidfd {
            self.made.work.watch(peer, pidfd);
        }
    }

    /// The answer for who joins, and a descriptor of its process.
    fn admit(
        &mut self,
        talk: &Talk,
        newcomer: &Newcomer<'_>,
    ) -> Result<(Answer, Option<OwnedFd>), Failure> {
        let refuse = |why: &str, remedy: &str| {
            Failure::new(format!("cannot enter image {}", self.held.place.name), why, remedy)
        };
        if talk.peer.as_raw() as u32 != newcomer.pid {
            let why = "this process is in another PID namespace";
            return Err(refuse(why, "enter it from where it was made"));
        }
        let pidfd = rustix::process::Pid::from_raw(talk.peer.as_raw())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // It waits for our answer: had it ended, its number might be another's by now.
        if is_closed(&talk.stream) {
            return Err(refuse("it has ended", "start it again"));
        }
        let process = self.made.work.image.admit(newcomer)?.0;
        self.made.work.came(newcomer.pid, newcomer.inherited);
        let (guard, trap_only) = (self.made.status.guard, self.made.trap_only);
        Ok((Answer::Joined { process, guard, trap_only, noted: self.noted }, pidfd))
    }

    /// Whether it is refused, and whoever has asked is told. Where nobody is there to make room,
    /// what fits is written.
    fn lacks_room(&mut self, end: &End) -> bool {
        let Some(asker) = end.asker.as_ref().filter(|_| !end.discard) else { return false };
        let number = self.made.status.number;
        let refused = refused::lacks_room(&mut self.made.work, &self.held.place, number);
        let Some(failure) = refused else { return false };
        say(&failure.to_string());
        // Who does not listen is not told.
        let _ = deliver(asker, &Answer::Refused(failure));
        true
    }

    /// Ends the image; the asker, who has been told.
    fn end(&mut self, end: End, kept: &Kept) -> Over {
        if self.lacks_room(&end) {
            return Over::Stays;
        }
        if let Err(problem) = self.held.place.begin_end(end.discard) {
            say(&format!("cannot record that the image ends: {}", reason(&problem)));
        }
        self.held.place.stop_listening();
        self.talks.clear();
        self.replies.clear();
        self.ends.clear();
        let progress = Arc::<Progress>::default();
        let asker = end.asker.as_ref().filter(|_| end.told);
        let pulse = pulse::tell(asker, &self.held.place, &progress);
        if let Some(syncing) = self.syncing.take() {
            let (asker, told) = syncing.end();
            // Who does not listen is not told.
            let _ = deliver(&asker, &told);
        }
        let told = reaper::end_stragglers(&mut Programs(&mut self.made.work));
        let closing = self.made.work.end_hosts();
        let had_nodes = self.made.work.end_nodes();
        let mut tally = Tally::default();
        let _turn = turns::take(&self.held.place, turns::WRITE_BACK_WAITS);
        if !end.discard && !self.made.work.finds_room() {
            let (number, started_ns) = (self.made.status.number, self.made.work.image.started_ns);
            let run = Run { number, started_ns, live: true };
            let ledger = Ledger::at(self.held.place.ledger());
            let outcome = self.made.work.write_what_fits(run, ledger, &progress);
            if !outcome.failures.is_empty() || !outcome.busy.is_empty() || outcome.untouched {
                drop(pulse);
                self.stay(end.asker, &outcome, had_nodes, kept);
                return Over::Stays;
            }
            tally = Tally::of(&outcome, &progress);
        }
        let mut lines: Vec<String> =
            told.into_iter().map(|(who, how)| format!("{who}: {how}")).collect();
        // Nobody misses it.
        lines.extend(closing.into_iter().filter(|_| end.asker.is_some()));
        let ledger = (Ledger::at(self.held.place.ledger()), self.made.status.number);
        let ended = self.made.work.finish(end.discard, &[], &progress, Some(ledger));
        drop(pulse);
        if ended.outcome.untouched {
            self.made.work.serve_again();
            self.stay(end.asker, &ended.outcome, had_nodes, kept);
            return Over::Stays;
        }
        lines.extend(ended.lines);
        lines.iter().for_each(|line| say(line));
        let tally = tally + Tally::of(&ended.outcome, &progress);
        let ended = Ended { lines, complete: ended.complete, tally };
        if let Err(problem) = self.held.place.complete_end(&ended) {
            say(&format!("cannot record that the image has ended: {}", reason(&problem)));
        }
        self.part(ended, end.asker.as_ref());
        Over::Ended(end.asker)
    }

    /// The image goes on: it has what found room neither in its place nor elsewhere.
    fn stay(&mut self, asker: Option<UnixStream>, outcome: &Outcome, had_nodes: bool, kept: &Kept) {
        let failure = refused::stays(&self.held.place.name, outcome, had_nodes);
        self.made.status.nodes = 0;
        self.made.status.hosts.clear();
        say(&failure.to_string());
        self.held.place.remove("ending");
        if let Err(problem) = self.be_found(kept) {
            // It is tried again at the next look.
            say(&format!("others cannot find the image: {}", reason(&problem)));
        }
        // Who does not listen is not told.
        let _ = asker.map(|asker| deliver(&asker, &Answer::Refused(failure)));
    }

    /// The last word of an image that has ended: all that is left is to tell, and to go.
    fn part(&self, ended: Ended, asker: Option<&UnixStream>) {
        let unsaid = !ended.lines.is_empty() || !ended.complete;
        let Ended { lines, complete, tally } = ended;
        let told = Answer::Down { lines, complete, tally };
        let heard = asker.is_some_and(|asker| deliver(asker, &told).is_ok());
        // What nobody was told stays in its place; nobody will ask for a part of another image.
        let is_part = self.made.work.image.direct.node() != 0;
        if (heard || !unsaid || is_part)
            && let Err(problem) = self.held.remove()
        {
            say(&format!("cannot remove the image's directory: {}", reason(&problem)));
        }
    }

    fn refuse_end(&self, asker: Option<UnixStream>, left: &[Pid]) {
        let name = &self.held.place.name;
        // Those of mounts end with what they wait for.
        let serves = |pid: &Pid| mount::serves(pid.as_raw() as u32);
        let programs: Vec<Pid> = left.iter().copied().filter(|pid| !serves(pid)).collect();
        let left = if programs.is_empty() { left } else { &programs };
        let (count, who) = (left.len(), reaper::names(left));
        let programs = if count == 1 { "a program runs" } else { "programs run" };
        let why = format!("{programs} in it: {who}");
        let refusal = Failure::new(
            format!("cannot take image {name} down"),
            why,
            "end what runs, or add --force",
        );
        // Who does not listen is not told.
        let _ = asker.map(|asker| answer(&asker, &Answer::Refused(refusal), &[]));
    }
}

impl Reply {
    /// Sends what there is room for; `None`: that was all.
    fn begin(
        stream: UnixStream,
        told: &Answer,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<Option<Reply>> {
        let text = line(told)?;
        let sent = send_some(&stream, &text, descriptors)?;
        let rest = Reply { stream, text, sent, since: Instant::now() };
        Ok((rest.sent < rest.text.len()).then_some(rest))
    }

    /// Sends what there is room for by now; whether that was all. An error: it is not taken.
    fn go_on(&mut self) -> io::Result<bool> {
        if self.since.elapsed() > ANSWER_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.sent += send_some(&self.stream, &self.text[self.sent..], &[])?;
        Ok(self.sent == self.text.len())
    }
}

/// Sends the last answer, for which there is nothing else to do.
fn deliver(asker: &UnixStream, told: &Answer) -> io::Result<()> {
    asker.set_nonblocking(false)?;
    asker.set_write_timeout(Some(ANSWER_MAX))?;
    answer(asker, told, &[])
}

/// Whether the other side has gone.
fn is_closed(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

impl Talk {
    /// A talk over a socket that does not block. `None`: with somebody who gets no answer
    /// (invariant 2).
    fn begin(stream: UnixStream) -> Option<Talk> {
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            let remedy = "make one of your own: husk up NAME";
            let failure = Failure::new("cannot use the image", "it is another user's", remedy);
            // Who does not listen is not told.
            let _ = answer(&stream, &Answer::Refused(failure), &[]);
            return None;
        }
        let peer = Pid::from_raw(peer.pid());
        Some(Talk { stream, peer, letter: Vec::new(), since: Instant::now() })
    }

    /// Reads what has come; whether the letter is whole.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        while self.letter.len() < LETTER_BYTES_MAX {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.letter.extend_from_slice(&bytes[..got]),
                Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {
                    let late = self.since.elapsed() > TALK_MAX;
                    return if late { Err(problem) } else { Ok(false) };
                }
                Err(problem) => return Err(problem),
            }
            if self.letter.last() == Some(&b'\n') {
                return Ok(true);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn is_of_this_version(&self) -> bool {
        let letter: Option<Letter> = serde_json::from_slice(&self.letter).ok();
        letter.is_some_and(|letter| letter.version == VERSION)
    }

    fn ask(&self) -> Result<Ask, Failure> {
        // What is of this version is read once: who enters waits for it.
        if let Ok(Whole { version, ask }) = serde_json::from_slice(&self.letter)
            && version == VERSION
        {
            return Ok(ask);
        }
        let what = "cannot answer";
        let senseless = |_| Failure::new(what, "the request is not valid", "report it");
        let letter: Letter = serde_json::from_slice(&self.letter).map_err(senseless)?;
        let ask = serde_json::from_value(letter.ask);
        // An image of another version can be looked at and ended by whoever can ask for it.
        if letter.version == VERSION || matches!(ask, Ok(Ask::Look | Ask::Down { .. })) {
            return ask.map_err(senseless);
        }
        let why = format!("the image runs husk {VERSION}, and this is {}", letter.version);
        Err(Failure::new(what, why, "use that version, or take the image down and up again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::message::receive;

    #[test]
    fn an_answer_longer_than_a_socket_holds_arrives_whole() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let told = Answer::Processes((0..200_000).collect());
        let reply = Reply::begin(ours, &told, &[]).unwrap();
        let mut reply = reply.expect("it is longer than a socket holds");
        assert!(!reply.go_on().unwrap(), "nobody has taken any of it");
        let reader = std::thread::spawn(move || receive(&theirs, false));
        while !reply.go_on().unwrap() {
            let mut room = [PollFd::from_borrowed_fd(reply.stream.as_fd(), PollFlags::OUT)];
            poll(&mut room, None).unwrap();
        }
        drop(reply);
        assert_eq!(reader.join().unwrap().unwrap().0, line(&told).unwrap());
    }

    #[test]
    fn an_answer_nobody_takes_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let text = b"x".to_vec();
        let since = Instant::now().checked_sub(ANSWER_MAX + TICK).unwrap();
        let mut late = Reply { stream: ours, text, sent: 0, since };
        assert!(late.go_on().is_err());
        drop((late, theirs));
    }
}
