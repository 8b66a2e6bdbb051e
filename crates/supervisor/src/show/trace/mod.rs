//! `husk trace`: collects the system calls of an image's programs while they run.
//!
//! ```text
//!   begin: map, claim, switch on ─► poll: rings ─► records ─► Call (shown by `show`, `chrome`)
//!                                     '─ sign of life          '─ begun and not ended: unfinished
//! ```
//!
//! The programs never wait for this: what does not fit into a ring is counted there. Where nobody
//! polls for `PATIENCE`, they end tracing by themselves; the next poll takes it up again.
//!
//! Invariant: whatever stands in a ring is only ever shown. A program of the image can write
//! anything there.

pub mod chrome;
pub mod show;
pub mod summary;

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use husk_abi::{nr, shape};
use husk_region::observe::trace::{self, By, Found, Kind, Pulse, RECORD_WORDS};

use crate::image::attach::Visit;
use crate::output::failure::Failure;
use crate::run::request::reason;

/// How long programs record for somebody who gives no sign of life.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the processor's clock is compared with the host's at first.
const COMPARED: Duration = Duration::from_millis(10);
/// Between two looks for threads that have ended.
const LOOK: Duration = Duration::from_millis(100);
/// Most calls that are kept as begun: of who leaves more by jumping out of handlers all are
/// forgotten, and counted as not recorded.
const BEGUN_MAX: usize = 65_536;
/// Names of programs that are kept before those of processes that have ended go: more than live at
/// once in an image.
const PROGRAMS_MAX: usize = 65_536;
/// Words of a record before its texts.
const FIXED_WORDS: usize = 10;

/// What to record.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Calls of this process alone.
    pub pid: Option<u32>,
    /// These calls alone; empty: all.
    pub calls: Vec<usize>,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// When it began, ns since the epoch.
    pub at_ns: u64,
    /// Process and thread.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What its program is called.
    pub program: String,
    /// The call.
    pub number: usize,
    /// Its arguments.
    pub args: [u64; 6],
    /// The texts that some of them lead to, in order; `None`: none could be read.
    pub texts: Vec<Option<Text>>,
    /// What came of it; `None`: it has not ended.
    pub end: Option<End>,
}

/// A text that an argument leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// There were more.
    pub goes_on: bool,
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// Its result, or the negative of an error.
    pub result: i64,
    /// Who has answered.
    pub by: By,
    /// How long it took, ns.
    pub duration_ns: u64,
}

/// Somebody who traces.
pub struct Tracer {
    visit: Visit,
    wish: Wish,
    clock: Clock,
    begun: HashMap<(u32, u32), (u64, Call)>,
    forgotten: u64,
    programs: HashMap<u32, String>,
    dropped: Vec<u64>,
    looked: Instant,
    /// How often programs have ended tracing because nobody polled.
    pauses: u64,
    /// Somebody else traces.
    lost: bool,
    /// It was ours to the end.
    ended: bool,
}

impl Tracer {
    /// Begins to trace the image that `name` names.
    pub fn begin(name: &str, wish: Wish) -> Result<Tracer, Failure> {
        let visit = Visit::of(name)?;
        let failed = |why: String, remedy: &str| {
            Failure::new(format!("cannot trace image {name}"), why, remedy)
        };
        if let Some(pid) = wish.pid
            && !visit.has(pid)
        {
            let why = format!("process {pid} is none of its processes");
            return Err(failed(why, "see `husk ps`"));
        }
        trace::map(visit.region_fd(), &visit.layout).map_err(|errno| {
            let problem = std::io::Error::from_raw_os_error(errno.0);
            failed(reason(&problem), "raise `ulimit -v`")
        })?;
        let clock = Clock::compare();
        let wished = trace::Wish {
            process: wish.pid.unwrap_or(0),
            calls: bits(&wish.calls),
            patience: clock.ticks(PATIENCE),
        };
        trace::begin(std::process::id(), &wished).map_err(|other| {
            let remedy = format!("end that one, or wait: kill -INT {other}");
            failed(format!("process {other} traces it already"), &remedy)
        })?;
        let (begun, programs) = (HashMap::new(), HashMap::new());
        let looked = Instant::now();
        Ok(Tracer {
            visit,
            wish,
            clock,
            begun,
            forgotten: 0,
            programs,
            dropped: vec![],
            looked,
            pauses: 0,
            lost: false,
            ended: false,
        })
    }

