//! Values of extended attributes: short ones are one transaction, longer ones are written into a
//! file without a name, which is linked in then.

use husk_kernel::fs::extended::{self, Found, Value};
use husk_proto::fs::{SetExtended, value_hash};
use husk_proto::process::Processes;
use husk_proto::{Errno, Inode, Result, acl};

use crate::Direct;

/// Looks at a value that is replaced meanwhile.
const LOOKS_MAX: u32 = 1 << 10;

impl Direct {
    pub(crate) fn extended_value(
        &mut self,
        inode: Inode,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        for _ in 0..LOOKS_MAX {
            let found = extended::get(&self.kernel, inode, name, out)?;
            let (file, length) = match found {
                Found::Here(length) => return Ok(length),
                Found::File(_, length) if length > out.len() => return Ok(length),
                Found::File(file, length) => (file, length),
            };
            let got = self.read_at(file, 0, &mut out[..length]);
            // What the attribute still leads to has not been taken away while it was read.
            match extended::get(&self.kernel, inode, name, &mut [])? {
                now if now == found => return got.map(|_| length),
                _ => {}
            }
        }
        Err(Errno::EIO)
    }

    pub(crate) fn set_extended_value(
        &mut self,
        inode: Inode,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetExtended,
    ) -> Result<()> {
        let now_ns = self.now();
        if acl::is_list(name) && how != SetExtended::Imported {
            return extended::set_list(&self.kernel, inode, name, value, now_ns);
        }
        match value {
            Some(bytes) if bytes.len() > extended::VALUE_MAX => {
                let file = husk_kernel::process::create_value(&self.kernel, now_ns)?;
                let result = self.link_value(inode, name, file, bytes, how);
                self.unpin(file);
                result
            }
            value => {
                let (hash, value) = (value.map_or(0, value_hash), value.map(Value::Bytes));
                extended::set(&self.kernel, inode, name, value, how, hash, now_ns)
            }
        }
    }

    fn link_value(
        &mut self,
        inode: Inode,
        name: &[u8],
        file: Inode,
        bytes: &[u8],
        how: SetExtended,
    ) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(file, done as u64, &bytes[done..])? {
                0 => return Err(Errno::ENOSPC),
                count => done += count,
            }
        }
        let value = Some(Value::File(file, bytes.len() as u32));
        let hash = value_hash(bytes);
        extended::set(&self.kernel, inode, name, value, how, hash, self.now())
    }
}
