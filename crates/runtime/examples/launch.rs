//! Starts a program under the runtime alone, without an image: every call goes to the host.
//!
//!     launch RUNTIME [--plain] PROGRAM [ARGUMENT...]
//!
//! For measuring and testing loader, gate, signals and process creation by themselves.

use husk_runtime::handover::{HEAD_MAX, Handover, INITIAL, NO_REGION, PLAIN};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

fn main() {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let runtime = arguments.next().expect("the runtime's file");
    let plain = arguments.next_if(|a| a == "--plain").is_some();
    let argv: Vec<CString> =
        arguments.map(|a| CString::new(a.as_bytes()).expect("no NUL in arguments")).collect();
    let file = std::fs::File::open(runtime).expect("the runtime opens");
    let loader_fd = keep(file.as_raw_fd());
    let flags = INITIAL | if plain { PLAIN } else { 0 };
    let handover = Handover { process: 0, region_fd: NO_REGION, loader_fd, flags };
    let mut head = [0; HEAD_MAX];
    let length = handover.head(&mut head);
    let mut first = head[..length].to_vec();
    first.extend_from_slice(argv[0].as_bytes());
    let mut envp = vec![CString::new(first).expect("no NUL")];
    for (name, value) in std::env::vars_os() {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        envp.push(CString::new(text).expect("no NUL"));
    }
    panic!("execveat: {}", start(loader_fd, &argv, &envp));
}

/// A high number that exec keeps.
fn keep(fd: i32) -> i32 {
    const KEPT: usize = 1022;
    // SAFETY: duplicates a descriptor; no memory is involved.
    unsafe { husk_host::syscall(33, [fd as usize, KEPT, 0, 0, 0, 0]) as i32 }
}

fn start(loader: i32, argv: &[CString], envp: &[CString]) -> isize {
    const EXECVEAT: usize = 322;
    const AT_EMPTY_PATH: usize = 0x1000;
    let pointers = |list: &[CString]| -> Vec<usize> {
        list.iter().map(|s| s.as_ptr() as usize).chain([0]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    let path = c"".as_ptr() as usize;
    let args =
        [loader as usize, path, argv.as_ptr() as usize, envp.as_ptr() as usize, AT_EMPTY_PATH, 0];
    // SAFETY: arrays of NUL-terminated strings that end with 0.
    unsafe { husk_host::syscall(EXECVEAT, args) }
}
