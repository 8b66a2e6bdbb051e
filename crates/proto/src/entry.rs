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

/// What a process is called that becomes a program from another host. Its words are these:
/// `JOB exec SITE PROGRAM NAME ARGUMENTS...`, in which NAME is what the program sees as its first
/// word.
pub const JOB: &str = "husk: job";

/// The node of other hosts' programs, as an image of this host.
pub const JOB_NODE: &str = "guest";

/// Where a job runs, and with which umask.
#[derive(Debug, PartialEq, Eq)]
pub struct Site<'a> {
    /// Its umask.
    pub umask: u32,
    /// The directory of images that has the node.
    pub images: &'a [u8],
    /// Its working directory in the image.
    pub here: &'a [u8],
}

impl<'a> Site<'a> {
    /// What stands before the two directories: `UMASK BYTES-OF-IMAGES `.
    pub const SEPARATOR: u8 = b' ';

    /// Understands `UMASK BYTES-OF-IMAGES IMAGES-AND-HERE`.
    pub fn parse(text: &'a [u8]) -> Option<Site<'a>> {
        let mut parts = text.splitn(3, |byte| *byte == Self::SEPARATOR);
        let mut number = || core::str::from_utf8(parts.next()?).ok()?.parse::<u32>().ok();
        let (umask, bytes) = (number()?, number()? as usize);
        let (images, here) = parts.next()?.split_at_checked(bytes)?;
        let whole = images.starts_with(b"/") && here.starts_with(b"/") && umask & !0o777 == 0;
        whole.then_some(Site { umask, images, here })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_understood_as_a_whole_or_not_at_all() {
        let site = Site { umask: 0o22, images: b"/a b", here: b"/c 1 /d" };
        assert_eq!(Site::parse(b"18 4 /a b/c 1 /d"), Some(site));
        for wrong in
            ["", "18", "18 4", "18 4 /a b", "18 9 /a b/c", "512 2 /a/b", "x 2 /a/b", "18 1 a/b"]
        {
            assert_eq!(Site::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

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
