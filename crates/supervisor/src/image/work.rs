//! An image with the supervisor's work around it: what `husk run` and a named image share.
//!
//! ```text
//!   make ─► image, private directory, copies of programs
//!   serve ─► (programs run) ─► child, tick ... ─► finish: the last dead, checks, write-back
//! ```
//!
//! Invariants
//! 1. Nobody changes the image any more when `finish` is called.
//! 2. What `finish` has to tell is returned, not printed: who asked for the end hears it.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::{Admin as _, Fs as _, Overview as _, Shortcuts as _};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::hosts::{Apart, Leaving, News, Root};
use crate::image::Image;
use crate::image::copies::{Copies, Service};
use crate::image::private::Private;
use crate::image::soundness::{self, Soundness};
use crate::memory::full::Full;
use crate::memory::huge_pages::Dense;
use crate::memory::punch::Punch;
use crate::named::Name;
use crate::nodes::Nodes;
use crate::output::failure::Failure;
use crate::output::progress::Progress;
use crate::output::say;
use crate::process::main_loop::Burial;
use crate::process::pidfds::Vigil;
use crate::process::signals::Signals;
use crate::process::sleepers::Sleepers;
use crate::process::stopped_holders::Aid;
use crate::process::watchers::Watchers;
use crate::recovery;
use crate::run::limits;
use crate::run::neighbours::Neighbours;
use crate::run::request::Settings;
use crate::run::room;
use crate::run::variables::Variables;
use crate::servers::counter::{Counter, Queue};
use crate::servers::fetcher;
use crate::servers::lender;
use crate::servers::loads::Loads;
use crate::show::holds::{self, Work as Kind};
use crate::volumes::Volume;
use crate::write_back;
use crate::write_back::plan::scan::Run;
use crate::write_back::record::ledger::Ledger;
use crate::write_back::tally::conflict_lines;

/// Calls are counted by number up to here.
const CALL_NUMBERS_END: usize = 512;
/// Bytes of what the host counts as a block.
const HOST_BLOCK_BYTES: u64 = 512;
/// All of the image is looked through for the dead so seldom that it takes a fiftieth of a core at
/// most, but at least so often.
const SCAN_COSTS: u32 = 50;
const SCAN_MAX: Duration = Duration::from_secs(5);
/// Rounds of releasing at the end: what one dead process held may take more than one.
const LAST_ROUNDS: u32 = 8;

/// The image and all that works for it.
pub struct Work {
    /// The image.
    pub image: Image,
    copies: Option<Copies>,
    service: Option<Service>,
    aid: Option<Aid>,
    counters: Vec<Counter>,
    /// Where programs ask the fetcher, until it begins.
    offered: Option<Queue>,
    punch: Punch,
    dense: Dense,
    private: Option<Private>,
    sleepers: Sleepers,
    watchers: Watchers,
    loads: Loads,
    full: Full,
    neighbours: Neighbours,
    variables: Variables,
    vigil: Vigil,
    next_scan: Instant,
    saves_in: Option<PathBuf>,
    nodes: Option<Nodes>,
    apart: Apart,
}

/// How an image ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// What there is to tell, one line each.
    pub lines: Vec<String>,
    /// Everything is on the host as the image had it, or was to be dropped; and the image was
    /// sound, as far as anybody has looked.
    pub complete: bool,
    /// What the write-back did, or that it did nothing; without `failures`, which are `lines`.
    pub outcome: write_back::Outcome,
}

impl Work {
    /// Makes an image. `program`: what will run first, where that is known.
    pub fn make(
        settings: &Settings,
        variables: &Variables,
        program: Option<&Path>,
    ) -> Result<Work, Failure> {
        if variables.holds {
            holds::measure();
        }
        let copies = Copies::open();
        if let Some(note) = &copies.note {
            say(&format!("note: {note}"));
        }
        let mut image = Image::make(settings, variables, copies.path())?;
        let private = private_directory(&mut image.direct);
        copies.announce(&mut image.direct, program);
        let mut work = Work::over(image, copies, private, variables);
        let directories: Vec<_> = work.image.overlays().into_iter().map(|(_, path)| path).collect();
        recovery::notes(&directories).iter().for_each(|note| say(&format!("note: {note}")));
        if !settings.discard {
            work.announce().iter().for_each(|note| say(&format!("note: {note}")));
        }
        Ok(work)
    }

