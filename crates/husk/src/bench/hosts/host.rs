//! A quota host: a part of a processor, with namespaces for mounts, processes and its network.
//!
//! ```text
//!   home 10.94.K.1 ── wK ═══ w ── 10.94.K.2 host K: sshd, later icecream's or distcc's server
//!     its first process reads from a pipe of ours: when we are gone it ends, and with it all
//! ```
//!
//! Invariants
//! 1. All of a host's processes are in its namespace of processes, which ends with its first one,
//!    also when we are killed.
//! 2. The project is not there: what a host knows of it has come over its network.
//! 3. `/tmp`, `/run` and `/dev/shm` are its own, and so is its home directory.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::Context;
use husk_net::wire::{End, Wire};

use super::quota::Group;
use crate::bench::measure::lab::{inside, ip, made};
use crate::bench::measure::stop;
use crate::bench::processes::exec::find;

/// How long a host may take to be there.
const START_MAX: Duration = Duration::from_secs(20);
/// How long one command may take.
const COMMAND_MAX: Duration = Duration::from_secs(900);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The directory of servers, below a host's own.
const SERVERS: &str = "servers";

/// What all hosts have in common.
pub struct Place {
    /// Holds the directories of all hosts.
    pub disk: PathBuf,
    /// What only home has.
    pub project: PathBuf,
    /// The part of a processor, in per cent.
    pub percent: u64,
}

/// A host.
pub struct Host {
    first: Child,
    /// Ends the host when it is closed.
    _open: ChildStdin,
    pid: u32,
    net: File,
    /// Its quota.
    pub group: Group,
    /// Its own directory.
    pub files: PathBuf,
    /// What ssh, icecream and distcc call it.
    pub name: String,
    _wire: Option<Wire>,
}

/// The address of host `index`, 1 and above.
pub fn address(index: usize) -> String {
    format!("10.94.{index}.2")
}

/// The address of home, as host `index` sees it.
pub fn home_address(index: usize) -> String {
    format!("10.94.{index}.1")
}

fn words(path: &Path) -> String {
    format!("'{}'", path.display())
}

impl Host {
    /// Home, which is host 0.
    pub fn home(place: &Place) -> anyhow::Result<Host> {
        let net = made()?;
        inside(&net, || ip("link set lo up"))?;
        Host::start(place, 0, net, None)
    }

    /// Another host, joined to home by a link on which a round trip takes so long.
    pub fn joined(
        place: &Place,
        home: &Host,
        index: usize,
        trip: Duration,
    ) -> anyhow::Result<Host> {
        let net = made()?;
        let near = format!("w{index}");
        let wire = if trip.is_zero() {
            let far = format!("/proc/{}/fd/{}", std::process::id(), net.as_raw_fd());
            inside(&home.net, || {
                ip(&format!("link add {near} type veth peer name w netns {far}"))
            })?;
            None
        } else {
            let make = |net, name: &str| {
                let tun = "no link with a delay can be made: load the module `tun`";
                inside(net, || End::new(name).context(tun))
            };
            Some(Wire::join([make(&home.net, &near)?, make(&net, "w")?], trip / 2)?)
        };
        let sides = [(&home.net, &near[..], home_address(index)), (&net, "w", address(index))];
        for (net, name, address) in sides {
            inside(net, || {
                ip("link set lo up")?;
                ip(&format!("address add {address}/24 dev {name}"))?;
                ip(&format!("link set {name} up"))
            })?;
        }
        Host::start(place, index, net, wire)
    }

