//! The interface as Linux shows it: `/sys/class/net`, `/proc/irq`, `/proc/sys`, ethtool's requests.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use husk_abi::Errno;
use husk_host::interface;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use super::carry::Host;
use super::plan::Device;
use super::setting::{Flow, Setting};
use crate::problem::Problem;

/// Records, and the lock.
const STATE: &str = "/run/husk-net";
/// `UDP_V4_FLOW`, `UDP_V6_FLOW`.
const UDP4_FLOW: u32 = 2;
const UDP6_FLOW: u32 = 6;
/// The longest name of an interface.
const NAME_MAX: usize = 15;

/// One interface of the network namespace that this process is in.
pub struct Linux {
    /// As typed; the record has this name.
    typed: String,
    /// Its name now.
    name: String,
    namespace: u64,
    socket: OwnedFd,
    _lock: Option<File>,
}

fn errno_of(why: &io::Error) -> Errno {
    why.raw_os_error().map_or(Errno::EIO, Errno)
}

impl Linux {
    /// To look at.
    pub fn look(typed: &str) -> Result<Linux, Problem> {
        let what = || format!("cannot look at {typed}");
        let is_name = !typed.is_empty() && typed.len() <= NAME_MAX && !typed.contains('/');
        if !is_name || typed.starts_with('.') {
            let remedy = "`ip link` shows the names of interfaces";
            return Err(Problem::new(what(), "it is no name of an interface", remedy));
        }
        let failed = |why: io::Error| Problem::new(what(), why, "see that /proc is mounted");
        let namespace = fs::metadata("/proc/self/ns/net").map_err(failed)?.ino();
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let socket = socket.map_err(|errno| failed(errno.into()))?;
        let name = typed.to_owned();
        Ok(Linux { typed: name.clone(), name, namespace, socket, _lock: None })
    }

    /// To change, or to set back: no other process does so meanwhile.
    pub fn hold(typed: &str) -> Result<Linux, Problem> {
        let mut linux = Linux::look(typed)?;
        let path = Path::new(STATE).join("tune.lock");
        let opened =
            DirBuilder::new().recursive(true).mode(0o755).create(STATE).and_then(|()| {
                OpenOptions::new().create(true).truncate(false).write(true).open(path)
            });
        let lock = opened.map_err(|why| linux.unusable(&why))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let why = "another `husk net tune` or `untune` is at work";
            Problem::new(format!("cannot change {typed}"), why, "try again when it has ended")
        })?;
        linux._lock = Some(lock);
        Ok(linux)
    }

    fn unusable(&self, why: &io::Error) -> Problem {
        let remedy = "run it as root, with a /run to write to";
        Problem::new(format!("cannot keep a record of {} in {STATE}", self.typed), why, remedy)
    }

    fn record_path(&self) -> PathBuf {
        Path::new(STATE).join(format!("tune-{}-{}.json", self.namespace, self.typed))
    }

    fn index(&self) -> Option<u32> {
        netdevice::name_to_index(&self.socket, &self.name).ok()
    }

    fn sys(&self) -> PathBuf {
        Path::new("/sys/class/net").join(&self.name)
    }

    /// Whether /sys has this interface, and not one of that name and number in another namespace.
    fn is_shown(&self) -> bool {
        let Ok(own) = interface::hardware_address(self.socket.as_raw_fd(), &self.name) else {
            return true;
        };
        let shown = fs::read_to_string(self.sys().join("address")).unwrap_or_default();
        let own = own.map(|byte| format!("{byte:02x}")).join(":");
        // Longer ones, as of InfiniBand, begin so.
        shown.trim().starts_with(&own)
    }

    /// Where the value of a setting that is a file is.
    fn file(&self, setting: Setting) -> Option<PathBuf> {
        Some(match setting {
            Setting::Irq(number) => format!("/proc/irq/{number}/smp_affinity").into(),
            Setting::Rps(queue) => self.sys().join(format!("queues/rx-{queue}/rps_cpus")),
            Setting::Xps(queue) => self.sys().join(format!("queues/tx-{queue}/xps_cpus")),
            Setting::BusyRead => "/proc/sys/net/core/busy_read".into(),
            Setting::BusyPoll => "/proc/sys/net/core/busy_poll".into(),
            Setting::RxFlowHash(_) | Setting::Gro => return None,
        })
    }

    fn queues(&self, kind: &str) -> u32 {
        let entries = fs::read_dir(self.sys().join("queues")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(kind)).count() as u32
    }

    /// Interrupts that name this interface, or the device behind it, and a queue.
    fn irqs(&self) -> Vec<(u32, u32)> {
        let device = fs::read_link(self.sys().join("device")).ok();
        let device = device.as_deref().and_then(Path::file_name).map(OsString::from);
        let device = device.and_then(|name| name.into_string().ok());
        let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        text.lines().filter_map(|line| irq(line, &self.name, device.as_deref())).collect()
    }
}

