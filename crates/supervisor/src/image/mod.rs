//! Makes an image: region, mounts, the first process record.
//!
//! For a mount below a memory tree (a project below the private /tmp), its parent directories are
//! made there, too, so that `ls` and `..` show a whole tree.

pub mod attach;
pub mod clock;
pub mod copies;
pub mod descriptors;
pub mod private;
pub(crate) mod runtime_file;
pub(crate) mod soundness;
pub mod work;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use husk_carrier::{Direct, Layout};
use husk_host::huge;
use husk_proto::Admin;
use husk_proto::fs::{Imported, Kind, Node, Origin, Rights};
use husk_proto::image::Cover;
use husk_proto::process::{Sharing, WorkingDirectory};
use husk_proto::{
    Credentials, Errno, Fs, Inode, Overview as _, Process, Processes, Shortcuts as _,
};

use crate::named::NOT_TAKEN_OVER;
use crate::nodes;
use crate::output::failure::Failure;
use crate::run::request::{MountPlan, Settings};
use crate::run::variables::Variables;
use crate::show::holds::{self, Work};
use crate::volumes::Volume;
use crate::write_back::record::manifest;
use crate::write_back::{Source, host};
use clock::{exact_ns, now_ns};

/// Minor numbers of major 0 (unnamed devices) that the host, which begins at 1, does not reach: one
/// of them is the `st_dev` of an image's own trees.
const DEVICES: Range<u64> = 0x8_0000..0x10_0000;
/// Nobody's process record: the supervisor runs no program.
const NOBODY: Process = Process(0);
/// All capabilities: the supervisor acts for the image, not for a user.
const ALL_CAPABILITIES: u64 = u64::MAX;

/// A mounted tree.
#[derive(Debug, Clone)]
pub struct Mounted {
    /// Root of the tree.
    pub root: Inode,
    /// Where and what.
    pub plan: MountPlan,
}

/// An image and the supervisor's way to it.
pub struct Image {
    /// This thread's way.
    pub direct: Direct,
    /// Its trees.
    pub mounts: Vec<Mounted>,
    /// When it was made, ns since the epoch.
    pub started_ns: i64,
    /// Its memory.
    pub region: OwnedFd,
    /// The trees that outlive it.
    pub volumes: Vec<Volume>,
}

impl Image {
    /// Makes an image; `copies` is the directory of rewritten copies.
    pub fn make(
        settings: &Settings,
        variables: &Variables,
        copies: &Path,
    ) -> Result<Image, Failure> {
        let layout = Layout { kernels: settings.kernels, memory_bytes: settings.memory_bytes };
        let region = descriptors::region(layout.file_bytes())?;
        gather(&region, layout);
        let mut direct = join(&region, layout, copies).map_err(unmapped)?;
        let sockets = variables.pipes && variables.sockets && descriptors::can_be_borrowed();
        direct.allow_pipes(variables.pipes, sockets);
        direct.set_directories(variables.directories);
        direct.set_without(variables.without);
        direct.set_place_rule(settings.rule, &settings.cores);
        direct.set_udp(settings.udp);
        if settings.sealed {
            direct.seal_outside();
        }
        let started_ns = exact_ns();
        direct.set_made_ns(started_ns);
        if !settings.discard {
            let overlays = settings.mounts.iter().filter(|plan| plan.cover == Cover::Overlay);
            manifest::prepare(overlays.map(|plan| plan.path.as_path()));
        }
        let (mounts, volumes) = (Vec::new(), Vec::new());
        let mut image = Image { direct, mounts, started_ns, region, volumes };
        for plan in &settings.mounts {
            let root = image.mount(plan)?;
            if let Some(volume) = settings.volumes.iter().find(|one| one.path == plan.path) {
                image.volumes.push(Volume::open(&mut image.direct, root, volume)?);
            }
        }
        if let Some(part) = &settings.part_of {
            nodes::join(&mut image.direct, part)
                .map_err(|errno| unmade("join the others", errno))?;
        }
        Ok(image)
    }

