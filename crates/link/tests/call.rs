//! An agent that is there and does not answer, and one that ends before it has.

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::thread;

use husk_link::{Unanswered, call};

/// A listener for whole messages, at a name of its own.
fn listen(name: &str) -> (UnixListener, Vec<u8>) {
    use std::os::fd::{FromRawFd, OwnedFd};
    let path = std::env::temp_dir().join(format!("husk-link-{}-{name}", std::process::id()));
    // SAFETY: plain numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    for (to, byte) in address.sun_path.iter_mut().zip(bytes) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: a new descriptor, and an address of its own length.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert!(fd >= 0, "a socket");
        OwnedFd::from_raw_fd(fd)
    };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: as above.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) == 0
            && libc::listen(socket.as_raw_fd(), 8) == 0
    };
    assert!(bound, "a name");
    (UnixListener::from(socket), bytes.to_vec())
}

#[test]
fn an_agent_that_does_not_answer_is_late_and_one_that_ends_has_lost_the_request() {
    let (listener, path) = listen("silent");
    let mut room = [0; 64];
    assert_eq!(call(&path, [b"head", b"body"], &mut room, 1), Err(Unanswered::Late));
    let ends = thread::spawn(move || {
        // The one before has given up; the next is taken and let go.
        drop(listener.accept().expect("the first"));
        drop(listener.accept().expect("the second"));
    });
    assert_eq!(call(&path, [b"head", b"body"], &mut room, 60), Err(Unanswered::Lost));
    ends.join().expect("it ends");
    let _ = std::fs::remove_file(std::ffi::OsStr::from_bytes(&path));
}
