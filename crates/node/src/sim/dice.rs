//! Numbers of a row, by a seed; and what programs ask, by these.

use husk_wire::record::{Object, Sort, What};

use super::asks::{AT_END, Ask, BOTH, Letter, TRUNCATE};

/// Few, so that programs meet.
pub const LETTERS: [Letter; 5] = *b"abcde";
const PLACES: [u64; 6] = [0, 1, 100, 4096, 5000, 9000];
/// Bytes that are written: some in several steps, over holes.
const LENGTHS: [u64; 6] = [0, 1, 100, 5000, 9000, 13_000];
const MODES: [u32; 3] = [0o644, 0o600, 0o755];
/// Flags of rename.
const FLAGS: [u32; 5] = [0, 0, 0, 1, 2];

/// A row of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The row of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// What a program knows: objects that it was told of, with what they are, and what it has open.
#[derive(Clone, Debug)]
pub struct Known {
    pub root: Object,
    pub objects: Vec<(Object, Sort)>,
    pub open: Vec<(u64, Object)>,
}

/// Objects that a program remembers.
const OBJECTS_MAX: usize = 12;

impl Known {
    /// Only the root.
    pub fn new(root: Object) -> Known {
        Known { root, objects: vec![(root, Sort::Directory)], open: Vec::new() }
    }

    /// One more object.
    pub fn note(&mut self, object: Object, sort: Sort) {
        if !self.objects.contains(&(object, sort)) {
            self.objects.push((object, sort));
        }
        if self.objects.len() > OBJECTS_MAX {
            // Not the root.
            self.objects.remove(1);
        }
    }

    fn any(&self, dice: &mut Dice, sort: Sort) -> Object {
        let of: Vec<_> = self.objects.iter().filter(|known| known.1 == sort).collect();
        if of.is_empty() { self.root } else { dice.one(&of).0 }
    }

    fn directory(&self, dice: &mut Dice) -> Object {
        if dice.below(3) == 0 { self.root } else { self.any(dice, Sort::Directory) }
    }

    /// A file; where there is none, something else.
    fn file(&self, dice: &mut Dice) -> Object {
        if dice.below(10) == 0 {
            return dice.one(&self.objects).0;
        }
        match self.open.is_empty() || dice.below(2) == 0 {
            true => self.any(dice, Sort::File),
            false => dice.one(&self.open).1,
        }
    }
}

fn bytes(dice: &mut Dice, letter: Letter) -> Vec<u8> {
    vec![letter; dice.one(&LENGTHS) as usize]
}

/// The next that a program asks.
pub fn next(dice: &mut Dice, known: &Known) -> Ask {
    let (letter, other) = (dice.one(&LETTERS), dice.one(&LETTERS));
    let (at, length) = (dice.one(&PLACES), dice.one(&PLACES));
    match dice.below(32) {
        0..=4 => Ask::Walk(known.directory(dice), Some(letter)),
        5 => Ask::Walk(dice.one(&known.objects).0, None),
        6 => Ask::List(known.directory(dice)),
        7 => Ask::Above(known.directory(dice)),
        8..=10 => {
            let flags = dice.one(&[None, Some(BOTH), Some(BOTH)]);
            Ask::Create(known.directory(dice), letter, dice.one(&MODES), flags)
        }
        11 => Ask::Symlink(known.directory(dice), letter, vec![other; 1 + at as usize % 300]),
        12 | 13 => Ask::MakeDirectory(known.directory(dice), letter, dice.one(&MODES)),
        14 => Ask::Link(known.file(dice), known.directory(dice), letter),
        15 | 16 => Ask::Remove(known.directory(dice), letter, What::File),
        17 => Ask::Remove(known.directory(dice), letter, What::Directory),
        18..=20 => {
            let (from, to) = (known.directory(dice), known.directory(dice));
            Ask::Rename(from, letter, to, other, dice.one(&FLAGS))
        }
        21 => Ask::SetMode(dice.one(&known.objects).0, dice.one(&MODES)),
        22 => Ask::Truncate(known.file(dice), at),
        23 | 24 => Ask::Open(known.file(dice), dice.one(&[0, BOTH, BOTH | TRUNCATE])),
        25 => match known.open.is_empty() {
            true => Ask::Walk(known.root, None),
            // Now and then a number that is another process's, most likely.
            false => Ask::Return(vec![dice.one(&known.open).0 + dice.one(&[0, 0, 0, 1])]),
        },
        26 => Ask::Read(known.file(dice), at, length as u32),
        27 => Ask::Write(known.file(dice), AT_END, bytes(dice, letter)),
        28 => Ask::Write(known.file(dice), at, bytes(dice, letter)),
        29 => Ask::Punch(known.file(dice), at, 1 + length),
        30 => Ask::SetExtended(known.file(dice), letter, vec![other; 1 + length as usize % 50]),
        _ => match dice.below(2) {
            0 => Ask::GetExtended(known.file(dice), letter),
            _ => Ask::RemoveExtended(known.file(dice), letter),
        },
    }
}
