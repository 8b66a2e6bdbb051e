//! What the user asked for, checked before anything is started.
//!
//! ```text
//!   Request (as typed) --settle()--> Settings (valid: real paths, sizes in range)
//! ```
//!
//! Invariants
//! 1. Every mount path in `Settings` is real: absolute, no symlinks, a directory that was there.
//! 2. No path is mounted twice; where one lies below another, the deeper one wins, and mounts are
//!    sorted so that outer ones come first.
//! 3. An overlay that will be written back is readable and writable, when the user named it.
//!
//! An overlay on `/` is one on each of its directories (`whole`), and what lies outside is
//! read-only then.
//!
//! Defaults: an overlay on the current directory (unless `--overlay` says otherwise; never on
//! `/`), and an empty /tmp in memory (unless the user mounts /tmp in some way); where what lies
//! outside is read-only, an empty /dev/shm as well.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use husk_abi::errno::without_number;
use husk_proto::image::{Cover, MOUNTS_MAX, Udp};
use husk_proto::place::{Origin, Policy, Rule};
use husk_proto::volume::Policy as Durable;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::thread::CpuSet;

use crate::hosts::{Root, settle_hosts};
use crate::memory::control_group;
use crate::named::mount::standing_over;
use crate::nodes::{NODES_MAX, PartOf, settle_nodes, shares};
use crate::output::failure::Failure;
use crate::run::fate::OnFailure;
use crate::run::whole;

/// Most kernels in one image.
pub use husk_carrier::KERNELS_MAX;
/// Smallest image that is of any use.
pub const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// Most memory an image takes when the user does not say.
const MEMORY_BYTES_DEFAULT_MAX: u64 = 16 << 30;
/// Hard end of `--memory`: what the region's addresses have room for.
pub const MEMORY_BYTES_MAX: u64 = 256 << 30;

/// What was typed.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `--kernels`; `None` = one per online core.
    pub kernels: Option<u32>,
    /// `--memory` in bytes; `None` = a quarter of the machine's, or of the control group's, at most
    /// 16 GiB.
    pub memory_bytes: Option<u64>,
    /// `--overlay`, in order.
    pub overlays: Vec<PathBuf>,
    /// `--mount`, in order.
    pub mounts: Vec<PathBuf>,
    /// `--volume`, in order.
    pub volumes: Vec<VolumePlan>,
    /// `--discard`: nothing is written back; `None` = it is.
    pub discard: Option<bool>,
    /// `--on-failure`: what becomes of the changes of a command that fails; `None` = as of others.
    pub on_failure: Option<OnFailure>,
    /// `--ask`: the user is shown the changes and asked; `None` = nobody is.
    pub ask: Option<bool>,
    /// `--read-only-outside`: programs change nothing outside the trees; `None` = they may.
    pub sealed: Option<bool>,
    /// `--guard`: protection key on the state arena; `None` = where the machine has keys.
    pub guard: Option<bool>,
    /// `--place`: how processes are placed, and who said so; `None` = by Linux.
    pub place: Option<(Policy, Origin)>,
    /// `--pin`: each process on the core of its kernel only.
    pub pin: Option<bool>,
    /// `--udp`: how datagram sockets are set up.
    pub udp: Udp,
    /// `--nodes`; `None` = one.
    pub nodes: Option<u32>,
    /// `--on`: other hosts.
    pub hosts: Vec<String>,
    /// `--root`: whose files programs on other hosts see.
    pub root: Root,
    /// It is a node of another image, and has no tree of its own.
    pub part_of: Option<PartOf>,
    /// The current directory is overlaid beside `overlays` where no tree covers it.
    pub covers_here: bool,
}

/// Directories whose files are the host's devices, processes and settings, and what below them is
/// an ordinary file system all the same.
const OF_THE_HOST: [&str; 3] = ["/proc", "/sys", "/dev"];
const ORDINARY: &str = "/dev/shm";

/// Whether a real path leads to what only the host can answer for.
pub(crate) fn is_the_hosts(path: &Path) -> bool {
    path == Path::new("/")
        || OF_THE_HOST.iter().any(|top| path.starts_with(top)) && !path.starts_with(ORDINARY)
}

/// What is said of it.
const HOSTS_OWN: &str = "it holds the host's devices, processes or settings";

