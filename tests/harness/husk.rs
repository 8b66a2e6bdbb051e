//! The command under test: found or built, and how a side is started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where a run happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// On Linux as it is.
    Native,
    /// Inside an image.
    Husk,
}

/// Memory of a test's image: small, for many run at the same time.
const MEMORY: &str = "512M";

/// Whether the tests test themselves: Husk's side is then native, too.
pub fn against_native() -> bool {
    std::env::var_os("HUSK_TEST_AGAINST").is_some_and(|side| side == "native")
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The `husk` command, built on the first call of each test program.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = std::env::var_os("HUSK_BIN").map_or_else(build, PathBuf::from);
        if built.starts_with("/tmp") { beyond_tmp(&built) } else { built }
    })
}

/// A copy of the command, as old as it is, where programs of an image find it, too: /tmp is empty
/// for them.
fn beyond_tmp(built: &Path) -> PathBuf {
    let directory = crate::scratch::room().join("bin");
    std::fs::create_dir_all(&directory).expect("a directory for the command");
    let (copy, whole) = (directory.join(std::process::id().to_string()), directory.join("husk"));
    let modified = built.metadata().and_then(|facts| facts.modified()).expect("a time");
    std::fs::copy(built, &copy).expect("a copy of the command");
    let file = std::fs::File::options().write(true).open(&copy).expect("the copy");
    file.set_modified(modified).expect("its time");
    drop(file);
    // Another test program may run the one before.
    std::fs::rename(&copy, &whole).expect("the copy in its place");
    whole
}

/// Builds into one place for all test programs; cargo's own lock keeps them apart.
fn build() -> PathBuf {
    let target = workspace().join("target/husk-tests");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(workspace()).args(["build", "--release", "-q", "-p", "husk"]);
    let status = cargo.env("CARGO_TARGET_DIR", &target).status().expect("cargo starts");
    assert!(status.success(), "cargo build -p husk: {status}");
    target.join("release/husk").canonicalize().expect("the built command")
}

/// `husk run OPTIONS -- ARGV`.
pub fn husk(options: &[&str], argv: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("run");
    if !options.contains(&"--memory") {
        command.args(["--memory", MEMORY]);
    }
    let more = std::env::var("HUSK_TEST_OPTIONS").unwrap_or_default();
    command.args(options).args(more.split_whitespace()).arg("--").args(argv);
    // The image checks its own structures when it ends and reports what it finds.
    command.env("HUSK_FSCK", "1");
    command
}

impl Side {
    /// The side that cases compare with the native one.
    pub fn tested() -> Self {
        if against_native() { Self::Native } else { Self::Husk }
    }

    /// `argv` as this side runs it.
    pub fn command(self, options: &[&str], argv: &[&str]) -> Command {
        match self {
            Self::Husk => husk(options, argv),
            Self::Native => {
                let mut command = Command::new(argv[0]);
                command.args(&argv[1..]);
                command
            }
        }
    }
}
