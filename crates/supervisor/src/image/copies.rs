//! Rewritten copies of host programs: known ones are announced at the start, missing ones are made
//! in the background when a program asks.
//!
//! ```text
//!   at the start   copies on disk -> announced; this machine's loader and C library, and the
//!                  command itself -> made if missing (once in a machine's life, some 100 ms)
//!   meanwhile      a thread takes wishes (`next_wish`) and remembers at once what it is asked to;
//!                  another one makes copies, and announces them
//! ```
//!
//! What is to be remembered cannot wait for a copy: the file may be another one by then.
//!
//! A wish for a copy of a program that gains rights when it starts says that it runs natively:
//! there is no copy, but a note for the user, once.
//!
//! Without a usable store everything still runs: each call is trapped, which is slower.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_proto::Shortcuts as _;
use husk_proto::fs::HostIdentity;
use husk_proto::image::{Image as _, Rewritten, Wish};
use husk_rewrite::{Identity, Outcome, Store, Unusable};

use crate::config::state;
use crate::image::attach;
use crate::memory::gathered;
use crate::output::say_aside;
use crate::recording;
use crate::run::program;
use crate::show::holds::{self, Work};
use crate::write_back::host::path_of;
use crate::write_back::plan::derived;

/// Between two looks for wishes.
const LOOK: Duration = Duration::from_millis(10);
/// How long the start may wait for copies.
const START_MAX: Duration = Duration::from_millis(500);
/// Longest path of a wish.
const PATH_BYTES_MAX: usize = 4096;
/// How programs name the loader that the host is to start them with.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Where copies would be when there are none.
const NOWHERE: &str = "/nonexistent";

/// The copies of this run.
pub struct Copies {
    store: Option<Store>,
    /// Why there is no store.
    pub note: Option<String>,
}

impl Copies {
    /// Opens the user's store.
    pub fn open() -> Copies {
        match state::copies().ok_or(Unusable::Nowhere).and_then(|path| Store::open(&path)) {
            Ok(store) => Copies { store: Some(store), note: None },
            Err(problem) => {
                let note = format!("no rewritten copies, calls will be slower: {problem}");
                Copies { store: None, note: Some(note) }
            }
        }
    }

    /// Directory of the copies.
    pub fn path(&self) -> &Path {
        self.store.as_ref().map_or(Path::new(NOWHERE), Store::copies_path)
    }

    /// Announces what there is, and makes what nearly every program needs.
    pub fn announce(&self, direct: &mut Direct, program: Option<&Path>) {
        let Some(store) = &self.store else { return };
        for (identity, outcome) in store.entries().unwrap_or_default() {
            direct.set_rewritten(&host_identity(&identity), state(&outcome));
        }
        let end = Instant::now() + START_MAX;
        for path in loaded_everywhere().iter().map(PathBuf::as_path).chain(program) {
            if Instant::now() < end {
                make(store, direct, path);
            }
        }
    }

    /// Serves wishes in the background until the service is dropped.
    pub fn serve(self, region: &OwnedFd) -> Service {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        // Without, no program is gathered.
        let region = region.try_clone().ok();
        let work = move || {
            // Without a way to the image wishes stay wishes: calls are trapped.
            let Ok(mut direct) = attach() else { return };
            holds::work(&direct, Work::Programs);
            thread::scope(|scope| {
                let (send, receive) = mpsc::channel();
                let (store, region, told) = (self.store.as_ref(), region.as_ref(), &*told);
                scope.spawn(move || make_copies(store, region, &receive, told));
                while !told.load(Ordering::Relaxed) {
                    match next_errand(&mut direct) {
                        Some(errand) if matches!(errand.wish, Wish::Remember) => {
                            errand.grant(None, None, &mut direct);
                        }
                        // Without that thread wishes stay wishes.
                        Some(errand) => drop(send.send(errand)),
                        None => thread::sleep(LOOK),
                    }
                }
                // Copies come too late now; notes do not, nor what is to be remembered.
                while serve_one(None, None, &mut direct) {}
            });
            direct.detach();
        };
        Service { stop, thread: Some(thread::spawn(work)) }
    }
}

