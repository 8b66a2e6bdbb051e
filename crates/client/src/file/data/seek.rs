//! `lseek`, with holes.

use crate::{Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::sys::general::{O_PATH, SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};
use husk_proto::fs::Kind;
use husk_proto::{Errno, Result, Services};

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `lseek`.
    pub(crate) fn lseek(&mut self, c: &Call) -> Answer {
        let Some(file) = self.opened(c.args[0])? else { return Ok(Verdict::Pass) };
        if file.flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        let (by, whence) = (c.args[1] as i64, c.args[2] as u32);
        let target = match whence {
            SEEK_SET => by,
            SEEK_CUR => self.seek_from(self_offset, file, by)?,
            // The end of a directory is nowhere.
            SEEK_END if self.services.step(file.inode)?.kind == Kind::Directory => {
                return Err(Errno::EINVAL);
            }
            SEEK_END => self.seek_from(self_size, file, by)?,
            SEEK_DATA | SEEK_HOLE => {
                let step = self.services.step(file.inode)?;
                if step.kind != Kind::File {
                    return Err(Errno::EINVAL);
                }
                let from = u64::try_from(by).map_err(|_| Errno::ENXIO)?;
                self.services.seek_data(file.inode, from, whence == SEEK_DATA)? as i64
            }
            _ => return Err(Errno::EINVAL),
        };
        let target = u64::try_from(target).map_err(|_| Errno::EINVAL)?;
        self.services.set_offset(file.description, target)?;
        value(target)
    }

    fn seek_from(
        &mut self,
        base: fn(&mut S, crate::file::data::Opened) -> Result<u64>,
        file: crate::file::data::Opened,
        by: i64,
    ) -> Result<i64> {
        let base = base(&mut self.services, file)? as i64;
        // Past the end of the numbers: negative, and refused as such.
        Ok(base.wrapping_add(by))
    }
}

fn self_offset<S: Services>(services: &mut S, file: crate::file::data::Opened) -> Result<u64> {
    services.offset(file.description)
}

fn self_size<S: Services>(services: &mut S, file: crate::file::data::Opened) -> Result<u64> {
    Ok(services.attributes(file.inode)?.size)
}
