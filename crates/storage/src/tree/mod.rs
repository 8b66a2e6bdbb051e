//! A tree as a volume stores it: a snapshot, and the records after it.
//!
//! ```text
//!   snapshot, batch by batch ─┐
//!   records, one batch each ──┴─► Tree ─► objects by number, names from the root
//! ```
//!
//! 1. Batches that count only together are applied when the last of them is there.
//! 2. An object without a name is kept until the end: its name may come later.
//! 3. A snapshot is a stream: each batch with its length before it.

pub mod change;

use std::collections::{BTreeMap, HashMap};

pub use change::{Attributes, Change, Id, Kind, Malformed, Writer};

use change::BATCH_BYTES_MAX;

/// Bytes that are kept in one piece.
const PIECE_BYTES: usize = 64 << 10;

/// A file's bytes: pieces that are not all zeros, and how many bytes count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes {
    pieces: BTreeMap<u64, Box<[u8]>>,
    size: u64,
}

impl Bytes {
    /// How many there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Each piece with where it begins, as far as it counts.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces.iter().filter(|(at, _)| **at < self.size).map(|(at, piece)| {
            let length = (self.size - at).min(piece.len() as u64) as usize;
            (*at, &piece[..length])
        })
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), Malformed> {
        let end = at.checked_add(bytes.len() as u64).ok_or(Malformed)?;
        let mut done = 0;
        while done < bytes.len() {
            let here = at + done as u64;
            let within = (here % PIECE_BYTES as u64) as usize;
            let length = (PIECE_BYTES - within).min(bytes.len() - done);
            let fresh = || vec![0; PIECE_BYTES].into_boxed_slice();
            let piece = self.pieces.entry(here - within as u64).or_insert_with(fresh);
            piece[within..within + length].copy_from_slice(&bytes[done..done + length]);
            done += length;
        }
        self.size = self.size.max(end);
        Ok(())
    }

    fn clear(&mut self, at: u64, length: u64) {
        let end = at.saturating_add(length).min(self.size);
        let first = at - at % PIECE_BYTES as u64;
        for (start, piece) in self.pieces.range_mut(first..end.max(first)) {
            let from = at.saturating_sub(*start).min(PIECE_BYTES as u64) as usize;
            let to = (end - start).min(PIECE_BYTES as u64) as usize;
            if from < to {
                piece[from..to].fill(0);
            }
        }
    }

    fn resize(&mut self, size: u64) {
        if size < self.size {
            let last = size - size % PIECE_BYTES as u64;
            self.clear(size, self.size - size);
            self.pieces.split_off(&(last + PIECE_BYTES as u64));
        }
        self.size = size;
    }
}

/// An object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// What `stat` shows, once it was told.
    pub attributes: Option<Attributes>,
    /// Names of a directory.
    pub names: BTreeMap<Vec<u8>, Id>,
    /// Bytes of a file.
    pub bytes: Bytes,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A tree that is being put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The root, once there was one.
    pub root: Option<Id>,
    nodes: HashMap<Id, Node>,
    waiting: Vec<Vec<u8>>,
    stream: Vec<u8>,
}

impl Tree {
    /// An object.
    pub fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Takes the next part of a snapshot.
    pub fn snapshot(&mut self, part: &[u8]) -> Result<(), Malformed> {
        self.stream.extend_from_slice(part);
        let stream = std::mem::take(&mut self.stream);
        let mut rest = &stream[..];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > BATCH_BYTES_MAX {
                return Err(Malformed);
            }
            let Some((batch, behind)) = behind.split_at_checked(length) else { break };
            self.record(batch)?;
            rest = behind;
        }
        self.stream = rest.to_vec();
        Ok(())
    }

    /// Takes the next record.
    pub fn record(&mut self, batch: &[u8]) -> Result<(), Malformed> {
        if change::decode(batch, |_| Ok(()))? {
            self.waiting.push(batch.to_vec());
            return Ok(());
        }
        for waited in std::mem::take(&mut self.waiting) {
            change::decode(&waited, |change| self.apply(&change))?;
        }
        change::decode(batch, |change| self.apply(&change)).map(|_| ())
    }

    fn apply(&mut self, change: &Change<'_>) -> Result<(), Malformed> {
        match *change {
            Change::Root(id) => self.root = Some(id),
            Change::Node(id, attributes) => self.at(id).attributes = Some(attributes),
            Change::Target(id, text) => self.at(id).target = text.to_vec(),
            Change::Name(dir, name, id) => {
                self.at(dir).names.insert(name.to_vec(), id);
            }
            Change::Gone(dir, name) => {
                self.at(dir).names.remove(name);
            }
            Change::Cut(id, size) => {
                let bytes = &mut self.at(id).bytes;
                bytes.resize(bytes.size.min(size));
            }
            Change::Size(id, size) => self.at(id).bytes.resize(size),
            Change::Data(id, at, bytes) => self.at(id).bytes.put(at, bytes)?,
            Change::Zeros(id, at, length) => self.at(id).bytes.clear(at, length),
            Change::Bare(id) => self.at(id).extended.clear(),
            Change::Extended(id, name, value) => {
                self.at(id).extended.insert(name.to_vec(), value.to_vec());
            }
        }
        Ok(())
    }

    fn at(&mut self, id: Id) -> &mut Node {
        self.nodes.entry(id).or_default()
    }
}

