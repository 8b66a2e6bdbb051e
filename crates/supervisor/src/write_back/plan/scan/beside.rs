//! Names for new objects; in a conflict, the name beside the host's version.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_proto::Inode;
use husk_proto::fs::HostIdentity;

use super::Scan;
use crate::write_back::host::There;
use crate::write_back::host::beneath::Glance;
use crate::write_back::host::content;
use crate::write_back::plan::derived;
use crate::write_back::plan::derived::Verdict;
use crate::write_back::plan::{Content, Object, Put, Wanted, beside};
use crate::write_back::record::ledger;
use crate::write_back::{Source, host};

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
        let found = self.beneath.taken_glance(&target);
        self.see_rights(&put, found.as_ref().ok().and_then(Option::as_ref));
        if put.object.is_tree() && matches!(found, Ok(None)) {
            // Both sides have removed what was there, and the directory is another one.
            put.replaces = None;
        }
        let expected = put.replaces;
        let trouble = match &found {
            Err(problem) => Some(crate::write_back::reason(problem)),
            Ok(found) => self.trouble(&target, *found, expected),
        };
        let found = found.ok().flatten();
        let there = There::of(found.as_ref(), put.object.is_tree());
        let found = found.map(|found| found.identity);
        let status = found.map(|found| found.changed_ns);
        let untouched = |expected: &HostIdentity| status == Some(expected.changed_ns);
        let known = expected.filter(|one| trouble.is_none() && !untouched(one));
        let taken = known.zip(found).and_then(|(_, found)| {
            let before = self.rights_before(&target, &found, &put.object.attributes);
            self.taken_over(&target, before)
        });
        if let Some(expected) = known.filter(|_| taken.is_none()) {
            self.merge_or_note(&target, &expected, &mut put.object.attributes);
        }
        if trouble.is_some() && self.has_all_of(&put.object, &target, expected, found) {
            put.replaces = found;
            if let Some(expected) = expected {
                self.merge_or_note(&target, &expected, &mut put.object.attributes);
            }
        } else if let Some(trouble) = taken.clone().or(trouble) {
            let rule = if taken.is_none() { self.by_rule(&put, &target) } else { None };
            match (rule, found) {
                (Some(Verdict::Host), _) => return,
                (Some(Verdict::Image), found) => put.replaces = found,
                (Some(Verdict::ImageIsNewer), Some(found)) => {
                    self.keep_hosts(&put, &target, &trouble);
                    put.replaces = Some(found);
                }
                (rule, _) => {
                    let aside = beside(&target, self.run.number);
                    let new = self.lay_beside(&mut put, &aside);
                    // Of a rule is told once.
                    if new || rule.is_none() {
                        let kept = host::beside_in_words(&aside, &target, there);
                        let words = format!("the image's is {kept}");
                        self.conflict(&target, Wanted::Object, &trouble, &words);
                    }
                    if !new {
                        return;
                    }
                }
            }
        }
        if !put.aside {
            self.merge_extended(&target, &put.object.attributes, &mut put.object.extended);
        }
        self.plan.puts.push(put);
    }

    /// What the host changes of these from now on, what takes the place of the file is to have.
    fn see_rights(&mut self, put: &Put, found: Option<&Glance>) {
        if put.replaces.is_none() || put.object.is_tree() {
            return;
        }
        if let Some(Glance { identity, rights, .. }) = found {
            self.plan.rights.insert(identity.object(), *rights);
        }
    }

    /// What becomes of a file that is made of others (`derived`).
    fn by_rule(&mut self, put: &Put, target: &Path) -> Option<Verdict> {
        if !matches!(put.object.content, Content::Image) {
            return None;
        }
        let (beneath, directory) = (self.beneath, self.directory);
        let found = beneath.identity(target).ok()?;
        let expected = put.replaces.as_ref();
        let look = derived::Look { beneath, target, expected, found: found.as_ref(), directory };
        derived::verdict(self.source, put.object.inode, &look)
    }

    /// The host's file at `target`, which the image's newer one replaces, goes beside it.
    fn keep_hosts(&mut self, put: &Put, target: &Path, trouble: &str) {
        let aside = beside(target, self.run.number);
        let Ok(Some(found)) = self.beneath.found(target) else { return };
        let kept = format!(
            "the image's is the newer one and takes its place, the host's is {}",
            host::beside_in_words(&aside, target, There::File)
        );
        self.conflict(target, Wanted::Object, trouble, &kept);
        let mut attributes = put.object.attributes;
        attributes.step.mode = found.mode() & 0o7777;
        (attributes.step.uid, attributes.step.gid) = (found.uid(), found.gid());
        attributes.modified_ns = host::identity_of(&found).modified_ns;
        attributes.accessed_ns = found.atime() * host::NS_PER_S + found.atime_nsec();
        let (inode, content) = (put.object.inode, Content::Host(target.to_owned()));
        self.beneath.pin(target);
        let object = Object { inode, attributes, extended: None, content, is_hosts: true };
        let known = self.ledger.here(&aside).map(|known| known.identity);
        let there = self.beneath.glance(&aside).ok().flatten();
        let ours = |there: &Glance| self.trouble(&aside, Some(*there), known).is_none();
        let replaces = there.filter(ours).map(|there| there.identity);
        let directory = put.directory.clone();
        let name = aside.file_name().unwrap_or_default().to_owned();
        self.plan.puts.push(Put { directory, name, object, replaces, aside: true });
    }

    /// Whether nothing of the host's bytes is lost: both sides have made the same of a file, or the
    /// host has touched one, or written the same again, that the image has only appended to.
    fn has_all_of(
        &mut self,
        object: &Object,
        target: &Path,
        expected: Option<HostIdentity>,
        found: Option<HostIdentity>,
    ) -> bool {
        let size = |one: HostIdentity| one.size;
        let touched = found.filter(|_| found.map(size) == expected.map(size));
        matches!(object.content, Content::Image)
            && (self.has_bytes(object.inode, target)
                || touched.is_some_and(|one| self.begins_with(object.inode, target, one.size)))
    }

    fn begins_with(&mut self, inode: Inode, path: &Path, size: u64) -> bool {
        let file = self.beneath.read(path);
        let same = file.and_then(|file| content::begins_with(self.source, inode, &file, size));
        same.is_ok_and(|same| same.is_some())
    }

    /// Turns a put into one beside its name; false: an earlier write-back has put it there.
    fn lay_beside(&mut self, put: &mut Put, aside: &Path) -> bool {
        put.name = aside.file_name().unwrap_or_default().to_owned();
        (put.replaces, put.aside) = (None, true);
        // Somebody may have removed it since.
        let there = self.beneath.glance(aside).ok().flatten();
        let (Some(known), Some(found)) = (self.ledger.here(aside).copied(), there) else {
            return true;
        };
        let Object { inode, attributes, extended, content, .. } = &put.object;
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
        put.replaces = safe.then_some(found.identity);
        true
    }
}