    /// An image that another supervisor has made, which has died.
    pub fn resume(region: OwnedFd, started_ns: i64) -> Result<Image, Failure> {
        let failed = |why: String| Failure::new(NOT_TAKEN_OVER, why, "take it down");
        let region = File::from(region);
        let layout = attach::layout(&region).map_err(failed)?;
        let joined = husk_carrier::map_region(region.as_raw_fd() as u32, layout);
        let direct = joined.and_then(|()| attach());
        let mut direct = direct.map_err(|errno| failed(format!("{errno:?}")))?;
        if direct.made_ns() != started_ns {
            return Err(failed("its memory is another image's".to_owned()));
        }
        // The trees of a node that is the home of nothing are not its own.
        let own = if direct.node() == 0 { direct.mounts() } else { 0 };
        let mounts = (0..own).map(|index| {
            let mount = direct.mount(index);
            let plan = MountPlan { path: host::path_of(mount.path), cover: mount.cover };
            Mounted { root: mount.root, plan }
        });
        let mounts: Vec<Mounted> = mounts.collect();
        let volumes = mounts.iter().filter_map(|mount| Volume::resume(&mut direct, mount.root));
        let volumes = volumes.collect();
        Ok(Image { direct, mounts, started_ns, region: region.into(), volumes })
    }

    fn mount(&mut self, plan: &MountPlan) -> Result<Inode, Failure> {
        let what = format!("mount {}", plan.path.display());
        let found = fs::metadata(&plan.path).map_err(|problem| {
            Failure::new(
                format!("cannot {what}"),
                crate::run::request::reason(&problem),
                "check it",
            )
        })?;
        let (name, target) = (OsStr::new(""), Path::new(""));
        let attributes = host::imported(name, Kind::Directory, &found, target);
        let path = plan.path.as_os_str().as_bytes();
        let root = self
            .direct
            .add_mount(path, plan.cover, &attributes)
            .map_err(|errno| unmade(&what, errno))?;
        self.lead_to(&plan.path).map_err(|errno| unmade(&what, errno))?;
        self.mounts.push(Mounted { root, plan: plan.clone() });
        Ok(root)
    }

    /// Makes the directories of an outer memory tree that lead to `path`.
    fn lead_to(&mut self, path: &Path) -> Result<(), Errno> {
        let outer = self.deepest(path);
        let Some(outer) = outer.filter(|outer| outer.plan.cover == Cover::Memory) else {
            return Ok(());
        };
        let (mut dir, mut at) = (outer.root, outer.plan.path.clone());
        let rest = path.strip_prefix(&at).map(Path::to_owned).unwrap_or_default();
        for name in &rest {
            at.push(name);
            dir = self.leading_directory(dir, name.as_bytes(), &at)?;
        }
        Ok(())
    }

    /// One of them, owned and permitted as on the host.
    fn leading_directory(&mut self, dir: Inode, name: &[u8], at: &Path) -> Result<Inode, Errno> {
        let found = fs::metadata(at).map_err(|_| Errno::ENOENT)?;
        let who = Credentials {
            uid: found.uid(),
            gid: found.gid(),
            groups: &[],
            capabilities: ALL_CAPABILITIES,
            within: None,
        };
        match self.direct.create(&who, dir, name, Node::Directory(found.mode() & 0o7777)) {
            Err(Errno::EEXIST) => self.direct.lookup(dir, name).map(|step| step.inode),
            other => other,
        }
    }

    /// The mount that holds `path` or its nearest ancestor.
    fn deepest(&self, path: &Path) -> Option<Mounted> {
        let holding = self.mounts.iter().filter(|mount| path.starts_with(&mount.plan.path));
        holding.max_by_key(|mount| mount.plan.path.as_os_str().len()).cloned()
    }

    /// Records for the supervisor as the program's parent, as a shell is one, and for the program:
    /// an embryo until `Birth::happened`. It has these descriptors, our umask and directory.
    pub fn prepare_birth(&mut self, inherited: &[u32]) -> Result<Birth, Failure> {
        let birth = self.parent(inherited).and_then(|mut parent| {
            let child = parent.prepare_fork(Sharing::default())?;
            parent.child_untold(child);
            Ok(Birth { parent, child })
        });
        birth.map_err(|errno| unmade("register the program", errno))
    }

    fn parent(&mut self, inherited: &[u32]) -> Result<Direct, Errno> {
        let here = std::env::current_dir().ok();
        let pid = std::process::id();
        let own = Newcomer { pid, inherited, passed: &[], umask: umask(), here };
        self.enroll(&own)
    }