    /// Calls that have ended since, the earlier ones first.
    pub fn poll(&mut self) -> Vec<Call> {
        match trace::goes_on(std::process::id()) {
            Pulse::On => {}
            Pulse::Again => self.pauses += 1,
            Pulse::Lost => {
                self.lost = true;
                return vec![];
            }
        }
        self.clock.go_on();
        let frees = self.looked.elapsed() >= LOOK;
        if frees {
            self.looked = Instant::now();
        }
        self.read(frees)
    }

    fn read(&mut self, frees: bool) -> Vec<Call> {
        let mut found = vec![];
        let rings = trace::high();
        self.dropped.resize(rings as usize, 0);
        for ring in 0..rings {
            let dropped = trace::read(ring, frees, &mut |record| found.push(*record));
            self.dropped[ring as usize] = dropped;
        }
        let mut calls: Vec<(u64, Call)> =
            found.iter().filter_map(|record| self.take(record)).collect();
        calls.sort_by_key(|(ended, _)| *ended);
        calls.into_iter().map(|(_, call)| call).collect()
    }

    /// Whether somebody else traces the image by now, as nobody polled for long.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether the image, and the process that is traced, are still there.
    pub fn goes_on(&mut self) -> bool {
        self.wish.pid.is_none_or(|pid| self.visit.has(pid)) && self.visit.goes_on()
    }

    /// Calls that were not recorded, so far.
    pub fn not_recorded(&self) -> u64 {
        self.dropped.iter().sum::<u64>() + trace::lost() + self.forgotten
    }

    /// How often programs have ended tracing because nobody looked for long.
    pub fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Ends tracing: what was recorded before that, and calls that have begun and not ended.
    pub fn end(&mut self) -> Vec<Call> {
        self.ended = trace::end(std::process::id());
        let mut calls = if self.ended { self.read(true) } else { vec![] };
        let mut begun: Vec<_> = std::mem::take(&mut self.begun).into_values().collect();
        begun.sort_by_key(|(started, _)| *started);
        calls.extend(begun.into_iter().map(|(_, call)| call));
        calls
    }

    /// The call that a record ends, and when that was, in ticks.
    fn take(&mut self, record: &Found) -> Option<(u64, Call)> {
        let (pid, tid) = record.whose;
        let [_, at, third, result, ..] = record.words;
        match record.kind {
            Kind::Name => {
                let name: Vec<u8> =
                    record.words[2..4].iter().flat_map(|w| w.to_le_bytes()).collect();
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                if self.programs.len() >= PROGRAMS_MAX {
                    let living = self.visit.pids();
                    self.programs.retain(|pid, _| living.contains(pid));
                }
                self.programs.insert(pid, String::from_utf8_lossy(name).into_owned());
                // It has become another program: that is how exec ends.
                self.exec_of(tid).map(|(key, end)| self.finish(key, end, at, 0, By::Host))?
            }
            Kind::Whole => {
                let end =
                    End { result: result as i64, by: record.by, duration_ns: self.clock.ns(third) };
                let (_, mut call) = self.call_of(record);
                call.end = Some(end);
                Some((at.wrapping_add(third), call))
            }
            Kind::Begun => {
                let (started, call) = self.call_of(record);
                if matches!(call.number, nr::exit | nr::exit_group) {
                    return Some((at, call));
                }
                if self.begun.len() >= BEGUN_MAX {
                    self.forgotten += self.begun.len() as u64;
                    self.begun.clear();
                }
                self.begun.insert((tid, third as u32), (started, call));
                None
            }
            Kind::Ended => {
                let key = (tid, third as u32);
                let started = self.begun.get(&key)?.0;
                self.finish(key, started, at, result as i64, record.by)
            }
            Kind::Pad => None,
        }
    }

    /// The exec that a thread is in.
    fn exec_of(&self, tid: u32) -> Option<((u32, u32), u64)> {
        let is_exec = |call: &Call| matches!(call.number, nr::execve | nr::execveat);
        let found =
            self.begun.iter().find(|((whose, _), (_, call))| *whose == tid && is_exec(call));
        found.map(|(key, (started, _))| (*key, *started))
    }

    fn finish(
        &mut self,
        key: (u32, u32),
        started: u64,
        now: u64,
        result: i64,
        by: By,
    ) -> Option<(u64, Call)> {
        let (_, mut call) = self.begun.remove(&key)?;
        let duration_ns = self.clock.ns(now.saturating_sub(started));
        call.end = Some(End { result, by, duration_ns });
        Some((now, call))
    }

