//! Git's index, where both sides have changed it: the rule of write-backs (`derived`) says whose
//! counts, and what was only refreshed is no conflict.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::fs::{HostIdentity, Kind};
use husk_proto::{Errno, Fs as _, Inode};

use super::{Look, There, step};
use crate::write_back::host;
use crate::write_back::plan::derived::{self, Verdict};

/// Looks at an index that others open meanwhile.
const TRIES: u32 = 16;

impl Look<'_> {
    /// Whether the rule settles what both have changed at `path`: the image's stays, which the
    /// write-back will put there, or it is the host's from now on. `seen`: what the host had.
    pub(super) fn by_rule(
        &mut self,
        (dir, inode): (Inode, Inode),
        path: &Path,
        one: &There,
        seen: Option<HostIdentity>,
    ) -> Result<bool, Errno> {
        let name = path.file_name().unwrap_or_default();
        if !derived::is_index(name.as_encoded_bytes()) || !one.found.is_file() {
            return Ok(false);
        }
        let (beneath, found) = (self.beneath(), host::identity_of(&one.found));
        let look = derived::Look {
            beneath: &beneath,
            target: path,
            expected: seen.as_ref(),
            found: Some(&found),
            directory: Some(dir),
        };
        for _ in 0..TRIES {
            let mark = match self.image.unmoved(inode) {
                Err(Errno::ETXTBSY) => return Ok(false),
                mark => mark?,
            };
            let shown = self.image.attributes(inode)?;
            if !host::has_own_bytes(&shown) {
                return Ok(false);
            }
            match derived::verdict(self.image, inode, &look) {
                Some(Verdict::Image) => return Ok(true),
                Some(Verdict::Host) if one.found.nlink() == 1 => {}
                _ => return Ok(false),
            }
            step("give back")?;
            let imported = one.imported(name, Kind::File);
            if self.image.give_back(dir, name.as_encoded_bytes(), inode, mark, Some(&imported))? {
                self.told.renewed += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