/// One mount of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlan {
    /// Real path of the covered directory.
    pub path: PathBuf,
    /// What it shows.
    pub cover: Cover,
}

/// A volume of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePlan {
    /// What it is called.
    pub name: String,
    /// The directory that it covers, real in `Settings`.
    pub path: PathBuf,
    /// When what is changed there is durable.
    pub policy: Durable,
}

/// A request that was found valid.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Kernels of the image, 1..=`KERNELS_MAX`.
    pub kernels: u32,
    /// Memory of the image, bytes; of the home of all names, where it has several nodes.
    pub memory_bytes: u64,
    /// Nodes.
    pub nodes: u32,
    /// Other hosts that programs run on.
    pub hosts: Vec<String>,
    /// Whose files programs there see.
    pub root: Root,
    /// Memory of each of the other nodes, bytes.
    pub other_bytes: u64,
    /// The image that it is a node of.
    pub part_of: Option<PartOf>,
    /// Mounts, outer ones first.
    pub mounts: Vec<MountPlan>,
    /// Those of them that are volumes.
    pub volumes: Vec<VolumePlan>,
    /// Nothing is written back.
    pub discard: bool,
    /// What becomes of the changes of a command that fails.
    pub on_failure: OnFailure,
    /// The user is asked what to write back.
    pub ask: bool,
    /// Programs change nothing outside the trees.
    pub sealed: bool,
    /// Protection key wanted.
    pub guard: bool,
    /// How processes are placed.
    pub rule: Rule,
    /// The core of each kernel.
    pub cores: Vec<u32>,
    /// How datagram sockets are set up.
    pub udp: Udp,
    /// Remarks for the user, one line each.
    pub notes: Vec<String>,
}

impl Settings {
    /// Whether anything could be written back.
    pub fn has_overlay(&self) -> bool {
        self.mounts.iter().any(|plan| plan.cover == Cover::Overlay)
    }
}

impl Request {
    /// Checks everything that can be checked before the image is made.
    pub fn settle(self) -> Result<Settings, Failure> {
        let mut settings = self.check()?;
        if let Some(part) = self.part_of {
            return Ok(Settings { part_of: Some(part), mounts: Vec::new(), ..settings });
        }
        if self.overlays.is_empty() {
            add_current_directory(&mut settings.mounts, &mut settings.notes, settings.discard)?;
        } else if self.covers_here {
            cover_here(&mut settings.mounts);
        }
        add_empty(&mut settings.mounts, "/tmp");
        if settings.sealed {
            // Semaphores and shared memory of programs are files there.
            add_empty(&mut settings.mounts, ORDINARY);
        }
        if !self.is_whole() {
            let note = whole::add_mounted(&mut settings.mounts)?;
            settings.notes.extend(note.filter(|_| !settings.sealed));
        }
        if settings.discard && !settings.sealed {
            settings.notes.extend(kept_here(&settings.mounts));
        }
        if settings.mounts.len() > MOUNTS_MAX {
            return Err(Failure::new(
                format!("cannot mount {} trees", settings.mounts.len()),
                format!("an image has at most {MOUNTS_MAX}"),
                "name fewer with --overlay and --mount",
            ));
        }
        settings.mounts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(settings)
    }

    /// The other hosts, where they are served.
    fn settle_on(&self, nodes: u32, sealed: bool) -> Result<Vec<String>, Failure> {
        let hosts = settle_hosts(&self.hosts)?;
        let other = [
            (nodes > 1, "--nodes"),
            (sealed, "--read-only-outside and --overlay /"),
            (!self.volumes.is_empty(), "--volume"),
        ];
        match other.iter().find(|(given, _)| *given && !hosts.is_empty()) {
            None => Ok(hosts),
            Some((_, option)) => Err(Failure::new(
                "cannot use other hosts",
                format!("{option} does not work with them yet"),
                format!("leave out {option}, or --on"),
            )),
        }
    }

