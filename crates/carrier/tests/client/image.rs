//! One image for all scenarios: a mount in memory and an overlay, entered by one thread at a time.

use super::plain::host;
use super::system::{Husk, System};
use husk_abi::nr;
use husk_carrier::{Direct, Layout};
use husk_proto::Admin as _;
use husk_proto::fs::Imported;
use husk_proto::image::Cover;
use husk_proto::process::Process;
use std::sync::OnceLock;

/// Where the mount in memory lies.
pub const MEMORY: &str = "/tmp";
/// Where a second one lies. The overlay is not to be looked into by tests that have not filled it.
pub const OTHER: &str = "/srv";
/// Where the overlay lies.
pub const OVERLAY: &str = "/var/tmp";
/// Length of the longest of all places, Linux's `/dev/shm` included.
pub const LONGEST: usize = 8;
/// Memory of the image, bytes.
const BYTES: u64 = 64 << 20;

#[derive(Clone, Copy)]
struct Made {
    region: i32,
    process: Process,
}

static IMAGE: OnceLock<Made> = OnceLock::new();

fn make() -> Made {
    let layout = Layout { kernels: 2, memory_bytes: BYTES };
    let region = crate::support::map(layout);
    husk_carrier::format(layout, 0x55, b"/nowhere").expect("an image");
    let pid = std::process::id();
    let mut direct = Direct::attach(super::clock, Process(0), pid, pid).expect("a carrier");
    let covers = [(MEMORY, Cover::Memory), (OTHER, Cover::Memory), (OVERLAY, Cover::Overlay)];
    for (path, cover) in covers {
        let root = Imported::top(path.as_bytes(), 0o1777);
        direct.add_mount(path.as_bytes(), cover, &root).expect("a mount");
    }
    let fds: Vec<u32> = super::open_fds();
    let process = direct.first_process(pid, &fds).expect("a process");
    direct.detach();
    Made { region, process }
}

/// A client of the calling thread; a mount in memory gets its directory made.
pub fn enter(mount: &str, overlay: bool) -> Husk<Direct> {
    let made = *IMAGE.get_or_init(make);
    let tid = host(nr::gettid, [0; 6]) as u32;
    let direct = Direct::attach(super::clock, made.process, std::process::id(), tid);
    let mut husk = super::client(direct.expect("a carrier"), made.region);
    let parent = mount.rsplit_once('/').expect("two levels").0;
    for path in [parent, mount].into_iter().filter(|_| !overlay) {
        let path = format!("{path}\0");
        let args = [path.as_ptr() as usize, 0o755, 0, 0, 0, 0];
        assert_eq!(husk.call(nr::mkdir, args), 0, "{path}");
    }
    husk
}
