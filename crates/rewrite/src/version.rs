//! The version of the rewriter: a hash of its source, so that every change counts.

const SOURCES: &[&[u8]] = &[
    include_bytes!("bounds.rs"),
    include_bytes!("bounds/golang.rs"),
    include_bytes!("bounds/unwind.rs"),
    include_bytes!("cpuid.rs"),
    include_bytes!("cpuid/patch.rs"),
    include_bytes!("decide.rs"),
    include_bytes!("elf.rs"),
    include_bytes!("facts.rs"),
    include_bytes!("functions.rs"),
    include_bytes!("lib.rs"),
    include_bytes!("scan.rs"),
    include_bytes!("site.rs"),
    include_bytes!("targets.rs"),
];

/// Copies made by a rewriter with another number are not used.
pub const REWRITER: u64 = hash_all(SOURCES);

/// FNV-1a, started at its offset basis.
pub const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over more bytes.
pub const fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        state = (state ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    state
}

const fn hash_all(sources: &[&[u8]]) -> u64 {
    let mut state = HASH_START;
    let mut index = 0;
    while index < sources.len() {
        state = hash(state, sources[index]);
        index += 1;
    }
    state
}
