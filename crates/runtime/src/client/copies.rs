//! Which bytes of a host program are mapped: its rewritten copy, its bytes in huge pages, its
//! recording, or the file itself; and what the supervisor is asked for.

use crate::client::programs::Source;
use crate::facts;
use crate::memory::guard;
use crate::thread::client::ThreadClient;
use core::ffi::CStr;
use husk_abi::{PATH_MAX, nr};
use husk_carrier::{Direct, Without};
use husk_client::{ExecTarget, Program};
use husk_host::calls::{self, raw};
use husk_proto::Shortcuts as _;
use husk_proto::fs::HostIdentity;
use husk_proto::image::{CACHE_BESIDE_OTHERS, GATHERED_MIN, Image, Rewritten};
use husk_runtime::handover;

/// Set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;

impl ThreadClient {
    /// The rewritten copy of a host file, opened; asks for one if nobody has.
    pub fn rewritten(
        &mut self,
        file: &HostIdentity,
        path: impl Fn(&mut [u8; PATH_MAX]) -> usize,
    ) -> Option<usize> {
        if facts::facts().handover.flags & handover::PLAIN != 0 {
            return None;
        }
        let _open = guard::open();
        let services = self.served()?.services();
        match services.rewritten(file) {
            Rewritten::Ready | Rewritten::Gathered(_) => open_copy(services.copies_path(), file),
            Rewritten::Unknown => {
                request(services, file, path);
                None
            }
            _ => None,
        }
    }

    /// Lets the supervisor know of a program that runs outside the image: a wish for a copy of one
    /// that gains rights is answered with a note to the user, once.
    pub fn tell_native(&mut self, program: &Program, path: &[u8]) {
        let _open = guard::open();
        let Some(identity) = program.identity else { return };
        let Some(served) = self.served() else { return };
        let services = served.services();
        if !program.unreadable || program.mode & SET_ID_BITS != 0 {
            return services.request_rewrite(&identity, path);
        }
        // The supervisor may be able to read it: its copy would be for everybody.
        if services.rewritten(&identity) == Rewritten::Unknown {
            services.set_rewritten(&identity, Rewritten::Plain);
            let why = b" may be run but not read: it runs natively, outside the image\n";
            for part in [&b"husk: note: "[..], path, why] {
                calls::write(2, part);
            }
        }
    }

    /// What is to be mapped of `program`: its bytes in huge pages, its copy, or itself.
    pub fn executable(&mut self, program: &Program, path: &[u8]) -> Source {
        let Some(identity) = program.identity else { return Source::itself(program) };
        if let Some(at) = self.gathered(&identity, path) {
            let target = ExecTarget::Host(facts::facts().handover.region_fd as u32);
            let program = Program { target, ..*program };
            return Source { program, gathered: Some(at as usize), opened: false };
        }
        let copy = self.rewritten(&identity, |text| {
            text[..path.len()].copy_from_slice(path);
            path.len()
        });
        match copy {
            Some(fd) => {
                let target = ExecTarget::Host(fd as u32);
                Source { opened: true, ..Source::itself(&Program { target, ..*program }) }
            }
            None => Source::itself(program),
        }
    }

    /// Where the recording of a program lies in the region's file; asks for one if it starts often.
    pub fn recorded(&mut self, program: &Program, path: &[u8]) -> Option<u64> {
        let plain = facts::facts().handover.flags & handover::PLAIN != 0;
        let file = program.identity.filter(|_| program.inode.is_none())?;
        if file.size >= GATHERED_MIN || plain {
            return None;
        }
        let _open = guard::open();
        let services = self.served()?.services();
        let key = file.recorded();
        match services.rewritten(&key) {
            Rewritten::Gathered(at) => return Some(at),
            _ if services.without().has(Without::RECORDED) => {}
            Rewritten::Unknown => services.set_rewritten(&key, Rewritten::Plain),
            // The supervisor's `/proc/self` is another.
            _ if path.starts_with(b"/proc/") => {}
            _ if services.count_start(&key) => services.request_recorded(&file, path),
            _ => {}
        }
        None
    }

    /// Where a large program lies in the region's file; asks for that if it starts often.
    fn gathered(&mut self, file: &HostIdentity, path: &[u8]) -> Option<u64> {
        let plain = facts::facts().handover.flags & handover::PLAIN != 0;
        if file.size < GATHERED_MIN || plain {
            return None;
        }
        let _open = guard::open();
        let services = self.served()?.services();
        if let Rewritten::Gathered(at) = services.rewritten(file) {
            return Some(at);
        }
        if !services.without().has(Without::GATHERED) && services.count_start(file) {
            services.request_gathered(file, path);
        }
        None
    }
}

/// Asks the supervisor for a copy of `file`, which is at the path that `path` stores.
#[inline(never)]
pub fn request(
    services: &mut Direct,
    file: &HostIdentity,
    path: impl Fn(&mut [u8; PATH_MAX]) -> usize,
) {
    let mut text = [0u8; PATH_MAX];
    let length = path(&mut text);
    services.request_rewrite(file, &text[..length]);
}

/// Longest path of a copy.
const COPY_PATH_MAX: usize = 512;

/// Opens `copies_path/<device>-<inode>-<modified_ns>-<size>`.
pub fn open_copy(directory: &[u8], file: &HostIdentity) -> Option<usize> {
    let mut path = [0u8; COPY_PATH_MAX];
    let mut end = directory.len();
    path.get_mut(..end)?.copy_from_slice(directory);
    let key = [file.device, file.inode, file.modified_ns as u64, file.size];
    for (i, number) in key.into_iter().enumerate() {
        *path.get_mut(end)? = if i == 0 { b'/' } else { b'-' };
        end = hex(&mut path, end + 1, number)?;
    }
    *path.get_mut(end)? = 0;
    let copy = calls::open(CStr::from_bytes_with_nul(&path[..=end]).ok()?).ok()?;
    // Once that cache was removed, another user may have made one under its name.
    if directory.starts_with(CACHE_BESIDE_OTHERS.as_bytes()) && !is_own(copy) {
        calls::close(copy);
        return None;
    }
    Some(copy)
}

fn is_own(file: usize) -> bool {
    // SAFETY: no memory is involved.
    let user = unsafe { raw(nr::geteuid, [0; 6]) };
    calls::fstat(file).is_ok_and(|found| user == Ok(found.uid as usize))
}

fn hex(out: &mut [u8], at: usize, number: u64) -> Option<usize> {
    let digits = (67 - number.leading_zeros() as usize) / 4;
    let digits = digits.max(1);
    for (i, place) in out.get_mut(at..at + digits)?.iter_mut().enumerate() {
        *place = b"0123456789abcdef"[(number >> (4 * (digits - 1 - i)) & 15) as usize];
    }
    Some(at + digits)
}