    /// The work for an image whose supervisor has died; `lock` is its private directory's.
    pub fn resume(mut image: Image, lock: Option<File>, variables: &Variables) -> Work {
        if variables.holds {
            holds::measure();
        }
        image.direct.forget_requests();
        let path = image.direct.private_path().to_vec();
        let private = match lock {
            Some(lock) => Private::resume(&path, lock),
            None => Private::again(&path),
        };
        let mut work = Work::over(image, Copies::open(), private, variables);
        // Whoever is there was told when it was made.
        let _ = work.announce();
        work
    }

    /// The work around an image, of which nothing has been done yet.
    fn over(image: Image, copies: Copies, private: Option<Private>, variables: &Variables) -> Work {
        let punch = Punch::new(&image.direct);
        let dense = Dense::new(image.direct.kernel().session.region.layout().total_bytes());
        let (copies, variables) = (Some(copies), *variables);
        let (watchers, vigil, next_scan) = (Watchers::default(), Vigil::begin(), Instant::now());
        let sleepers = Sleepers::default();
        let (service, aid, loads, full) = (None, None, Loads::default(), Full::default());
        Work {
            image,
            copies,
            service,
            aid,
            counters: Vec::new(),
            offered: None,
            punch,
            dense,
            private,
            sleepers,
            watchers,
            loads,
            full,
            neighbours: Neighbours::default(),
            variables,
            vigil,
            next_scan,
            saves_in: None,
            nodes: None,
            apart: Apart::default(),
        }
    }

    /// Makes its overlays known; what there is to tell of others'.
    fn announce(&mut self) -> Option<String> {
        let overlays: Vec<_> = self.image.overlays().into_iter().map(|(_, path)| path).collect();
        self.neighbours.announce(&overlays)
    }

    /// What keeps others from the private directory, if there is one.
    pub fn private_lock(&self) -> Option<&File> {
        self.private.as_ref().map(Private::lock)
    }

    /// Starts the other nodes of the image, called after `base`, where there are any; they end with
    /// process `pid`, or with the image whose name is `base`.
    pub fn begin_nodes(
        &mut self,
        settings: &Settings,
        base: &str,
        pid: u32,
    ) -> Result<(), Failure> {
        if settings.nodes > 1 || !settings.hosts.is_empty() {
            let region = self.image.region.try_clone().map_err(crate::run::no_descriptor)?;
            let direct = &mut self.image.direct;
            self.nodes = Some(Nodes::begin(settings, region, direct, (base, pid))?);
        }
        Ok(())
    }

    /// Goes on with them where another supervisor was killed, that of image `name` with these other
    /// `hosts`, which see the files of `root`; `listener` is the home's, if the keeper has kept it.
    pub fn resume_nodes(
        &mut self,
        listener: Option<OwnedFd>,
        (name, root): (&Name, Root),
        hosts: &[String],
    ) {
        let direct = &self.image.direct;
        if direct.nodes() < 2 {
            return;
        }
        let region = self.image.region.try_clone().map_err(crate::run::no_descriptor);
        let of = (name, root, hosts);
        match region.and_then(|region| Nodes::resume(region, direct, listener, of)) {
            Ok(nodes) => self.nodes = Some(nodes),
            Err(failure) => say(&failure.to_string()),
        }
    }