    /// The same without the trees that nobody named: whether an image could be made of what is
    /// said, wherever `husk` is started.
    pub(crate) fn check(&self) -> Result<Settings, Failure> {
        let able = able_cores();
        let rule = settle_rule(self.place, self.pin == Some(true))?;
        let asked = self.kernels.or(rule.pin.then(|| default_kernels().min(able.len() as u32)));
        let kernels = settle_kernels(asked)?;
        let group = control_group::memory_bytes();
        let (memory_bytes, note) = fit_group(settle_memory(self.memory_bytes)?, group);
        let (mounts, whole) = self.named_mounts()?;
        let sealed = self.sealed.unwrap_or_else(|| self.is_whole());
        let nodes = settle_nodes(self.nodes)?;
        let (memory_bytes, other_bytes) = shares(nodes, memory_bytes)?;
        if nodes > 1 && sealed {
            let why = "it does not work with nodes yet";
            let remedy = "leave out --read-only-outside and --overlay /, or --nodes";
            return Err(Failure::new(format!("cannot make {nodes} nodes"), why, remedy));
        }
        if nodes > 1 && !self.volumes.is_empty() {
            let why = "what other nodes sync would not reach a volume";
            let remedy = "leave out --volume or --nodes";
            return Err(Failure::new(format!("cannot make {nodes} nodes"), why, remedy));
        }
        let hosts = self.settle_on(nodes, sealed)?;
        Ok(Settings {
            kernels,
            memory_bytes,
            nodes,
            hosts,
            root: self.root,
            other_bytes,
            part_of: None,
            mounts,
            volumes: self.settle_volumes()?,
            discard: self.discards(),
            on_failure: self.on_failure.unwrap_or_default(),
            ask: self.ask == Some(true),
            sealed,
            guard: settle_guard(self.guard, crate::show::check::can_guard)?,
            rule,
            cores: settle_cores(kernels, rule.pin, &able)?,
            udp: settle_udp(self.udp, rule)?,
            notes: note.into_iter().chain(whole).collect(),
        })
    }

    fn discards(&self) -> bool {
        self.discard == Some(true)
    }

    /// Trees that were named, and what there is to say of the whole system.
    fn named_mounts(&self) -> Result<(Vec<MountPlan>, Option<String>), Failure> {
        let mut plans = Vec::new();
        for path in self.overlays.iter().filter(|path| !whole::is_root(path)) {
            add(&mut plans, overlay(path, !self.discards())?)?;
        }
        for path in &self.mounts {
            add(&mut plans, memory(path)?)?;
        }
        for volume in &self.volumes {
            add(&mut plans, memory(&volume.path)?)?;
        }
        let whole = match self.is_whole() {
            true => whole::add(&mut plans)?,
            false => None,
        };
        Ok((plans, whole))
    }

    fn is_whole(&self) -> bool {
        self.overlays.iter().any(|path| whole::is_root(path))
    }

    fn settle_volumes(&self) -> Result<Vec<VolumePlan>, Failure> {
        let mut settled: Vec<VolumePlan> = Vec::new();
        for volume in &self.volumes {
            let name = volume.name.clone();
            if settled.iter().any(|other| other.name == name) {
                let what = format!("cannot use volume {name} twice");
                return Err(Failure::new(what, "it has one tree", "keep one of them"));
            }
            let (path, policy) = (memory(&volume.path)?.path, volume.policy);
            settled.push(VolumePlan { name, path, policy });
        }
        Ok(settled)
    }
}

/// An empty directory, where nobody named another tree there.
fn add_empty(plans: &mut Vec<MountPlan>, path: &str) {
    if let Ok(real) = fs::canonicalize(path)
        && plans.iter().all(|plan| plan.path != real)
    {
        plans.push(MountPlan { path: real, cover: Cover::Memory });
    }
}

fn settle_kernels(asked: Option<u32>) -> Result<u32, Failure> {
    match asked {
        Some(kernels) if (1..=KERNELS_MAX).contains(&kernels) => Ok(kernels),
        Some(kernels) => Err(Failure::new(
            format!("cannot run {kernels} kernels"),
            "out of range",
            format!("choose --kernels 1 to {KERNELS_MAX}"),
        )),
        None => Ok(default_kernels()),
    }
}

/// A guard that was asked for is there, or it is an error; one that was not is there where it can.
fn settle_guard(asked: Option<bool>, can: impl Fn() -> bool) -> Result<bool, Failure> {
    if asked == Some(true) && !can() {
        return Err(Failure::new(
            "cannot guard the image",
            "this machine has no memory protection keys",
            "leave out --guard on; `husk check` says what that costs",
        ));
    }
    Ok(asked.unwrap_or_else(can))
}

