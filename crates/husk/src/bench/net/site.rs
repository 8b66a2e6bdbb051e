//! The servers that are asked: nginx and apache (prefork), each with one listening socket for all
//! of its processes, or with one for each kernel (`SO_REUSEPORT`).

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::clients::ask;
use crate::bench::measure::lab::{Lab, RECEIVER, inside};
use crate::bench::measure::scratch::Scratch;
use crate::bench::processes::exec::find;
use crate::bench::servers::{cpu_ns, kill_all};

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Listening sockets, where there is not only one.
const KERNELS: usize = 2;
/// Bytes of the page before it is compressed.
const PAGE_BYTES: usize = 40_000;
/// Requests by which it is found out what one takes.
const TRIALS: u16 = 200;
/// Connections that may wait at a listening socket, and be open in a process of nginx: what a
/// kernel that has too much must leave waiting is seen as time, not as lost SYNs.
const WAITING: usize = 4096;
/// Processes of apache.
const PREFORKED: usize = 16;
/// Where Debian has apache's modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two workers.
    Nginx,
    /// Preforked processes.
    Apache,
}

/// A server that answers.
pub struct Site {
    child: Child,
    address: SocketAddr,
    /// Listening sockets.
    pub kernels: usize,
}

/// Text that a compressor has something to do with.
fn page() -> Vec<u8> {
    let mut random = husk_net::sim::Random::new(1);
    let word = |number: usize| format!("{:x} ", number * number);
    let words = std::iter::repeat_with(|| word(random.below(4096)));
    words.flat_map(String::into_bytes).take(PAGE_BYTES).collect()
}

impl Site {
    /// Starts it in the receiver's namespace, and waits until it answers.
    pub fn start(kind: Kind, shared: bool, lab: &Lab, scratch: &Scratch) -> anyhow::Result<Site> {
        let port = 80 + u16::from(shared) + 2 * (kind as u16);
        let files = scratch.disk.join(port.to_string());
        let pages = files.join("pages");
        fs::create_dir_all(&pages)?;
        // apache's processes are somebody else's.
        for directory in [&scratch.disk, &files, &pages] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(pages.join("page.txt"), page())?;
        let address = SocketAddr::from((RECEIVER[0], port));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ratio = (cores / KERNELS).max(1);
        let mut command = match kind {
            Kind::Nginx => nginx(&files, address, shared)?,
            Kind::Apache => apache(&files, address, (!shared).then_some(ratio))?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = inside(&lab.receiver, || {
            command.spawn().with_context(|| format!("cannot start {command:?}"))
        })?;
        let kernels = match (kind, shared) {
            (_, true) => 1,
            (Kind::Nginx, _) => KERNELS,
            (Kind::Apache, _) => (cores / ratio).max(1),
        };
        let mut site = Site { child, address, kernels };
        site.wait(lab, &files)?;
        Ok(site)
    }

    fn wait(&mut self, lab: &Lab, files: &Path) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        let ready = || inside(&lab.sender, || Ok(ask(self.address, 0)?));
        while let Err(why) = ready() {
            let errors = fs::read_to_string(files.join("errors")).unwrap_or_default();
            let last = errors.lines().last().unwrap_or_default();
            anyhow::ensure!(self.child.try_wait()?.is_none(), "a server has ended: {last}");
            anyhow::ensure!(Instant::now() < end, "no answer within {PATIENCE:?}: {why} {last}");
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Seconds of a processor that a request takes.
    pub fn request_s(&self, lab: &Lab) -> anyhow::Result<f64> {
        let before_ns = cpu_ns(self.pid())?;
        inside(&lab.sender, || {
            (0..TRIALS).try_for_each(|_| ask(self.address, 0).map(drop))?;
            Ok(())
        })?;
        Ok((cpu_ns(self.pid())? - before_ns) as f64 / 1e9 / f64::from(TRIALS))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        kill_all(&mut self.child);
    }
}

fn nginx(files: &Path, address: SocketAddr, shared: bool) -> anyhow::Result<Command> {
    let reuseport = if shared { "" } else { " reuseport" };
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let path = files.display();
    let parts = kinds.map(|kind| format!("{kind}_temp_path {path}/parts;\n")).concat();
    let text = format!(
        "daemon off;\nworker_processes {KERNELS};\nuser root;\npid {path}/pid;\n\
         error_log {path}/errors;\nevents {{ worker_connections {WAITING}; }}\n\
         http {{\naccess_log off;\n{parts}\
         gzip on;\ngzip_comp_level 6;\ngzip_http_version 1.0;\ngzip_types text/plain;\n\
         default_type text/plain;\nadd_header X-Worker $pid;\n\
         server {{ listen {address}{reuseport} backlog={WAITING}; root {path}/pages; }}\n}}\n"
    );
    let settings = files.join("conf");
    fs::write(&settings, text)?;
    let mut nginx = Command::new(find("nginx")?);
    nginx.arg("-e").arg(files.join("errors")).arg("-p").arg(files).arg("-c").arg(settings);
    Ok(nginx)
}

fn apache(files: &Path, address: SocketAddr, ratio: Option<usize>) -> anyhow::Result<Command> {
    let path = files.display();
    let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let modules = ["mpm_prefork", "authz_core", "filter", "deflate"].map(load).concat();
    let buckets = ratio.map_or(String::new(), |of| format!("ListenCoresBucketsRatio {of}\n"));
    let text = format!(
        "ServerName husk\nServerRoot {path}\nPidFile {path}/pid\nErrorLog {path}/errors\n\
         DefaultRuntimeDir {path}\nListen {address}\nListenBacklog {WAITING}\n{buckets}\
         {modules}DocumentRoot {path}/pages\n\
         User #65534\nGroup #65534\nSetOutputFilter DEFLATE\nDeflateCompressionLevel 6\n\
         StartServers {PREFORKED}\nServerLimit {PREFORKED}\nMaxRequestWorkers {PREFORKED}\n\
         MinSpareServers 1\nMaxSpareServers {PREFORKED}\n"
    );
    let settings = files.join("conf");
    fs::write(&settings, text)?;
    let program: PathBuf = find("apache2")?;
    let mut apache = Command::new(program);
    apache.arg("-DFOREGROUND").arg("-f").arg(settings);
    Ok(apache)
}

/// An address of this host, for sockets of the measurement itself.
pub const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
