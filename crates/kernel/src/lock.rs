//! Service `lock`: POSIX, open-file-description and `flock` locks of an inode, in one list.
//!
//! ```text
//!   a line: 1 kind:32 next:32   2 owner   3 start   4 end   5 exclusive:32 pid:32
//! ```
//!
//! 1. The list is guarded by the inode's lock; its head is the high half of the inode's ORIGIN
//!    word.
//! 2. A POSIX lock belongs to a descriptor table, as on Linux: threads and `CLONE_FILES` share it.
//! 3. Waiters sleep on a word that moves whenever a lock of an inode with the same hash is given
//!    back; it is read under the inode's lock, so no wake-up is lost.

use husk_proto::lock::{Held, Mode, Outcome, Owner, Range};
use husk_proto::{Errno, Files, Inode, Result};
use husk_region::{Cell, INODE, LINE, Region, Txn};

use crate::Kernel;
use crate::image::{LOCK_WORDS, LOCK_WORDS_MAX};
use crate::state::process;
use crate::state::text;
use crate::state::{high, ino, live, low, pair, tag, whole};

const NEXT: u32 = 1;
const OWNER: u32 = 2;
const START: u32 = 3;
const END: u32 = 4;
const MODE: u32 = 5;

const POSIX: u32 = 1;
const OFD: u32 = 2;
const FLOCK: u32 = 3;
/// A mapping that is written through on another node: in the way of such mappings alone.
const MAPPING: u32 = 4;

/// Locks of the same owner taken apart in one transaction.
const CARVE_MAX: u32 = 8;
/// Longest chain of waiters that is searched for a circle.
const CIRCLE_MAX: u32 = 64;
/// Locks on one inode.
const LIST_MAX: u32 = 1 << 20;

/// A kind of lock and who holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    kind: u32,
    id: u64,
}

/// In the name of a holder: the table is another node's.
const ELSEWHERE: u64 = 1 << 63;

/// The holder of a table's POSIX locks.
pub(crate) fn posix(files: Files) -> Holder {
    Holder { kind: POSIX, id: files.0.into() }
}

/// The holder of the POSIX locks of a table of another node.
pub fn elsewhere(node: u16, files: u32) -> Holder {
    Holder { kind: POSIX, id: ELSEWHERE | u64::from(node) << 32 | u64::from(files) }
}

/// What a description has locks by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// `fcntl` for open-file descriptions.
    Ofd,
    /// `flock`.
    Flock,
    /// A mapping on another node.
    Mapping,
}

/// The holder of a description's locks.
pub fn of_description(description: u32, by: By) -> Holder {
    let kind = match by {
        By::Ofd => OFD,
        By::Flock => FLOCK,
        By::Mapping => MAPPING,
    };
    Holder { kind, id: description.into() }
}

fn holder(kernel: &Kernel, owner: Owner) -> Holder {
    match owner {
        Owner::Process => posix(process::files(kernel)),
        Owner::Description(description) => of_description(description.0, By::Ofd),
        Owner::Flock(description) => of_description(description.0, By::Flock),
    }
}

/// One lock, read from its line.
#[derive(Clone, Copy, Debug)]
struct Line {
    holder: Holder,
    range: Range,
    exclusive: bool,
    pid: u32,
    next: u32,
}

fn line(region: &Region, number: u32) -> Line {
    let cell = region.map.object(LINE, number);
    let word = |n: u32| region.load(cell.word(n));
    Line {
        holder: Holder { kind: high(word(NEXT)), id: word(OWNER) },
        range: Range { start: word(START), end: word(END) },
        exclusive: high(word(MODE)) != 0,
        pid: low(word(MODE)),
        next: low(word(NEXT)),
    }
}

fn overlap(one: &Range, two: &Range) -> bool {
    one.start < two.end && two.start < one.end
}

/// A lock that stands in the way.
fn conflict(region: &Region, inode: Cell, who: Holder, range: &Range, mode: Mode) -> Option<Line> {
    conflicts(region, inode, who, range, mode).next()
}

/// The one of them with the lowest bytes.
fn lowest(region: &Region, inode: Cell, who: Holder, range: &Range, mode: Mode) -> Option<Line> {
    conflicts(region, inode, who, range, mode).min_by_key(|held| held.range.start)
}

