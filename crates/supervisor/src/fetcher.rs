//! Looks at the host for programs of the image: those in a user namespace of their own, who would
//! take its ids into the image, and those whom the host does not let see what the image's user may
//! (`docs/adr/0091`).
//!
//! ```text
//!   a program ──► an inode from the host, and what is to be looked at ──► the import
//!             ◄── done, or an error number ──
//! ```

use husk_carrier::Direct;
use husk_node::Fetcher;
use husk_proto::Admin as _;
use husk_proto::Shortcuts as _;
use husk_proto::fetch::FETCHER;
use rustix::io::Errno;

use crate::counter::Counter;

/// Begins to, and says so in the image. Without, such programs see what they may by themselves.
pub fn begin(direct: &mut Direct) -> Option<Counter> {
    let fetch = |direct: Direct| {
        let mut fetcher = Fetcher::new(direct);
        move |request: &[u8]| match fetcher.answer(request) {
            Ok(()) => Ok(None),
            Err(errno) => Err(Errno::from_raw_os_error(errno.0)),
        }
    };
    let counter = Counter::open(direct.private_path(), FETCHER, fetch)?;
    direct.set_fetcher(rustix::process::geteuid().as_raw());
    Some(counter)
}
