//! Data of placement: the image's policy, loads of kernels, a line for each process. Whether
//! to place is decided at fork and exec, in the runtime (`process::placement`); `choose` picks the
//! kernel.
//!
//! ```text
//!   PLACE_RULE     policy:8 origin:8 pin:1 placed:1       beside what every path walk reads
//!   PLACE_KERNELS  0..64 core of each kernel   64 whose turn it is   72 loads are wanted
//!                  80.. a line a kernel: 0 load   1 arrivals   2 departures   3 folded
//!   PLACES         a line a process: 0 pid:32 kernel:8 policy:4 origin:4 flags:16   1 when
//!                  2 core before   3 allowed kernels   4..8 loads seen
//! ```
//!
//! 1. All of it is advice: nothing that must be right hangs on it, so nothing is journalled, and a
//!    line that was written half is none.
//! 2. A line has one writer, its process (before it runs, its creator). It belongs to the process
//!    whose number it has, and to none that was created later.
//! 3. A kernel's load has one writer, the supervisor's tick. Placing a process by load adds one
//!    to the arrivals, and a placed process that ends one to the departures, both on that kernel's
//!    own line; what came since the last tick counts as a process that never waits.

use husk_proto::place::{
    LOAD_ONE, LOADS_SHOWN, Moment, Origin, Placement, Policy, Rule, SHOWN_ONE,
};
use husk_region::{Cell, KERNELS_MAX, Region};

use crate::Kernel;
use crate::image::{PLACE_KERNELS, PLACE_RULE, PLACES, WATCH};
use crate::process;
use crate::state::process::{PROCESS_HIGH, PROCESSES_MAX};
use crate::state::{high, low, pair};

const TURN: u32 = 64;
const WANTED: u32 = 72;
const LINES: u32 = 80;
/// Words for kernels.
const KERNELS_WORDS: u32 = LINES + KERNELS_MAX * 8;
const _: () = assert!(PLACE_KERNELS + KERNELS_WORDS <= WATCH);

const LOAD: u32 = 0;
const ARRIVALS: u32 = 1;
const DEPARTURES: u32 = 2;
const FOLDED: u32 = 3;

const PIN: u64 = 1 << 16;
const PLACED: u64 = 1 << 17;

/// By how much another kernel must have less to do before a process goes there.
const MARGIN: u32 = LOAD_ONE / 4;
/// A new load counts a quarter, what was before three.
const AVERAGE_SHIFT: u32 = 2;

const _: () = assert!(LOADS_SHOWN == 32 && PLACE_KERNELS.is_multiple_of(8));

fn kernels_word(region: &Region, index: u32) -> Cell {
    region.map.fixed(PLACE_KERNELS + index)
}

fn load_line(region: &Region, kernel: u32) -> Cell {
    kernels_word(region, LINES + kernel % KERNELS_MAX * 8)
}

fn line(region: &Region, process: u32) -> Cell {
    region.map.fixed(PLACES + process % PROCESSES_MAX * 8)
}

/// What holds in the image.
#[inline]
pub fn rule(region: &Region) -> Rule {
    let word = region.load(region.map.fixed(PLACE_RULE));
    Rule {
        policy: Policy::of_number(word as u32 & 0xff).unwrap_or_default(),
        origin: Origin::of_number((word >> 8) as u32 & 0xff),
        pin: word & PIN != 0,
    }
}

/// Whether any process was ever placed: without, there is no line to look for.
#[inline]
pub fn any_placed(region: &Region) -> bool {
    region.load(region.map.fixed(PLACE_RULE)) & PLACED != 0
}

/// Sets what holds, and the core of each kernel, before the first program runs.
pub fn set_rule(region: &Region, rule: Rule, cores: &[u32]) {
    let pin = if rule.pin { PIN } else { 0 };
    let word = rule.policy as u64 | (rule.origin as u64) << 8 | pin;
    region.store(region.map.fixed(PLACE_RULE), word);
    for (kernel, &core) in (0..KERNELS_MAX).zip(cores) {
        region.store(kernels_word(region, kernel), u64::from(core) + 1);
    }
}

/// The core of a kernel; `None`: it was never given one.
pub fn core(region: &Region, kernel: u32) -> Option<u32> {
    (region.load(kernels_word(region, kernel % KERNELS_MAX)) as u32).checked_sub(1)
}

/// Whose turn it is; the next one gets another number.
pub fn turn(region: &Region) -> u64 {
    region.add(kernels_word(region, TURN), 1)
}

