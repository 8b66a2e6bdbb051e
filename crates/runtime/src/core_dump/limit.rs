//! How large a core dump may be (`RLIMIT_CORE`), in a form in which the host makes none.
//!
//! Where the host would write a core to a file, it makes none below one page (4096 bytes). The soft
//! limit that it is told is a number below that, which stands for the program's own: so it passes
//! on to every child and to every program, and the host's file system sees no core.
//!
//! ```text
//!   0, and any limit under a hard one below a page: as it is      4095: none (unlimited)
//!   1 ... 4093: 8 bits of 512-byte blocks, shifted by 4 bits      4094: the hard limit
//! ```

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;
/// Below this the host makes no core.
const LEAST: u64 = 4096;
const NONE_CODE: u64 = 4095;
const HARD_CODE: u64 = 4094;
const BLOCK_BYTES: u64 = 512;
const MANTISSA_BITS: u32 = 8;
/// With a larger shift the numbers above have no place.
const SHIFT_MAX: u32 = 14;

/// What the host is told for a program's limits, the soft one and the hard one.
pub fn told(limits: [u64; 2]) -> [u64; 2] {
    let [soft, hard] = limits;
    let code = match soft {
        _ if hard < LEAST => soft,
        UNLIMITED => NONE_CODE,
        _ if soft == hard => HARD_CODE,
        _ => shortened(soft),
    };
    [code, hard]
}

/// The program's limits for what the host was told.
pub fn meant(limits: [u64; 2]) -> [u64; 2] {
    let [soft, hard] = limits;
    let meant = match soft {
        _ if hard < LEAST => soft,
        NONE_CODE => UNLIMITED,
        HARD_CODE => hard,
        LEAST.. => soft,
        _ => (soft & ((1 << MANTISSA_BITS) - 1)) << (soft >> MANTISSA_BITS) << 9,
    };
    [meant, hard]
}

/// Whether the host would write a core under these limits.
pub fn is_the_hosts(limits: [u64; 2]) -> bool {
    limits[0] >= LEAST
}

/// Rounded down to what there is a number for.
fn shortened(bytes: u64) -> u64 {
    let blocks = bytes / BLOCK_BYTES;
    let shift = (u64::BITS - blocks.leading_zeros()).saturating_sub(MANTISSA_BITS);
    if shift > SHIFT_MAX { HARD_CODE } else { u64::from(shift) << MANTISSA_BITS | blocks >> shift }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_comes_back_as_it_was_and_the_host_makes_no_core_under_it() {
        for hard in [0, 512, 4095, 4096, 10 << 20, 1 << 40, UNLIMITED] {
            for soft in [0, 512, 1024, 4096, 1 << 20, 1000 << 10, 255 << 23, hard] {
                let limits = [soft.min(hard), hard];
                let told = told(limits);
                assert!(!is_the_hosts(told) && told[0] <= hard, "{limits:?}: {told:?}");
                assert_eq!(meant(told), limits, "{told:?}");
            }
        }
    }

    #[test]
    fn a_limit_that_has_no_number_is_rounded_down_by_less_than_a_hundredth() {
        for soft in [5000, 123_456_789, 1_999_999_999] {
            let [meant, _] = meant(told([soft, UNLIMITED]));
            assert!(meant <= soft && soft - meant <= (soft / 100).max(BLOCK_BYTES), "{soft}");
        }
    }
}
