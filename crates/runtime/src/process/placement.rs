//! Places a process on a kernel and core, at fork and at exec, by the policy in force.
//!
//! ```text
//!   HUSK_PLACE in the environment ─► option of `husk exec` ─► the image's rule      (the first)
//!   exec ─► placed, unless its fork has just placed it           thread ─► its process's kernel
//!   fork ─► placed        vfork, posix_spawn ─► as its parent until exec
//! ```
//!
//! 1. Under the policy `host` nothing is done and nothing is written.
//! 2. A process goes only where its affinity lets it. Without `--pin` that is narrowed to one core
//!    for a moment, which makes the host move it, and is then what it was: Linux may balance, and
//!    the program sees all of its cores.
//! 3. With `--pin` it stays narrowed, until the program sets it: then it is the program's for good,
//!    and its children's.
//! 4. A failure is no error: the process stays where it is.
//! 5. A child is given its parent's placement and does not look it up: the parent may have ended.

use crate::clock;
use crate::facts::facts;
use crate::frame::{Answer, Frame};
use crate::thread::Thread;
use husk_abi::nr;
use husk_carrier::Direct;
use husk_host::syscall;
use husk_proto::place::{Moment, Origin, Placement, Policy, Rule};
use husk_runtime::handover;

/// Cores that a mask has room for; where the host has more, nobody is placed.
const CORES_MAX: usize = 4096;

/// Cores, one bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mask([u64; CORES_MAX / 64]);

impl Mask {
    const ALL: Mask = Mask([!0; CORES_MAX / 64]);

    fn of(core: u32) -> Mask {
        let mut mask = Mask([0; CORES_MAX / 64]);
        mask.add(core);
        mask
    }

    fn add(&mut self, core: u32) {
        if let Some(word) = self.0.get_mut(core as usize / 64) {
            *word |= 1 << (core % 64);
        }
    }

    fn has(&self, core: u32) -> bool {
        self.0.get(core as usize / 64).is_some_and(|word| word >> (core % 64) & 1 == 1)
    }

    /// What the calling thread may run on.
    fn now() -> Option<Mask> {
        let mut mask = Mask([0; CORES_MAX / 64]);
        let args = [0, size_of::<Mask>(), &raw mut mask as usize, 0, 0, 0];
        // SAFETY: the host writes at most that many bytes there.
        let got = unsafe { syscall(nr::sched_getaffinity, args) };
        (got > 0).then_some(mask)
    }

    /// Lets the calling thread run there only; whether it does.
    fn set(&self) -> bool {
        let args = [0, size_of::<Mask>(), &raw const *self as usize, 0, 0, 0];
        // SAFETY: the host reads that many bytes.
        unsafe { syscall(nr::sched_setaffinity, args) == 0 }
    }
}

/// The core the calling thread runs on.
fn core_now() -> u32 {
    let mut core = 0u32;
    // SAFETY: the host writes a number there.
    unsafe { syscall(nr::getcpu, [&raw mut core as usize, 0, 0, 0, 0, 0]) };
    core
}

/// Makes the host move the calling thread to `core`, one of `mask`, and takes nothing from it.
fn nudge(core: u32, mask: &Mask) -> bool {
    let there = Mask::of(core);
    if !there.set() {
        return false;
    }
    // Whoever has set it meanwhile is to have what it set.
    if Mask::now() == Some(there) {
        // To the host, all there are is not the same as each of them by number: the first grow
        // with what its group may have.
        let _ = Mask::ALL.set();
        if Mask::now() != Some(*mask) {
            let _ = mask.set();
        }
    }
    true
}

/// The policy in force in this program, and who said so.
fn in_force(rule: Rule) -> (Policy, Origin) {
    let facts = facts();
    let command = handover::place_of(facts.handover.flags).and_then(Policy::of_number);
    match (facts.place, command) {
        (Some(policy), _) => (policy, Origin::Variable),
        (None, Some(policy)) => (policy, Origin::Command),
        (None, None) => (rule.policy, rule.origin),
    }
}

/// The same for what this program starts on another node.
pub fn over_nodes(rule: Rule) -> Policy {
    in_force(rule).0
}