/// A batch as a snapshot has it: with its length before it.
pub fn framed(batch: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(batch.len() + 4);
    framed.extend_from_slice(&(batch.len() as u32).to_le_bytes());
    framed.extend_from_slice(batch);
    framed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(changes: &[Change<'_>]) -> Vec<Vec<u8>> {
        let mut writer = Writer::default();
        changes.iter().for_each(|change| writer.push(change));
        writer.finish()
    }

    fn tree(changes: &[Change<'_>]) -> Tree {
        let mut tree = Tree::default();
        batches(changes).iter().for_each(|batch| tree.record(batch).unwrap());
        tree
    }

    fn bytes_of(tree: &Tree, id: Id) -> Vec<u8> {
        let bytes = &tree.node(id).unwrap().bytes;
        let mut all = vec![0; bytes.size() as usize];
        for (at, piece) in bytes.pieces() {
            all[at as usize..][..piece.len()].copy_from_slice(piece);
        }
        all
    }

    #[test]
    fn bytes_cut_off_and_grown_again_are_zeros() {
        let file = Id(7);
        let long = vec![9; PIECE_BYTES + 10];
        let changes = [
            Change::Data(file, 0, &long),
            Change::Size(file, PIECE_BYTES as u64 + 1),
            Change::Size(file, 5),
            Change::Size(file, PIECE_BYTES as u64 + 3),
            Change::Data(file, 2, b"ab"),
            Change::Zeros(file, 1, 1),
        ];
        let mut expected = vec![0; PIECE_BYTES + 3];
        expected[..5].copy_from_slice(&[9, 0, b'a', b'b', 9]);
        assert!(bytes_of(&tree(&changes), file) == expected);
    }

    #[test]
    fn a_cut_never_makes_a_file_longer() {
        let file = Id(7);
        let changes = [Change::Data(file, 0, b"abc"), Change::Cut(file, 99), Change::Cut(file, 2)];
        assert_eq!(bytes_of(&tree(&changes), file), b"ab");
    }

    #[test]
    fn batches_that_count_together_count_when_the_last_is_there() {
        let name = [b'n'; 255];
        let changes: Vec<_> = (0..5000).map(|n| Change::Name(Id(n), &name, Id(1))).collect();
        let batches = batches(&changes);
        assert!(batches.len() > 1);
        let mut tree = Tree::default();
        for batch in &batches[..batches.len() - 1] {
            tree.record(batch).unwrap();
            assert!(tree.node(Id(0)).is_none(), "half of it shows");
        }
        tree.record(&batches[batches.len() - 1]).unwrap();
        assert!((0..5000).all(|n| tree.node(Id(n)).is_some()));
    }

    #[test]
    fn a_snapshot_is_the_same_in_parts_of_any_length() {
        let long = vec![1; 3 * PIECE_BYTES];
        let changes = [
            Change::Root(Id(1)),
            Change::Name(Id(1), b"a", Id(2)),
            Change::Data(Id(2), 77, &long),
            Change::Extended(Id(2), b"user.x", b"y"),
        ];
        let stream: Vec<u8> = batches(&changes).iter().flat_map(|batch| framed(batch)).collect();
        for length in [1, 3, 4096, stream.len()] {
            let mut found = Tree::default();
            stream.chunks(length).for_each(|part| found.snapshot(part).unwrap());
            assert!(found == tree(&changes), "in parts of {length}");
        }
    }

    #[test]
    fn applied_again_nothing_changes() {
        let changes = [
            Change::Root(Id(1)),
            Change::Name(Id(1), b"a", Id(2)),
            Change::Data(Id(2), 0, b"abcdef"),
            Change::Cut(Id(2), 4),
            Change::Data(Id(2), 4, b"xy"),
            Change::Size(Id(2), 6),
            Change::Gone(Id(1), b"b"),
        ];
        let twice: Vec<_> = changes.iter().chain(&changes).copied().collect();
        assert!(tree(&twice) == tree(&changes));
    }
}