/// How processes are placed. Who is held on one core is not left to Linux.
fn settle_rule(place: Option<(Policy, Origin)>, pin: bool) -> Result<Rule, Failure> {
    match place {
        Some((Policy::Host, Origin::Image)) if pin => {
            let why = "--place host leaves that to Linux";
            let remedy = "choose another policy, or leave out --pin";
            Err(Failure::new("cannot pin kernels to cores", why, remedy))
        }
        Some((policy, origin)) if policy != Policy::Host => Ok(Rule { policy, origin, pin }),
        _ if pin => Ok(Rule { policy: Policy::LeastLoaded, origin: Origin::Default, pin }),
        place => Ok(Rule {
            origin: place.map_or(Origin::Default, |(_, origin)| origin),
            ..Rule::default()
        }),
    }
}

/// What programs may not set up is refused before one starts.
fn settle_udp(udp: Udp, rule: Rule) -> Result<Udp, Failure> {
    let what = "cannot set datagram sockets up";
    if udp.pin && rule != (Rule { origin: rule.origin, ..Rule::default() }) {
        let why = "--udp pin chooses a core for who binds a socket, and so does --place or --pin";
        return Err(Failure::new(what, why, "leave out one of them"));
    }
    let may_poll = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        husk_host::datagrams::set_busy_poll(socket.as_raw_fd(), Udp::BUSY_POLL_US).ok()
    };
    if udp.busy_poll && may_poll().is_none() {
        let why = "busy polling takes CAP_NET_ADMIN on this kernel";
        return Err(Failure::new(what, why, "run it as root, or leave out --udp busy-poll"));
    }
    Ok(udp)
}

/// Cores that this process may run on.
fn able_cores() -> Vec<u32> {
    let able = rustix::thread::sched_getaffinity(None);
    let able = able.map(|able| (0..CpuSet::MAX_CPU).filter(|&core| able.is_set(core)).collect());
    able.map_or(Vec::new(), |able: Vec<usize>| able.into_iter().map(|core| core as u32).collect())
}

/// The core of each kernel: one of its own each, where they are dedicated.
fn settle_cores(kernels: u32, pin: bool, able: &[u32]) -> Result<Vec<u32>, Failure> {
    if pin && (able.len() as u32) < kernels {
        let cores = able.len();
        let remedy = format!("choose at most --kernels {cores}, or leave out --pin");
        let why = format!("this process may run on {cores} only (see `nproc`)");
        return Err(Failure::new(format!("cannot pin {kernels} kernels to cores"), why, remedy));
    }
    Ok(able.iter().copied().cycle().take(kernels as usize).collect())
}

/// Kernels of an image when the user does not say.
pub fn default_kernels() -> u32 {
    online_cores().min(KERNELS_MAX)
}

fn online_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// The most that an image of this size may hold, where this host can have one.
pub(crate) fn settle_memory(asked: Option<u64>) -> Result<u64, Failure> {
    let bytes = asked.unwrap_or_else(default_memory_bytes);
    let most = host_memory_bytes().clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
    if (MEMORY_BYTES_MIN..=most).contains(&bytes) {
        return Ok(bytes);
    }
    let why = if bytes < MEMORY_BYTES_MIN {
        "too small"
    } else if most < MEMORY_BYTES_MAX {
        "more than this host has"
    } else {
        "too large"
    };
    let least = size(MEMORY_BYTES_MIN);
    let remedy = format!("choose --memory {least} to {}M", most >> 20);
    Err(Failure::new(format!("cannot make an image of {}", size(bytes)), why, remedy))
}

/// The same within the memory of the control group, and a line where that is less than was asked
/// for: an image that outgrows its group ends one program after the other, and frees nothing.
fn fit_group(bytes: u64, group: Option<u64>) -> (u64, Option<String>) {
    let Some(group) = group.filter(|group| bytes > *group) else { return (bytes, None) };
    // Programs need some for themselves.
    let most = ((group / 4 * 3) >> 20 << 20).max(MEMORY_BYTES_MIN);
    let note = format!(
        "the control group has {}M of memory: the image holds at most {}M, not {}",
        group >> 20,
        most >> 20,
        size(bytes)
    );
    (most, Some(note))
}