/// The process that is placed.
#[derive(Clone, Copy)]
pub struct Who {
    /// Its record.
    pub process: u32,
    /// Its number.
    pub pid: u32,
}

/// This process begins a program.
pub fn at_exec(direct: &mut Direct, who: Who) {
    let rule = direct.place_rule();
    let (policy, origin) = in_force(rule);
    let before = direct.placement(who.process, who.pid);
    match before {
        None if policy == Policy::Host => return,
        Some(placed) if !placed.settled && placed.policy == policy => {
            direct.note_placement(who.process, &Placement { settled: true, ..placed });
            direct.prefer_kernel(Some(placed.kernel));
            return;
        }
        Some(placed) => direct.leave_kernel(&placed),
        None => {}
    }
    anew(direct, who, before, (policy, origin), Moment::Exec);
}

/// This process was made by one that was placed so; `shares`: memory, until it begins a program.
pub fn at_fork(direct: &mut Direct, before: Option<Placement>, child: Who, shares: bool) {
    let said = in_force(direct.place_rule());
    match before {
        None if said.0 == Policy::Host => {}
        Some(placed) if shares => {
            let (pid, moment) = (child.pid, Moment::Fork);
            let (at_ns, policy) = (clock::now_ns(), Policy::Stay);
            let kept = Placement { pid, moment, at_ns, policy, settled: true, ..placed };
            direct.note_placement(child.process, &kept);
            direct.prefer_kernel(Some(placed.kernel));
        }
        None if shares => {}
        _ => anew(direct, child, before, said, Moment::Fork),
    }
}

/// Places a process; `before` is how it was placed, or whoever forked it.
fn anew(
    direct: &mut Direct,
    who: Who,
    before: Option<Placement>,
    (policy, origin): (Policy, Origin),
    moment: Moment,
) {
    let Some(mask) = Mask::now() else { return };
    let only = |placed: &Placement| direct.core_of(placed.kernel).map(Mask::of) == Some(mask);
    let held = before.filter(|placed| placed.pinned && !placed.own && only(placed));
    let own = before.is_some_and(|placed| placed.own || placed.pinned && held.is_none());
    if policy == Policy::Host {
        if held.is_some() {
            let _ = Mask::ALL.set();
        }
        direct.forget_placement(who.process);
        return direct.prefer_kernel(None);
    }
    let from = core_now();
    let current = match before {
        Some(placed) => placed.kernel,
        None => kernels_on(direct, |core| core == from).trailing_zeros(),
    };
    let allowed = held.map_or(kernels_on(direct, |core| mask.has(core)), |placed| placed.allowed);
    let any = if allowed == 0 { kernels_on(direct, |_| true) } else { allowed };
    let here = moment == Moment::Exec;
    let seed = clock::now_ns() as u64 ^ u64::from(who.pid) << 32;
    let (kernel, loads) = direct.choose_kernel(policy, any, current, here, seed);
    let core = direct.core_of(kernel).filter(|_| allowed != 0);
    let pinned = direct.place_rule().pin && !own && core.is_some_and(|core| Mask::of(core).set());
    let elsewhere = core.filter(|core| *core != from);
    let moved = elsewhere.is_some_and(|core| pinned || nudge(core, &mask));
    let (pid, at_ns, settled) = (who.pid, clock::now_ns(), here);
    let placement = Placement {
        pid,
        kernel,
        policy,
        origin,
        moment,
        at_ns,
        from,
        moved,
        pinned,
        own,
        settled,
        allowed,
        loads,
    };
    direct.note_placement(who.process, &placement);
    direct.prefer_kernel(Some(kernel));
}

/// Kernels on such cores, one bit each.
fn kernels_on(direct: &Direct, such: impl Fn(u32) -> bool) -> u64 {
    let all = 0..direct.kernels().min(u64::BITS);
    let theirs = all.filter(|kernel| direct.core_of(*kernel).is_some_and(&such));
    theirs.fold(0, |all, kernel| all | 1 << kernel)
}

/// `sched_setaffinity`: the program's own word on where it runs.
pub fn set_affinity(thread: &mut Thread, frame: &Frame) -> Answer {
    let result = frame.host();
    if result == 0 {
        thread.client.chose_cores(frame.args[0] as u32);
    }
    Answer::value(result)
}
