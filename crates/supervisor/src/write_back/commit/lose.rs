//! What becomes of objects that cannot be written to their places: they are saved elsewhere.

use std::fs::File;
use std::path::Path;

use super::make::Kept;
use crate::write_back::Source;
use crate::write_back::host::beneath::held::Held;
use crate::write_back::host::beneath::object_of;
use crate::write_back::host::extended::Extended;
use crate::write_back::host::{content, extended};
use crate::write_back::plan::{Content, Object};
use crate::write_back::rescue::{Rescue, Saved};

/// What is said of content that found no room anywhere.
pub const LOST: &str = "; its content is lost";

/// What becomes of objects that cannot be written (invariants 4 and 5 of `make`).
pub struct Loss<'a, S> {
    /// The image.
    pub source: &'a mut S,
    /// Where content is saved.
    pub rescue: &'a mut Rescue,
    /// What must not be deleted now.
    pub kept: &'a mut Kept,
    /// What is told.
    pub lines: &'a mut Vec<String>,
}

impl<S: Source> Loss<'_, S> {
    /// Saves what can be saved of `object` and all below, which should have been `shown`. What is
    /// saved is told by the rescue, in one line for all.
    pub fn lose(&mut self, object: &Object, shown: &Path, why: &str) {
        self.kept.withhold(self.source, object);
        let extended = self.extended(object);
        let (source, inode) = (&mut *self.source, object.inode);
        let attributes = (&object.attributes, extended.as_ref());
        let mut save = |what: &mut Saved<'_>| self.rescue.save(shown, attributes, why, what);
        let (saved, otherwise) = match &object.content {
            Content::Host(origin) | Content::HostTree(origin) => {
                let stands = std::fs::symlink_metadata(origin).is_ok();
                let stands =
                    if stands { "it is still" } else { "another program has moved or removed" };
                (false, format!("; {stands} {}", origin.display()))
            }
            Content::Image => {
                let mut fill = |file: &File| content::export(source, inode, file);
                let saved = save(&mut Saved::File(&mut fill));
                self.kept.lost |= !saved;
                (saved, LOST.to_owned())
            }
            Content::Symlink(target) => (
                save(&mut Saved::Symlink(target)),
                format!("; it was a symlink to {}", target.display()),
            ),
            Content::Special => (false, "; it was a FIFO, a socket or a device".to_owned()),
            Content::Tree(_) => (save(&mut Saved::Directory), String::new()),
        };
        if !saved {
            self.lines.push(format!("{}: {why}{otherwise}", shown.display()));
        }
        if let Content::Tree(children) = &object.content {
            for (name, child) in children {
                self.lose(child, &shown.join(name), why);
            }
        }
    }

    /// The extended attributes, if they are known.
    fn extended(&mut self, object: &Object) -> Option<Extended> {
        if object.extended.is_some() {
            return object.extended.clone();
        }
        let Some(origin) = object.attributes.origin else { return Some(Extended::new()) };
        let imported = self.source.host_identity(origin).ok()?.object();
        let path = crate::write_back::origin_path(self.source, &object.attributes).ok()??;
        let held = Held::at(&path).ok()?;
        let same = object_of(held.found()) == imported;
        same.then(|| extended::even_unreadable(&held).ok())?
    }
}