/// The locks that stand in the way.
fn conflicts(
    region: &Region,
    inode: Cell,
    who: Holder,
    range: &Range,
    mode: Mode,
) -> impl Iterator<Item = Line> {
    lines(region, inode).filter(move |held| {
        let family = |holder: Holder| holder.kind.max(OFD);
        let same_family = family(held.holder) == family(who);
        let against = held.exclusive || mode == Mode::Exclusive;
        held.holder != who && same_family && against && overlap(&held.range, range)
    })
}

/// The locks of an inode that is not locked, as they are at some moment of a look.
fn lines(region: &Region, inode: Cell) -> impl Iterator<Item = Line> {
    let mut number = high(region.load(inode.word(ino::ORIGIN)));
    let lines = core::iter::from_fn(move || {
        let held = (number != 0).then(|| line(region, number))?;
        number = held.next;
        Some(held)
    });
    lines.take(LIST_MAX as usize)
}

fn wake_word(region: &Region, inode: u32) -> Cell {
    region.map.fixed(LOCK_WORDS + inode % LOCK_WORDS_MAX)
}

/// Wakes all who wait for locks of an inode.
#[cold]
pub(crate) fn wake(kernel: &Kernel, inode: u32) {
    let word = wake_word(&kernel.session.region, inode);
    kernel.session.region.add(word, 1);
    kernel.session.wake(word, u32::MAX >> 1);
}

/// `Locks::lock`.
pub fn lock(
    kernel: &Kernel,
    owner: Owner,
    inode: Inode,
    range: Range,
    mode: Mode,
    wait: bool,
) -> Result<Outcome> {
    let who = holder(kernel, owner);
    let pid = if who.kind == OFD { u32::MAX } else { kernel.session.pid() };
    let Some((by, value)) = ask(kernel, inode, range, (mode, pid), |_| Ok(who))? else {
        return Ok(Outcome::Granted);
    };
    if wait {
        note_wait(kernel, who, by)?;
    }
    Ok(Outcome::Blocked { address: wait_address(kernel, inode), value })
}

