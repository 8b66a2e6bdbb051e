//! Longer bytes: the rest of long names, targets of symlinks. Up to 48 bytes in a line, else in a
//! chain of nodes of 568. A reference is 0 (none), or a number with `IN_NODES` set or not.

use husk_proto::Result;
use husk_region::{Cell, LINE, NODE, Region, Txn};

use crate::state::{low, tag};

const IN_NODES: u32 = 1 << 31;
const LINE_BYTES: usize = 48;
const NODE_BYTES: usize = 568;

fn four(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().unwrap_or([0; 4])))
        as u64
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap_or([0; 8])))
}

/// The word of `bytes` that begins at `at`, zero padded; without a byte loop, as every name of
/// every path walk comes through here.
#[inline]
pub fn word_at(bytes: &[u8], at: usize) -> u64 {
    if let Some(word) = eight(bytes, at) {
        return word;
    }
    let length = bytes.len();
    let rest = length.saturating_sub(at);
    if rest == 0 {
        return 0;
    }
    if length >= 8 {
        return eight(bytes, length - 8).unwrap_or(0) >> (8 * (8 - rest));
    }
    if rest >= 4 {
        return four(bytes, at) | four(bytes, length - 4) << (8 * (rest - 4));
    }
    let byte = |n: usize| (bytes[at + n] as u64) << (8 * n);
    byte(0) | byte(rest / 2) | byte(rest - 1)
}

/// Copies bytes out of words.
pub fn copy_words(region: &Region, cell: Cell, out: &mut [u8]) {
    for (n, eight) in out.chunks_mut(8).enumerate() {
        let word = region.load(cell.word(n as u32)).to_le_bytes();
        eight.copy_from_slice(&word[..eight.len()]);
    }
}

/// Writes bytes into words nobody can reach yet.
pub fn fill_words(txn: &Txn<'_>, cell: Cell, bytes: &[u8]) {
    for n in 0..bytes.len().div_ceil(8) {
        txn.init(cell.word(n as u32), word_at(bytes, n * 8));
    }
}

/// Keeps `bytes`; 0 for none.
pub fn keep(txn: &mut Txn<'_>, bytes: &[u8]) -> Result<u32> {
    if bytes.is_empty() {
        return Ok(0);
    }
    if bytes.len() <= LINE_BYTES {
        let line = txn.allocate(LINE)?;
        let cell = txn.region.map.object(LINE, line);
        txn.init(cell, txn.get(cell) & !0xffff_ffff | tag::TEXT as u64);
        fill_words(txn, cell.word(2), bytes);
        return Ok(line);
    }
    let mut next = 0;
    for piece in bytes.chunks(NODE_BYTES).rev() {
        let node = txn.allocate(NODE)?;
        let cell = txn.region.map.object(NODE, node);
        txn.init(cell, next as u64);
        fill_words(txn, cell.word(1), piece);
        next = node;
    }
    Ok(next | IN_NODES)
}

/// Gives a text back.
pub fn release(txn: &mut Txn<'_>, text: u32) {
    if text & IN_NODES == 0 {
        if text != 0 {
            retire_line(txn, text);
        }
        return;
    }
    let mut node = text & !IN_NODES;
    for _ in 0..16 {
        if node == 0 {
            return;
        }
        let next = low(txn.get(txn.region.map.object(NODE, node)));
        txn.free(NODE, node);
        node = next;
    }
}

/// Frees a line: its version moves on when the transaction commits.
pub fn retire_line(txn: &mut Txn<'_>, line: u32) {
    let cell = txn.region.map.object(LINE, line);
    let head = txn.get(cell);
    txn.set_at_commit(cell, (head & !0xffff_ffff).wrapping_add(1 << 32));
    txn.free(LINE, line);
}

/// Copies a text into `out` (its length).
pub fn copy(region: &Region, text: u32, out: &mut [u8]) {
    if text & IN_NODES == 0 {
        let length = out.len().min(LINE_BYTES);
        copy_words(region, region.map.object(LINE, text).word(2), &mut out[..length]);
        return;
    }
    let mut node = text & !IN_NODES;
    for piece in out.chunks_mut(NODE_BYTES) {
        let cell = region.map.object(NODE, node);
        copy_words(region, cell.word(1), piece);
        node = low(region.load(cell));
    }
}

/// Whether a text is `bytes`.
pub fn equals(region: &Region, text: u32, bytes: &[u8]) -> bool {
    let mut held = [0; 256];
    let held = &mut held[..bytes.len().min(256)];
    copy(region, text, held);
    held == bytes
}

/// Calls `emit(class, number)` for each object a text is made of (for the checker).
pub fn each_part(region: &Region, text: u32, emit: &mut dyn FnMut(usize, u32)) {
    if text & IN_NODES == 0 {
        if text != 0 {
            emit(LINE, text);
        }
        return;
    }
    let mut node = text & !IN_NODES;
    for _ in 0..16 {
        if node == 0 {
            return;
        }
        emit(NODE, node);
        node = low(region.load(region.map.object(NODE, node)));
    }
}
