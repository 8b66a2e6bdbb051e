//! `husk diff`: what a write-back would do now, without doing it.
//!
//! ```text
//!   image ── scan (as `husk sync` does) ──► plan ── collect ──► changes ── show, patch ──► people
//!                                                        '── filtered by paths
//! ```
//!
//! Invariants
//! 1. Nothing on the host is changed. Of the image, as by `ls` in it: directories are listed.
//! 2. What would not be written, or is a conflict, is told with the rest.

pub mod change;
mod collect;
mod content;
pub mod patch;
pub mod show;

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use husk_carrier::Direct;
use husk_proto::{Fs, Overview as _};

use self::change::Change;
use crate::image::attach::Visit;
use crate::named;
use crate::output::failure::Failure;
use crate::show::holds::{self, Work};
use crate::write_back::plan::scan::Run;
use crate::write_back::record::ledger::Ledger;
use crate::write_back::{Overlay, on_large_stack, planned};

/// What to do about a path that is in no overlay.
const ELSEWHERE: &str = "name one below an overlay: see `husk ls`";

/// An image that is compared with the host.
pub struct Look {
    visit: Visit,
    run: Run,
    ledger: Ledger,
    overlays: Vec<Overlay>,
}

/// What there is to show.
pub struct Differences {
    /// Changes, in the order of their paths, overlay by overlay.
    pub changes: Vec<Change>,
    /// What could not be looked at, or would not be written, a line each.
    pub unseen: Vec<String>,
    /// More than one overlay is shown.
    pub several: bool,
    overlays: Vec<PathBuf>,
}

impl Look {
    /// Finds an image by its name, or by the process id of a `husk run` or of a program in it.
    pub fn begin(name: &str) -> Result<Look, Failure> {
        let what = || format!("cannot compare image {name} with the host");
        let visit = Visit::of(name).map_err(|failure| Failure { what: what(), ..failure })?;
        let overlays = visit.overlays();
        if overlays.is_empty() {
            let why = "it has no overlay: nothing of it is written back";
            return Err(Failure::new(what(), why, "make one with --overlay"));
        }
        let (ledger, number) =
            named::written(name).unwrap_or_else(|| (Ledger::default(), visit.pid));
        let run = Run { number, started_ns: visit.direct.made_ns(), live: true };
        Ok(Look { visit, run, ledger, overlays })
    }

    /// What a write-back would do now to `paths` and what is below; to all, where none is named.
    pub fn differences(&mut self, paths: &[PathBuf]) -> Result<Differences, Failure> {
        let wanted = wanted(paths, &self.overlays).map_err(|(path, why)| {
            let what = format!("cannot compare {}", path.display());
            Failure::new(what, why, ELSEWHERE)
        })?;
        let mut found = self.of(&[]);
        found.keep(&wanted);
        Ok(found)
    }

    /// What `husk sync` would do now, with `paths` or, where none is named, with all.
    pub fn planned(&mut self, paths: &[PathBuf]) -> Result<Differences, Failure> {
        let chosen = self.chosen(paths)?;
        Ok(self.of(&chosen))
    }

    /// The host paths that were named for a write-back of no others.
    pub fn chosen(&mut self, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        let refuse = |path: &Path, why, remedy| {
            Err(Failure::new(format!("cannot sync {}", path.display()), why, remedy))
        };
        let mut chosen = Vec::new();
        for path in paths {
            let found = match wanted(std::slice::from_ref(path), &self.overlays) {
                Err((path, why)) => return refuse(&path, why, ELSEWHERE),
                Ok(found) => found,
            };
            let before = chosen.len();
            chosen.extend(found.into_iter().filter(|path| self.is_there(path)));
            if chosen.len() == before {
                let why = "neither the image nor the host has it";
                return refuse(path, why, "see `husk diff`");
            }
        }
        Ok(chosen)
    }

    /// Whether the image or the host has something at `path`.
    fn is_there(&mut self, path: &Path) -> bool {
        let holds = self.overlays.iter().any(|(_, overlay)| overlay.starts_with(path));
        if holds || fs::symlink_metadata(path).is_ok() {
            return true;
        }
        let direct = &mut self.visit.direct;
        self.overlays.iter().any(|(root, overlay)| {
            let mut names = path.strip_prefix(overlay).into_iter().flatten().peekable();
            names.peek().is_some()
                && names
                    .try_fold(*root, |dir, name| {
                        direct.lookup(dir, name.as_bytes()).map(|step| step.inode)
                    })
                    .is_ok()
        })
    }

