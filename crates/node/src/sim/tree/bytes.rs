//! Files are opened, read and written.

use husk_abi::Errno;
use husk_wire::Failure;
use husk_wire::record::{Object, Sort};

use super::{Thing, Tree, Who, errno};
use crate::sim::asks::{AT_END, Ask, Heard, TRUNCATE};

impl Tree {
    pub(super) fn open(
        &mut self,
        who: Who,
        object: Object,
        flags: u32,
        number: Option<u64>,
    ) -> Result<Heard, Failure> {
        let writes = flags & 3 != 0 || flags & TRUNCATE != 0;
        match self.there(object)?.sort {
            Sort::Symlink => return errno(Errno::ELOOP),
            Sort::Directory if writes => return errno(Errno::EISDIR),
            Sort::File if flags & TRUNCATE != 0 => self.at(object).bytes.clear(),
            _ => {}
        }
        let held = self.hold(who, object, number);
        Ok(Heard::Facts(self.facts(object), None, held))
    }

    fn file(&self, object: Object) -> Result<&Thing, Failure> {
        let thing = self.there(object)?;
        match thing.sort {
            Sort::File => Ok(thing),
            Sort::Directory => errno(Errno::EISDIR),
            _ => errno(Errno::EINVAL),
        }
    }

    /// A change of a file's bytes was cut short: each byte is the old or the new one. False: they
    /// are none of both. `new` is how the tree would be.
    pub fn take_half(&mut self, new: &Tree, file: Object, bytes: Vec<u8>) -> bool {
        let both = [&*self, new].map(|tree| tree.file(file).map(|thing| thing.bytes.clone()));
        let [Ok(old), Ok(new)] = both else { return false };
        let is_length =
            (old.len().min(new.len())..=old.len().max(new.len())).contains(&bytes.len());
        let at = |of: &[u8], n: usize| of.get(n).copied().unwrap_or(0);
        let is_byte = |(n, byte): (usize, &u8)| *byte == at(&old, n) || *byte == at(&new, n);
        let is_half = is_length && bytes.iter().enumerate().all(is_byte);
        self.at(file).bytes = bytes;
        is_half
    }

    pub(super) fn bytes(&mut self, ask: &Ask) -> Result<Heard, Failure> {
        match ask {
            Ask::Read(object, offset, length) => {
                let bytes = &self.file(*object)?.bytes;
                let start = (*offset).min(bytes.len() as u64) as usize;
                let end = (start + *length as usize).min(bytes.len());
                Ok(Heard::Bytes(bytes[start..end].to_vec()))
            }
            Ask::Write(object, offset, more) => {
                self.file(*object)?;
                let bytes = &mut self.at(*object).bytes;
                let at = if *offset == AT_END { bytes.len() } else { *offset as usize };
                let end = at + more.len();
                if !more.is_empty() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[at..end].copy_from_slice(more);
                }
                Ok(Heard::Written(self.facts(*object), at as u64, more.len() as u64))
            }
            Ask::Truncate(object, size) => {
                self.file(*object)?;
                self.at(*object).bytes.resize(*size as usize, 0);
                self.told(*object)
            }
            Ask::Punch(object, offset, length) => {
                self.file(*object)?;
                let bytes = &mut self.at(*object).bytes;
                let start = bytes.len().min(*offset as usize);
                let end = bytes.len().min((offset + length) as usize);
                bytes[start..end].fill(0);
                Ok(Heard::Nothing)
            }
            _ => unreachable!("another ask"),
        }
    }

    pub(super) fn extended(&mut self, ask: &Ask) -> Result<Heard, Failure> {
        match ask {
            Ask::GetExtended(object, name) => match self.there(*object)?.extended.get(name) {
                Some(value) => Ok(Heard::Bytes(value.clone())),
                None => errno(Errno::ENODATA),
            },
            Ask::SetExtended(object, name, value) => {
                self.there(*object)?;
                self.at(*object).extended.insert(*name, value.clone());
                Ok(Heard::Nothing)
            }
            Ask::RemoveExtended(object, name) => {
                self.there(*object)?;
                match self.at(*object).extended.remove(name) {
                    Some(_) => Ok(Heard::Nothing),
                    None => errno(Errno::ENODATA),
                }
            }
            _ => unreachable!("another ask"),
        }
    }
}
