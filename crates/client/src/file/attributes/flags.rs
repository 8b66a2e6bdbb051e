//! `file_getattr` and `file_setattr`: the flags of an inode (`chattr`, project ids). Files of the
//! image have none, as new ones of a tmpfs, and no others can be set.

use crate::file::attributes::aim_of;
use crate::layout::get64;
use crate::path::at;
use crate::{Answer, Call, Client, Host, Memory, value};
use husk_abi::PAGE;
use husk_abi::capability::FOWNER;
use husk_abi::sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use husk_proto::fs::{Kind, Step};
use husk_proto::{Errno, Result, Services};

/// Bytes of `struct file_attr` as it was first.
const BYTES: usize = 24;
/// Bits of `fa_xflags` that have a meaning.
const FLAGS_KNOWN: u64 = u32::MAX as u64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `file_getattr`.
    pub(crate) fn file_getattr(&mut self, c: &Call) -> Answer {
        let aim = self.flags_of(c)?;
        self.on_existing(c, at(0), aim, |client, step| {
            has_flags(&step)?;
            let size = c.args[3];
            let mut done = 0;
            while done < size {
                let part = (size - done).min(BYTES);
                client.memory.write(c.args[2] + done, &[0; BYTES][..part])?;
                done += part;
            }
            value(0)
        })
    }

    /// `file_setattr`.
    pub(crate) fn file_setattr(&mut self, c: &Call) -> Answer {
        let aim = self.flags_of(c)?;
        let mut wanted = [0u8; BYTES];
        self.memory.read(c.args[2], &mut wanted)?;
        for at in BYTES..c.args[3] {
            if self.memory.peek(c.args[2] + at)? != 0 {
                return Err(Errno::E2BIG);
            }
        }
        if get64(&wanted, 0) & !FLAGS_KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        self.on_existing(c, at(0), aim, |client, step| {
            has_flags(&step)?;
            let who = client.credentials();
            if who.uid != step.uid && !who.can(FOWNER) {
                return Err(Errno::EPERM);
            }
            match wanted.iter().all(|&byte| byte == 0) {
                true => value(0),
                false => client.refuse(c.number, Errno::EOPNOTSUPP),
            }
        })
    }

    /// What the flags and the size of such a call say; its errors come before the path's.
    fn flags_of(&mut self, c: &Call) -> Result<crate::path::Aim> {
        let allowed = (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as usize;
        match c.args[3] {
            _ if c.args[4] & !allowed != 0 => Err(Errno::EINVAL),
            size if size > PAGE => Err(Errno::E2BIG),
            size if size < BYTES => Err(Errno::EINVAL),
            _ => Ok(crate::path::Aim { null: true, ..aim_of(c.args[4]) }),
        }
    }
}

fn has_flags(step: &Step) -> Result<()> {
    match step.kind {
        Kind::File | Kind::Directory => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
