//! The command line: options, subcommands and exit statuses. The work is in `husk-supervisor`.
//!
//! ```text
//!   husk run [OPTIONS] -- COMMAND...     a throw-away image around one command
//!   husk up NAME [OPTIONS]               make an image that stays
//!   husk exec NAME -- COMMAND...         run a command in it
//!   husk ls | ps | nodes                 list images, processes, nodes
//!   husk stat | top | metrics IMAGE      counters and activity
//!   husk trace IMAGE                     the system calls of its programs
//!   husk explain [NAME] PID              where a process runs, and why
//!   husk kill IMAGE PID                  send a signal
//!   husk cp NAME:PATH TARGET             copy files out of an image, or into it
//!   husk mount NAME DIR | umount DIR     mount its files for programs outside
//!   husk diff IMAGE [PATH...]            show what a write-back would do now
//!   husk sync | refresh | down           write back, take in the host's changes, end
//!   husk recover | rescue                interrupted write-backs, and files they have saved
//!   husk config show | trust | check     settings that apply where no option is given
//!   husk volume create | ls | check | rm  storage areas that outlive images
//!   husk check | fsck IMAGE              check this host, or the structure of an image
//!   husk net ls IMAGE                    sockets of an image, and the way of their bytes
//!   husk net attach | tune | sim ...     TCP servers and interfaces of the host
//!   husk completions | man               shell completion, manual pages
//!   husk bench fs | pipes | ...          measurements
//! ```
//!
//! Exit status of `run`: the command's own; 125 when Husk failed, 126 when the command cannot be
//! executed, 127 when it was not found. It ends by the signal that ended the command. Of `fsck`: 0
//! clean, 1 findings, 2 not checked.
#![forbid(unsafe_code)]

mod bench;
mod commands;
mod ends;
mod net;
mod numbers;
mod pages;
mod picture;
mod screen;
mod sim;
mod top;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use husk_proto::place::{Origin, Policy};
use husk_supervisor::Request;
use husk_supervisor::hosts;
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::{print, say};
use husk_supervisor::recording;
use husk_supervisor::run::limits;
use husk_supervisor::run::request::{
    VolumePlan, parse_kernels, parse_nodes, parse_size, parse_volume, reason,
};
use husk_supervisor::show::check;
use husk_supervisor::show::fsck;
use husk_supervisor::show::stat;
use serde::Serialize;

use self::commands::{diff, explain, metrics, named, recover, rescue, settings, trace, volume};
use self::pages::{completing, reference};

/// The runtime, built for its own target by `build.rs`.
static RUNTIME: &[u8] = include_bytes!(env!("HUSK_RUNTIME"));

