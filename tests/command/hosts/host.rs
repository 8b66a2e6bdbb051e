//! Another host for tests: a mount namespace with an sshd of its own on a port of the loopback
//! interface: keys, configuration, home directory and known hosts are the test's. Where the network
//! itself is what fails, each side has a network namespace, and a veth joins them.

use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use husk_tests::husk::{binary, husk};
use husk_tests::{Outcome, Scratch, against_native, process};

use crate::{LIMIT, run, said};

/// Two network namespaces, of home and of the other host, removed in the end.
pub struct Net {
    names: [String; 2],
}

impl Net {
    const ADDRESSES: [&str; 2] = ["10.93.7.1", "10.93.7.2"];

    pub fn new(name: &str) -> Net {
        let pid = std::process::id();
        let net = Net { names: [format!("{name}-home-{pid}"), format!("{name}-far-{pid}")] };
        let [home, far] = &net.names;
        for name in [home, far] {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        ip(&["-n", home, "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", far]);
        for (name, address) in net.names.iter().zip(Net::ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "v"]);
            ip(&["-n", name, "link", "set", "v", "up"]);
        }
        net.joined();
        net
    }

    /// Cuts the wire, or joins it again.
    pub fn cut(&self, cut: bool) {
        ip(&["-n", &self.names[1], "link", "set", "v", if cut { "down" } else { "up" }]);
        if !cut {
            self.joined();
        }
    }

    fn joined(&self) {
        let home = &self.names[0];
        until("the wire", || {
            let look = ["netns", "exec", home, "cat", "/sys/class/net/v/operstate"];
            Command::new("ip").args(look).output().is_ok_and(|output| output.stdout == b"up\n")
        });
        // Who was not reachable is asked for again.
        ip(&["-n", home, "neighbor", "flush", "dev", "v"]);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(words: &[&str]) {
    assert!(Command::new("ip").args(words).status().expect("ip").success(), "ip {words:?}");
}

/// A host to be reached as `h`.
pub struct Host {
    pub scratch: Scratch,
    pub home: PathBuf,
    sshd: Option<Child>,
    port: Cell<u16>,
    pub net: Option<Net>,
}

impl Host {
    /// `None`: there is no sshd, or we are not root, who makes namespaces.
    pub fn new(name: &str) -> Option<Host> {
        Host::with(name, false)
    }

    /// Behind a network of its own.
    pub fn far(name: &str) -> Option<Host> {
        Host::with(name, true)
    }

    fn with(name: &str, far: bool) -> Option<Host> {
        let able = Path::new("/usr/sbin/sshd").exists() && rustix::process::getuid().is_root();
        if against_native() || !able {
            return None;
        }
        let scratch = Scratch::new(name);
        let home = scratch.fresh("home");
        scratch.fresh("bin");
        for key in ["hostkey", "userkey"] {
            let path = scratch.path().join(key);
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            assert!(made.arg(path).status().expect("ssh-keygen").success());
        }
        let mut host = Host { scratch, home, sshd: None, port: Cell::new(0), net: None };
        host.net = far.then(|| Net::new(name));
        fs::copy(host.path("userkey.pub"), host.path("authorized")).expect("a key");
        let known = fs::read_to_string(host.path("hostkey.pub")).expect("a key");
        host.write("known", &format!("h {known}"));
        host.serve("");
        let config = host.path("ssh").display().to_string();
        host.ssh_is(&format!("exec /usr/bin/ssh -F {config} \"$@\""));
        Some(host)
    }

    /// From now on this is what runs as ssh.
    pub fn ssh_is(&self, script: &str) {
        let ssh = self.path("bin/ssh");
        fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).expect("a wrapper");
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    /// Starts its sshd after `first`.
    pub fn serve(&mut self, first: &str) {
        self.end();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a port").port();
        let place = self.scratch.path().display();
        let home = self.home.display();
        let address = self.address();
        let config = format!(
            "HostKey {place}/hostkey\nAuthorizedKeysFile {place}/authorized\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPidFile none\nPort {port}\n\
             ClientAliveInterval 20\nClientAliveCountMax 3\n\
             ListenAddress {address}\n\
             SetEnv HOME={home} XDG_CACHE_HOME={home}/.cache PATH={home}/bin:/usr/bin:/bin \
             HUSK_HOST_TEST={place}\n\
             AcceptEnv HUSK_TEST_AHEAD_S\n"
        );
        self.write("sshd_config", &config);
        let script = format!(
            "mount -t tmpfs run /run && mkdir -m 755 /run/sshd || exit 1\n{first}\n\
             exec /usr/sbin/sshd -D -f {place}/sshd_config -E {place}/log\n"
        );
        self.write("sshd.sh", &script);
        let _ = fs::remove_file(self.path("log"));
        let mut sshd = self.beyond(1, "unshare");
        sshd.args(["-m", "sh"]).arg(self.path("sshd.sh"));
        // Its sessions outlive a cut network: they may not hold what we write to.
        sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.sshd = Some(sshd.spawn().expect("sshd"));
        self.port.set(port);
        let log = || fs::read_to_string(self.path("log")).unwrap_or_default();
        until("sshd listens", || log().contains("Server listening"));
        self.configure("");
    }

    /// Where its sshd listens.
    fn address(&self) -> &'static str {
        if self.net.is_some() { Net::ADDRESSES[1] } else { "127.0.0.1" }
    }

    /// `program` where home (0) or the other host (1) is.
    fn beyond(&self, side: usize, program: &str) -> Command {
        let Some(net) = &self.net else { return Command::new(program) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &net.names[side], program]);
        command
    }

    fn end(&mut self) {
        if let Some(mut sshd) = self.sshd.take() {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }

    /// How ssh reaches it; what is said first counts.
    pub fn configure(&self, first: &str) {
        let (place, address) = (self.scratch.path().display(), self.address());
        let config = format!(
            "{first}\nHost h\nHostName {address}\nHostKeyAlias h\nPort {}\n\
             IdentityFile {place}/userkey\nIdentitiesOnly yes\nUser root\n\
             UserKnownHostsFile {place}/known\nGlobalKnownHostsFile /dev/null\n\
             StrictHostKeyChecking yes\n",
            self.port.get()
        );
        self.write("ssh", &config);
    }

    pub fn command(&self, options: &[&str], argv: &[&str]) -> Command {
        // A run sets PATH: what is said behind it counts.
        let husk = husk(options, argv);
        let mut command = self.beyond(0, "env");
        let bin = self.path("bin").display().to_string();
        command.arg(format!("PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin"));
        command.arg(husk.get_program()).args(husk.get_args()).env("HUSK_FSCK", "1");
        command.env("HUSK_HOST_TEST", self.scratch.path());
        command
    }

    /// `husk WORDS`, with images of this host's own.
    pub fn husk(&self, words: &[&str]) -> Command {
        let mut command = self.beyond(0, "env");
        let bin = self.path("bin").display().to_string();
        let own = |name: &str| self.path(name).display().to_string();
        command.arg(format!("PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin"));
        command.args([format!("HUSK_IMAGES={}", own("images")), "HUSK_FSCK=1".to_owned()]);
        command.arg(format!("XDG_STATE_HOME={}", own("state")));
        command.arg(binary()).args(words).env("HUSK_HOST_TEST", self.scratch.path());
        command
    }

    pub fn run(&self, work: &Path, argv: &[&str]) -> Outcome {
        run(&self.scratch, work, self.command(&["--on", "h"], argv))
    }

    /// The one line that says why the host cannot be used.
    pub fn refused(&self) -> String {
        let work = self.scratch.fresh("work");
        let outcome = self.run(&work, &["touch", "made"]);
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        assert!(!work.join("made").exists());
        self.nothing_is_left();
        let lines = said(&outcome);
        let line = lines.last().expect("a line").to_string();
        assert!(lines.iter().all(|one| *one == line || one.contains("copying husk")), "{lines:?}");
        assert!(line.starts_with("husk: cannot use h: "), "{line}");
        line
    }

    /// Processes that were started here or there on behalf of this test.
    pub fn processes(&self) -> Vec<process::Found> {
        process::marked(&self.scratch.path().display().to_string())
    }

    /// Whose arguments contain `what`.
    pub fn process(&self, what: &str) -> Option<i32> {
        let found = self.processes().into_iter().find(|found| found.arguments.contains(what));
        found.map(|found| found.pid)
    }

    /// The process with exactly these arguments: scripts and shadows name them, too.
    pub fn exactly(&self, arguments: &str) -> Option<i32> {
        let found = self.processes().into_iter().find(|found| found.arguments == arguments);
        found.map(|found| found.pid)
    }

    /// The process that serves there; the words of ssh name it, too.
    pub fn guest(&self) -> Option<i32> {
        let is = |arguments: &str| {
            arguments.strip_suffix(" serve-guest").is_some_and(|path| !path.contains(' '))
        };
        self.processes().into_iter().find(|found| is(&found.arguments)).map(|found| found.pid)
    }

    /// No process of the host, and no file but the copy of the command and what is known of others.
    pub fn nothing_is_left(&self) {
        until("its processes end", || self.processes().is_empty());
        let names = fs::read_dir(self.home.join(".cache/husk")).into_iter().flatten().flatten();
        for name in names.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            let whole = name.starts_with("husk-") && !name.ends_with(".part");
            assert!(whole || ["copies", "files", "hosts"].contains(&&name[..]), "{name} is left");
        }
    }
}

/// Waits until `is`, a bounded time.
pub fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}