/// Bytes as they are typed.
pub fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    match whole {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// Memory of an image when the user does not say.
pub fn default_memory_bytes() -> u64 {
    let (memory, _) = host_memory();
    let memory = control_group::memory_bytes().map_or(memory, |most| memory.min(most));
    (memory / 4).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_DEFAULT_MAX)
}

/// Memory and swap space of this machine, bytes.
fn host_memory() -> (u64, u64) {
    let info = rustix::system::sysinfo();
    #[allow(clippy::unnecessary_cast)] // c_ulong differs between targets
    let bytes = |units| units as u64 * u64::from(info.mem_unit.max(1));
    (bytes(info.totalram), bytes(info.totalswap))
}

/// What an image could ever come to.
fn host_memory_bytes() -> u64 {
    let (memory, swap) = host_memory();
    memory.saturating_add(swap)
}

const NOT_A_SIZE: &str = "not a size; write whole numbers with K, M, G or T, as 512M or 2G";

/// Reads `64M`, `2G`, `1048576`; suffixes K, M, G, T, with or without `iB` or `B`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(NOT_A_SIZE.into()),
    };
    let number: u64 = number.parse().map_err(|_| NOT_A_SIZE)?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("choose at most {}", size(MEMORY_BYTES_MAX)))
}

/// Reads `NAME:DIR`, or `NAME:DIR:POLICY`. A directory may have colons in its name: what is behind
/// the last one counts as a policy only if it begins as one.
pub fn parse_volume(text: &str) -> Result<VolumePlan, String> {
    let Some((name, rest)) = text.split_once(':') else { return Err(NOT_A_VOLUME.to_owned()) };
    let (path, policy) = match rest.rsplit_once(':').map(|(path, word)| (path, policy_of(word))) {
        Some((path, Some(policy))) => (path, policy?),
        _ => (rest, Durable::Fsync),
    };
    if name.is_empty() || path.is_empty() {
        return Err(NOT_A_VOLUME.to_owned());
    }
    Ok(VolumePlan { name: name.to_owned(), path: PathBuf::from(path), policy })
}

const NOT_A_VOLUME: &str = "write NAME:DIR or NAME:DIR:POLICY, as data:/var/lib/redis";

/// `None`: it is no policy.
fn policy_of(word: &str) -> Option<Result<Durable, String>> {
    let most_ms = match word {
        "fsync" => return Some(Ok(Durable::Fsync)),
        "immediate" => return Some(Ok(Durable::Immediate)),
        word => word.strip_prefix("async=")?,
    };
    let most = Durable::ASYNC_MS_MAX;
    let in_range = most_ms.parse().ok().filter(|ms| (1..=most).contains(ms));
    let wrong = || format!("choose async=1 to async={most}: milliseconds");
    Some(in_range.map(Durable::Async).ok_or_else(wrong))
}

/// Reads a number of kernels; `settle_kernels` checks its range.
pub fn parse_kernels(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a whole number; choose 1 to {KERNELS_MAX}"))
}

/// Reads the number of a node.
pub fn parse_node(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "not the number of a node; see `husk nodes IMAGE`".to_owned())
}

/// Reads a number of nodes.
pub fn parse_nodes(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a whole number; choose 1 to {NODES_MAX}"))
}

fn add(plans: &mut Vec<MountPlan>, plan: MountPlan) -> Result<(), Failure> {
    if let Some(other) = plans.iter().find(|other| other.path == plan.path) {
        let path = plan.path.display();
        let (what, why) = match (other.cover, plan.cover) {
            (Cover::Overlay, Cover::Overlay) => (format!("overlay {path} twice"), "two overlays"),
            (Cover::Memory, Cover::Memory) => (format!("mount on {path} twice"), "two mounts"),
            _ => (format!("overlay {path} and mount on it, too"), "an overlay and a mount"),
        };
        let why = format!("{why} name the same directory");
        return Err(Failure::new(format!("cannot {what}"), why, "keep one of them"));
    }
    plans.push(plan);
    Ok(())
}