    /// Begins a session with another host, in an image called `base`, for programs that see the
    /// files of `root`.
    pub fn add_host(&mut self, (base, root): (&str, Root), host: &str) -> Result<(), Failure> {
        let direct = &mut self.image.direct;
        if self.nodes.is_none() {
            let region = self.image.region.try_clone().map_err(crate::run::no_descriptor)?;
            self.nodes = Some(Nodes::alone(region, direct, (base, root))?);
        }
        let Some(nodes) = &mut self.nodes else { unreachable!("they are there") };
        let added = nodes.add_host(direct, host);
        nodes.note_apart(&self.apart);
        added
    }

    /// Takes another host out of the image: what is to be ended.
    pub fn remove_host(&mut self, host: &str, force: bool) -> Result<Leaving, Failure> {
        let direct = &mut self.image.direct;
        match &mut self.nodes {
            Some(nodes) => nodes.remove_host(direct, host, force),
            None => Err(crate::nodes::no_hosts(host)),
        }
    }

    /// Ends a session that nobody waits for any more.
    pub fn give_up_host(&mut self, host: &str) {
        if let Some(nodes) = &mut self.nodes {
            nodes.give_up_host(&mut self.image.direct, host);
        }
    }

    /// Process `pid` comes into the image, and brings along what it was started with.
    pub fn came(&mut self, pid: u32, inherited: &[u32]) {
        if self.apart.came(pid, inherited)
            && let Some(nodes) = &self.nodes
        {
            nodes.note_apart(&self.apart);
        }
    }

    /// What has become of other hosts.
    pub fn host_news(&mut self) -> Vec<(String, News)> {
        let direct = &mut self.image.direct;
        self.nodes.as_mut().map(|nodes| nodes.host_news(direct)).unwrap_or_default()
    }

    /// The other hosts by number; no text: that number is free.
    pub fn host_names(&self) -> Vec<String> {
        self.nodes.as_ref().map(Nodes::host_names).unwrap_or_default()
    }

    /// Ends the other hosts: what went on with them, a line each.
    pub fn end_hosts(&mut self) -> Vec<String> {
        self.nodes.as_mut().map(Nodes::end_hosts).unwrap_or_default()
    }

    /// Ends them; whether there were any.
    pub fn end_nodes(&mut self) -> bool {
        let had = self.nodes.take().is_some();
        if had {
            // Who goes on in the image, where it is kept, has this node alone.
            let _ = self.image.direct.set_nodes(0, b"", 0);
        }
        had
    }

