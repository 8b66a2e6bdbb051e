//! Which bytes of a host program are mapped: its rewritten copy, its bytes in huge pages, its
//! recording, or the file itself; and what the supervisor is asked for.

use super::{ExecTarget, Program, Source, Wire, guard, open_copy, request, start};
use husk_abi::PATH_MAX;
use husk_carrier::Without;
use husk_host::calls;
use husk_proto::fs::HostIdentity;
use husk_proto::image::{GATHERED_MIN, Image, Rewritten};
use husk_runtime::handover;

/// Set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;

impl Wire {
    /// The rewritten copy of a host file, opened; asks for one if nobody has.
    pub fn rewritten(
        &mut self,
        file: &HostIdentity,
        path: impl Fn(&mut [u8; PATH_MAX]) -> usize,
    ) -> Option<usize> {
        if start::facts().handover.flags & handover::PLAIN != 0 {
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
            let target = ExecTarget::Host(start::facts().handover.region_fd as u32);
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
        let plain = start::facts().handover.flags & handover::PLAIN != 0;
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
        let plain = start::facts().handover.flags & handover::PLAIN != 0;
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