/// An overlay on `path`, where that can be covered.
pub(crate) fn overlay(path: &Path, written_back: bool) -> Result<MountPlan, Failure> {
    let what = format!("cannot overlay {}", path.display());
    let path = real_directory(path, &what)?;
    if is_the_hosts(&path) {
        return Err(Failure::new(what, HOSTS_OWN, "name the directory you work in"));
    }
    if access(&path, Access::READ_OK | Access::EXEC_OK).is_err() {
        let remedy = "choose a directory you may list, or change its mode";
        return Err(Failure::new(what, "no permission to read it", remedy));
    }
    if written_back && access(&path, Access::WRITE_OK).is_err() {
        let remedy = "add --discard if changes need not come back, or change its mode";
        return Err(Failure::new(what, "no permission to write changes back", remedy));
    }
    Ok(MountPlan { path, cover: Cover::Overlay })
}

/// An empty tree over `path`, where that can be covered.
pub(crate) fn memory(path: &Path) -> Result<MountPlan, Failure> {
    let what = format!("cannot mount on {}", path.display());
    let path = real_directory(path, &what)?;
    if path == Path::new("/") {
        return Err(Failure::new(what, "nothing would be left to run", "name another directory"));
    }
    if is_the_hosts(&path) {
        let why = "programs need what the host shows there";
        return Err(Failure::new(what, why, "name another directory, or one in /dev/shm"));
    }
    Ok(MountPlan { path, cover: Cover::Memory })
}

/// The real path of a directory that is there (invariant 1).
fn real_directory(path: &Path, what: &str) -> Result<PathBuf, Failure> {
    let remedy = "name an existing directory";
    let real =
        fs::canonicalize(path).map_err(|problem| Failure::new(what, reason(&problem), remedy))?;
    if !real.is_dir() {
        return Err(Failure::new(what, "it is not a directory", remedy));
    }
    if let Some(one) = standing_over(&real) {
        // Who answers there may have to wait for us.
        let why = format!("it is in {}, which shows {}", one.directory.display(), one.source);
        return Err(Failure::new(what, why, "name a directory of the host's own"));
    }
    Ok(real)
}

/// An I/O error in words, without Rust's `(os error 2)`.
pub fn reason(problem: &std::io::Error) -> String {
    let text = problem.to_string();
    without_number(&text).map(str::to_lowercase).unwrap_or(text)
}

fn add_current_directory(
    plans: &mut Vec<MountPlan>,
    notes: &mut Vec<String>,
    discard: bool,
) -> Result<(), Failure> {
    let here = env::current_dir().map_err(|problem| {
        let remedy = "change to a directory that exists, or name one with --overlay";
        Failure::new("cannot overlay the current directory", reason(&problem), remedy)
    })?;
    if plans.iter().any(|plan| plan.path == here) {
        return Ok(());
    }
    let why = if is_the_hosts(&here) {
        HOSTS_OWN
    } else if access(&here, Access::READ_OK | Access::EXEC_OK).is_err() {
        "it cannot be listed"
    } else {
        plans.push(overlay(&here, false)?);
        if !discard && access(&here, Access::WRITE_OK) == Err(Errno::ROFS) {
            let here = here.display();
            notes.push(format!("{here}: read-only file system: changes will not be written back"));
        }
        return Ok(());
    };
    if discard {
        let remedy = "change to a directory that can be overlaid, or name one with --overlay";
        let what = format!("cannot discard what changes in {}", here.display());
        return Err(Failure::new(&what, why.to_owned(), remedy));
    }
    notes.push(format!("{}: {why}: not overlaid, changes go to the host", here.display()));
    Ok(())
}

/// Overlays the current directory where no tree covers it, and where it can be: of one that cannot
/// `kept_here` tells.
fn cover_here(plans: &mut Vec<MountPlan>) {
    let Ok(here) = env::current_dir() else { return };
    if !plans.iter().any(|plan| here.starts_with(&plan.path)) {
        plans.extend(overlay(&here, false));
    }
}

