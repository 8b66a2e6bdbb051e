//! What is to get a name, and what is laid beside one that somebody else has changed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use husk_proto::fs::HostIdentity;

use super::Scan;
use crate::write_back::plan::{Content, Object, Put, Wanted, beside};
use crate::write_back::{Source, content, host, ledger};

impl<S: Source> Scan<'_, S> {
    pub(super) fn put(
        &mut self,
        dir: &Path,
        name: OsString,
        object: Object,
        expected: Option<HostIdentity>,
    ) {
        let directory = dir.to_owned();
        let mut put = Put { directory, name, object, replaces: expected, aside: false };
        let target = put.target();
        let found = host::identity(&target);
        let trouble = match &found {
            Err(problem) => Some(crate::write_back::reason(problem)),
            Ok(found) => self.trouble(&target, *found, expected),
        };
        if trouble.is_some() && self.is_alike(&put.object, &target) {
            put.replaces = found.ok().flatten();
        } else if let Some(trouble) = trouble {
            let aside = beside(&target, self.run.number);
            self.conflict(
                &target,
                Wanted::Object,
                &trouble,
                &format!("the image's is {}", host::beside_in_words(&aside)),
            );
            if !self.lay_beside(&mut put, &aside) {
                return;
            }
        }
        self.plan.puts.push(put);
    }

    /// Whether both sides have made the same of a file: then neither is lost.
    fn is_alike(&mut self, object: &Object, target: &Path) -> bool {
        let file = fs::symlink_metadata(target).is_ok_and(|found| found.is_file());
        let image = file && matches!(object.content, Content::Image);
        image && content::equal(self.source, object.inode, target).unwrap_or(false)
    }

    /// Turns a put into one beside its name; false: an earlier write-back has put it there.
    fn lay_beside(&mut self, put: &mut Put, aside: &Path) -> bool {
        put.name = aside.file_name().unwrap_or_default().to_owned();
        (put.replaces, put.aside) = (None, true);
        // Somebody may have removed it since.
        let there = host::identity(aside).ok().flatten();
        let (Some(known), Some(found)) = (self.ledger.here(aside).copied(), there) else {
            return true;
        };
        let Object { inode, attributes, extended, content } = &put.object;
        let bytes = match content {
            Content::Image => self.has_bytes_of(*inode, &known, aside).unwrap_or(false),
            _ => !put.object.is_tree(),
        };
        if known.is_of(*inode)
            && bytes
            && ledger::facts(attributes, extended.as_ref()) == known.facts
        {
            return false;
        }
        let safe = self.trouble(aside, Some(found), Some(known.identity)).is_none();
        put.replaces = safe.then_some(found);
        true
    }
}