    /// Where the other nodes reach this one.
    pub fn home_listener(&self) -> Option<BorrowedFd<'_>> {
        self.nodes.as_ref().map(Nodes::listener)
    }

    /// Who works for them, and is no program.
    pub fn workers(&self) -> Vec<Pid> {
        self.nodes.as_ref().map(Nodes::workers).unwrap_or_default()
    }

    /// Lets programs ask what is answered once `serve` has begun: before the first of them begins.
    pub fn offer(&mut self) {
        if self.counters.is_empty() && self.offered.is_none() {
            self.offered = fetcher::offer(&mut self.image.direct);
        }
    }

    /// Begins what is done in the background by threads of its own.
    pub fn serve(&mut self) {
        self.service = self.copies.take().map(|copies| copies.serve(&self.image.region));
        self.aid = Some(Aid::begin());
        // Programs that are left over may go on between two services, and ask.
        if self.counters.is_empty() {
            self.offer();
            self.counters.extend(self.offered.take().and_then(fetcher::begin));
            self.counters.extend(lender::begin(&mut self.image.direct));
        }
        self.image.volumes.iter_mut().for_each(Volume::serve);
    }

    /// Begins it once more: the image goes on.
    pub fn serve_again(&mut self) {
        self.copies = Some(Copies::open());
        self.serve();
    }

    /// Ends that.
    pub fn rest(&mut self) {
        (self.service, self.aid) = (None, None);
    }

    /// The same with those of other nodes; of one that does not answer, none.
    pub fn living_anywhere(&self) -> Vec<Pid> {
        let mut living = self.living();
        let elsewhere = self.nodes.as_ref().map(Nodes::programs).unwrap_or_default();
        let unseen: Vec<_> = elsewhere.into_iter().filter(|pid| !living.contains(pid)).collect();
        living.extend(unseen);
        living
    }

    /// Host processes of the image that have not ended, and are no agent of it.
    pub fn living(&self) -> Vec<Pid> {
        let agent = self.nodes.as_ref().and_then(Nodes::agent);
        let (mut known, mut pids) = (HashSet::<u32>::from_iter(agent), Vec::new());
        self.image.direct.each_pid(&mut |pid| {
            if known.insert(pid) {
                pids.push(pid);
            }
        });
        self.vigil.living(&pids)
    }

    /// Readable when a process of the image has ended: `bury` then.
    pub fn ends(&self) -> Option<BorrowedFd<'_>> {
        self.vigil.descriptor()
    }

    /// Process `pid`, whose descriptor this is, is in the image now.
    pub fn watch(&mut self, pid: Pid, pidfd: OwnedFd) {
        // Where it cannot be watched, the tick finds it.
        self.vigil.watch(pid.as_raw() as u32, pidfd);
    }

    /// Releases what those held who have ended.
    pub fn bury(&mut self) {
        for pid in self.vigil.ended() {
            self.child(Pid::from_raw(pid as i32));
        }
    }

    /// Watches who is new in the image, and looks for the dead whom nobody watched: threads, and
    /// who came and went between two ticks.
    fn look_around(&mut self) {
        let mut pids = HashSet::new();
        self.image.direct.each_pid(&mut |pid| {
            pids.insert(pid);
        });
        for pid in self.vigil.watch_all(&pids) {
            self.child(Pid::from_raw(pid as i32));
        }
        let began = Instant::now();
        if began >= self.next_scan {
            holds::work(&self.image.direct, Kind::Deaths);
            // What cannot be recovered now is found at the next scan, `SCAN_MAX` later at most.
            let _ = self.image.direct.scan_dead();
            self.next_scan = began + (began.elapsed() * SCAN_COSTS).min(SCAN_MAX);
        }
    }

    /// Tells whoever waits for changes of what was done for the dead.
    fn tell(&mut self) {
        let direct = &mut self.image.direct;
        if let Some(private) = self.private.as_ref().filter(|_| direct.watch_owes()) {
            Watchers::settle(direct, &private.path());
        }
    }

    /// Says what the image has no room for, if anything: a look beside the regular ones.
    pub fn look_for_room(&mut self) {
        self.full.look(&self.image.direct);
    }

    /// Every call of its programs is trapped.
    pub fn traps_only(&self) -> bool {
        self.variables.trap_only
    }

    /// Whether there is room for all that could be written back, or for saving it elsewhere. Of a
    /// damaged image that is never the question.
    pub fn finds_room(&self) -> bool {
        let bytes = rustix::fs::fstat(&self.image.region).map_or(0, |found| found.st_blocks);
        let bytes = bytes as u64 * HOST_BLOCK_BYTES;
        room::is_there(&self.image.overlays(), bytes)
            || !soundness::look(&self.image, &mut |_| {}).is_sound()
    }

    /// An overlay that has no room for `bytes` bytes, where no other place has either.
    pub fn lacks_room(&self, bytes: u64) -> Option<PathBuf> {
        room::short(&self.image.overlays(), bytes).map(Path::to_owned)
    }

    /// What finds no room at the end is saved in a new directory in `base`.
    pub fn save_in(&mut self, base: PathBuf) {
        self.saves_in = Some(base);
    }

    /// Writes back what finds room, as while programs go on: the image has all of it as before.
    pub fn write_what_fits(
        &mut self,
        run: Run,
        ledger: Ledger,
        progress: &Arc<Progress>,
    ) -> write_back::Outcome {
        let (overlays, direct) = (self.image.overlays(), &mut self.image.direct);
        holds::work(direct, Kind::WriteBack);
        direct.leave_access_times(true);
        let outcome = write_back::write_back(direct, run, &overlays, &[], progress, ledger);
        direct.leave_access_times(false);
        outcome
    }

    /// Releases what the last dead held.
    pub fn release_dead(&mut self) {
        let direct = &mut self.image.direct;
        holds::work(direct, Kind::Deaths);
        for _ in 0..LAST_ROUNDS {
            if matches!(direct.scan_dead(), Ok(0)) {
                break;
            }
        }
    }

    /// The write-back at the end of a `husk run`.
    pub fn end_run(&self) -> Run {
        let (number, started_ns) = (std::process::id(), self.image.started_ns);
        Run { number, started_ns, live: false }
    }

    /// Ends the image: the last dead, the checks that were asked for, write-back. `progress` says
    /// how far that is, `chosen` which paths are written back (all, where none is), `ledger` what a
    /// supervisor that was killed has written back, and the number of its run.
    pub fn finish(
        &mut self,
        discard: bool,
        chosen: &[PathBuf],
        progress: &Arc<Progress>,
        ledger: Option<(Ledger, u32)>,
    ) -> Ended {
        self.rest();
        self.release_dead();
        let mut lines = Vec::new();
        let (volumes, direct) = (&mut self.image.volumes, &mut self.image.direct);
        lines.extend(volumes.iter_mut().filter_map(|volume| volume.rest(direct)));
        let are_saved = lines.is_empty();
        // Of an image with a name others go by its end; a run is not held up unasked.
        let soundness = if self.variables.check || ledger.is_some() {
            self.structure_check(&mut lines)
        } else {
            Soundness::Sound
        };
        let direct = &mut self.image.direct;
        if self.variables.trace {
            lines.extend(unsupported(direct));
        }
        if discard || matches!(soundness, Soundness::Senseless) {
            lines.extend(soundness.line(discard, false));
            lines.extend(holds::lines());
            self.let_go();
            let complete = soundness.is_sound() && are_saved;
            return Ended { lines, complete, outcome: write_back::Outcome::default() };
        }
        holds::work(direct, Kind::WriteBack);
        let run = self.end_run();
        let (ledger, number) = ledger.unwrap_or((Ledger::default(), run.number));
        let run = Run { number, ..run };
        let overlays = self.image.overlays();
        let direct = &mut self.image.direct;
        let outcome = match &self.saves_in {
            None => write_back::write_back(direct, run, &overlays, chosen, progress, ledger),
            Some(base) => write_back::write_back_or_save(
                direct, run, &overlays, chosen, base, progress, ledger,
            ),
        };
        lines.extend(conflict_lines(&outcome.conflicts));
        lines.extend(outcome.failures.iter().map(|failure| format!("not written back: {failure}")));
        lines.extend(outcome.notes.iter().map(|note| format!("note: {note}")));
        lines.extend(soundness.line(false, outcome.is_complete()));
        lines.extend(holds::lines());
        if !outcome.untouched {
            self.let_go();
        }
        let complete = outcome.is_complete() && soundness.is_sound() && are_saved;
        Ended { lines, complete, outcome }
    }

    /// Lets go of the volumes.
    fn let_go(&mut self) {
        let (volumes, direct) = (std::mem::take(&mut self.image.volumes), &mut self.image.direct);
        volumes.into_iter().for_each(|volume| volume.close(direct));
    }

    /// Looks at the structure; what it finds are lines where that was asked for.
    fn structure_check(&self, lines: &mut Vec<String>) -> Soundness {
        let asked = self.variables.check;
        let soundness = soundness::look(&self.image, &mut |finding| {
            if asked {
                lines.push(format!("fsck: finding: {finding}"));
            }
        });
        if asked && soundness.is_sound() {
            lines.push("fsck: clean".to_owned());
        }
        soundness
    }
}

