//! Operations and snapshots as bytes.
//!
//! ```text
//!   record    operation*                          all of them count, or none
//!   snapshot  version, operation*, end            operations that make the whole state
//!   operation tag, structure, fields              numbers little-endian, bytes behind their length
//! ```
//!
//! The log vouches for the bytes with checksums. What cannot be decoded was written by a newer
//! version.

/// The form that is written here.
const VERSION: u32 = 1;

/// What a structure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Log = 1,
    Queue = 2,
    Map = 3,
    Counter = 4,
}

/// One change of the state. The strings are borrowed from a batch, or from what is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// A new structure. Structures are numbered from 0 on.
    Create { kind: Kind, name: &'a [u8] },
    /// One more entry at the end of a log.
    Append { log: u32, entry: &'a [u8] },
    /// The log begins at this entry, whether or not there were some before.
    Trim { log: u32, before: u64 },
    /// One more item at the end of a queue.
    Push { queue: u32, item: &'a [u8] },
    /// The next item that is pushed has this number.
    Number { queue: u32, next: u64 },
    /// An item leaves the queue.
    Done { queue: u32, number: u64 },
    /// A key has this value.
    Insert { map: u32, key: &'a [u8], value: &'a [u8] },
    /// A key has none.
    Remove { map: u32, key: &'a [u8] },
    /// A counter counts on.
    Add { counter: u32, by: i64 },
}

/// Bytes of an operation without what is variable: at most.
pub const OVERHEAD_BYTES: usize = 32;

/// Appends an operation to `bytes`.
pub fn encode(operation: &Operation<'_>, bytes: &mut Vec<u8>) {
    let mut put = Writer(bytes);
    match *operation {
        Operation::Create { kind, name } => put.tag(1, kind as u32).bytes(name),
        Operation::Append { log, entry } => put.tag(2, log).bytes(entry),
        Operation::Trim { log, before } => put.tag(3, log).number(before),
        Operation::Push { queue, item } => put.tag(4, queue).bytes(item),
        Operation::Number { queue, next } => put.tag(5, queue).number(next),
        Operation::Done { queue, number } => put.tag(6, queue).number(number),
        Operation::Insert { map, key, value } => put.tag(7, map).bytes(key).bytes(value),
        Operation::Remove { map, key } => put.tag(8, map).bytes(key),
        Operation::Add { counter, by } => put.tag(9, counter).number(by as u64),
    };
}

/// Begins a snapshot.
pub fn begin_snapshot() -> Vec<u8> {
    VERSION.to_le_bytes().to_vec()
}

/// The operations of a snapshot; `None`: it is of a newer version.
pub fn snapshot(bytes: &[u8]) -> Option<&[u8]> {
    let (version, rest) = bytes.split_first_chunk()?;
    (u32::from_le_bytes(*version) == VERSION).then_some(rest)
}

/// The operations in `bytes`, in order; the last one is `None` where they cannot be decoded.
pub fn operations(bytes: &[u8]) -> impl Iterator<Item = Option<Operation<'_>>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest.filter(|bytes| !bytes.is_empty())?;
        let mut reader = Reader(bytes);
        let operation = reader.operation();
        rest = operation.is_some().then_some(reader.0);
        Some(operation)
    })
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn tag(&mut self, tag: u8, structure: u32) -> &mut Self {
        self.0.push(tag);
        self.0.extend(structure.to_le_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend((bytes.len() as u32).to_le_bytes());
        self.0.extend(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn operation(&mut self) -> Option<Operation<'a>> {
        let [tag] = *self.chunk::<1>()?;
        let structure = u32::from_le_bytes(*self.chunk()?);
        Some(match tag {
            1 => Operation::Create { kind: kind_of(structure)?, name: self.bytes()? },
            2 => Operation::Append { log: structure, entry: self.bytes()? },
            3 => Operation::Trim { log: structure, before: self.number()? },
            4 => Operation::Push { queue: structure, item: self.bytes()? },
            5 => Operation::Number { queue: structure, next: self.number()? },
            6 => Operation::Done { queue: structure, number: self.number()? },
            7 => Operation::Insert { map: structure, key: self.bytes()?, value: self.bytes()? },
            8 => Operation::Remove { map: structure, key: self.bytes()? },
            9 => Operation::Add { counter: structure, by: self.number()? as i64 },
            _ => return None,
        })
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    fn number(&mut self) -> Option<u64> {
        self.chunk().map(|chunk| u64::from_le_bytes(*chunk))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(*self.chunk()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

fn kind_of(number: u32) -> Option<Kind> {
    [Kind::Log, Kind::Queue, Kind::Map, Kind::Counter]
        .into_iter()
        .find(|&kind| kind as u32 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Operation<'static>] = &[
        Operation::Create { kind: Kind::Queue, name: b"jobs" },
        Operation::Append { log: 1, entry: b"" },
        Operation::Trim { log: 1, before: u64::MAX },
        Operation::Push { queue: 2, item: b"item" },
        Operation::Number { queue: 2, next: 3 },
        Operation::Done { queue: 2, number: 7 },
        Operation::Insert { map: 3, key: b"key", value: b"value" },
        Operation::Remove { map: 3, key: b"key" },
        Operation::Add { counter: u32::MAX, by: -1 },
    ];

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        ALL.iter().for_each(|operation| encode(operation, &mut bytes));
        bytes
    }

    #[test]
    fn every_operation_is_decoded_as_it_was_encoded() {
        let bytes = encoded();
        let decoded: Option<Vec<_>> = operations(&bytes).collect();
        assert_eq!(decoded.as_deref(), Some(ALL));
    }

    #[test]
    fn what_is_cut_off_or_unknown_ends_in_nothing_and_never_in_something_else() {
        let bytes = encoded();
        for length in 0..bytes.len() {
            let decoded: Vec<_> = operations(&bytes[..length]).collect();
            let whole = decoded.iter().take_while(|one| one.is_some()).count();
            assert_eq!(
                decoded[..whole],
                ALL[..whole].iter().map(|&one| Some(one)).collect::<Vec<_>>()
            );
            assert!(decoded.len() <= whole + 1, "one that is cut off is the last");
        }
        assert_eq!(operations(&[10, 0, 0, 0, 0]).collect::<Vec<_>>(), [None]);
        assert_eq!(snapshot(&2u32.to_le_bytes()), None);
    }
}
