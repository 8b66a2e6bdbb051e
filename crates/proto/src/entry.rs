//! How a process enters an image with a name: what `husk exec` and the supervisor agree on.
//!
//! One line of JSON each way over the image's socket (`husk-supervisor`, `named::message`). The
//! client may be a program that has no JSON library (`husk-entry`), so the fields of request and
//! answer keep their order.

/// Who understands whom: the command's version, and that of the messages and the hand-over.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+4");

/// Least stack that the host must grant who enters an image, and data: what Husk itself takes of
/// both, and some for the program. With less, a limit would end it without a word.
pub const STACK_BYTES_MIN: u64 = 256 << 10;
/// As `STACK_BYTES_MIN`, for data.
pub const DATA_BYTES_MIN: u64 = 32 << 20;

/// Where a user's images are below the home directory.
pub const IMAGES_BELOW_HOME: &str = ".local/state/husk/images";

/// The home directory that a line of `/etc/passwd` names, if it is one of user `uid`.
pub fn home_in(line: &[u8], uid: u32) -> Option<&[u8]> {
    let mut fields = line.split(|&byte| byte == b':');
    let number = core::str::from_utf8(fields.nth(2)?).ok()?;
    let home = fields.nth(2)?;
    (number.parse() == Ok(uid) && home.starts_with(b"/")).then_some(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_that_of_the_user_and_absolute() {
        let line = b"owner:x:1000:1001:An Owner,,,:/homes/owner:/bin/sh";
        assert_eq!(home_in(line, 1000), Some(&b"/homes/owner"[..]));
        assert_eq!(home_in(line, 1001), None);
        for line in ["", "owner:x:1000", "owner:x:1000:1000::home:/bin/sh", "#a:b:c:d:e:f:g"] {
            assert_eq!(home_in(line.as_bytes(), 1000), None, "{line}");
        }
    }
}