    fn of(&mut self, chosen: &[PathBuf]) -> Differences {
        let Look { visit, run, ledger, overlays } = self;
        let direct = &mut visit.direct;
        holds::work(direct, Work::WriteBack);
        direct.leave_access_times(true);
        differences(direct, *run, ledger, overlays, chosen)
    }

    /// Writes changes as a patch.
    pub fn patch(&mut self, shown: &Differences, out: &mut dyn Write) -> io::Result<()> {
        patch::patch(&mut self.visit.direct, &shown.changes, shown.several, out)
    }

    /// Changes with their lines, by file.
    pub fn stat(&mut self, shown: &Differences) -> String {
        show::stat(&mut self.visit.direct, &shown.changes)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.visit.direct.detach();
    }
}

/// What a write-back of `overlays` would do now with `chosen` paths; with all, where none is.
pub fn differences(
    direct: &mut Direct,
    run: Run,
    ledger: &Ledger,
    overlays: &[Overlay],
    chosen: &[PathBuf],
) -> Differences {
    let collected = on_large_stack(|| {
        let plan = planned(direct, run, ledger, overlays, chosen);
        collect::collect(direct, &plan, run.number, overlays)
    });
    let mut changes = collected.changes;
    // Paths of a nested overlay are between those of the outer one.
    changes.sort_by(|one, two| (&one.overlay, &one.path).cmp(&(&two.overlay, &two.path)));
    let overlays: Vec<PathBuf> = overlays.iter().map(|(_, path)| path.clone()).collect();
    Differences { changes, unseen: collected.unseen, several: overlays.len() > 1, overlays }
}

impl Differences {
    /// Leaves what concerns `wanted` and what is below.
    fn keep(&mut self, wanted: &[PathBuf]) {
        self.changes.retain(|change| {
            let is_below = |path: &Path| wanted.iter().any(|wanted| path.starts_with(wanted));
            is_below(&change.target()) || change.from.as_deref().is_some_and(is_below)
        });
        let shown = self.overlays.iter().filter(|overlay| {
            let meets =
                |wanted: &PathBuf| wanted.starts_with(overlay) || overlay.starts_with(wanted);
            wanted.iter().any(meets)
        });
        self.several = shown.count() > 1;
    }
}

/// The host paths that were named: below the current directory, or where that is in no overlay,
/// below each overlay. All overlays, where none were. An error: one that is in none, and why.
pub fn wanted(
    paths: &[PathBuf],
    overlays: &[Overlay],
) -> Result<Vec<PathBuf>, (PathBuf, &'static str)> {
    if paths.is_empty() {
        return Ok(overlays.iter().map(|(_, path)| path.clone()).collect());
    }
    let here = env::current_dir().ok();
    let is_in = |path: &Path| overlays.iter().any(|(_, overlay)| path.starts_with(overlay));
    let holds = |path: &Path| overlays.iter().any(|(_, overlay)| overlay.starts_with(path));
    let here = here.filter(|here| is_in(here));
    let mut wanted = Vec::new();
    for path in paths {
        let bases: Vec<&Path> = match &here {
            _ if path.is_absolute() => vec![Path::new("/")],
            Some(here) => vec![here],
            None => overlays.iter().map(|(_, overlay)| &**overlay).collect(),
        };
        let found: Vec<_> = bases.iter().map(|base| plain(&base.join(path))).collect();
        if !found.iter().any(|path| is_in(path) || holds(path)) {
            return Err((path.clone(), "it is in no overlay of the image"));
        }
        wanted.extend(found);
    }
    Ok(wanted)
}

/// A path without `.` and `..`: its real directory, as far as that is there.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            other => plain.push(other),
        }
    }
    // Links above it lead to an overlay, too, whose path is real.
    let name = plain.file_name().map(ToOwned::to_owned);
    let parent = plain.parent().and_then(|parent| parent.canonicalize().ok());
    parent.zip(name).map_or_else(|| plain.clone(), |(parent, name)| parent.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_proto::Inode;

    #[test]
    fn a_path_is_named_from_here_or_from_each_overlay() {
        let overlays: Vec<Overlay> = ["/nowhere/a", "/nowhere/b"]
            .map(|path| (Inode { number: 1, generation: 1 }, PathBuf::from(path)))
            .into();
        let of = |path: &str| wanted(&[PathBuf::from(path)], &overlays);
        assert_eq!(wanted(&[], &overlays).unwrap().len(), 2);
        assert_eq!(of("/nowhere/a/x/../y").unwrap(), [PathBuf::from("/nowhere/a/y")]);
        assert_eq!(of("x").unwrap().len(), 2);
        assert_eq!(of("/nowhere").unwrap(), [PathBuf::from("/nowhere")]);
        assert!(of("/etc").is_err() && of("/nowhere/ab").is_err());
    }
}