/// What to say to who discards, and works where nothing is discarded: the directories that were
/// named do not have the current one.
fn kept_here(plans: &[MountPlan]) -> Option<String> {
    let here = env::current_dir().ok()?;
    let kept = !plans.iter().any(|plan| here.starts_with(&plan.path));
    kept.then(|| format!("{}: in no --overlay: what changes there stays", here.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn request(overlays: &[&Path], mounts: &[&Path]) -> Request {
        Request {
            overlays: overlays.iter().map(PathBuf::from).collect(),
            mounts: mounts.iter().map(PathBuf::from).collect(),
            ..Request::default()
        }
    }

    #[test]
    fn sizes_are_read_with_binary_suffixes() {
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        for bad in ["", "M", "-1", "1.5G", "12Q", "99999999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad} was taken for a size");
        }
    }

    #[test]
    fn kernels_and_memory_out_of_range_name_the_range() {
        let none = settle_kernels(Some(0)).unwrap_err();
        assert!(none.to_string().contains("1 to 64"), "{none}");
        assert!(settle_kernels(Some(1000)).is_err());
        assert_eq!(fit_group(1 << 30, None), (1 << 30, None));
        assert_eq!(fit_group(1 << 30, Some(1 << 30)), (1 << 30, None));
        let (most, note) = fit_group(8 << 30, Some(2 << 30));
        let told = "the control group has 2048M of memory: the image holds at most 1536M, not 8G";
        assert_eq!((most, note.as_deref()), (1536 << 20, Some(told)));
        let small = settle_memory(Some(1 << 20)).unwrap_err();
        assert!(small.to_string().contains("of 1M: too small; choose --memory 32M to"), "{small}");
        assert_eq!(small.status, 125);
        let large = settle_memory(Some(host_memory_bytes() + 1)).unwrap_err();
        assert!(large.to_string().contains("choose --memory 32M to"), "{large}");
        assert_eq!(settle_memory(None).map_err(|f| f.to_string()), Ok(default_memory_bytes()));
    }

    #[test]
    fn an_overlay_is_a_real_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, b"").unwrap();
        let on_file = request(&[&file], &[]).settle().unwrap_err();
        assert!(on_file.why.contains("not a directory"), "{on_file}");
        let missing = request(&[&scratch.path().join("none")], &[]).settle().unwrap_err();
        assert_eq!(missing.why, "no such file or directory");
        let link = scratch.path().join("link");
        fs::create_dir(scratch.path().join("real")).unwrap();
        symlink("real", &link).unwrap();
        let settings = request(&[&link], &[]).settle().unwrap();
        let real = fs::canonicalize(scratch.path()).unwrap().join("real");
        assert!(settings.mounts.contains(&MountPlan { path: real, cover: Cover::Overlay }));
    }

    #[test]
    fn one_directory_is_mounted_once() {
        let scratch = tempfile::tempdir().unwrap();
        let twice = request(&[scratch.path()], &[scratch.path()]).settle().unwrap_err();
        assert!(twice.what.contains("and mount on it, too"), "{twice}");
        let twice = request(&[scratch.path(), scratch.path()], &[]).settle().unwrap_err();
        assert!(twice.to_string().contains("twice: two overlays name"), "{twice}");
    }

    #[test]
    fn a_guard_that_was_asked_for_is_not_left_out_silently() {
        assert_eq!(settle_guard(None, || true), Ok(true));
        assert_eq!(settle_guard(None, || false), Ok(false), "where there are no keys");
        assert_eq!(settle_guard(Some(false), || false), Ok(false));
        assert_eq!(settle_guard(Some(true), || true), Ok(true));
        let refused = settle_guard(Some(true), || false).unwrap_err();
        assert!(refused.to_string().contains("husk check"), "{refused}");
    }

    #[test]
    fn what_only_the_host_can_answer_for_is_not_covered() {
        for path in ["/", "/proc", "/proc/1", "/dev", "/dev/pts", "/sys/kernel"] {
            assert!(is_the_hosts(Path::new(path)), "{path}");
        }
        for path in ["/home", "/dev/shm", "/dev/shm/x", "/development", "/var/proc"] {
            assert!(!is_the_hosts(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn tmp_is_private_unless_the_user_mounts_it() {
        let tmp = fs::canonicalize("/tmp").unwrap();
        let cover_of = |settings: &Settings| {
            settings.mounts.iter().find(|plan| plan.path == tmp).map(|plan| plan.cover)
        };
        let private = request(&[Path::new("/usr")], &[]);
        let private = Request { discard: Some(true), ..private }.settle().unwrap();
        assert_eq!(cover_of(&private), Some(Cover::Memory));
        let shared = request(&[Path::new("/tmp")], &[]).settle().unwrap();
        assert_eq!(cover_of(&shared), Some(Cover::Overlay));
    }
}
