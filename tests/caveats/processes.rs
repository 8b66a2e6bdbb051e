//! Descriptors and processes.

use crate::{Difference, nothing, one_file};

#[test]
fn two_high_descriptor_numbers_are_taken() {
    let script = "
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
null = os.open('/dev/null', os.O_RDONLY)
def free(number):
    try:
        os.dup2(null, number)
        return True
    except OSError:
        return False
print([number for number in range(1000, 1024) if not free(number)])
";
    Difference { script, linux: Some("[]\n"), husk: "[1022, 1023]\n" }.check("numbers", nothing);
}

#[test]
fn a_descriptor_of_an_image_does_not_travel_in_a_message() {
    let script = "
import array, os, socket
fd = os.open('file', os.O_RDWR)
left, right = socket.socketpair()
message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))]
try:
    print(left.sendmsg([b'x'], message))
except OSError as error:
    print(error.errno)
";
    Difference { script, linux: Some("1\n"), husk: "95\n" }.check("messages", one_file);
}

#[test]
fn io_uring_is_not_there() {
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(425, 0, 0)
print('not there' if ctypes.get_errno() == 38 else 'there')
";
    Difference { script, linux: None, husk: "not there\n" }.check("uring", nothing);
}

#[test]
fn the_link_of_a_descriptor_is_not_read() {
    let script = "
import os
fd = os.open('file', os.O_RDWR)
try:
    print(os.path.basename(os.readlink(f'/proc/self/fd/{fd}')))
except OSError as error:
    print(error.errno)
";
    Difference { script, linux: Some("file\n"), husk: "95\n" }.check("fd-links", one_file);
}
