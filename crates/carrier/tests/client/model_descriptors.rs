//! The model's descriptor table.

use super::*;

impl Model {
    fn shown(&self, shows: Shown) -> Option<Inode> {
        match shows {
            Shown::Nothing => None,
            Shown::Node(inode) | Shown::File(inode) => Some(inode),
            Shown::Like(source) => match self.slots.get(&source) {
                Some(&(Slot::Host(shown), ..)) => shown,
                _ => None,
            },
        }
    }
}

impl Descriptors for Model {
    fn slot(&mut self, _: Files, fd: u32) -> Slot {
        self.slots.get(&fd).map_or(Slot::Free, |s| s.0)
    }
    fn description(&mut self, description: Description) -> Result<Open> {
        Ok(self.opens[description.0 as usize].0)
    }
    fn close_on_exec(&mut self, _: Files, fd: u32) -> Result<bool> {
        self.slots.get(&fd).map(|s| s.1).ok_or(Errno::EBADF)
    }
    fn set_close_on_exec(&mut self, _: Files, fd: u32, on: bool) -> Result<()> {
        self.slots.get_mut(&fd).map(|s| s.1 = on).ok_or(Errno::EBADF)
    }
    fn lowest_free(&mut self, _: Files, minimum: u32, limit: u32) -> Result<u32> {
        (minimum..limit).find(|fd| !self.slots.contains_key(fd)).ok_or(Errno::EMFILE)
    }
    fn duplicate(
        &mut self,
        files: Files,
        fd: u32,
        minimum: u32,
        limit: u32,
        on_exec: bool,
    ) -> Result<u32> {
        let new = self.lowest_free(files, minimum, limit)?;
        let slot = self.slot(files, fd);
        self.slots.insert(new, (slot, on_exec, false));
        Ok(new)
    }
    fn duplicate_to(
        &mut self,
        files: Files,
        fd: u32,
        target: u32,
        on_exec: bool,
        over_host: bool,
    ) -> Result<()> {
        let slot = self.slot(files, fd);
        let plugged = !over_host && self.plugged(files, target);
        self.slots.insert(target, (slot, on_exec, plugged));
        Ok(())
    }
    fn plugged(&mut self, _: Files, fd: u32) -> bool {
        self.slots.get(&fd).is_some_and(|slot| slot.2)
    }
    fn close(&mut self, files: Files, fd: u32) -> Result<bool> {
        if self.plugged(files, fd) {
            self.slots.get_mut(&fd).expect("plugged").2 = false;
            return Ok(true);
        }
        let (slot, ..) = self.slots.remove(&fd).ok_or(Errno::EBADF)?;
        if let Slot::Husk(d) = slot {
            let inode = self.opens[d.0 as usize].0.inode;
            self.locks.retain(|l| !(l.0 == 0 && l.2 == inode));
            let open = (0..2000).any(|fd| self.slot(files, fd) == slot);
            if !open {
                self.locks.retain(|l| !(l.0 != 0 && l.1 == u64::from(d.0)));
            }
        }
        Ok(false)
    }
    fn for_each(&mut self, _: Files, first: u32, last: u32, emit: &mut dyn FnMut(u32, Slot)) {
        for (&fd, slot) in self.slots.range(first..=last) {
            emit(fd, slot.0);
        }
    }
    fn host_opened(&mut self, _: Files, fd: u32, on_exec: bool, shows: Shown) -> Result<bool> {
        if let Some((Slot::Husk(_), ..)) = self.slots.get(&fd) {
            return Ok(false);
        }
        let shown = self.shown(shows);
        self.slots.insert(fd, (Slot::Host(shown), on_exec, false));
        Ok(true)
    }
    fn host_replaces(&mut self, files: Files, fd: u32, on_exec: bool, shows: Shown) -> Result<()> {
        while let Slot::Husk(_) = self.slot(files, fd) {
            self.close(files, fd)?;
        }
        let shown = self.shown(shows);
        self.slots.insert(fd, (Slot::Host(shown), on_exec, false));
        Ok(())
    }
    fn promote(
        &mut self,
        _: Files,
        fd: u32,
        inode: Inode,
        flags: u32,
        offset: u64,
    ) -> Result<Description> {
        self.opens.push((Open { inode, flags }, offset));
        let description = Description(self.opens.len() as u32 - 1);
        let slot = self.slots.get_mut(&fd).ok_or(Errno::EBADF)?;
        (slot.0, slot.2) = (Slot::Husk(description), true);
        Ok(description)
    }
    fn host_closed(&mut self, _: Files, fd: u32) {
        self.slots.remove(&fd);
    }
    fn plug(&mut self, files: Files, fd: u32) -> bool {
        let husk = matches!(self.slot(files, fd), Slot::Husk(_));
        if husk {
            self.slots.get_mut(&fd).expect("there").2 = true;
        }
        husk
    }
    fn offset(&mut self, description: Description) -> Result<u64> {
        Ok(self.opens[description.0 as usize].1)
    }
    fn set_offset(&mut self, description: Description, offset: u64) -> Result<()> {
        self.opens[description.0 as usize].1 = offset;
        Ok(())
    }
    fn set_flags(&mut self, description: Description, flags: u32) -> Result<()> {
        self.opens[description.0 as usize].0.flags = flags;
        Ok(())
    }
}

impl Offsets for Model {
    fn advance(
        &mut self,
        description: Description,
        step: impl FnOnce(&mut Self, u64) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        let offset = self.opens[description.0 as usize].1;
        let (offset, count) = step(self, offset)?;
        self.opens[description.0 as usize].1 = offset;
        Ok(count)
    }
}
