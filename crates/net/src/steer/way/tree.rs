//! Programs of classic BPF: one that leads each flow group to a socket, and one that leads a single
//! connection to one.
//!
//! ```text
//!   IPv4: head as long as it says  ┐
//!   IPv6: no head behind the first ┴► source port ─► group ─► word (a tree) ─► entry: an index
//!   all else ─────────────────────────────────────────────► Linux chooses (by hash)
//! ```
//!
//! Classic BPF has no memory that lasts, so the table is in the instructions: words of 32 bits, of
//! 1, 2, 4 or 8 bits for a group, as leaves of a binary tree. Neighbours that are equal are one
//! leaf.
//!
//! Invariant: no index is above the greatest of the table, so that every one is a socket's as long
//! as no socket goes.

use std::net::IpAddr;

use husk_abi::cbpf::code::*;
use husk_abi::cbpf::{Instruction, branch, op};

use crate::groups::GROUPS;

/// Where the network's head begins (`SKF_NET_OFF`).
const NET: u32 = -0x10_0000_i32 as u32;
/// No index: Linux chooses.
const NONE: u32 = u32::MAX;
const TCP: u32 = 6;

/// Distance of a jump to the instructions behind the tree, until it is known.
const BEHIND: u32 = u32::MAX;

/// Loads the source port; packets that are not TCP over IPv4 or IPv6 end here.
fn source_port() -> Vec<Instruction> {
    vec![
        op(LOAD_BYTE, NET),
        op(SHIFT_RIGHT, 4),
        branch(IF_EQUAL, 4, 0, 3),
        op(X_IS_HEAD, NET),
        op(LOAD_HALF_X, NET),
        op(JUMP, 5),
        branch(IF_EQUAL, 6, 0, 2),
        op(LOAD_BYTE, NET + 6),
        branch(IF_EQUAL, TCP, 1, 0),
        op(RETURN_VALUE, NONE),
        op(LOAD_HALF, NET + 40),
    ]
}

/// The program for a table that says which index each group has.
pub fn selector(indexes: &[u16; GROUPS]) -> Vec<Instruction> {
    let most = u32::from(indexes.iter().copied().max().unwrap_or_default());
    let bits = (u32::BITS - most.leading_zeros()).max(1).next_power_of_two();
    let in_word = u32::BITS / bits;
    let words: Vec<u32> = indexes
        .chunks(in_word as usize)
        .map(|groups| {
            let entries = groups.iter().enumerate();
            entries.fold(0, |word, (at, &index)| word | u32::from(index) << (at as u32 * bits))
        })
        .collect();
    let mut program = source_port();
    program.extend([
        op(SHIFT_RIGHT, 4),
        op(STORE, 0),
        op(AND, in_word - 1),
        op(SHIFT_LEFT, bits.trailing_zeros()),
        op(STORE, 1),
        op(LOAD_STORED, 0),
        op(SHIFT_RIGHT, in_word.trailing_zeros()),
    ]);
    program.extend(tree(&words, 0));
    let length = program.len();
    for (at, one) in program.iter_mut().enumerate() {
        if one.code == JUMP && one.value == BEHIND {
            one.value = (length - at - 1) as u32;
        }
    }
    program.extend([
        op(X_IS_STORED, 1),
        op(SHIFT_RIGHT_X, 0),
        op(AND, ((1_u64 << bits) - 1) as u32),
        op(RETURN, 0),
    ]);
    program
}

/// Loads the word whose number is loaded; `words` are those from number `first` on.
fn tree(words: &[u32], first: usize) -> Vec<Instruction> {
    if words.iter().all(|&word| word == words[0]) {
        return vec![op(LOAD_VALUE, words[0]), op(JUMP, BEHIND)];
    }
    let (lower, upper) = words.split_at(words.len() / 2);
    let middle = (first + lower.len()) as u32;
    let lower = tree(lower, first);
    let mut all = match u8::try_from(lower.len()) {
        Ok(skipped) => vec![branch(IF_GREATER_OR_EQUAL, middle, skipped, 0)],
        Err(_) => {
            vec![branch(IF_GREATER_OR_EQUAL, middle, 0, 1), op(JUMP, lower.len() as u32)]
        }
    };
    all.extend(lower);
    all.extend(tree(upper, first + words.len() / 2));
    all
}

