//! Where the runtime meets the client: one value a thread. This build passes every call.

use crate::load;
use core::ffi::CStr;
use husk_abi::{Errno, PATH_MAX, nr};
use husk_host::calls;
use husk_proto::Inode;

/// Whether an image serves calls.
pub const SERVED: bool = false;

/// One system call as the application made it.
#[derive(Clone, Copy, Debug)]
pub struct Call { pub number: usize, pub args: [usize; 6] }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict { Return(i64), Pass, PassThen(After), Wait { address: usize, value: u32, timeout_ns: u64 } }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After { pub number: usize, pub args: [usize; 6], pub reason: u32 }

#[derive(Clone, Copy)]
pub struct Embryo(u32);
impl Embryo { pub const NONE: Embryo = Embryo(u32::MAX); }

#[derive(Clone, Copy)]
pub struct Program { fd: usize, pub mode: u32 }

impl Program {
    pub fn host_fd(&self) -> Option<usize> { Some(self.fd) }
    pub fn read(&self, out: &mut [u8], offset: u64) -> Result<usize, Errno> { calls::pread(self.fd, out, offset) }
}

/// Whether the client has business with a call.
pub const fn wants(number: usize) -> bool { number == nr::getppid }

pub struct Wire {}

impl Wire {
    pub const EMPTY: Wire = Wire {};
    pub fn start(&mut self) -> Result<(), Errno> { Ok(()) }
    pub fn call(&mut self, call: Call) -> Verdict {
        if call.number == nr::getppid { return Verdict::Return(1) }
        Verdict::Pass
    }
    pub fn after(&mut self, _after: After, result: i64) -> i64 { result }
    pub fn process(&self) -> u32 { 0 }
    pub fn prepare_fork(&mut self, _files: bool, _context: bool) -> Result<Embryo, Errno> { Ok(Embryo::NONE) }
    pub fn cancel_fork(&mut self, _e: Embryo) {}
    pub fn inherit(&mut self, _parent: &Wire) {}
    pub fn enter_child(&mut self, _e: Embryo) {}
    pub fn enter_thread(&mut self) {}
    pub fn leave(&mut self, _last: bool) {}
    pub fn before_exec(&mut self) {}
    pub fn pin(&mut self, _i: Inode) {}
    pub fn unpin(&mut self, _i: Inode) {}
    pub fn open_program(&mut self, path: &CStr) -> Result<Program, Errno> {
        calls::open(path).map(|fd| Program { fd, mode: 0 })
    }
    pub fn open_to_execute(&mut self, at: usize, path: &[u8], flags: usize) -> Result<Program, Errno> {
        let p = path.as_ptr() as usize;
        // SAFETY: NUL-terminated.
        unsafe {
            calls::raw(nr::faccessat2, [at, p, 1, 0x200 | (flags & 0x1100), 0, 0])?;
            let fd = calls::raw(nr::openat, [at, p, 0o2000000, 0, 0, 0])?;
            let stat = calls::fstat(fd)?;
            if stat.mode & 0o170000 != 0o100000 { calls::close(fd); return Err(Errno::EACCES) }
            Ok(Program { fd, mode: stat.mode })
        }
    }
    pub fn path_of(&mut self, _p: &Program, path: &[u8], out: &mut [u8; PATH_MAX]) {
        out[..path.len()].copy_from_slice(path);
    }
    pub fn executable(&mut self, p: &Program) -> Program { *p }
    pub fn close_executable(&mut self, _p: &Program, _s: Program) {}
    pub fn close_program(&mut self, p: Program) { calls::close(p.fd) }
    pub fn map_file(&mut self, p: &Program, start: usize, length: usize, prot: usize, offset: usize) -> Result<(), Errno> {
        load::map_host(p.fd, start, length, prot, offset)
    }
}