impl Burial for Work {
    fn child(&mut self, pid: Pid) {
        holds::work(&self.image.direct, Kind::Deaths);
        // What cannot be released now is found again at the next tick.
        let _ = self.image.direct.reap(pid.as_raw() as u32);
        if let Some(nodes) = &mut self.nodes {
            nodes.ended(pid);
        }
        self.sleepers.look(&self.image.direct);
        self.tell();
    }

    fn tick(&mut self) {
        self.bury();
        self.look_around();
        if let Some(nodes) = &mut self.nodes {
            nodes.tick();
        }
        let direct = &mut self.image.direct;
        direct.end_old_leases();
        holds::work(direct, Kind::Memory);
        self.punch.tick(direct, &self.image.region);
        self.dense.tick(&self.image.region);
        self.sleepers.tick(direct);
        holds::work(direct, Kind::Loads);
        self.loads.tick(direct);
        self.full.tick(direct);
        holds::work(direct, Kind::Watches);
        if let Some(private) = &mut self.private {
            private.tick(direct);
            self.watchers.tick(direct, &private.path());
        }
        self.tell();
    }
}

/// Whether this host can run programs of an image at all.
pub fn ensure_able() -> Result<(), Failure> {
    limits::ensure_data()?;
    husk_host::probe::syscall_user_dispatch().map_err(|errno| {
        if errno == husk_abi::Errno::EPERM {
            let why = "an image cannot run inside an image, nor where a sandbox forbids it";
            return Failure::new("cannot catch system calls", why, "leave out the inner `husk`");
        }
        let why = format!("this host has no Syscall User Dispatch ({errno:?})");
        let remedy = "it needs Linux 5.11 or newer: see `husk check`";
        Failure::new("cannot catch system calls", why, remedy)
    })
}