/// A program that leads connections from this address and port to an index, and no others.
pub fn prober(ip: IpAddr, port: u16, index: u32) -> Vec<Instruction> {
    let (version, at, words): (_, _, Vec<u32>) = match ip {
        IpAddr::V4(ip) => (4, 12, vec![ip.to_bits()]),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (6, 8, (0..4).map(|word| (bits >> (96 - 32 * word)) as u32).collect())
        }
    };
    let mut program = source_port();
    program.extend([
        branch(IF_EQUAL, port.into(), 1, 0),
        op(RETURN_VALUE, NONE),
        op(LOAD_BYTE, NET),
        op(SHIFT_RIGHT, 4),
        branch(IF_EQUAL, version, 1, 0),
        op(RETURN_VALUE, NONE),
    ]);
    for (number, word) in words.into_iter().enumerate() {
        program.extend([
            op(LOAD_WORD, NET + at + 4 * number as u32),
            branch(IF_EQUAL, word, 1, 0),
            op(RETURN_VALUE, NONE),
        ]);
    }
    program.push(op(RETURN_VALUE, index));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::group_of;

    /// The result of a program for a segment whose network head begins with `head`.
    fn run(program: &[Instruction], head: &[u8]) -> u32 {
        let (mut a, mut x, mut stored, mut at) = (0_u32, 0_u32, [0; 16], 0);
        let byte = |k: u32, more: u32| head[k.wrapping_sub(NET).wrapping_add(more) as usize];
        let bytes = |k: u32, more: u32, count: u32| {
            (0..count).fold(0, |value, one| value << 8 | u32::from(byte(k, more + one)))
        };
        loop {
            let Instruction { code, yes, no, value: k } = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { yes } else { no });
            match code {
                LOAD_BYTE => a = bytes(k, 0, 1),
                LOAD_HALF => a = bytes(k, 0, 2),
                LOAD_WORD => a = bytes(k, 0, 4),
                LOAD_HALF_X => a = bytes(k, x, 2),
                LOAD_VALUE => a = k,
                LOAD_STORED => a = stored[k as usize],
                X_IS_HEAD => x = 4 * (bytes(k, 0, 1) & 0xf),
                X_IS_STORED => x = stored[k as usize],
                STORE => stored[k as usize] = a,
                AND => a &= k,
                SHIFT_LEFT => a <<= k,
                SHIFT_RIGHT => a >>= k,
                SHIFT_RIGHT_X => a >>= x,
                JUMP => at += k as usize,
                IF_EQUAL => at += jump(a == k),
                IF_GREATER_OR_EQUAL => at += jump(a >= k),
                RETURN_VALUE => return k,
                RETURN => return a,
                _ => panic!("no such instruction: {code:#x}"),
            }
        }
    }

    /// Heads of a segment over IPv4, with `options` words of options, and over IPv6.
    fn over_four(options: u8, source: [u8; 4], port: u16) -> Vec<u8> {
        let mut head = vec![0; 20 + 4 * usize::from(options)];
        (head[0], head[9]) = (0x45 + options, 6);
        head[12..16].copy_from_slice(&source);
        head.extend(port.to_be_bytes());
        head
    }

    fn over_six(next: u8, source: [u8; 16], port: u16) -> Vec<u8> {
        let mut head = vec![0; 40];
        (head[0], head[6]) = (0x60, next);
        head[8..24].copy_from_slice(&source);
        head.extend(port.to_be_bytes());
        head
    }

    fn table(of: impl Fn(usize) -> usize) -> [u16; GROUPS] {
        std::array::from_fn(|group| of(group) as u16)
    }

    #[test]
    fn every_group_gets_its_index_however_many_sockets_there_are() {
        for sockets in [1, 2, 3, 4, 5, 16, 17, 64] {
            // Neither neighbours nor words are equal.
            let indexes = table(|group| (group * group / 7 + group) % sockets);
            let program = selector(&indexes);
            assert!(program.len() <= husk_abi::cbpf::INSTRUCTIONS_MAX, "{}", program.len());
            for port in (0..=u16::MAX).step_by(8) {
                let wanted = u32::from(indexes[group_of(port)]);
                let heads = [over_four(0, [0; 4], port), over_six(6, [0; 16], port)];
                for head in heads {
                    assert_eq!(run(&program, &head), wanted, "{sockets} sockets, port {port}");
                }
            }
        }
    }

    #[test]
    fn options_of_ipv4_are_skipped_and_heads_behind_that_of_ipv6_are_left_to_linux() {
        let program = selector(&table(|group| group % 4));
        let port = 0x1230;
        for options in 0..=10 {
            assert_eq!(run(&program, &over_four(options, [0; 4], port)), 3);
        }
        assert_eq!(run(&program, &over_six(0, [0; 16], port)), NONE);
        assert_eq!(run(&program, &[0x50; 60]), NONE, "neither IPv4 nor IPv6");
    }

    #[test]
    fn a_table_of_few_sockets_fits_where_linux_allows_little() {
        // Of eBPF, into which Linux turns it, there are hardly more.
        let most = 20_480 / 8 - 100;
        let bad = |sockets: usize| selector(&table(|group| (group * 31 / 5 + group) % sockets));
        assert!(bad(16).len() < most && bad(4).len() < most / 2, "{}", bad(16).len());
        assert_eq!(selector(&table(|_| 0)).len(), 24, "all groups lead to one socket");
    }

    #[test]
    fn a_prober_leads_one_connection_alone() {
        let four = [127, 1, 2, 3];
        let program = prober(IpAddr::from(four), 4711, 5);
        assert_eq!(run(&program, &over_four(0, four, 4711)), 5);
        assert_eq!(run(&program, &over_four(0, four, 4712)), NONE);
        assert_eq!(run(&program, &over_four(0, [127, 1, 2, 4], 4711)), NONE);
        assert_eq!(run(&program, &over_six(6, [0; 16], 4711)), NONE);
        let mut six = [0; 16];
        (six[0], six[15]) = (0xfd, 1);
        let program = prober(IpAddr::from(six), 4711, 7);
        assert_eq!(run(&program, &over_six(6, six, 4711)), 7);
        six[0] = 0xfc;
        assert_eq!(run(&program, &over_six(6, six, 4711)), NONE);
        assert_eq!(run(&program, &over_four(0, four, 4711)), NONE);
    }
}