/// The core whose turn it is, where nothing else is placed by turns.
pub fn next_core(kernel: &Kernel) -> Option<u32> {
    let region = &kernel.session.region;
    core(region, (turn(region) % u64::from(region.kernels())) as u32)
}

/// Asks for loads to be looked after.
pub fn want_loads(region: &Region) {
    let wanted = kernels_word(region, WANTED);
    if region.load(wanted) == 0 {
        region.store(wanted, 1);
    }
}

/// Whether anybody places by load.
pub fn are_loads_wanted(region: &Region) -> bool {
    region.load(kernels_word(region, WANTED)) != 0
}

/// What a kernel's core has to do, in `LOAD_ONE` to a process that never waits.
pub fn load(region: &Region, kernel: u32) -> u32 {
    let at = load_line(region, kernel);
    let word = |index| region.load(at.word(index));
    let came = word(ARRIVALS).wrapping_sub(word(DEPARTURES)).wrapping_sub(word(FOLDED)) as i64;
    let came = came.clamp(-1000, 1000) * i64::from(LOAD_ONE);
    (word(LOAD) as i64).saturating_add(came).clamp(0, i64::from(u32::MAX)) as u32
}

/// A process was placed at a kernel by its load.
pub fn arrive(region: &Region, kernel: u32) {
    region.add(load_line(region, kernel).word(ARRIVALS), 1);
}

/// Such a process ends, or goes elsewhere.
pub fn depart(region: &Region, kernel: u32) {
    region.add(load_line(region, kernel).word(DEPARTURES), 1);
}

/// Supervisor: its core had `sample` to do lately, who came meanwhile included.
pub fn fold(region: &Region, kernel: u32, sample: u32) {
    let at = load_line(region, kernel);
    let before = region.load(at.word(LOAD)) as i64;
    let now = before + ((i64::from(sample) - before) >> AVERAGE_SHIFT);
    let came = region.load(at.word(ARRIVALS)).wrapping_sub(region.load(at.word(DEPARTURES)));
    region.store(at.word(LOAD), now as u64);
    region.store(at.word(FOLDED), came);
}

/// What a choice is made from.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// How.
    pub policy: Policy,
    /// Kernels that may be chosen, one bit each; not none.
    pub allowed: u64,
    /// The one of whoever starts it.
    pub current: u32,
    /// Any number.
    pub number: u64,
    /// Loads by kernel. The current one's own does not count the process that is to be placed.
    pub loads: &'a [u32],
}

/// The kernel of the `n`th bit that is set, counted around.
fn nth(allowed: u64, n: u64) -> u32 {
    let mut rest = allowed;
    for _ in 0..n % u64::from(allowed.count_ones().max(1)) {
        rest &= rest - 1;
    }
    rest.trailing_zeros() % KERNELS_MAX
}

/// The kernel that a policy chooses.
pub fn choose(choice: &Choice<'_>) -> u32 {
    let Choice { policy, allowed, current, number, loads } = *choice;
    let stays = current < KERNELS_MAX && allowed >> current & 1 == 1;
    match policy {
        Policy::RoundRobin | Policy::Random => nth(allowed, number),
        Policy::LeastLoaded => {
            let load = |kernel: u32| loads.get(kernel as usize).copied().unwrap_or(u32::MAX);
            let able = (0..KERNELS_MAX).filter(|kernel| allowed >> kernel & 1 == 1);
            let least = able.min_by_key(|kernel| load(*kernel)).unwrap_or(current);
            let near = load(least).saturating_add(MARGIN) >= load(current);
            if stays && near { current } else { least }
        }
        Policy::Host | Policy::Stay if stays => current,
        // Whoever starts it runs where no kernel is.
        Policy::Host | Policy::Stay => nth(allowed, 0),
    }
}

/// What a line has of loads.
pub fn shown(loads: &[u32]) -> [u8; LOADS_SHOWN] {
    core::array::from_fn(|kernel| {
        let load = loads.get(kernel).copied().unwrap_or(0);
        (u64::from(load) * u64::from(SHOWN_ONE) / u64::from(LOAD_ONE)).min(255) as u8
    })
}