/// `38:  0  1  PCI-MSIX-0000:00:03.0  1-edge  virtio2-input.0`: number and queue, where the last
/// word belongs to the interface or to its device and ends with a queue.
fn irq(line: &str, interface: &str, device: Option<&str>) -> Option<(u32, u32)> {
    let (number, rest) = line.split_once(':')?;
    let name = rest.split_ascii_whitespace().last()?;
    let is_ours = |owner: &str| {
        // `eth1` is not `eth10`.
        let after = name.split(owner).nth(1);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    let ours = name.starts_with(interface) && is_ours(interface);
    if !ours && !device.is_some_and(is_ours) {
        return None;
    }
    let name = name.split('@').next()?;
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    // The digits of the interface's own name say no queue.
    let queue = (digits > interface.len() || !ours).then(|| name[digits..].parse().ok())??;
    Some((number.trim().parse().ok()?, queue))
}

/// `0-1,3`.
fn numbers(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(all)
}

fn flow_kind(flow: Flow) -> u32 {
    match flow {
        Flow::Udp4 => UDP4_FLOW,
        Flow::Udp6 => UDP6_FLOW,
    }
}

impl Host for Linux {
    fn interface(&self) -> &str {
        &self.typed
    }

    fn namespace(&self) -> u64 {
        interface::namespace_cookie(self.socket.as_raw_fd()).unwrap_or_default()
    }

    fn device(&self) -> Result<Device, Problem> {
        let what = format!("cannot tune {}", self.name);
        let Some(index) = self.index() else {
            let why = "this network namespace has no interface of that name";
            return Err(Problem::new(what, why, "`ip link` shows those that there are"));
        };
        let shown = fs::read_to_string(self.sys().join("ifindex")).unwrap_or_default();
        if shown.trim().parse() != Ok(index) || !self.is_shown() {
            let remedy = "start it with `ip netns exec NAME`, which mounts another";
            return Err(Problem::new(what, "/sys shows another network namespace", remedy));
        }
        let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let cores = online.and_then(|text| numbers(&text)).filter(|cores| !cores.is_empty());
        let cores = cores.unwrap_or_else(|| vec![0]);
        let (rx, tx) = (self.queues("rx-"), self.queues("tx-"));
        Ok(Device { index, cores, rx, tx, irqs: self.irqs() })
    }

    fn find(&mut self, index: u32) -> bool {
        match netdevice::index_to_name(&self.socket, index) {
            Ok(name) => self.name = name,
            Err(_) => return false,
        }
        true
    }

    fn get(&self, setting: Setting) -> Result<String, Errno> {
        let socket = self.socket.as_raw_fd();
        match (setting, self.file(setting)) {
            (_, Some(path)) => {
                let text = fs::read_to_string(path).map_err(|why| errno_of(&why))?;
                Ok(text.trim().to_owned())
            }
            (Setting::RxFlowHash(flow), None) => {
                let fields = interface::flow_hash(socket, &self.name, flow_kind(flow))?;
                Ok(format!("{fields:#x}"))
            }
            _ => Ok(u8::from(interface::gro(socket, &self.name)?).to_string()),
        }
    }

    fn set(&mut self, setting: Setting, value: &str) -> Result<(), Errno> {
        let socket = self.socket.as_raw_fd();
        match (setting, self.file(setting)) {
            // Not made where it is missing.
            (_, Some(path)) => OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut file| file.write_all(value.as_bytes()))
                .map_err(|why| errno_of(&why)),
            (Setting::RxFlowHash(flow), None) => {
                let digits = value.trim_start_matches("0x");
                let fields = u64::from_str_radix(digits, 16).map_err(|_| Errno::EINVAL)?;
                interface::set_flow_hash(socket, &self.name, flow_kind(flow), fields)
            }
            _ => interface::set_gro(socket, &self.name, value == "1"),
        }
    }

    fn recall(&self) -> Result<Option<String>, Problem> {
        match fs::read_to_string(self.record_path()) {
            Ok(text) => Ok(Some(text)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(self.unusable(&why)),
        }
    }

    fn record(&mut self, text: &str) -> Result<(), Problem> {
        let path = self.record_path();
        let new = path.with_extension("new");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(STATE)?.sync_all()
        });
        written.map_err(|why| self.unusable(&why))
    }

    fn forget(&mut self) -> Result<(), Problem> {
        fs::remove_file(self.record_path()).map_err(|why| self.unusable(&why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_belongs_to_a_queue_of_the_interface_or_of_its_device() {
        let line = |name| format!(" 38:   0   4452 PCI-MSIX-0000:00:03.0   1-edge      {name}");
        let found = |name, device| irq(&line(name), "eth1", device);
        assert_eq!(found("virtio2-input.0", Some("virtio2")), Some((38, 0)));
        assert_eq!(found("virtio2-output.3", Some("virtio2")), Some((38, 3)));
        assert_eq!(found("eth1-TxRx-7", Some("0000:00:03.0")), Some((38, 7)));
        assert_eq!(found("mlx5_comp4@pci:0000:00:03.0", Some("0000:00:03.0")), Some((38, 4)));
        for other in ["virtio2-config", "virtio21-input.0", "eth10-rx-1", "eth1", "timer"] {
            assert_eq!(found(other, Some("virtio2")), None, "{other}");
        }
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(numbers("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!((numbers("3"), numbers(""), numbers("a-b")), (Some(vec![3]), None, None));
    }
}