/// Asks for a lock of the holder that `who` says in the same transaction, or gives it back: `None`
/// if it was done, else whose is in the way, and the word of its waiters.
fn ask(
    kernel: &Kernel,
    inode: Inode,
    range: Range,
    (mode, pid): (Mode, u32),
    who: impl Fn(&mut Txn<'_>) -> Result<Holder>,
) -> Result<Option<(Holder, u32)>> {
    if range.start >= range.end {
        return Err(Errno::EINVAL);
    }
    loop {
        let step = kernel.run(|txn| {
            let who = who(txn)?;
            attempt(txn, who, inode, range, mode, pid)
        });
        match step.map_err(|error| if error == Errno::ENOSPC { Errno::ENOLCK } else { error })? {
            Step::Again => {}
            Step::Done { freed } => {
                if freed {
                    wake(kernel, inode.number);
                }
                return Ok(None);
            }
            Step::Blocked { by, value } => return Ok(Some((by, value))),
        }
    }
}

/// How a step of asking for a lock ended.
enum Step {
    /// There is more to be done.
    Again,
    /// Whether something was given back.
    Done { freed: bool },
    /// Somebody's is in the way; what the word of its waiters is.
    Blocked { by: Holder, value: u32 },
}

fn attempt(
    txn: &mut Txn<'_>,
    who: Holder,
    inode: Inode,
    range: Range,
    mode: Mode,
    pid: u32,
) -> Result<Step> {
    let cell = live(txn.region, inode)?;
    txn.lock(cell)?;
    whole(txn.region, inode)?;
    let blocker = conflict(txn.region, cell, who, &range, mode);
    if let Some(blocker) = blocker.filter(|_| mode != Mode::Unlock) {
        let value = txn.region.futex_value(wake_word(txn.region, inode.number));
        return Ok(Step::Blocked { by: blocker.holder, value });
    }
    let mut whole = range;
    let carved = carve(txn, cell, who, range, mode, &mut whole)?;
    if mode != Mode::Unlock {
        insert(txn, cell, who, whole, mode == Mode::Exclusive, pid)?;
    }
    if carved == CARVE_MAX { Ok(Step::Again) } else { Ok(Step::Done { freed: carved > 0 }) }
}

/// Takes the owner's own locks in `range` apart; those of the same mode that touch it are merged
/// into `whole`. How many were changed, at most `CARVE_MAX`.
fn carve(
    txn: &mut Txn<'_>,
    inode: Cell,
    who: Holder,
    range: Range,
    mode: Mode,
    whole: &mut Range,
) -> Result<u32> {
    let (mut link, mut half_high) = (inode.word(ino::ORIGIN), true);
    let mut carved = 0;
    while carved < CARVE_MAX {
        let word = txn.get(link);
        let number = if half_high { high(word) } else { low(word) };
        if number == 0 {
            break;
        }
        let held = line(txn.region, number);
        let cell = txn.region.map.object(LINE, number);
        let same_mode = mode != Mode::Unlock && held.exclusive == (mode == Mode::Exclusive);
        let touches = held.range.start <= range.end && range.start <= held.range.end;
        let mine = held.holder == who;
        let merges = mine && same_mode && touches;
        let concerned = merges || (mine && overlap(&held.range, &range));
        if !concerned {
            (link, half_high) = (cell.word(NEXT), false);
            continue;
        }
        carved += 1;
        if merges {
            whole.start = whole.start.min(held.range.start);
            whole.end = whole.end.max(held.range.end);
        } else if held.range.start < range.start {
            // The left part stays in the line, the right part gets its own.
            txn.set(cell.word(END), range.start);
            if held.range.end > range.end {
                let right = Range { start: range.end, end: held.range.end };
                insert(txn, inode, who, right, held.exclusive, held.pid)?;
            }
            (link, half_high) = (cell.word(NEXT), false);
            continue;
        } else if held.range.end > range.end {
            txn.set(cell.word(START), range.end);
            (link, half_high) = (cell.word(NEXT), false);
            continue;
        }
        unlink(txn, link, half_high, number, held.next);
    }
    Ok(carved)
}

fn unlink(txn: &mut Txn<'_>, link: Cell, half_high: bool, number: u32, next: u32) {
    let word = txn.get(link);
    let new = if half_high { pair(next, low(word)) } else { pair(high(word), next) };
    txn.set(link, new);
    text::retire_line(txn, number);
}

fn insert(
    txn: &mut Txn<'_>,
    inode: Cell,
    who: Holder,
    range: Range,
    exclusive: bool,
    pid: u32,
) -> Result<()> {
    let number = txn.allocate(LINE)?;
    let cell = txn.region.map.object(LINE, number);
    let head = inode.word(ino::ORIGIN);
    let word = txn.get(head);
    txn.init(cell, pair(high(txn.get(cell)), tag::LOCK));
    txn.init(cell.word(NEXT), pair(who.kind, high(word)));
    txn.init(cell.word(OWNER), who.id);
    txn.init(cell.word(START), range.start);
    txn.init(cell.word(END), range.end);
    txn.init(cell.word(MODE), pair(exclusive as u32, pid));
    txn.set(head, pair(number, low(word)));
    Ok(())
}

/// Notes that this thread's table waits for another one; `EDEADLK` when that closes a circle.
fn note_wait(kernel: &Kernel, who: Holder, by: Holder) -> Result<()> {
    // Who waits on another node is not known here.
    if who.kind != POSIX || by.kind != POSIX || by.id & ELSEWHERE != 0 {
        return Ok(());
    }
    let (who, by) = (who.id as u32, by.id as u32);
    let mut here = by;
    for _ in 0..CIRCLE_MAX {
        if here == who {
            return Err(Errno::EDEADLK);
        }
        let edge = (1..=kernel.session.slots_high())
            .map(|id| kernel.session.view(id))
            .find(|view| view.pid != 0 && high(view.waits_for) == here);
        match edge {
            Some(view) => here = low(view.waits_for),
            None => break,
        }
    }
    kernel.session.set_waits_for(pair(who, by))?;
    kernel.session.note(crate::WAITS);
    Ok(())
}

/// `Locks::test`.
pub fn test(
    kernel: &Kernel,
    owner: Owner,
    inode: Inode,
    range: Range,
    mode: Mode,
) -> Result<Option<Held>> {
    test_as(kernel, holder(kernel, owner), inode, range, mode)
}

/// The same for a holder.
pub fn test_as(
    kernel: &Kernel,
    who: Holder,
    inode: Inode,
    range: Range,
    mode: Mode,
) -> Result<Option<Held>> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    let found = kernel.session.read(cell, || lowest(region, cell, who, &range, mode))?;
    Ok(found.map(|held| Held {
        mode: if held.exclusive { Mode::Exclusive } else { Mode::Shared },
        range: held.range,
        pid: if held.holder.kind == OFD { -1 } else { held.pid as i32 },
    }))
}

