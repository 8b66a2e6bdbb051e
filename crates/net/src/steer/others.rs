//! For root: balancers of other users, and tables that their killed balancers have left.
//!
//! Invariant: the files are other users', and may be anything. All of them together are waited for
//! no longer than `ANSWERS_WITHIN`, and a user can say something about their own servers only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::SocketAddrUnix;

use super::asking::{LOOK, answer, shown};
use super::left::{self, Left};
use super::listeners::{Place, owner};
use super::name::{connected, is_of};
use super::seen::Snapshot;
use super::state::{files, of_others};

const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The state of their balancers. One that does not answer as it should is left out.
pub(super) fn seen() -> Vec<Snapshot> {
    let end = Instant::now() + ANSWERS_WITHIN;
    let of_one = |(directory, user): (PathBuf, u32)| {
        let sockets = files(&directory, "socket").unwrap_or_default();
        sockets.into_iter().filter_map(move |socket| look(&socket, user, end))
    };
    of_others().into_iter().flat_map(of_one).collect()
}

fn look(socket: &Path, user: u32, end: Instant) -> Option<Snapshot> {
    let stream = connected(&SocketAddrUnix::new(socket).ok()?).ok()?;
    if !is_of(&stream, user) {
        return None;
    }
    let seen = shown(answer(stream, LOOK, end)).ok()??;
    (owner(seen.pid) == Some(user)).then_some(seen)
}

/// Tables that their killed balancers have left.
pub(super) fn left() -> Vec<Left> {
    let of_one = |(directory, user): (PathBuf, u32)| {
        Left::all(&directory).into_iter().filter(move |left| owner(left.pid) == Some(user))
    };
    of_others().into_iter().flat_map(of_one).collect()
}

/// Nothing that they have left steers at a place any more.
pub(super) fn forget_left(place: &Place) {
    for (directory, _) in of_others() {
        // Most have none.
        let _ = fs::remove_file(directory.join(place.file_name(left::KIND)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::asking::tests::with_uid;
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::thread::spawn;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    const USER: u32 = 65_534;
    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn who_says_nothing_or_nonsense_or_has_no_end_or_accepts_nobody_is_not_waited_for() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let base = std::env::temp_dir().join(format!("husk-net-others-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
        let path = base.join("one.socket");
        let listener = with_uid(USER, || UnixListener::bind(&path)).unwrap();
        let looked = || look(&path, USER, Instant::now() + SOON);
        assert_eq!(looked(), None, "it says nothing");
        drop(listener.accept());
        for wrong in [&b"{}"[..], b"\xff", b"[[[[", b"\"\"", &[b'['; 5000]] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut one, _) = listener.accept().unwrap();
                    // The one that asks may have gone.
                    let _ = one.read(&mut [0]).and_then(|_| one.write_all(wrong));
                });
                assert_eq!(looked(), None, "{wrong:?}");
            });
        }
        let writer = spawn(move || {
            let said = |mut one: std::os::unix::net::UnixStream| while one.write(b" ").is_ok() {};
            listener.accept().map(|(one, _)| said(one)).unwrap();
            listener
        });
        assert_eq!(looked(), None, "it has no end");
        let listener = writer.join().unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| connected(&address).ok()).collect();
        assert!(!waiting.is_empty());
        assert_eq!(looked(), None, "it accepts nobody");
        mknodat(CWD, base.join("one.cbpf"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(Left::all(&base).is_empty());
        fs::remove_dir_all(&base).unwrap();
    }
}