    fn call_of(&mut self, record: &Found) -> (u64, Call) {
        let (pid, tid) = record.whose;
        let program = self.programs.get(&pid).cloned().unwrap_or_else(|| "?".to_owned());
        let mut args = [0; 6];
        args.copy_from_slice(&record.words[4..FIXED_WORDS]);
        let call = Call {
            at_ns: self.clock.at_ns(record.words[1]),
            pid,
            tid,
            program,
            number: record.number,
            args,
            texts: texts(record.number, &record.words),
            end: None,
        };
        (record.words[1], call)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if self.ended || trace::end(std::process::id()) {
            trace::give_back(self.visit.region_fd(), &self.visit.layout);
        }
    }
}

/// The texts of a record, whatever it says of their lengths.
fn texts(number: usize, words: &[u64; RECORD_WORDS]) -> Vec<Option<Text>> {
    let mut at = FIXED_WORDS;
    let count = (0..6).filter(|n| shape::is_text(number, *n)).count().min(2);
    let mut found = vec![];
    for _ in 0..count {
        let Some(&length) = words.get(at) else { break };
        at += 1;
        if length == u64::MAX {
            found.push(None);
            continue;
        }
        let kept = length.min(trace::TEXT_BYTES as u64) as usize;
        let some = words[at.min(RECORD_WORDS)..].iter().take(kept.div_ceil(8));
        let mut bytes: Vec<u8> = some.flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(kept);
        at += kept.div_ceil(8);
        found.push(Some(Text { bytes, goes_on: length as usize > kept }));
    }
    found
}

/// One bit for each call; none at all: all.
fn bits(calls: &[usize]) -> [u64; 8] {
    if calls.is_empty() {
        return [u64::MAX; 8];
    }
    let mut bits = [0; 8];
    calls.iter().for_each(|call| bits[call / 64 % 8] |= 1 << (call % 64));
    bits
}

/// The processor's clock, beside the host's.
struct Clock {
    /// When both were compared first: ticks, and ns since the epoch.
    ticks: u64,
    at_ns: u64,
    started: Instant,
    ns_per_tick: f64,
}

impl Clock {
    fn compare() -> Clock {
        let at_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (ticks, started) = (trace::ticks(), Instant::now());
        std::thread::sleep(COMPARED);
        let at_ns = at_ns.as_nanos() as u64;
        let mut clock = Clock { ticks, at_ns, started, ns_per_tick: 1.0 };
        clock.go_on();
        clock
    }

    /// The longer they are compared, the closer.
    fn go_on(&mut self) {
        let passed = trace::ticks().saturating_sub(self.ticks).max(1);
        self.ns_per_tick = self.started.elapsed().as_nanos() as f64 / passed as f64;
    }

    fn ns(&self, ticks: u64) -> u64 {
        // More than there were: the processors' clocks differ, or it is no record.
        if ticks > u64::MAX / 2 { 0 } else { (ticks as f64 * self.ns_per_tick) as u64 }
    }

    fn at_ns(&self, ticks: u64) -> u64 {
        match ticks.checked_sub(self.ticks) {
            Some(later) => self.at_ns.saturating_add(self.ns(later)),
            None => self.at_ns.saturating_sub(self.ns(self.ticks - ticks)),
        }
    }

    fn ticks(&self, time: Duration) -> u64 {
        (time.as_nanos() as f64 / self.ns_per_tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_calls_are_all_calls() {
        assert_eq!(bits(&[]), [u64::MAX; 8]);
        let some = bits(&[nr::read, nr::openat]);
        assert_eq!((some[0], some[nr::openat / 64]), (1, 1 << (nr::openat % 64)));
    }

    #[test]
    fn texts_of_any_words_end_within_them() {
        let mut words = [u64::MAX - 1; RECORD_WORDS];
        assert!(texts(nr::rename, &words).iter().flatten().all(|text| text.goes_on));
        words[FIXED_WORDS] = 3;
        words[FIXED_WORDS + 1] = u64::from_le_bytes(*b"abcdefgh");
        words[FIXED_WORDS + 2] = u64::MAX;
        let found = texts(nr::rename, &words);
        assert_eq!(found, [Some(Text { bytes: b"abc".to_vec(), goes_on: false }), None]);
    }
}