/// Runs unmodified programs on many small user-space kernels that look like one Linux.
#[derive(Parser, Debug)]
#[command(version, name = "husk")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a command in a throw-away image; write its changes back when it has ended.
    Run(RunOptions),
    /// Make an image with a name, which stays; `husk exec` runs commands in it.
    Up(named::Up),
    /// Run a command in an image, with this terminal, directory, environment and exit status.
    Exec(named::Exec),
    /// List this user's images.
    Ls {
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
        /// Print only the names, for shells.
        #[arg(long, hide = true)]
        names: bool,
    },
    /// List the processes of an image.
    Ps {
        /// Name of the image, or process id of a `husk run` or of a program in it.
        #[arg(value_name = "IMAGE")]
        name: OsString,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// List the nodes of an image made with `--nodes` or `--on`, and the programs on each.
    Nodes {
        /// Process id of a `husk run`, or name of an image.
        #[arg(value_name = "IMAGE")]
        image: String,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Add other hosts to an image that is up, or take them out.
    Node {
        #[command(subcommand)]
        command: named::Node,
    },
    /// Send a signal to a process of an image.
    Kill(named::Kill),
    /// Show what a write-back of an image would change on the host now, without doing it.
    ///
    /// One line for each path: A added, M changed, T another kind of object, D removed, R moved, m
    /// attributes only; ! marks a conflict: the host has changed it, too. Paths are relative to the
    /// overlay. Exit status 0, with --exit-code 1 if there are changes; 125 if the image could not
    /// be read.
    Diff(diff::Options),
    /// Write back what has changed in an image so far; the image and its programs go on.
    ///
    /// Each file is written atomically, as it was at one moment. A file that both sides have
    /// changed is a conflict: the host's keeps the name, the image's is written beside it as
    /// NAME.husk-N. A file that keeps changing is left for the next sync. With PATH, its parent
    /// directories, the other end of a move and other hard links of a file are written, too. Status
    /// 125: something was not written back as the image has it, and a line names it.
    Sync(named::Sync),
    /// Finish or undo write-backs that were interrupted (by a kill, a crash, a power failure) and
    /// have left old and new files in a directory.
    Recover(recover::Options),
    /// Show in an image what programs outside have changed below its overlays.
    ///
    /// Files that the image has not changed, or not since a sync, get the names, sizes, times and
    /// bytes that they have on the host now; files added or removed on the host appear and
    /// disappear. Open descriptors and mappings stay as they are. Where both sides have changed a
    /// file, each keeps its version, and a line reports it. Exit status 125: there are such files,
    /// or something could not be read.
    Refresh(named::Refresh),
    /// End an image: write its changes back, and free its name. First a line says how many changes
    /// there are.
    Down(named::Down),
    /// Copy a file, or with -r a directory tree, out of an image or into one.
    Cp(named::Cp),
    /// Mount the files of an image at a directory of the host, to read and write (FUSE).
    Mount(named::Mount),
    /// Unmount what `husk mount` has mounted at a directory.
    Umount(named::Umount),
    /// The half of a copy that runs in the image and reads.
    #[command(hide = true)]
    Parcel(named::Parcel),
    /// The half of a copy that runs in the image and writes.
    #[command(hide = true)]
    Unparcel {
        /// Where to.
        target: PathBuf,
    },
    /// Links a program and records what it holds then, to lie at an address.
    #[command(hide = true)]
    Record {
        /// Path of the program.
        program: PathBuf,
        /// Where it is to lie.
        low: u64,
    },
    /// A program that is recorded.
    #[command(hide = true)]
    RecordStart {
        /// What it is called.
        called: OsString,
        /// Its path.
        program: PathBuf,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// The process that makes a mount and ends it when its server has ended.
    #[command(hide = true)]
    MindMount(named::Shown),
    /// The server of a mount, which runs in the image.
    #[command(hide = true)]
    ServeMount(named::Shown),
    /// The agent of an image with several nodes.
    #[command(hide = true)]
    ServeHome {
        /// Who has started it, and whose end is its own.
        parent: u32,
        /// Nodes that are dead.
        dead: Vec<u16>,
    },
    /// Home's end of a session with another host.
    #[command(hide = true)]
    ServeHost {
        /// The host, as ssh knows it.
        host: String,
        /// What it is told.
        told: String,
    },
    /// The other host's end of it.
    #[command(hide = true)]
    ServeGuest,
    /// The keeper that `husk up` starts.
    #[command(hide = true)]
    Keep(named::Up),
    /// The supervisor that the keeper starts.
    #[command(hide = true)]
    Tend(named::Up),
    /// The supervisor that the keeper starts when another was killed.
    #[command(hide = true)]
    Resume {
        /// Name of the image.
        name: OsString,
    },
    /// The keeper that the supervisor starts when another was killed.
    #[command(hide = true)]
    Attend {
        /// Name of the image.
        name: OsString,
    },
    /// What keeps the image of a `husk run` that is killed.
    #[command(hide = true)]
    Guard {
        /// Name that the image gets.
        name: OsString,
    },
    /// The keeper of an image that has lost both supervisor and keeper, but not its programs.
    #[command(hide = true)]
    Adopt {
        /// Name of the image.
        name: OsString,
    },
    /// Show, check or trust the configuration: the settings of images where no option is given.
    Config {
        #[command(subcommand)]
        command: settings::Command,
    },
    /// Show, put back or remove what write-backs could not write and have saved.
    Rescue {
        #[command(subcommand)]
        command: rescue::Command,
    },
    /// Make, list, check and remove volumes: storage areas that outlive images.
    Volume {
        #[command(subcommand)]
        command: volume::Command,
    },
    /// Show whether this machine can run Husk, and what each missing feature costs.
    Check {
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Check the whole structure of a running image; its programs go on. Exit status 0: clean, 1:
    /// errors found, 2: it could not be checked.
    Fsck {
        /// Name of an image, or process id of a `husk run` or of a program in it.
        image: String,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Count the operations in a running image so far, by kernel and type, and show what it holds.
    Stat {
        /// Name of an image, or process id of a `husk run` or of a program in it.
        image: String,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Show where a process of an image runs, why it was placed there, and what its threads
    /// wait for.
    Explain(explain::Options),
    /// Show what happens in a running image, updated like top: operations a second by kernel and
    /// type, and the share of each process.
    Top(top::Options),
    /// Print the counters of `husk stat` as OpenMetrics (Prometheus), or serve them over HTTP.
    Metrics(metrics::Options),
    /// Show the system calls of a running image's programs, one a line, with where each was
    /// answered and how long that took. Ctrl-C ends it.
    Trace(trace::Options),
    /// Print a shell completion script.
    Completions {
        /// bash, zsh, fish, elvish or powershell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command into a directory.
    Man {
        /// Directory to write to.
        directory: PathBuf,
    },
    /// Print what a shell completes.
    #[command(hide = true)]
    Offer {
        /// Kind of the word.
        kind: completing::Kind,
        /// Words before it, or its beginning.
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Print the page of all commands for the documentation.
    #[command(hide = true)]
    Reference,
    /// Steer TCP connections from outside, and tune network interfaces.
    Net {
        #[command(subcommand)]
        command: net::Command,
    },
    /// Measure an image and the host, alternately.
    Bench(bench::Options),
    /// Predict the throughput of Hare's workloads on 1 to 1,000 nodes from measured costs, for a
    /// directory with one home and for one that is spread over all.
    Sim(sim::Options),
}

/// What an image is made from.
#[derive(clap::Args, Debug)]
struct ImageOptions {
    /// Number of kernels [default: one per online core].
    #[arg(long, value_name = "N", value_parser = parse_kernels)]
    kernels: Option<u32>,
    /// Most memory the image may use, e.g. 512M or 8G: bytes, or a whole number with K, M, G or T
    /// (KB and KiB mean the same, 1024 bytes) [default: a quarter of the memory of the machine or
    /// of the control group, at most 16G].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Keep changes below DIR in the image and write them back at the end [default: the current
    /// directory]. May be repeated.
    #[arg(long, value_name = "DIR")]
    overlay: Vec<PathBuf>,
    /// Put an empty tree in memory over DIR; it is gone at the end [default: /tmp]. May be
    /// repeated.
    #[arg(long, value_name = "DIR")]
    mount: Vec<PathBuf>,
    /// Mount volume NAME at DIR: what a program syncs there is durable when the call returns,
    /// everything else at the end. With POLICY `async=MS`, syncs return before that, and a loss of
    /// power takes what was acknowledged in the last MS milliseconds; with `immediate`, each change
    /// is durable when its call returns [default: fsync]. May be repeated.
    #[arg(long, value_name = "NAME:DIR[:POLICY]", value_parser = parse_volume)]
    volume: Vec<VolumePlan>,
    /// Write nothing back.
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    discard: Option<bool>,
    /// Make writes outside of the overlays and mounts fail (EROFS) instead of reaching the host.
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    read_only_outside: Option<bool>,
    /// Protect the image's state from stray stores with a memory protection key [default: on, if
    /// the processor has keys].
    #[arg(long, value_name = "WHEN")]
    guard: Option<Switch>,
    /// How to place processes on kernels and cores: host (by Linux), stay, round-robin, random or
    /// least-loaded [default: host; with --pin: least-loaded].
    #[arg(long, value_name = "POLICY", value_parser = explain::PolicyParser)]
    place: Option<Policy>,
    /// Give each kernel a core of its own; its processes run only there.
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pin: Option<bool>,
    /// Change UDP sockets when programs bind them: let several share a port (reuseport), give each
    /// one and the thread that binds it a core of their own in turn (pin), poll for a while before
    /// a wait sleeps (busy-poll). For servers with a socket for each thread or process.
    #[arg(long, value_name = "HOW", value_delimiter = ',')]
    udp: Vec<Udp>,
}

#[derive(clap::Args, Debug)]
struct RunOptions {
    #[command(flatten)]
    image: ImageOptions,
    /// Spread the command's programs over N nodes: Husk systems that change each other's files by
    /// messages only [default: 1].
    #[arg(long, value_name = "N", value_parser = parse_nodes)]
    nodes: Option<u32>,
    /// Also run programs of the command on these hosts, which are reached by ssh without a password
    /// and need nothing installed. Names and files stay here. Compilers and other programs that are
    /// the same there are spread over all hosts; shells and make stay here.
    #[arg(long, value_name = "HOST[,HOST...]", value_delimiter = ',')]
    on: Vec<String>,
    /// Whose files programs on other hosts see outside of the overlays: those of the host they run
    /// on (then only programs that are the same on both run there), or this host's, which are sent
    /// as they are needed and kept there for later [default: there].
    #[arg(long, value_name = "WHOSE", requires = "on")]
    root: Option<Root>,
    /// What to do with the changes if the command fails (its status is not 0, or a signal ends it):
    /// write them back, discard them, or keep the image under a name that is printed [default:
    /// write].
    #[arg(long, value_name = "WHAT")]
    on_failure: Option<OnFailure>,
    /// Show the changes when the command has ended, and ask on the terminal what to write back:
    /// all, some, or nothing.
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    ask: Option<bool>,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl ImageOptions {
    fn request(self) -> Request {
        Request {
            kernels: self.kernels,
            memory_bytes: self.memory,
            overlays: self.overlay,
            mounts: self.mount,
            volumes: self.volume,
            discard: self.discard,
            on_failure: None,
            ask: None,
            sealed: self.read_only_outside,
            guard: self.guard.map(|guard| guard == Switch::On),
            place: self.place.map(|policy| (policy, Origin::Image)),
            pin: self.pin,
            covers_here: false,
            udp: husk_proto::image::Udp {
                reuseport: self.udp.contains(&Udp::Reuseport),
                pin: self.udp.contains(&Udp::Pin),
                busy_poll: self.udp.contains(&Udp::BusyPoll),
            },
            nodes: None,
            hosts: Vec::new(),
            root: hosts::Root::default(),
            part_of: None,
        }
    }
}

impl Command {
    /// The image that it is about, as it was typed; `None` where it makes one (which says itself
    /// what is half way), lists all, or is about none.
    fn image(&self) -> Option<&OsStr> {
        match self {
            Command::Ps { name, .. } => Some(name),
            Command::Nodes { image, .. }
            | Command::Fsck { image, .. }
            | Command::Stat { image, .. } => Some(image.as_ref()),
            Command::Kill(options) => Some(&options.name),
            Command::Diff(options) => Some(options.image.as_ref()),
            Command::Sync(options) => Some(&options.name),
            Command::Refresh(options) => Some(options.name.as_ref()),
            Command::Down(options) => Some(&options.name),
            Command::Mount(options) => Some(options.image()),
            Command::Explain(options) => Some(options.name.as_ref()),
            Command::Top(options) => Some(options.image.as_ref()),
            Command::Metrics(options) => Some(options.image.as_ref()),
            Command::Trace(options) => Some(options.image.as_ref()),
            Command::Net { command } => command.image(),
            Command::Node { command } => Some(command.image()),
            _ => None,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Udp {
    Reuseport,
    Pin,
    BusyPoll,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum OnFailure {
    Write,
    Discard,
    Keep,
}

impl From<OnFailure> for husk_supervisor::OnFailure {
    fn from(typed: OnFailure) -> Self {
        match typed {
            OnFailure::Write => Self::Write,
            OnFailure::Discard => Self::Discard,
            OnFailure::Keep => Self::Keep,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

/// `--root`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Root {
    /// Those of the host they run on.
    #[default]
    There,
    /// This host's.
    Home,
}

impl From<Root> for hosts::Root {
    fn from(typed: Root) -> Self {
        match typed {
            Root::There => Self::There,
            Root::Home => Self::Home,
        }
    }
}

fn main() -> ExitCode {
    if let Some(status) = hosts::at_a_glance() {
        return ExitCode::from(status);
    }
    husk_supervisor::run::umask::spare_owner();
    match limits::ensure_stack() {
        Ok(()) => begin(),
        Err(failure) => failed(&failure),
    }
}

/// On a stack of its own: the descriptions of all commands take more of it than a process may have.
fn parse(words: &[OsString]) -> Result<Options, clap::Error> {
    const STACK_BYTES: usize = 2 << 20;
    let parse = || Options::try_parse_from(words);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, parse).map(|thread| thread.join()) {
            Ok(Ok(options)) => options,
            // Without a thread it may do as well.
            Ok(Err(_)) | Err(_) => parse(),
        }
    })
}

/// Apart, as it takes more of the stack than there may be.
#[inline(never)]
fn begin() -> ExitCode {
    if let Some(exec) = named::Exec::at_a_glance(std::env::args_os()) {
        return named::exec(&exec);
    }
    let words = husk_supervisor::named::told().unwrap_or_else(|| std::env::args_os().collect());
    let options = match parse(&words) {
        Ok(options) => options,
        Err(error) => return tell_mistake(&error),
    };
    // `exec` says it itself: it is also understood without the parser. `cp` is an `exec`.
    options.command.image().into_iter().for_each(named::tell_unfinished);
    match options.command {
        Command::Run(options) => run(options),
        Command::Up(options) => named::up(&options),
        Command::Exec(options) => named::exec(&options),
        Command::Ls { names: true, .. } => named::names(),
        Command::Ls { json, .. } => named::list(json),
        Command::Ps { name, json } => named::processes(&name, json),
        Command::Nodes { image, json } => named::nodes(&image, json),
        Command::Node { command } => named::node(&command),
        Command::Kill(options) => named::kill(&options),
        Command::Diff(options) => diff::run(&options),
        Command::Sync(options) => named::sync(&options),
        Command::Recover(options) => recover::run(&options),
        Command::Refresh(options) => named::refresh(&options),
        Command::Down(options) => named::down(&options),
        Command::Cp(options) => named::copy(&options),
        Command::Mount(options) => named::mount(&options),
        Command::Umount(options) => named::umount(&options),
        Command::Record { program, low } => record(&program, low),
        Command::RecordStart { called, program, arguments } => {
            say(&recording::start(&called, &program, &arguments).to_string());
            ExitCode::from(STATUS_HUSK)
        }
        Command::MindMount(shown) => named::mind(&shown),
        Command::ServeMount(shown) => named::serve(&shown),
        Command::ServeHome { parent, dead } => {
            husk_supervisor::nodes::serve_home(parent, &dead);
            ExitCode::from(STATUS_HUSK)
        }
        Command::ServeHost { host, told } => ExitCode::from(hosts::serve_host(&host, &told)),
        Command::ServeGuest => ExitCode::from(hosts::serve_guest()),
        Command::Parcel(options) => named::parcel(&options),
        Command::Unparcel { target } => named::unparcel(&target),
        Command::Keep(options) => named::keep(&options, &words[2..]),
        Command::Tend(options) => named::tend(options),
        Command::Resume { name } => named::resume(&name),
        Command::Attend { name } => named::attend(&name),
        Command::Guard { name } => named::guard(&name),
        Command::Adopt { name } => named::adopt(&name),
        Command::Check { json } => print_check(json),
        Command::Fsck { image, json } => print_fsck(&image, json),
        Command::Completions { shell } => pages::completions(shell),
        Command::Offer { kind, words } => completing::offer(kind, &words),
        Command::Man { directory } => pages::manual(&directory),
        Command::Reference => reference::run(),
        Command::Config { command } => settings::run(command),
        Command::Net { command } => net::run(command),
        Command::Rescue { command } => rescue::run(command),
        Command::Volume { command } => volume::run(command),
        Command::Top(options) => top::run(&options),
        Command::Metrics(options) => metrics::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Stat { image, json } => print_stat(&image, json),
        Command::Bench(options) => bench::run(options).unwrap_or_else(unmeasured),
        Command::Sim(options) => sim::run(&options).unwrap_or_else(unmeasured),
    }
}

fn unmeasured(problem: anyhow::Error) -> ExitCode {
    if let Some(failure) = problem.downcast_ref::<Failure>() {
        return failed(failure);
    }
    say(&format!("cannot measure: {problem:#}; see `husk check`"));
    ExitCode::from(STATUS_HUSK)
}

/// The recording goes to standard output; why there is none, to standard error.
fn record(program: &Path, low: u64) -> ExitCode {
    let (said, why) = match recording::record(program, low) {
        Ok(recorded) => (recorded, None),
        Err(why) if why.passes => (recording::LATER.to_vec(), Some(why)),
        Err(why) => (recording::NEVER.to_vec(), Some(why)),
    };
    if let Some(why) = &why {
        say(&format!("cannot record {}: {why}", program.display()));
    }
    match io::stdout().write_all(&said) {
        Ok(()) if why.is_none() => ExitCode::SUCCESS,
        _ => ExitCode::from(STATUS_HUSK),
    }
}

/// One line for a mistake; help and version as clap prints them. Who types no command at all gets
/// the help, too.
fn tell_mistake(error: &clap::Error) -> ExitCode {
    let typed = std::env::args_os().nth(1).unwrap_or_default();
    // What is no text is no subcommand.
    let typed = typed.to_str().unwrap_or_default();
    let status = if typed == "fsck" { fsck::STATUS_UNCHECKED } else { STATUS_HUSK };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // On standard error: nothing was done. Help that cannot be printed has no reader.
        let _ = error.print();
        return ExitCode::from(status);
    }
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Help that cannot be printed has no reader.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = flattened(error.to_string());
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("unknown mistake");
    // An argument that is missing stands in the second line.
    let is_argument = |line: &&str| line.starts_with('<') || line.starts_with("--");
    let rest = lines.next().filter(is_argument).unwrap_or_default();
    let what = first.strip_prefix("error: ").unwrap_or(first);
    let command = path_typed();
    let what = format!("{what} {rest}");
    say(&format!("{}; {}see `{command} --help`", what.trim(), hint(error)));
    ExitCode::from(status)
}

/// `text` without the line breaks that typed words have put into it.
fn flattened(text: String) -> String {
    let typed = std::env::args_os().filter_map(|word| word.into_string().ok());
    typed
        .filter(|word| word.contains('\n'))
        .fold(text, |text, word| text.replace(&word, &word.replace('\n', "?")))
}

/// The command of which the help is to be seen: `husk`, and as many subcommands as are typed.
fn path_typed() -> String {
    let mut options = Options::command();
    let mut path = "husk".to_owned();
    for word in std::env::args_os().skip(1) {
        // What is no text is no subcommand.
        let found = word.to_str().and_then(|word| options.find_subcommand(word)).cloned();
        let Some(found) = found else { break };
        path = format!("{path} {}", found.get_name());
        options = found;
    }
    path
}

/// What may have been meant, or what there is to choose from.
fn hint(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    if let Some(meant) = meant(error) {
        return format!("did you mean {meant}? ");
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(all)) if !all.is_empty() => {
            format!("choose one of {}; ", all.join(", "))
        }
        _ => String::new(),
    }
}

/// What may have been meant, where a word is nearly right.
fn meant(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.iter().find_map(|kind| error.get(*kind))? {
        ContextValue::String(one) => Some(one.clone()),
        ContextValue::Strings(several) => several.first().cloned(),
        _ => None,
    }
}

fn run(options: RunOptions) -> ExitCode {
    let RunOptions { image, nodes, on, root, on_failure, ask, command } = options;
    let (on_failure, root) = (on_failure.map(Into::into), root.unwrap_or_default().into());
    let request = Request { on_failure, ask, nodes, hosts: on, root, ..image.request() };
    match husk_supervisor::run(request, &command, RUNTIME) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failed(&failure),
    }
}

/// Says what failed.
fn failed(failure: &Failure) -> ExitCode {
    say(&failure.to_string());
    ExitCode::from(failure.status)
}

/// `report` as text, or as one JSON document.
fn shown<T: Serialize>(report: &T, json: bool, text: impl FnOnce(&T) -> String) -> bool {
    let text = match json {
        true => serde_json::to_string_pretty(report).map(|text| text + "\n"),
        false => Ok(text(report)),
    };
    let printed = text.map_err(io::Error::from).and_then(|text| print(&text));
    if let Err(problem) = &printed {
        say(&format!("cannot print the report: {}; check where the output goes", reason(problem)));
    }
    printed.is_ok()
}

fn print_check(json: bool) -> ExitCode {
    let mut report = check::check();
    report.facts.push(net::steering());
    let printed = shown(&report, json, check::Report::table);
    if printed && report.able { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

fn print_fsck(image: &str, json: bool) -> ExitCode {
    let report = match fsck::check(image) {
        Ok(report) => report,
        Err(failure) => return failed(&failure),
    };
    let printed = shown(&report, json, fsck::Report::text);
    ExitCode::from(if printed { report.status() } else { fsck::STATUS_UNCHECKED })
}

fn print_stat(image: &str, json: bool) -> ExitCode {
    match stat::report(image) {
        Ok(report) if shown(&report, json, stat::Report::text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn everything_behind_the_dashes_is_the_commands() {
        let typed = ["husk", "run", "--discard", "--", "make", "--discard", "-j2", "--", "x"];
        let Command::Run(run) = Options::try_parse_from(typed).unwrap().command else {
            panic!("run was typed")
        };
        assert!(run.image.discard == Some(true) && run.image.guard.is_none());
        assert_eq!(run.command, ["make", "--discard", "-j2", "--", "x"]);
    }

    #[test]
    fn a_command_without_dashes_keeps_its_options() {
        let typed = ["husk", "run", "--kernels", "2", "make", "-j2", "--kernels", "9"];
        let Command::Run(run) = Options::try_parse_from(typed).unwrap().command else {
            panic!("run was typed")
        };
        assert_eq!((run.image.kernels, run.command.len()), (Some(2), 4));
    }
}
