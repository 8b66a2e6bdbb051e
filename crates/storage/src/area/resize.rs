//! Another size for an area: it is made anew beside the old one, and takes its place.
//!
//! ```text
//!   make       file beside it, locked: zeros ─► empty log ─► header, next epoch
//!   (the user writes a snapshot of all that the volume holds, durable)
//!   take_place rename over the old one
//!   settle     the directory is synced: the old one does not come back
//! ```
//!
//! Invariants
//! 1. Until `take_place` the old area is the volume, whole. From then on, until `settle` has
//!    returned, either of both may be it after a crash: nothing that is acknowledged meanwhile may
//!    be in one of them alone.
//! 2. The lock of the new area is held from its first byte on, so nobody else has the volume in
//!    between.

use std::io;
use std::path::PathBuf;

use super::header::{self, Header};
use super::place::{self, Use};
use super::{Area, Pwrite};
use crate::Problem;
use crate::log::{Damage, Found, Log, Lsn, Refusal};
use crate::tree::framed;

/// What the next area of a volume is made from, while the volume is used.
#[derive(Debug, Clone)]
pub struct Successor {
    path: PathBuf,
    header: Header,
}

impl Successor {
    /// Makes an area of `size_bytes` with an empty log beside the one that it is to replace. `told`
    /// is told how many bytes are written, and says whether to go on.
    pub fn make(&self, size_bytes: u64, told: &mut dyn FnMut(u64) -> bool) -> io::Result<Area> {
        // What a killed one has left.
        self.discard()?;
        let made = self.fill(size_bytes, told);
        if made.is_err() {
            // What is left is removed by the next one.
            let _ = self.discard();
        }
        made
    }

    fn fill(&self, size_bytes: u64, told: &mut dyn FnMut(u64) -> bool) -> io::Result<Area> {
        let file = place::open(&place::beside(&self.path), Use::Make)?;
        if !place::lock(&file)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        place::fill(&file, size_bytes, told)?;
        let disk = Pwrite::new(file, size_bytes);
        let (epoch, holder_pid) = (self.header.epoch + 1, std::process::id());
        let header = Header { size_bytes, epoch, holder_pid, ..self.header.clone() };
        Log::format(&disk, header::CONTENT_AT, size_bytes, header.uuid)?;
        header::write(&disk, &header)?;
        Ok(Area { disk, header, notes: Vec::new(), path: self.path.clone() })
    }

    /// Puts it where the old one is, which is nobody's then.
    pub fn take_place(&self) -> io::Result<()> {
        std::fs::rename(place::beside(&self.path), &self.path)
    }

    /// Makes that durable.
    pub fn settle(&self) -> io::Result<()> {
        place::sync_directory_of(&self.path)
    }

    /// Removes what was made, where it has not taken its place.
    pub fn discard(&self) -> io::Result<()> {
        place::remove_if_there(&place::beside(&self.path))
    }
}

impl Area {
    /// What an area of another size is made from, that is to replace this one.
    pub fn successor(&self) -> Successor {
        Successor { path: self.path.clone(), header: self.header.clone() }
    }

    /// Gives an area that nobody else uses another size; a kill before the end leaves it as it was,
    /// with a file beside it.
    pub fn resize(
        self,
        size_bytes: u64,
        what: &str,
        told: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Problem> {
        let failed = |error: io::Error| Problem::of_resize(what, &error);
        let next = self.successor();
        let new = next.make(size_bytes, told).map_err(failed)?;
        let moved = self.copy(new, what).and_then(|both| {
            // The lock of the old one is held until it is nobody's.
            let replaced = next.take_place().map_err(failed);
            drop(both);
            replaced
        });
        if moved.is_err() {
            // What is left is removed by the next one.
            let _ = next.discard();
        }
        moved?;
        next.settle().map_err(failed)
    }

    /// Snapshot and records become the snapshot of the log in `to`.
    fn copy(self, to: Area, what: &str) -> Result<(Log<Area>, Log<Area>), Problem> {
        let damaged = |damage: Damage| {
            let remedy = "`husk volume check` says what is damaged; restore it from a copy";
            Problem::new(what, damage.to_string(), remedy)
        };
        let (new, _) = to.open_log(|_| ()).map_err(damaged)?;
        let mut old = None;
        let written = new.checkpoint(Lsn(0), |writer| {
            let mut written = Ok(());
            let opened = self.open_log(|found| {
                let put = match found {
                    Found::Snapshot(_, part) => writer.write(part),
                    Found::Record(_, record) => writer.write(&framed(record)),
                };
                written = written.and(put);
            });
            old = Some(opened);
            written
        });
        let (old, _) = old.expect("it was opened").map_err(damaged)?;
        let closed = written.and_then(|()| new.finish());
        closed.map_err(|refusal| match refusal {
            Refusal::Stopped => {
                Problem::new(what, refusal.to_string(), "look at the disk (`dmesg`)")
            }
            _ => Problem::new(what, "what it holds does not fit", "choose more --size"),
        })?;
        Ok((old, new))
    }
}