    /// The record of a host process that is about to execute the runtime.
    pub fn admit(&mut self, newcomer: &Newcomer<'_>) -> Result<Process, Failure> {
        // Who asks again did not get the answer, and who had the number before has ended.
        let mut known = false;
        self.direct.each_pid(&mut |pid| known |= pid == newcomer.pid);
        if known {
            // What cannot be released now is found by the tick.
            let _ = self.direct.reap(newcomer.pid);
        }
        let record = self.enroll(newcomer).map(|mut direct| {
            direct.detach();
            direct.current()
        });
        record.map_err(|errno| {
            // Half a record is no use to it.
            let _ = self.direct.reap(newcomer.pid);
            let remedy = match errno {
                Errno::EAGAIN => "end some of its programs",
                _ => "make an image with more --memory",
            };
            Failure::new("cannot register the program", format!("{errno:?}"), remedy)
        })
    }

    /// The calling thread's way to the image on behalf of a new process.
    fn enroll(&mut self, newcomer: &Newcomer<'_>) -> Result<Direct, Errno> {
        holds::work(&self.direct, Work::Entering);
        let process = self.direct.first_process(newcomer.pid, newcomer.inherited)?;
        let mut direct = Direct::attach(now_ns, process, std::process::id(), thread_id())?;
        holds::work(&direct, Work::Entering);
        direct.set_umask(newcomer.umask);
        if direct.node() != 0 {
            direct.take_passed(newcomer.pid, newcomer.passed)?;
        }
        if let Some(here) = newcomer.here.as_ref().filter(|_| direct.node() != 0) {
            work_far(&mut direct, here)?;
        }
        let root = self.mounts.iter().find(|m| Some(&m.plan.path) == newcomer.here.as_ref());
        if let Some(mount) = root {
            direct.set_working_directory(WorkingDirectory::Husk(mount.root))?;
        }
        Ok(direct)
    }

    /// Overlays to write back.
    pub fn overlays(&self) -> Vec<(Inode, PathBuf)> {
        let overlays = self.mounts.iter().filter(|mount| mount.plan.cover == Cover::Overlay);
        overlays.map(|mount| (mount.root, mount.plan.path.clone())).collect()
    }
}

/// Has a process of a node that is the home of nothing work in `here`, if that is in a tree.
fn work_far(direct: &mut Direct, here: &Path) -> Result<(), Errno> {
    let mounts = (0..direct.mounts()).map(|index| (host::path_of(direct.mount(index).path), index));
    let holding = mounts.filter(|(path, _)| here.starts_with(path));
    let Some((path, index)) = holding.max_by_key(|(path, _)| path.as_os_str().len()) else {
        return Ok(());
    };
    let mut inode = direct.mount(index).root;
    for name in here.strip_prefix(&path).map_err(|_| Errno::ENOENT)? {
        inode = direct.lookup(inode, name.as_bytes())?.inode;
    }
    direct.set_working_directory(WorkingDirectory::Husk(inode))
}

/// Puts what every process touches first into huge pages, where the host has some: the header with
/// the first slots and process records, and the first objects of each kind. Without, every start
/// has a few faults more, and each of them maps what lies around.
fn gather(region: &OwnedFd, layout: Layout) {
    for offset in layout.first_touched() {
        let _ = huge::gather(region.as_raw_fd() as usize, offset as usize);
    }
}

/// Maps a new region, writes an empty image into it, and attaches.
pub fn join(region: &OwnedFd, layout: Layout, copies: &Path) -> Result<Direct, Errno> {
    let memory = rustix::fs::fstat(region).map_err(|error| Errno(error.raw_os_error()))?;
    husk_carrier::map_region(region.as_raw_fd() as u32, layout)?;
    husk_carrier::format(layout, device(memory.st_ino), copies.as_os_str().as_bytes())?;
    attach()
}

/// `st_dev` of an image whose memory is inode `memory` at the host. Programs of two images may
/// compare what they have (PostgreSQL, by shared memory of the host: device and inode of its
/// directory), so each image has its own.
fn device(memory: u64) -> u64 {
    let minor = DEVICES.start + memory % (DEVICES.end - DEVICES.start);
    rustix::fs::makedev(0, minor as u32)
}