/// Takes all locks of an owner away, some in each transaction, and wakes who waits.
pub(crate) fn drop_owner(kernel: &Kernel, inode: u32, who: Holder) -> Result<()> {
    let all = Range { start: 0, end: u64::MAX };
    loop {
        let carved = kernel.run(|txn| {
            let cell = txn.region.map.object(INODE, inode);
            txn.lock(cell)?;
            carve(txn, cell, who, all, Mode::Unlock, &mut all.clone())
        })?;
        if carved > 0 {
            wake(kernel, inode);
        }
        if carved < CARVE_MAX {
            return Ok(());
        }
    }
}

/// Takes the locks of a description away that is being closed; its inode is locked. `drop_many` has
/// run before: at most a few are left.
pub(crate) fn drop_description(txn: &mut Txn<'_>, inode: Cell, description: u32) -> Result<()> {
    if high(txn.get(inode.word(ino::ORIGIN))) == 0 {
        return Ok(());
    }
    let all = Range { start: 0, end: u64::MAX };
    for by in [By::Ofd, By::Flock, By::Mapping] {
        let who = of_description(description, by);
        carve(txn, inode, who, all, Mode::Unlock, &mut all.clone())?;
    }
    Ok(())
}

/// Takes the OFD locks of a description away before it is closed for the last time.
pub(crate) fn drop_many(kernel: &Kernel, inode: u32, description: u32) -> Result<()> {
    drop_owner(kernel, inode, of_description(description, By::Ofd))
}

/// Whether a program on another node has mapped an inode to write to it. The inode is locked.
pub(crate) fn is_mapped_elsewhere(region: &Region, inode: Cell) -> bool {
    high(region.load(inode.word(ino::ORIGIN))) != 0
        && lines(region, inode).any(|held| held.holder.kind == MAPPING)
}

/// Whether somebody has a lock of an inode.
pub fn has(kernel: &Kernel, inode: Inode, who: Holder) -> Result<bool> {
    let region = &kernel.session.region;
    let cell = live(region, inode)?;
    if high(region.load(cell.word(ino::ORIGIN))) == 0 {
        return Ok(false);
    }
    kernel.session.read(cell, || lines(region, cell).any(|held| held.holder == who))
}

/// The address of the word that waiters for locks of an inode sleep on.
pub fn wait_address(kernel: &Kernel, inode: Inode) -> usize {
    let region = &kernel.session.region;
    region.futex_address(wake_word(region, inode.number))
}

/// Takes all POSIX locks away that programs on a node have.
#[cfg(feature = "answers")]
pub fn drop_node(kernel: &Kernel, node: u16) -> Result<()> {
    let region = &kernel.session.region;
    let is_its = |held: &Line| held.holder.id >> 32 == (ELSEWHERE >> 32 | u64::from(node));
    for number in 1..kernel.session.never_used(INODE) {
        let cell = region.map.object(INODE, number);
        while high(region.load(cell.word(ino::ORIGIN))) != 0 {
            let held = kernel.session.read(cell, || lines(region, cell).find(is_its))?;
            let Some(held) = held else { break };
            drop_owner(kernel, number, held.holder)?;
        }
    }
    Ok(())
}

/// Asks for a lock of a holder of another node, whose request counts as long as `holds` says so in
/// the same transaction, or gives it back: `None` if it was done, else the word of its waiters.
#[cfg(feature = "answers")]
pub(crate) fn lock_of_another(
    kernel: &Kernel,
    inode: Inode,
    range: Range,
    mode: Mode,
    pid: u32,
    holds: &dyn Fn(&mut Txn<'_>) -> Result<Holder>,
) -> Result<Option<u32>> {
    let blocked = ask(kernel, inode, range, (mode, pid), holds)?;
    Ok(blocked.map(|(_, value)| value))
}

/// The same of the POSIX locks of a table of another node, of which process `pid` asks.
#[cfg(feature = "answers")]
pub fn lock_elsewhere(
    kernel: &Kernel,
    (node, files, pid): (u16, u32, u32),
    inode: Inode,
    range: Range,
    mode: Mode,
) -> Result<Option<u32>> {
    lock_of_another(kernel, inode, range, mode, pid, &|_| Ok(elsewhere(node, files)))
}

/// Calls `emit` for each lock line of an inode, for the checker.
pub(crate) fn each_line(region: &Region, inode: Cell, emit: &mut dyn FnMut(u32)) {
    let mut number = high(region.load(inode.word(ino::ORIGIN)));
    while number != 0 {
        emit(number);
        number = line(region, number).next;
    }
}
