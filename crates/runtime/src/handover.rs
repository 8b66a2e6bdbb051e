//! What one program hands to the runtime that starts the next: the first string of its
//! environment.
//!
//! ```text
//!   HUSK_EXEC=v1:<process hex>:<region fd>:<loader fd>:<flags hex>:<path>
//!   <the name given to exec>                                        (with `GIVEN`)
//! ```
//!
//! The path is the real one, of a script's interpreter if need be; the name is what `AT_EXECFN`
//! and `comm` are to show. The runtime removes both before the program starts; nobody else ever
//! sees them.

/// Name of the variable with its `=`.
pub const PREFIX: &[u8] = b"HUSK_EXEC=v1:";
/// The state arena is guarded by a memory protection key.
pub const GUARD: u32 = 1;
/// The supervisor's first exec: `path` is the command as typed.
pub const INITIAL: u32 = 2;
/// Never map rewritten copies: every call traps.
pub const PLAIN: u32 = 4;
/// `path` is a host file's real path: the loader opens it without walking again.
pub const HOST: u32 = 8;
/// No signal is ignored: every action is default.
pub const DEFAULTS: u32 = 16;
/// The next string of the environment is the name given to exec.
pub const GIVEN: u32 = 32;
/// Exec was given a descriptor alone: `comm` is the file's name.
pub const OF_FILE: u32 = 64;
/// With `INITIAL`: it joins an image that lives on without it, and is nobody's child here.
pub const JOINS: u32 = 128;
/// Where among the flags the policy of an option of `husk exec` lies, its number plus one
/// (`husk_proto::place`); it holds for all that the command starts.
pub const PLACE_SHIFT: u32 = 8;
const PLACE_MASK: u32 = 7;
/// The address space has a limit: the buffer cache is mapped at once.
pub const LIMITED: u32 = 1 << 11;
/// The program is the file that the process record says it runs; `path` is only shown.
pub const OF_RECORD: u32 = 1 << 12;
/// Longest text before the path.
pub const HEAD_MAX: usize = 64;
/// No region: every call goes to the host (to measure and test the gate alone).
pub const NO_REGION: i32 = -1;

/// The number of that policy, if there is one among `flags`.
pub fn place_of(flags: u32) -> Option<u32> {
    (flags >> PLACE_SHIFT & PLACE_MASK).checked_sub(1)
}

/// The fields of the hand-over, without the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The process record of this process.
    pub process: u32,
    /// Descriptor of the region, or `NO_REGION`.
    pub region_fd: i32,
    /// Descriptor of the runtime's own file.
    pub loader_fd: i32,
    /// `GUARD`, `INITIAL`, `PLAIN`, `HOST`, `DEFAULTS`, `GIVEN`, `OF_FILE`, `JOINS`, `LIMITED`,
    /// `OF_RECORD`, a policy.
    pub flags: u32,
}

impl Handover {
    /// Takes `text` (the whole string) apart; the offset of the path within it.
    pub fn parse(text: &[u8]) -> Option<(Handover, usize)> {
        let mut at = PREFIX.len();
        if text.get(..at)? != PREFIX {
            return None;
        }
        let process = number(text, &mut at, 16)? as u32;
        let region_fd = number(text, &mut at, 10)? as i32;
        let loader_fd = number(text, &mut at, 10)? as i32;
        let flags = number(text, &mut at, 16)? as u32;
        Some((Handover { process, region_fd, loader_fd, flags }, at))
    }

    /// Writes everything up to the path into `out`; the length.
    pub fn head(&self, out: &mut [u8; HEAD_MAX]) -> usize {
        let mut at = PREFIX.len();
        out[..at].copy_from_slice(PREFIX);
        put(out, &mut at, i64::from(self.process), 16);
        put(out, &mut at, i64::from(self.region_fd), 10);
        put(out, &mut at, i64::from(self.loader_fd), 10);
        put(out, &mut at, i64::from(self.flags), 16);
        at
    }
}

/// A number that ends with `:`; moves `at` behind it.
fn number(text: &[u8], at: &mut usize, base: i64) -> Option<i64> {
    let negative = text.get(*at) == Some(&b'-');
    *at += usize::from(negative);
    let mut value = 0i64;
    let start = *at;
    loop {
        let byte = *text.get(*at)?;
        *at += 1;
        if byte == b':' {
            break;
        }
        let digit = (byte as char).to_digit(base as u32)?;
        value = value.checked_mul(base)?.checked_add(i64::from(digit))?;
    }
    if *at == start + 1 || value > i64::from(u32::MAX) {
        return None;
    }
    Some(if negative { -value } else { value })
}

fn put(out: &mut [u8; HEAD_MAX], at: &mut usize, value: i64, base: u64) {
    let mut digits = [0u8; 20];
    let mut rest = value.unsigned_abs();
    let mut count = 0;
    loop {
        digits[count] = b"0123456789abcdef"[(rest % base) as usize];
        rest /= base;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out[*at] = b'-';
        *at += 1;
    }
    for &digit in digits[..count].iter().rev() {
        out[*at] = digit;
        *at += 1;
    }
    out[*at] = b':';
    *at += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let sent = Handover { process: 0xbeef, region_fd: 1023, loader_fd: 1022, flags: 5 };
        let mut head = [0; HEAD_MAX];
        let length = sent.head(&mut head);
        let mut text = head[..length].to_vec();
        text.extend_from_slice(b"/bin/a:b");
        assert_eq!(&text[..], b"HUSK_EXEC=v1:beef:1023:1022:5:/bin/a:b");
        assert_eq!(Handover::parse(&text), Some((sent, length)));
    }

    #[test]
    fn a_policy_is_found_among_other_flags() {
        assert_eq!(place_of(GUARD | JOINS), None);
        assert_eq!(place_of(GUARD | JOINS | 1 << PLACE_SHIFT), Some(0));
        assert_eq!(place_of(!0), Some(6));
    }

    #[test]
    fn no_region_is_a_number_below_zero() {
        let (parsed, _) = Handover::parse(b"HUSK_EXEC=v1:0:-1:9:0:x").unwrap();
        assert_eq!(parsed.region_fd, NO_REGION);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            &b"HUSK_EXEC=v2:0:1:2:0:x"[..],
            b"HUSK_EXEC=v1:0:1:2:",
            b"HUSK_EXEC=v1::1:2:0:x",
            b"HUSK_EXEC=v1:0:g:2:0:x",
            b"HUSK_EXEC=v1:1ffffffff:1:2:0:x",
            b"PATH=/bin",
            b"",
        ] {
            assert_eq!(Handover::parse(text), None);
        }
    }
}
