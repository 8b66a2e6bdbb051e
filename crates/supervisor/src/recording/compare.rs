//! Compares two recordings of one program: they may differ only in what is known to depend on how a
//! process is started. Any other difference refuses the program.

use std::fs;
use std::path::Path;

use husk_proto::snapshot::{self, Fixup, Source, Value};

use super::memory::{Area, word_of};
use super::run::{AT_EXECFN, AT_PLATFORM, AT_RANDOM, AT_SYSINFO_EHDR, Inputs, Noted, Recorded};
use super::{PAGE, Refusal};

/// Below the bottom of the stack, dead frames may be pointed to.
const DEAD_BYTES: u64 = 1 << 20;
const VDSO_BYTES: u64 = 64 << 10;
/// Times that a loader notes for those who ask it how long it took.
const SPANS_MAX: usize = 4;
/// A loader is no longer than this.
const LOADER_BYTES: u64 = 1 << 20;
/// What the host writes to for a thread (`struct rseq`).
const RSEQ_BYTES: u64 = 32;

/// What both recordings have in common, and how each start differs.
pub struct State {
    pub areas: Vec<snapshot::Area>,
    pub fixups: Vec<Fixup>,
    /// The recorded pages, one after the other.
    pub pages: Vec<u8>,
}

/// A part of an area.
struct Piece {
    start: u64,
    end: u64,
    protection: u32,
    source: Source,
}

/// Compares.
pub fn compare(one: &Recorded, two: &Recorded) -> Result<State, Refusal> {
    agree(one, two)?;
    let mut compared = Compared { one, two, fixups: Vec::new(), pages: Vec::new(), spans: 0 };
    let mut pieces = Vec::new();
    for area in &one.areas {
        compared.area(area, &mut pieces)?;
    }
    let fixups = compared.fixups;
    let changed = |piece: &Piece| {
        fixups.iter().any(|fixup| (piece.start..piece.end).contains(&fixup.address))
    };
    let areas = joined(pieces).into_iter().map(|piece| snapshot::Area {
        start: piece.start,
        bytes: piece.end - piece.start,
        protection: piece.protection,
        opened: piece.protection & Area::WRITE == 0 && changed(&piece),
        source: piece.source,
    });
    Ok(State { areas: areas.collect(), pages: compared.pages, fixups })
}

/// What must be the same in both, and what must not, or it would say nothing.
fn agree(one: &Recorded, two: &Recorded) -> Result<(), Refusal> {
    let shape = |recorded: &Recorded| {
        let Noted { base, interpreter, headers, tid, robust, rseq, .. } = recorded.noted;
        let (thread, entry) = (recorded.registers.fs_base, recorded.registers.rax);
        (base, interpreter, headers, tid, robust, rseq, thread, entry, recorded.begin)
    };
    let files = one.noted.files == two.noted.files;
    if shape(one) != shape(two) || one.areas != two.areas || !files {
        return Err(Refusal::of("two starts of it are not alike"));
    }
    let (a, b) = (&one.noted.inputs, &two.noted.inputs);
    let variables = |inputs: &Inputs| inputs.auxiliary - inputs.environment;
    let differ = a.stack != b.stack
        && a.count != b.count
        && variables(a) != variables(b)
        && a.first[1] - a.first[0] != b.first[1] - b.first[0]
        && [AT_RANDOM, AT_EXECFN, AT_SYSINFO_EHDR]
            .iter()
            .all(|kind| a.vector.contains_key(kind) && a.vector.get(kind) != b.vector.get(kind))
        && a.random.iter().zip(b.random).all(|(a, b)| *a != b)
        && a.tid != b.tid
        && a.heap != b.heap;
    if differ { Ok(()) } else { Err(Refusal::of("two starts of it had something in common")) }
}

struct Compared<'a> {
    one: &'a Recorded,
    two: &'a Recorded,
    fixups: Vec<Fixup>,
    pages: Vec<u8>,
    spans: usize,
}

