//! Names are made, moved and removed.

use husk_abi::Errno;
use husk_wire::Failure;
use husk_wire::record::{Object, Sort, What};

use super::{EXCHANGE, NO_REPLACE, Tree, Who, errno};
use crate::sim::asks::{Ask, Heard, Letter};

impl Tree {
    pub(super) fn create(
        &mut self,
        who: Who,
        ask: &Ask,
        made: Option<Object>,
        number: Option<u64>,
    ) -> Result<Heard, Failure> {
        let (dir, name, sort, mode) = match ask {
            Ask::Create(dir, name, mode, _) => (*dir, *name, Sort::File, *mode),
            Ask::Symlink(dir, name, _) => (*dir, *name, Sort::Symlink, 0o777),
            Ask::MakeDirectory(dir, name, mode) => (*dir, *name, Sort::Directory, *mode),
            _ => unreachable!("another ask"),
        };
        let directory = self.directory(dir)?;
        if directory.removed {
            return errno(Errno::ENOENT);
        }
        if directory.names.contains_key(&name) {
            return errno(Errno::EEXIST);
        }
        let made = self.make(made, sort, mode);
        self.at(dir).names.insert(name, made);
        if sort == Sort::Directory {
            self.at(dir).links += 1;
            self.at(made).links = 2;
            self.at(made).parent = Some(dir);
        }
        if let Ask::Symlink(_, _, target) = ask {
            self.at(made).bytes = target.clone();
        }
        let opens = matches!(ask, Ask::Create(_, _, _, Some(_)));
        let held = if opens { self.hold(who, made, number) } else { None };
        Ok(Heard::Facts(self.facts(made), None, held))
    }

    pub(super) fn link(
        &mut self,
        object: Object,
        dir: Object,
        name: Letter,
    ) -> Result<Heard, Failure> {
        let directory = self.directory(dir)?;
        if directory.removed {
            return errno(Errno::ENOENT);
        }
        if directory.names.contains_key(&name) {
            return errno(Errno::EEXIST);
        }
        let thing = self.there(object)?;
        if thing.sort == Sort::Directory {
            return errno(Errno::EPERM);
        }
        if thing.links == 0 {
            return errno(Errno::ENOENT);
        }
        self.at(object).links += 1;
        self.at(dir).names.insert(name, object);
        self.told(object)
    }

    fn unlink(&mut self, object: Object) {
        let thing = self.at(object);
        thing.links -= 1;
        if thing.sort == Sort::Directory {
            (thing.links, thing.removed) = (0, true);
        }
        self.drop_if_free(object);
    }

    pub(super) fn remove(
        &mut self,
        dir: Object,
        name: Letter,
        what: What,
    ) -> Result<Heard, Failure> {
        let found = self.find(dir, name)?;
        let thing = self.there(found)?;
        match (what, thing.sort == Sort::Directory) {
            (What::File, true) => return errno(Errno::EISDIR),
            (What::Directory, false) => return errno(Errno::ENOTDIR),
            (What::Directory, true) if !thing.names.is_empty() => {
                return errno(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        self.at(dir).names.remove(&name);
        if what == What::Directory {
            self.at(dir).links -= 1;
        }
        self.unlink(found);
        Ok(Heard::Nothing)
    }

    /// Whether a directory is `above`, or lies below it.
    fn is_below(&self, mut dir: Object, above: Object) -> bool {
        loop {
            let parent = self.there(dir).ok().and_then(|thing| thing.parent);
            match parent {
                _ if dir == above => return true,
                Some(parent) if parent != dir => dir = parent,
                _ => return false,
            }
        }
    }

    pub(super) fn rename(
        &mut self,
        (dir, name): (Object, Letter),
        (to, new): (Object, Letter),
        flags: u32,
    ) -> Result<Heard, Failure> {
        self.directory(dir)?;
        self.directory(to)?;
        if flags & !(NO_REPLACE | EXCHANGE) != 0 || flags == NO_REPLACE | EXCHANGE {
            return errno(Errno::EINVAL);
        }
        let from = self.find(dir, name)?;
        let target = self.find(to, new).ok();
        self.may_rename((dir, from), (to, target), flags)?;
        if target == Some(from) {
            return Ok(Heard::Nothing);
        }
        let moves = |tree: &Tree, object| tree.facts(object).sort == Sort::Directory;
        self.at(dir).names.remove(&name);
        self.at(to).names.insert(new, from);
        if moves(self, from) {
            self.at(dir).links -= 1;
            self.at(to).links += 1;
            self.at(from).parent = Some(to);
        }
        let Some(target) = target else { return Ok(Heard::Nothing) };
        let is_directory = moves(self, target);
        self.at(to).links -= u32::from(is_directory);
        if flags != EXCHANGE {
            self.unlink(target);
            return Ok(Heard::Nothing);
        }
        self.at(dir).names.insert(name, target);
        self.at(dir).links += u32::from(is_directory);
        if is_directory {
            self.at(target).parent = Some(dir);
        }
        Ok(Heard::Nothing)
    }

    fn may_rename(
        &self,
        (dir, from): (Object, Object),
        (to, target): (Object, Option<Object>),
        flags: u32,
    ) -> Result<(), Failure> {
        if flags == NO_REPLACE && target.is_some() {
            return errno(Errno::EEXIST);
        }
        if flags == EXCHANGE && target.is_none() {
            return errno(Errno::ENOENT);
        }
        if self.directory(to)?.removed {
            return errno(Errno::ENOENT);
        }
        let moves = self.there(from)?.sort == Sort::Directory;
        if moves && dir != to && self.is_below(to, from) {
            return errno(Errno::EINVAL);
        }
        let Some(target) = target else { return Ok(()) };
        let replaced = self.there(target)?;
        let replaces = replaced.sort == Sort::Directory;
        if replaces && self.is_below(dir, target) {
            return errno(if flags == EXCHANGE { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if target == from || flags == EXCHANGE {
            return Ok(());
        }
        match (moves, replaces) {
            (true, false) => errno(Errno::ENOTDIR),
            (false, true) => errno(Errno::EISDIR),
            (true, true) if !replaced.names.is_empty() => errno(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }
}