/// The calling thread's way to the image.
pub fn attach() -> Result<Direct, Errno> {
    attach_with(now_ns)
}

/// The same with another clock.
pub fn attach_with(clock: fn() -> i64) -> Result<Direct, Errno> {
    Direct::attach(clock, NOBODY, std::process::id(), thread_id())
}

/// A limit on address space is the usual reason: a larger image would need more of it.
fn unmapped(errno: Errno) -> Failure {
    if errno != Errno::ENOMEM {
        return unmade("map it", errno);
    }
    let remedy = "raise `ulimit -v`, or choose less --memory";
    Failure::new("cannot make the image (map it)", "no address space left for it", remedy)
}

fn unmade(what: &str, errno: Errno) -> Failure {
    let remedy = match errno {
        Errno::ENOSPC | Errno::ENOMEM => "choose more --memory",
        _ => "this is a bug in Husk: please report it",
    };
    Failure::new(format!("cannot make the image ({what})"), format!("{errno:?}"), remedy)
}

/// Read, not set and set back: other threads may be making files.
fn umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL);
    mask | crate::run::umask::owners()
}

/// Number of the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// A host process that joins the image.
pub struct Newcomer<'a> {
    /// Its number.
    pub pid: u32,
    /// Its descriptors.
    pub inherited: &'a [u32],
    /// Numbers under which the home of all names has something open for it.
    pub passed: &'a [u32],
    /// Its umask.
    pub umask: u32,
    /// Its working directory, where it has a name.
    pub here: Option<PathBuf>,
}

/// A program about to be started.
pub struct Birth {
    parent: Direct,
    /// Its record.
    pub child: Process,
}

impl Birth {
    /// It runs as host process `pid`; the parent's record is not needed any more.
    pub fn happened(mut self, pid: u32) {
        self.parent.note_child(self.child, pid);
        self.parent.exit();
    }
}

impl Source for Direct {
    fn read_at(&mut self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        Direct::read_at(self, inode, offset, into)
    }

    fn write_at(&mut self, inode: Inode, offset: u64, from: &[u8]) -> Result<usize, Errno> {
        Direct::write_at(self, inode, offset, from)
    }

    fn keep_writers_out(&mut self, inode: Inode) -> Result<(), Errno> {
        Admin::keep_writers_out(self, inode)
    }

    fn let_writers_in(&mut self, inode: Inode) {
        Admin::let_writers_in(self, inode);
    }

    fn each_on_host(&mut self, emit: &mut dyn FnMut(Inode, Origin)) {
        Admin::each_on_host(self, emit);
    }

    fn each_origin(&mut self, emit: &mut dyn FnMut(Origin)) {
        Admin::each_origin(self, emit);
    }

    fn origin_rights(&mut self, origin: Origin) -> Result<Rights, Errno> {
        Admin::origin_rights(self, origin)
    }

    fn take_rights(&mut self, inode: Inode, before: Rights, found: Rights) -> Result<bool, Errno> {
        Admin::take_rights(self, inode, before, found)
    }

    fn extended_base(&mut self, inode: Inode, name: &[u8]) -> Result<u64, Errno> {
        Admin::extended_base(self, inode, name)
    }

    fn settle_extended(
        &mut self,
        inode: Inode,
        name: &[u8],
        seen: u64,
        found: Option<&[u8]>,
    ) -> Result<bool, Errno> {
        Admin::settle_extended(self, inode, name, seen, found)
    }

    fn each_elsewhere(&mut self, emit: &mut dyn FnMut(Inode, u32)) {
        Admin::each_elsewhere(self, emit);
    }

    fn each_imported(&mut self, emit: &mut dyn FnMut(Inode, Origin)) {
        Admin::each_imported(self, emit);
    }

    fn note_links(&mut self, inode: Inode, found: &Imported<'_>) -> Result<bool, Errno> {
        Admin::note_links(self, inode, found)
    }

    fn move_origin(
        &mut self,
        dir: Inode,
        inode: Inode,
        found: &Imported<'_>,
    ) -> Result<bool, Errno> {
        Admin::move_origin(self, dir, inode, found)
    }

    fn unpin(&mut self, inode: Inode) {
        Processes::unpin(self, inode);
    }
}