impl Compared<'_> {
    /// Of an area, the pages that were stored to are recorded; the rest is what it was. Code is
    /// never stored to, but for the trap in the loader, which is gone again.
    fn area(&mut self, area: &Area, pieces: &mut Vec<Piece>) -> Result<(), Refusal> {
        let (one, two) = (self.one.memory.own_pages(area)?, self.two.memory.own_pages(area)?);
        let own = |page: usize| one[page] || two[page];
        let executable = area.protection & Area::EXECUTE != 0;
        let first = (0..one.len()).find(|&page| own(page)).filter(|_| !executable);
        let Some(first) = first else {
            pieces.push(self.beside(area, area.start, area.end));
            return Ok(());
        };
        let last = (0..one.len()).rfind(|&page| own(page)).unwrap_or(first);
        let start = area.start + first as u64 * PAGE;
        let end = area.start + (last as u64 + 1) * PAGE;
        pieces.push(self.beside(area, area.start, start));
        let recorded = Source::Recorded(self.pages.len() as u64);
        pieces.push(Piece { start, end, protection: area.protection, source: recorded });
        pieces.push(self.beside(area, end, area.end));
        self.pages(start, end)
    }

    fn beside(&self, area: &Area, start: u64, end: u64) -> Piece {
        let source = match area.is_of_file() {
            true => Source::File(self.file(area), area.offset + (start - area.start)),
            false => Source::Zero,
        };
        Piece { start, end, protection: area.protection, source }
    }

    /// The place of an area's file among the files; none has the last.
    fn file(&self, area: &Area) -> u32 {
        let same = |path: &Path| {
            path == area.path || fs::canonicalize(path).is_ok_and(|real| real == area.path)
        };
        let place = self.one.noted.files.iter().position(|file| same(&file.path));
        place.map_or(u32::MAX - 2, |place| place as u32)
    }

    fn pages(&mut self, start: u64, end: u64) -> Result<(), Refusal> {
        let bytes = (end - start) as usize;
        let (mut one, mut two) = (vec![0; bytes], vec![0; bytes]);
        self.one.memory.read(start, &mut one)?;
        self.two.memory.read(start, &mut two)?;
        let rseq = self.one.noted.rseq[0];
        for (n, (a, b)) in one.chunks_exact_mut(8).zip(two.chunks_exact(8)).enumerate() {
            let address = start + 8 * n as u64;
            if (rseq..rseq + RSEQ_BYTES).contains(&address) {
                a.fill(0);
            } else if *a != *b {
                self.explain(address, word_of(a), word_of(b))?;
            }
        }
        self.pages.extend_from_slice(&one);
        Ok(())
    }

    /// Why a word differs.
    fn explain(&mut self, address: u64, a: u64, b: u64) -> Result<(), Refusal> {
        let (one, two) = (&self.one.noted.inputs, &self.two.noted.inputs);
        let found = exact(one, two, a, b).or_else(|| relative(one, two, a, b));
        if let Some((value, operand)) = found.or_else(|| short(one, two, a, b)) {
            self.fixups.push(Fixup { address, value, operand });
            return Ok(());
        }
        let span = |inputs: &Inputs| inputs.clock[1] - inputs.clock[0];
        self.spans += 1;
        let of_loader = address.wrapping_sub(self.one.noted.interpreter) < LOADER_BYTES;
        if a < span(one) && b < span(two) && of_loader && self.spans <= SPANS_MAX {
            return Ok(());
        }
        Err(Refusal::of(&format!("two starts of it differ at {address:x}: {a:x}, {b:x}")))
    }
}

/// It is one of the words that a process is started with.
fn exact(one: &Inputs, two: &Inputs, a: u64, b: u64) -> Option<(Value, i32)> {
    let mut pairs = known(one).into_iter().zip(known(two));
    let found = pairs.find(|((_, x), (_, y))| *x == a && *y == b);
    let within = |word, inputs: &Inputs| (inputs.clock[0]..=inputs.clock[1]).contains(&word);
    let clock = within(a, one) && within(b, two);
    found.map(|((value, _), _)| (value, 0)).or(clock.then_some((Value::Clock, 0)))
}

/// It lies in the vDSO, or among the dead frames of the stack, at the same place in both.
fn relative(one: &Inputs, two: &Inputs, a: u64, b: u64) -> Option<(Value, i32)> {
    let vdso = |inputs: &Inputs| inputs.vector.get(&AT_SYSINFO_EHDR).copied().unwrap_or(0);
    let (x, y) = (a.wrapping_sub(vdso(one)), b.wrapping_sub(vdso(two)));
    if x == y && x < VDSO_BYTES {
        return Some((Value::Vdso, i32::try_from(x).ok()?));
    }
    let (x, y) = (one.stack.wrapping_sub(a), two.stack.wrapping_sub(b));
    (x == y && x < DEAD_BYTES).then(|| (Value::Stack, -(x as i32)))
}

/// Half of it is the thread's number, or that of the arguments.
fn short(one: &Inputs, two: &Inputs, a: u64, b: u64) -> Option<(Value, i32)> {
    let low = [a as u32, b as u32];
    let same = a >> 32 == b >> 32;
    let is = |x: u64, y: u64| same && low == [x as u32, y as u32];
    let thread = is(one.tid, two.tid).then_some((Value::Thread, 0));
    thread.or(is(one.count, two.count).then_some((Value::CountShort, 0)))
}

/// What a word may be that differs.
fn known(inputs: &Inputs) -> [(Value, u64); 13] {
    let of = |kind: u64| inputs.vector.get(&kind).copied().unwrap_or(0);
    [
        (Value::Stack, inputs.stack),
        (Value::Count, inputs.count),
        (Value::Arguments, inputs.stack + 8),
        (Value::Environment, inputs.environment),
        (Value::Auxiliary, inputs.auxiliary),
        (Value::Random, of(AT_RANDOM)),
        (Value::Name, of(AT_EXECFN)),
        (Value::Platform, of(AT_PLATFORM)),
        (Value::First, inputs.first[0]),
        (Value::FirstShort, inputs.first[1]),
        (Value::Break, inputs.heap),
        (Value::Canary, inputs.random[0] & !0xff),
        (Value::Guard, inputs.random[1]),
    ]
}

/// Pieces without the empty ones; what lies side by side and comes from side by side is one.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces.into_iter().filter(|piece| piece.start < piece.end) {
        match out.last_mut() {
            Some(last) if last.goes_on(&piece) => last.end = piece.end,
            _ => out.push(piece),
        }
    }
    out
}

impl Piece {
    fn goes_on(&self, next: &Piece) -> bool {
        let bytes = self.end - self.start;
        let follows = match (self.source, next.source) {
            (Source::Recorded(at), Source::Recorded(next)) => at + bytes == next,
            (Source::Zero, Source::Zero) => true,
            (Source::File(one, at), Source::File(two, next)) => one == two && at + bytes == next,
            _ => false,
        };
        self.end == next.start && self.protection == next.protection && follows
    }
}