/// Notes how a process was placed.
pub fn note(region: &Region, process: u32, placement: &Placement) {
    let rule = region.map.fixed(PLACE_RULE);
    let before = region.load(rule);
    if before & PLACED == 0 {
        // Whoever else sets it sets the same.
        region.store(rule, before | PLACED);
    }
    let at = line(region, process);
    let flags = [
        placement.moment == Moment::Fork,
        placement.moved,
        placement.pinned,
        placement.own,
        placement.settled,
    ];
    let flags = flags.iter().rev().fold(0, |all, &one| all << 1 | u32::from(one));
    let facts = placement.kernel & 0xff
        | (placement.policy as u32) << 8
        | (placement.origin as u32) << 12
        | flags << 16;
    region.store(at, 0);
    region.store(at.word(1), placement.at_ns as u64);
    region.store(at.word(2), u64::from(placement.from));
    region.store(at.word(3), placement.allowed);
    for (n, eight) in placement.loads.chunks_exact(8).enumerate() {
        let word = eight.iter().rev().fold(0, |all, &one| all << 8 | u64::from(one));
        region.store(at.word(4 + n as u32), word);
    }
    region.store(at, pair(placement.pid, facts));
}

/// Nothing is known of a process any more.
pub fn forget(region: &Region, process: u32) {
    region.store(line(region, process), 0);
}

fn read(region: &Region, process: u32) -> Placement {
    let at = line(region, process);
    let word = region.load(at);
    let facts = low(word);
    let flag = |bit: u32| facts >> (16 + bit) & 1 == 1;
    let loads =
        core::array::from_fn(|n| (region.load(at.word(4 + n as u32 / 8)) >> (8 * (n % 8))) as u8);
    Placement {
        pid: high(word),
        kernel: facts & 0xff,
        policy: Policy::of_number(facts >> 8 & 0xf).unwrap_or_default(),
        origin: Origin::of_number(facts >> 12 & 0xf),
        moment: if flag(0) { Moment::Fork } else { Moment::Exec },
        at_ns: region.load(at.word(1)) as i64,
        from: region.load(at.word(2)) as u32,
        moved: flag(1),
        pinned: flag(2),
        own: flag(3),
        settled: flag(4),
        allowed: region.load(at.word(3)),
        loads,
    }
}

/// How the process of a record was placed, host process `pid`, if it was.
pub fn placement(region: &Region, process: u32, pid: u32) -> Option<Placement> {
    if !any_placed(region) {
        return None;
    }
    let found = read(region, process);
    let born = process::born_ns(region, process);
    (found.pid == pid && pid != 0 && found.at_ns >= born).then_some(found)
}

/// How host process `pid` was placed; of those that had that number one after the other, the last.
pub fn placement_of(region: &Region, pid: u32) -> Option<Placement> {
    let processes = 1..=region.load(region.map.fixed(PROCESS_HIGH)) as u32;
    let found = processes.map(|process| read(region, process)).filter(|found| found.pid == pid);
    found.max_by_key(|found| found.at_ns).filter(|_| pid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(policy: Policy, allowed: u64, current: u32, number: u64, loads: &[u32]) -> u32 {
        choose(&Choice { policy, allowed, current, number, loads })
    }

    #[test]
    fn each_policy_chooses_among_what_is_allowed() {
        let loads = [3000, 100, 90, 5000];
        for policy in Policy::ALL {
            for (allowed, current, number) in [(0b1010, 0, 7), (0b1010, 3, 2), (1 << 63, 5, 9)] {
                let kernel = chosen(policy, allowed, current, number, &loads);
                assert_eq!(allowed >> kernel & 1, 1, "{policy:?} chose {kernel}");
            }
        }
        assert_eq!(chosen(Policy::Stay, 0b1111, 2, 0, &loads), 2);
        let turns = (0..6).map(|n| chosen(Policy::RoundRobin, 0b1011, 0, n, &loads));
        assert!(turns.eq([0, 1, 3, 0, 1, 3]));
    }

    #[test]
    fn the_least_loaded_is_chosen_unless_the_own_one_is_as_good() {
        let least = |current, loads: &[u32]| chosen(Policy::LeastLoaded, 0b11, current, 0, loads);
        assert_eq!(least(0, &[2 * LOAD_ONE, 0]), 1);
        assert_eq!(least(1, &[0, 2 * LOAD_ONE]), 0);
        assert_eq!(least(1, &[0, MARGIN]), 1);
        assert_eq!(least(0, &[MARGIN, 0]), 0);
        assert_eq!(least(0, &[MARGIN + 1, 0]), 1);
    }

    #[test]
    fn loads_are_shown_in_bytes() {
        let bytes = shown(&[LOAD_ONE, LOAD_ONE / 2, u32::MAX]);
        assert_eq!(bytes[..4], [16, 8, 255, 0]);
    }
}