/// Signals become events: from here on a write past a limit is an error, not the end.
pub fn take_signals() -> Result<Signals, Failure> {
    Signals::take().map_err(|errno| {
        let remedy = "allow signalfd in your sandbox";
        Failure::new("cannot watch for signals", errno.desc(), remedy)
    })
}

/// Raises our limit on file sizes as far as allowed (the image is one file to the host, and what
/// is written back was not bounded in the image); returns the limit before, for the program.
pub fn lift_file_size_limit() -> Rlimit {
    let before = getrlimit(Resource::Fsize);
    set_file_size_limit(Rlimit { current: before.maximum, maximum: before.maximum });
    before
}

/// Sets the limit on file sizes.
pub fn set_file_size_limit(limit: Rlimit) {
    // Within the hard limit: cannot fail. If it did, large files would be reported as such.
    let _ = setrlimit(Resource::Fsize, limit);
}

/// Where FIFOs and unix sockets lead. Without it FIFOs are names only and sockets get none, which
/// concerns few.
fn private_directory(direct: &mut Direct) -> Option<Private> {
    let mut set = |private: Private| direct.set_private_path(&private.path()).map(|()| private);
    let made = Private::make().map_err(|problem| crate::run::request::reason(&problem));
    match made.and_then(|private| set(private).map_err(|errno| format!("{errno:?}"))) {
        Ok(private) => Some(private),
        Err(why) => {
            say(&format!(
                "note: no directory in /dev/shm or /tmp ({why}): \
                 in this image FIFOs cannot be opened and unix sockets not be bound"
            ));
            None
        }
    }
}

fn unsupported(direct: &Direct) -> Vec<String> {
    let line = |(number, count)| {
        format!("unsupported: {} ({number}), refused {count}x", husk_abi::nr::name(number))
    };
    refused(direct).map(line).collect()
}

/// Calls that were refused on files of the image, and how often.
pub fn refused(direct: &Direct) -> impl Iterator<Item = (usize, u64)> {
    let counted = (0..CALL_NUMBERS_END).map(|number| (number, direct.unsupported(number)));
    counted.filter(|(_, count)| *count != 0)
}
