//! Flags of files (`chattr`) are the host's: no program of an image changes them in a tree.

use std::fs;

use husk_tests::husk::husk;
use husk_tests::{Scratch, against_native};

use crate::run;

/// Tries to change flags and versions by a descriptor that is open for reading alone, and of a
/// directory; prints each errno.
const PROGRAM: &str = "
import fcntl, os, struct
GETFLAGS, SETFLAGS, SETVERSION, FSSETXATTR = 0x80086601, 0x40086602, 0x40087602, 0x401c5820
for path in ['read', 'looked-at', 'directory']:
    fd = os.open(path, os.O_RDONLY)
    for request, size in [(SETFLAGS, 8), (SETVERSION, 8), (FSSETXATTR, 28)]:
        try:
            fcntl.ioctl(fd, request, struct.pack('<I', 0x40).ljust(size, b'\\0'))
            print('changed', path, hex(request))
        except OSError as error:
            print(error.errno)
";
const ENOTTY: &str = "25\n";

#[test]
fn flags_of_host_files_are_not_changed_by_who_only_reads_them() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("flags");
    let work = scratch.fresh("work");
    fs::create_dir(work.join("directory")).expect("a directory");
    for name in ["read", "looked-at", "directory/file"] {
        fs::write(work.join(name), "bytes").expect("a file");
    }
    let outcome = run(&scratch, &work, husk(&["--discard"], &["python3", "-c", PROGRAM]));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), ENOTTY.repeat(9), "{}", outcome.shown());
}