/// The thread that makes copies.
pub struct Service {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends after the copy in hand; a panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// A wish: what is asked for, and of which file.
struct Errand {
    wish: Wish,
    file: HostIdentity,
    path: PathBuf,
}

fn next_errand(direct: &mut Direct) -> Option<Errand> {
    let mut path = [0; PATH_BYTES_MAX];
    let (wish, file, length) = direct.next_wish(&mut path)?;
    Some(Errand { wish, file, path: path_of(&path[..length.min(PATH_BYTES_MAX)]) })
}

/// Makes copies until no more wishes come, or the service is dropped.
fn make_copies(
    store: Option<&Store>,
    region: Option<&OwnedFd>,
    wishes: &mpsc::Receiver<Errand>,
    told: &AtomicBool,
) {
    let Ok(mut direct) = attach() else { return };
    holds::work(&direct, Work::Programs);
    for errand in wishes {
        let (store, region) =
            if told.load(Ordering::Relaxed) { (None, None) } else { (store, region) };
        errand.grant(store, region, &mut direct);
    }
    direct.detach();
}

/// Grants the next wish, if there is one.
pub fn serve_one(store: Option<&Store>, region: Option<&OwnedFd>, direct: &mut Direct) -> bool {
    let Some(errand) = next_errand(direct) else { return false };
    errand.grant(store, region, direct);
    true
}

impl Errand {
    fn grant(self, store: Option<&Store>, region: Option<&OwnedFd>, direct: &mut Direct) {
        let Errand { wish, file, path } = &self;
        let before = direct.rewritten(file);
        match (wish, before) {
            (Wish::Gather, Rewritten::Plain | Rewritten::Ready) => {
                let Some(region) = region else { return };
                let copies = store.filter(|_| before == Rewritten::Ready);
                let copy = copies.map(|store| store.copies_path().join(identity(file).key()));
                // It is asked for again.
                let _ = gathered::gather(direct, region, file, path, copy.as_deref());
            }
            (Wish::Rewrite, Rewritten::Unknown | Rewritten::Requested) => {
                rewrite(store, direct, file, path, say_aside);
            }
            (Wish::Record, _) => {
                let wanted = direct.rewritten(&file.recorded()) == Rewritten::Plain;
                if let (Some(region), true) = (region, wanted) {
                    recording::grant::grant(direct, region, file, path);
                }
            }
            (Wish::Remember, _) => {
                let state = match derived::remember(path, file) {
                    true => Rewritten::Ready,
                    false => Rewritten::Plain,
                };
                direct.set_rewritten(&file.remembered(), state);
            }
            // Two have asked, and one was granted.
            _ => {}
        }
    }
}

/// Makes the copy of a program, unless the host gives the program rights of its own: then the user
/// is told, by `say`.
fn rewrite(
    store: Option<&Store>,
    direct: &mut Direct,
    file: &HostIdentity,
    path: &Path,
    say: fn(String),
) {
    if program::gains_rights(path) {
        let sealed = direct.outside_is_sealed();
        let note = if sealed { program::plain_note } else { program::native_note };
        say(note(path));
        // Who is not sealed would find a copy, and not hear that it runs natively.
        direct.set_rewritten(file, Rewritten::Plain);
    } else if let Some(store) = store {
        let outcome = store.ensure(path, &identity(file));
        direct.set_rewritten(file, state(&outcome));
    }
}

fn make(store: &Store, direct: &mut Direct, path: &Path) {
    let Ok(found) = fs::metadata(path) else { return };
    if found.is_file() && found.size() > 0 {
        let file = host_identity(&Identity::of(&found));
        // The user has heard of rights that it gains.
        rewrite(Some(store), direct, &file, path, drop);
    }
}

/// A refusal is for this time: somebody may ask again.
fn state(outcome: &Outcome) -> Rewritten {
    match outcome {
        Outcome::Ready => Rewritten::Ready,
        Outcome::Plain => Rewritten::Plain,
        Outcome::Refused(_) => Rewritten::Unknown,
    }
}

pub(crate) fn identity(file: &HostIdentity) -> Identity {
    let HostIdentity { device, inode, size, modified_ns, .. } = *file;
    Identity { device, inode, modified_ns, size }
}

fn host_identity(file: &Identity) -> HostIdentity {
    let Identity { device, inode, modified_ns, size } = *file;
    HostIdentity { device, inode, size, modified_ns, changed_ns: 0 }
}

/// The machine's loader, and the C library, which lies beside it: nearly every program maps them.
fn loaded_everywhere() -> Vec<PathBuf> {
    let Ok(loader) = fs::canonicalize(LOADER) else { return Vec::new() };
    let library = fs::canonicalize(loader.with_file_name("libc.so.6"));
    [Ok(loader), library].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_the_c_library_are_those_that_programs_map() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let found = loaded_everywhere();
        assert_eq!(found.len(), 2, "{found:?}");
        for path in found {
            let path = path.display().to_string();
            assert!(maps.lines().any(|line| line.ends_with(&path)), "{path}");
        }
    }
}
