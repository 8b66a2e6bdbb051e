//! A program as its loader has linked it, before the first function of a library runs: mapped and
//! relocated. What the supervisor records of it, and how a process starts from that in place of
//! linking again.
//!
//! ```text
//!   in the region's file:  [ head: words | files | areas | fix-ups | paths ][ pages, as recorded ]
//! ```
//!
//! Everything is 64-bit words. A value that differs from one start to the next is a fix-up. All
//! other values were equal in two recordings that shared only the files.

use crate::fs::HostIdentity;

/// First word of a head; another number where its shape changes.
pub const MAGIC: u64 = 0x3230_7061_6e73_7568;
/// Longest head, bytes: the pages follow there.
pub const HEAD_BYTES_MAX: usize = 4096;
/// Files that a recording may rest on: each is looked at at every start.
pub const FILES_MAX: usize = 16;
/// Words before the files.
const FIXED_WORDS: usize = 14;
const FILE_WORDS: usize = 6;
const AREA_WORDS: usize = 4;
const FIXUP_WORDS: usize = 2;

/// What a program's start state is made from, but for the lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Where its loader goes on: with the functions of the libraries.
    pub begin: u64,
    /// Where the program begins, which the loader's work has returned in `rax`.
    pub entry: u64,
    /// `AT_BASE`.
    pub interpreter: u64,
    /// `AT_PHDR`.
    pub headers: u64,
    /// `AT_PHNUM`.
    pub headers_count: u64,
    /// Base of the thread's own storage.
    pub thread: u64,
    /// What `set_tid_address` was told.
    pub tid: u64,
    /// What `set_robust_list` was told.
    pub robust: u64,
    /// What `rseq` was told: address,
    pub rseq: u64,
    /// and bytes (low 32 bits) and signature.
    pub rseq_shape: u64,
    /// The limit of the stack: sizes of threads' stacks follow from it.
    pub stack_limit: u64,
}

/// A file that the state rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// All of it; the default's: there must be none.
    pub identity: HostIdentity,
    /// Where its path begins in the head, in bytes; it ends with NUL.
    pub path: u32,
}

/// What an area holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Pages of the recording, from this byte on.
    Recorded(u64),
    /// Zeros.
    Zero,
    /// A file, by its place in the list, from this byte on.
    File(u32, u64),
}

/// A part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Length, a multiple of 4 KiB.
    pub bytes: u64,
    /// Bits of protection as for `mmap`.
    pub protection: u32,
    /// Fix-ups lie in it though it may not be written to in the end.
    pub opened: bool,
    /// Its content.
    pub source: Source,
}

/// What a word of the state is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Value {
    /// Where `argc` lies: the bottom of the stack, plus the operand (dead frames lie below it).
    Stack,
    /// `argc`.
    Count,
    /// Where the arguments lie.
    Arguments,
    /// Where the environment lies.
    Environment,
    /// Where the auxiliary vector lies.
    Auxiliary,
    /// `AT_RANDOM`.
    Random,
    /// `AT_EXECFN`.
    Name,
    /// `AT_PLATFORM`.
    Platform,
    /// The first argument.
    First,
    /// What follows the last slash of the first argument.
    FirstShort,
    /// The vDSO, plus the operand.
    Vdso,
    /// Where the heap begins.
    Break,
    /// The thread's number, in 32 bits.
    Thread,
    /// The word that guards stacks.
    Canary,
    /// The word that guards pointers.
    Guard,
    /// The processor's clock.
    Clock,
    /// `argc`, in 32 bits.
    CountShort,
}

impl Value {
    /// All, by number.
    pub const ALL: [Value; 17] = [
        Value::Stack,
        Value::Count,
        Value::Arguments,
        Value::Environment,
        Value::Auxiliary,
        Value::Random,
        Value::Name,
        Value::Platform,
        Value::First,
        Value::FirstShort,
        Value::Vdso,
        Value::Break,
        Value::Thread,
        Value::Canary,
        Value::Guard,
        Value::Clock,
        Value::CountShort,
    ];
}

const _: () = {
    let mut number = 0;
    while number < Value::ALL.len() {
        assert!(Value::ALL[number] as usize == number);
        number += 1;
    }
};

/// A word that differs from one start to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixup {
    /// Where.
    pub address: u64,
    /// What it is to be.
    pub value: Value,
    /// Added to it.
    pub operand: i32,
}

/// A head that has been read.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    words: &'a [u64],
    files: usize,
    areas: usize,
    fixups: usize,
}

/// Where the words of a head stand that say its size.
const SIZE: usize = 1;
const COUNTS: usize = 2;
const FACTS: usize = 3;
/// Bit of a protection word: `opened`.
const OPENED: u32 = 8;

/// How many bytes a head has that begins with these words; `None`: it is none.
fn head_bytes(words: &[u64]) -> Option<usize> {
    let bytes = usize::try_from(*words.get(SIZE)?).ok()?;
    let right = words[0] == MAGIC && bytes <= HEAD_BYTES_MAX && bytes.is_multiple_of(8);
    right.then_some(bytes)
}