    fn start(place: &Place, index: usize, net: File, wire: Option<Wire>) -> anyhow::Result<Host> {
        let name = format!("h{index}");
        let files = place.disk.join(&name);
        for part in ["home", "tmp", SERVERS] {
            fs::create_dir_all(files.join(part))?;
        }
        // Servers give up being root.
        for part in ["tmp", SERVERS] {
            fs::set_permissions(files.join(part), fs::Permissions::from_mode(0o1777))?;
        }
        let group = Group::new(&name)?;
        let script = script(place, &files, &group, index > 0)?;
        let mut first = Command::new("unshare");
        first.args(["--mount", "--pid", "--fork", "setsid", "sh", "-c", &script]).process_group(0);
        first.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut first = inside(&net, || Ok(first.spawn()?)).context("cannot start unshare")?;
        let (Some(open), Some(said)) = (first.stdin.take(), first.stdout.take()) else {
            unreachable!("both are pipes")
        };
        let mut host = Host { first, _open: open, pid: 0, net, group, files, name, _wire: wire };
        let (tell, told) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            // One that has ended says nothing.
            let _ = BufReader::new(said).read_line(&mut line);
            let _ = tell.send(line);
        });
        let line = told.recv_timeout(START_MAX).unwrap_or_default();
        let log = fs::read_to_string(host.files.join("log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default();
        let failed = || format!("a quota host does not start {last}");
        host.pid = line.trim().parse().with_context(failed)?;
        host.group.limit(Some(place.percent))?;
        Ok(host)
    }

    /// A command of this host, in this directory.
    pub fn command(&self, here: &Path, program: &str) -> Command {
        self.entering(&self.group.entrances(), here, program)
    }

    fn entering(&self, entrances: &[PathBuf], here: &Path, program: &str) -> Command {
        let enter = entrances.iter().map(|path| format!("echo 0 > {} && ", words(path)));
        let script = enter.collect::<String>()
            + &format!("exec nsenter -t {} -m -n -p -- env -C \"$0\" \"$@\"", self.pid);
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(here).arg(program);
        command.env("HOME", self.files.join("home")).env("TMPDIR", "/tmp");
        command.env("XDG_CACHE_HOME", self.files.join("home/.cache"));
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// Starts a server, which `Group::end_servers` ends.
    pub fn serve(&self, program: &str, words: &[&str]) -> anyhow::Result<()> {
        let mut command = self.entering(&self.group.server_entrances(), &self.files, program);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = command.spawn().with_context(|| format!("cannot start {program}"))?;
        // Ended by its group, or with the host.
        thread::spawn(move || server.wait());
        Ok(())
    }

    /// Where servers have their files.
    pub fn servers(&self) -> PathBuf {
        self.files.join(SERVERS)
    }

    /// Bytes that its interfaces have sent and received, except for the loopback.
    pub fn link_bytes(&self) -> anyhow::Result<u64> {
        let text = inside(&self.net, || Ok(fs::read_to_string("/proc/thread-self/net/dev")?))?;
        let bytes = |line: &str| {
            let (_, counts) = line.split_once(':').filter(|(name, _)| name.trim() != "lo")?;
            let counts: Vec<u64> =
                counts.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            Some(counts.first()? + counts.get(8)?)
        };
        Ok(text.lines().filter_map(bytes).sum())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its group, dropped after this, ends what is left.
        let _ = self.first.kill();
        self.group.end_servers();
        if self.pid > 1 {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(self.pid as i32),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        let _ = self.first.wait();
    }
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> anyhow::Result<(Output, Duration)> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let since = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let pid = child.id();
    let (tell, told) = channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let all = |from: Option<_>| {
        let mut text = Vec::new();
        // What cannot be read was not said.
        let _ = from.map(|mut from: Box<dyn std::io::Read + Send>| from.read_to_end(&mut text));
        text
    };
    let output = thread::spawn(move || all(output.map(|from| Box::new(from) as _)));
    let errors = thread::spawn(move || all(errors.map(|from| Box::new(from) as _)));
    thread::spawn(move || tell.send((child.wait(), Instant::now())));
    let status = loop {
        if let Ok((status, ended)) = told.recv_timeout(LOOK_EVERY) {
            break status.map(|status| (status, ended - since));
        }
        if stop::came().is_some() || since.elapsed() > COMMAND_MAX {
            // The group of the whole command; its host ends what has left it.
            let group = nix::unistd::Pid::from_raw(pid as i32);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            stop::check()?;
            anyhow::bail!("no end within {COMMAND_MAX:?}: {command:?}");
        }
    };
    let (status, took) = status?;
    let (stdout, stderr) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    Ok((Output { status, stdout, stderr }, took))
}

/// Waits until something is so.
pub fn until(what: &str, mut is: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let end = Instant::now() + START_MAX;
    while !is()? {
        stop::check()?;
        anyhow::ensure!(Instant::now() < end, "never within {START_MAX:?}: {what}");
        sleep(10 * LOOK_EVERY);
    }
    Ok(())
}

/// What the first process of a host does.
fn script(place: &Place, files: &Path, group: &Group, serves: bool) -> anyhow::Result<String> {
    let enter: String = group
        .entrances()
        .iter()
        .map(|path| format!("echo 0 > {} || exit 1\n", words(path)))
        .collect();
    let own = words(files);
    // The number that those outside know, before /proc is this host's.
    let mut script = format!(
        "read -r p rest < /proc/self/stat\n{enter}mount -t proc proc /proc || exit 1\n\
         mount -t tmpfs run /run && mkdir -m 755 /run/sshd /run/icecc || exit 1\n\
         mount --bind {own}/tmp /tmp && mount -t tmpfs shm /dev/shm || exit 1\n"
    );
    if serves {
        let sshd = find("sshd")?;
        script += &format!(
            "mount -t tmpfs none {} || exit 1\n{} -D -f {own}/sshd -E {own}/log &\n\
             n=0; until grep -q 'Server listening' {own}/log 2>/dev/null; do\n\
             n=$((n + 1)); [ $n -lt 200 ] || exit 1; sleep 0.05; done\n",
            words(&place.project),
            words(&sshd),
        );
    }
    // Whoever is left by its parent is nobody's to wait for.
    script += "echo $p\nexec env --ignore-signal=CHLD cat > /dev/null\n";
    Ok(script)
}