impl<'a> Head<'a> {
    /// Reads a head; `None`: it is none.
    pub fn parse(words: &'a [u64]) -> Option<Head<'a>> {
        let words = words.get(..head_bytes(words)? / 8)?;
        let counts = *words.get(COUNTS)?;
        let count = |shift: u32| (counts >> shift) as usize & 0xffff;
        let head = Head { words, files: count(0), areas: count(16), fixups: count(32) };
        (head.paths_at() <= words.len()).then_some(head)
    }

    fn areas_at(&self) -> usize {
        FIXED_WORDS + self.files * FILE_WORDS
    }

    fn fixups_at(&self) -> usize {
        self.areas_at() + self.areas * AREA_WORDS
    }

    fn paths_at(&self) -> usize {
        self.fixups_at() + self.fixups * FIXUP_WORDS
    }

    /// What is no list.
    pub fn facts(&self) -> Facts {
        let word = |n: usize| self.words[FACTS + n];
        Facts {
            begin: word(0),
            entry: word(1),
            interpreter: word(2),
            headers: word(3),
            headers_count: word(4),
            thread: word(5),
            tid: word(6),
            robust: word(7),
            rseq: word(8),
            rseq_shape: word(9),
            stack_limit: word(10),
        }
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = File> + Clone + use<'a> {
        let list = &self.words[FIXED_WORDS..self.areas_at()];
        list.chunks_exact(FILE_WORDS).map(|words| File {
            identity: HostIdentity {
                device: words[0],
                inode: words[1],
                size: words[2],
                modified_ns: words[3].cast_signed(),
                changed_ns: words[4].cast_signed(),
            },
            path: words[5] as u32,
        })
    }

    /// File `index`.
    pub fn file(&self, index: u32) -> Option<File> {
        self.files().nth(index as usize)
    }

    /// The areas, by address.
    pub fn areas(&self) -> impl Iterator<Item = Area> + use<'a> {
        let list = &self.words[self.areas_at()..self.fixups_at()];
        list.chunks_exact(AREA_WORDS).map(|words| {
            let source = match words[2] as u32 {
                0 => Source::Recorded(words[3]),
                1 => Source::Zero,
                file => Source::File(file - 2, words[3]),
            };
            let protection = (words[2] >> 32) as u32;
            let (protection, opened) = (protection & 7, protection & OPENED != 0);
            Area { start: words[0], bytes: words[1], protection, opened, source }
        })
    }

    /// The fix-ups.
    pub fn fixups(&self) -> impl Iterator<Item = Fixup> + use<'a> {
        let list = &self.words[self.fixups_at()..self.paths_at()];
        list.chunks_exact(FIXUP_WORDS).filter_map(|words| {
            let value = *Value::ALL.get((words[1] & 0xff) as usize)?;
            Some(Fixup { address: words[0], value, operand: (words[1] >> 32) as i32 })
        })
    }
}

/// Writes a head to `put`, word by word, but for its paths (`path_bytes` of them), which follow it
/// and which the files name by place.
pub fn write(
    facts: &Facts,
    lists: (&[File], &[Area], &[Fixup]),
    path_bytes: usize,
    mut put: impl FnMut(u64),
) {
    let (files, areas, fixups) = lists;
    let words = words_before_paths(files.len(), areas.len(), fixups.len());
    put(MAGIC);
    put((words * 8 + path_bytes.next_multiple_of(8)) as u64);
    put(files.len() as u64 | (areas.len() as u64) << 16 | (fixups.len() as u64) << 32);
    let Facts { begin, entry, interpreter, headers, headers_count, .. } = *facts;
    let Facts { thread, tid, robust, rseq, rseq_shape, stack_limit, .. } = *facts;
    [begin, entry, interpreter, headers, headers_count].into_iter().for_each(&mut put);
    [thread, tid, robust, rseq, rseq_shape, stack_limit].into_iter().for_each(&mut put);
    for file in files {
        let HostIdentity { device, inode, size, modified_ns, changed_ns } = file.identity;
        [device, inode, size].into_iter().for_each(&mut put);
        [modified_ns, changed_ns].map(i64::cast_unsigned).into_iter().for_each(&mut put);
        put(u64::from(file.path));
    }
    for area in areas {
        let (source, offset) = match area.source {
            Source::Recorded(offset) => (0, offset),
            Source::Zero => (1, 0),
            Source::File(index, offset) => (index + 2, offset),
        };
        let protection = area.protection | if area.opened { OPENED } else { 0 };
        let how = u64::from(source) | u64::from(protection) << 32;
        [area.start, area.bytes, how, offset].into_iter().for_each(&mut put);
    }
    for fixup in fixups {
        put(fixup.address);
        put(fixup.value as u64 | u64::from(fixup.operand as u32) << 32);
    }
}

/// Words of a head before its paths.
pub const fn words_before_paths(files: usize, areas: usize, fixups: usize) -> usize {
    FIXED_WORDS + files * FILE_WORDS + areas * AREA_WORDS + fixups * FIXUP_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let facts =
            Facts { begin: 1, stack_limit: 8 << 20, rseq_shape: 7 << 32, ..Facts::default() };
        let identity =
            HostIdentity { device: 1, inode: 2, size: 3, modified_ns: -4, changed_ns: 5 };
        let none = HostIdentity::default();
        let files = [File { identity, path: 400 }, File { identity: none, path: 9 }];
        let sources = [Source::Recorded(4096), Source::Zero, Source::File(1, 8192)];
        let areas = sources.map(|source| Area {
            start: 0x1000,
            bytes: 0x2000,
            protection: 3,
            opened: source == Source::Zero,
            source,
        });
        let fixups = [Fixup { address: 0x1008, value: Value::Vdso, operand: -5 }];
        let mut words = [0u64; 128];
        let mut at = 0;
        write(&facts, (&files, &areas, &fixups), 3, |word| {
            words[at] = word;
            at += 1;
        });
        assert_eq!(at, words_before_paths(2, 3, 1));
        let head = Head::parse(&words).unwrap();
        assert_eq!(head.facts(), facts);
        assert!(head.files().eq(files));
        assert!(head.areas().eq(areas));
        assert!(head.fixups().eq(fixups));
        words[COUNTS] += 1000;
        assert!(Head::parse(&words).is_none(), "lists behind the head");
    }
}
