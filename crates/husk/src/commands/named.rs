//! Options of `husk up`, `exec`, `ls`, `ps`, `kill`, `cp`, `sync`, `mount` and `down`.
//!
//! Exit status: of `exec` the command's own, for this process becomes it; 125 when Husk failed, 126
//! and 127 as of `run`. Of the others 0, or 125 when something failed; of `sync` and `down`
//! also when not all changes could be written back as they were.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use husk_proto::place::Policy;
use husk_supervisor::Request;
use husk_supervisor::follow::{self, Event};
use husk_supervisor::named::{self, Synced, Waiting};
use husk_supervisor::output::failure::{Failure, STATUS_HUSK};
use husk_supervisor::output::{print, say};
use husk_supervisor::refresh::{self, Refreshed};
use husk_supervisor::run::request::{parse_node, parse_nodes};
use husk_supervisor::write_back::tally::{conflict_lines, first_lines};
use serde::Serialize;

use crate::{ImageOptions, RUNTIME, Root, failed, shown};

#[derive(clap::Args, Debug)]
pub struct Up {
    /// The new image's name: up to 64 letters, digits, - and _, beginning with a letter.
    name: OsString,
    #[command(flatten)]
    image: ImageOptions,
    /// Make the image of N nodes: Husk systems that change each other's files by messages only.
    /// Names and files are on the first one [default: 1].
    #[arg(long, value_name = "N", value_parser = parse_nodes)]
    nodes: Option<u32>,
    /// Other hosts that programs of the image run on, too, as of `husk run --on`. More can be added
    /// with `husk node add`.
    #[arg(long, value_name = "HOST[,HOST...]", value_delimiter = ',')]
    on: Vec<String>,
    /// Whose files programs on other hosts see outside of the overlays, as with `husk run --root`.
    #[arg(long, value_name = "WHOSE")]
    root: Option<Root>,
    /// What a node of another image is told of it.
    #[arg(long, hide = true, value_name = "JSON")]
    part_of: Option<String>,
}

#[derive(clap::Args, Debug)]
pub struct Exec {
    /// Name of the image.
    name: OsString,
    /// How to place the command and all that it starts on kernels and cores: host (by Linux), stay,
    /// round-robin, random or least-loaded [default: HUSK_PLACE, or the image's own policy].
    #[arg(long, value_name = "POLICY", value_parser = crate::commands::explain::PolicyParser)]
    place: Option<Policy>,
    /// The node of the image to run it on [default: HUSK_NODE, or 0]. What it starts stays there.
    #[arg(long, value_name = "N", value_parser = parse_node)]
    node: Option<u32>,
    /// What the command finds as its own name.
    #[arg(long, value_name = "WORD", hide = true)]
    argv0: Option<OsString>,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(clap::Subcommand, Debug)]
pub enum Node {
    /// Let programs of an image that is up run on another host, too, as `husk up --on` does. What
    /// runs goes on; what it starts from now on may run there. A host that was lost comes back.
    Add {
        /// Name of the image.
        name: OsString,
        /// The host, as ssh knows it.
        host: String,
    },
    /// Take another host out of an image.
    Remove {
        /// Name of the image.
        name: OsString,
        /// The host, as it was named.
        host: String,
        /// End the programs that run there.
        #[arg(long)]
        force: bool,
    },
}

#[derive(clap::Args, Debug)]
pub struct Down {
    /// Name of the image.
    pub name: OsString,
    /// Write nothing back.
    #[arg(long)]
    discard: bool,
    /// End the programs that run in it.
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args, Debug)]
pub struct Sync {
    /// Name of the image.
    pub name: OsString,
    /// Only these paths and what is below, taken from the current directory if that is in an
    /// overlay, else from each overlay.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Write nothing: show what would be written, as `husk diff` does.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// With --dry-run: lines added and removed, by file.
    #[arg(long, requires = "dry_run", conflicts_with = "json")]
    stat: bool,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub struct Refresh {
    /// Name of the image, or process id of a `husk run` or of a program in it.
    #[arg(value_name = "IMAGE")]
    pub name: String,
    /// Refresh only this directory and what is below it.
    path: Option<PathBuf>,
    /// Go on until the image ends or Ctrl-C: what changes on the host is taken in at once. With
    /// --json, one line for each time.
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub struct Cp {
    /// Copy directories with all that they contain; symbolic links stay links.
    #[arg(long, short)]
    recursive: bool,
    /// What to copy; NAME:PATH is a path in image NAME.
    source: OsString,
    /// Where to, or into which directory; NAME:PATH is a path in image NAME.
    target: OsString,
}

#[derive(clap::Args, Debug)]
pub struct Parcel {
    #[arg(long, short)]
    recursive: bool,
    source: PathBuf,
}

#[derive(clap::Args, Debug)]
pub struct Mount {
    /// Name of the image; NAME:/PATH mounts only that part of it.
    name: OsString,
    /// Where to mount it: an empty directory that no image overlays.
    directory: PathBuf,
}

#[derive(clap::Args, Debug)]
pub struct Umount {
    /// Where the image is mounted.
    directory: PathBuf,
    /// Unmount even if it is in use; programs that use it get errors.
    #[arg(long)]
    force: bool,
}

/// What the two processes behind a mount are told.
#[derive(clap::Args, Debug)]
pub struct Shown {
    name: OsString,
    directory: PathBuf,
    trees: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
pub struct Kill {
    /// Name of the image, or process id of a `husk run` or of a program in it.
    #[arg(value_name = "IMAGE")]
    pub name: OsString,
    /// Number of the process.
    pid: String,
    /// The signal, by name or number.
    #[arg(long, short, default_value = "TERM")]
    signal: String,
}

impl Exec {
    /// `husk exec NAME -- COMMAND...` and nothing else: understood without the parser, which takes
    /// as long as a program's start. Anything else is the parser's.
    pub fn at_a_glance(mut words: impl Iterator<Item = OsString>) -> Option<Exec> {
        let (_, verb, name) = (words.next()?, words.next()?, words.next()?);
        let plain = verb == "exec" && !name.as_bytes().starts_with(b"-");
        let behind = plain && words.next()? == "--";
        let command: Vec<_> = words.collect();
        (behind && !command.is_empty()).then_some(Exec {
            name,
            place: None,
            node: None,
            argv0: None,
            command,
        })
    }
}

pub fn up(options: &Up) -> ExitCode {
    match named::up(&options.name, &arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

/// What was typed behind `up`, for those who read it again.
fn arguments() -> Vec<OsString> {
    std::env::args_os().skip(2).collect()
}

pub fn keep(options: &Up, arguments: &[OsString]) -> ExitCode {
    named::keep(&options.name, arguments);
    ExitCode::SUCCESS
}

pub fn tend(options: Up) -> ExitCode {
    let part_of = options.part_of.as_ref().and_then(|part| serde_json::from_str(part).ok());
    let (nodes, hosts) = (options.nodes, options.on);
    let root = options.root.unwrap_or_default().into();
    let request = Request { part_of, nodes, hosts, root, ..options.image.request() };
    named::tend(&options.name, request, RUNTIME);
    ExitCode::SUCCESS
}

pub fn resume(name: &OsStr) -> ExitCode {
    named::resume(name);
    ExitCode::SUCCESS
}

pub fn adopt(name: &OsStr) -> ExitCode {
    named::adopt(name, RUNTIME);
    ExitCode::SUCCESS
}

pub fn guard(name: &OsStr) -> ExitCode {
    named::guard(name);
    ExitCode::SUCCESS
}

pub fn attend(name: &OsStr) -> ExitCode {
    named::attend(name);
    ExitCode::SUCCESS
}

pub fn exec(options: &Exec) -> ExitCode {
    tell_unfinished(&options.name);
    let where_to = (options.place, options.node);
    let Err(failure) =
        named::enter(&options.name, &options.command, options.argv0.as_deref(), where_to);
    failed(&failure)
}

pub fn list(json: bool) -> ExitCode {
    let halves = husk_supervisor::recovery::halves();
    let rows = named::list(&halves);
    if rows.as_ref().is_ok_and(Vec::is_empty) && named::is_inside() {
        say("note: inside an image other images may not be visible: list them outside");
    }
    note(halves.iter().map(|half| &*half.note));
    listed(rows, json, named::table)
}

/// Says what is good to know, a line each.
fn note<'a>(lines: impl Iterator<Item = &'a str>) {
    lines.for_each(|line| say(&format!("note: {line}")));
}

/// Says which write-backs in the trees of an image were killed half way.
pub fn tell_unfinished(name: &OsStr) {
    note(named::unfinished(name).iter().map(|line| &**line));
}

/// The image in `NAME:PATH`, or in what is typed like it.
fn before_colon(typed: &OsStr) -> Option<&OsStr> {
    let (bytes, is_colon) = (typed.as_bytes(), |byte: &u8| *byte == b':');
    let name = &bytes[..bytes.iter().position(is_colon)?];
    (!name.contains(&b'/')).then(|| OsStr::from_bytes(name))
}

impl Mount {
    /// The image that is mounted.
    pub fn image(&self) -> &OsStr {
        before_colon(&self.name).unwrap_or(&self.name)
    }
}

/// What a shell offers where an image is to be named; nobody is asked.
pub fn names() -> ExitCode {
    let names = named::names().unwrap_or_default();
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    if print(&text).is_ok() { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

pub fn processes(name: &OsStr, json: bool) -> ExitCode {
    listed(named::processes(name), json, named::process_table)
}

pub fn node(command: &Node) -> ExitCode {
    let done = match command {
        Node::Add { name, host } => named::add_host(name, host).map(|()| None),
        Node::Remove { name, host, force } => named::remove_host(name, host, *force),
    };
    match done {
        Ok(line) => {
            line.iter().for_each(|line| say(line));
            ExitCode::SUCCESS
        }
        Err(failure) => failed(&failure),
    }
}

impl Node {
    /// The image that is meant.
    pub fn image(&self) -> &OsStr {
        match self {
            Node::Add { name, .. } | Node::Remove { name, .. } => name,
        }
    }
}

pub fn nodes(image: &str, json: bool) -> ExitCode {
    listed(husk_supervisor::nodes::nodes(image), json, husk_supervisor::nodes::table)
}

fn listed<T: Serialize>(
    rows: Result<Vec<T>, Failure>,
    json: bool,
    table: fn(&[T]) -> String,
) -> ExitCode {
    match rows {
        Ok(rows) if shown(&rows, json, |rows| table(rows)) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

pub fn kill(options: &Kill) -> ExitCode {
    match named::kill(&options.name, &options.pid, &options.signal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

/// Success, or a failure that has been said.
fn copied(complete: bool) -> ExitCode {
    if complete { ExitCode::SUCCESS } else { ExitCode::from(STATUS_HUSK) }
}

pub fn copy(options: &Cp) -> ExitCode {
    match named::copy(&options.source, &options.target, options.recursive) {
        Ok(complete) => copied(complete),
        Err(failure) => failed(&failure),
    }
}

pub fn parcel(options: &Parcel) -> ExitCode {
    let mut output = BufWriter::new(io::stdout().lock());
    // If nobody takes it, whoever was to has said why.
    copied(named::pack(&options.source, options.recursive, &mut output).unwrap_or(false))
}

pub fn unparcel(target: &Path) -> ExitCode {
    // If half of it comes, whoever sends it has said why.
    copied(named::unpack(target, &mut BufReader::new(io::stdin().lock())).unwrap_or(false))
}

pub fn mount(options: &Mount) -> ExitCode {
    match named::mount::mount(&options.name, &options.directory) {
        Ok(shown) => copied(shown),
        Err(failure) => failed(&failure),
    }
}

pub fn mind(shown: &Shown) -> ExitCode {
    named::mount::mind(&shown.name, &shown.directory, &shown.trees);
    ExitCode::SUCCESS
}

pub fn serve(shown: &Shown) -> ExitCode {
    let trees: Vec<PathBuf> = shown.trees.iter().map(PathBuf::from).collect();
    match named::mount::serve(&shown.name, &trees) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

pub fn umount(options: &Umount) -> ExitCode {
    match named::mount::umount(&options.directory, options.force) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

pub fn sync(options: &Sync) -> ExitCode {
    if options.dry_run {
        let planned = named::planned(&options.name, &options.paths);
        let shown = planned.and_then(|(mut look, found)| {
            crate::commands::diff::show(&mut look, &found, options.stat, options.json)
        });
        return shown.map_or_else(|failure| failed(&failure), |()| ExitCode::SUCCESS);
    }
    let waiting = Waiting::begin();
    let synced = named::sync(&options.name, &options.paths, &waiting);
    let tally = synced.as_ref().map(Synced::tally).unwrap_or_default();
    let mut status = ExitCode::SUCCESS;
    waiting.end(&tally, || status = tell_synced(synced, options.json));
    status
}

fn tell_synced(synced: Result<Synced, Failure>, json: bool) -> ExitCode {
    let synced = match synced {
        Err(failure) => return failed(&failure),
        Ok(synced) => synced,
    };
    if json && !shown(&synced, true, |_| String::new()) {
        return ExitCode::from(STATUS_HUSK);
    }
    if !json {
        let lines = |what: &str, of: &[String]| {
            let rest = "all of them: type that again with --json";
            first_lines(what, of, rest).iter().for_each(|line| say(line));
        };
        conflict_lines(&synced.conflicts).iter().for_each(|line| say(line));
        lines("not written back: ", &synced.failures);
        lines("left for the next time: ", &synced.changing);
        lines("note: ", &synced.notes);
    }
    copied(synced.complete)
}

pub fn refresh(options: &Refresh) -> ExitCode {
    if options.follow {
        return follow(options);
    }
    let told = match refresh::refresh(&options.name, options.path.as_deref()) {
        Err(failure) => return failed(&failure),
        Ok(told) => told,
    };
    if options.json && !shown(&told, true, |_| String::new()) {
        return ExitCode::from(STATUS_HUSK);
    }
    if !options.json {
        say_taken_in(&told);
    }
    copied(told.is_complete())
}

fn follow(options: &Refresh) -> ExitCode {
    let (name, json) = (&options.name, options.json);
    let mut whole = true;
    let followed = follow::follow(name, options.path.as_deref(), &mut |told| {
        let printed = match told {
            Event::Following(directories) => {
                // Directories that nobody has listed are looked at when somebody does.
                let yet = if directories == 0 { ": none is listed yet" } else { "" };
                let what = format!("following the host in {directories} directories");
                say(&format!("{what} for image {name}{yet}"));
                true
            }
            Event::TakenIn(found) if json => one_line(found),
            Event::TakenIn(found) => {
                say_taken_in(found);
                true
            }
        };
        whole &= printed;
        printed
    });
    match followed {
        Err(failure) => failed(&failure),
        Ok(()) => copied(whole),
    }
}

/// What a refresh has to tell.
fn say_taken_in(found: &Refreshed) {
    let rest = "all of them: husk refresh NAME --json";
    let conflicts = first_lines("conflict: ", &found.conflicts, rest);
    let failures = first_lines("not looked at: ", &found.failures, rest);
    conflicts.iter().chain(&failures).for_each(|line| say(line));
}

/// What was taken in, if it is anything; whether it could be printed.
fn one_line(found: &Refreshed) -> bool {
    *found == Refreshed::default()
        || serde_json::to_string(found).is_ok_and(|line| print(&format!("{line}\n")).is_ok())
}

pub fn down(options: &Down) -> ExitCode {
    if let Some(line) = named::foreseen(&options.name, options.discard, options.force) {
        say(&line);
    }
    let waiting = Waiting::begin();
    let ended = named::down(&options.name, options.discard, options.force, &waiting);
    let tally = ended.as_ref().map(|ended| ended.tally).unwrap_or_default();
    let mut status = ExitCode::SUCCESS;
    waiting.end(&tally, || {
        status = match ended {
            Err(failure) => failed(&failure),
            Ok(ended) => {
                ended.lines.iter().for_each(|line| say(line));
                copied(ended.complete)
            }
        }
    });
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Options};
    use clap::Parser;

    #[test]
    fn what_is_understood_at_a_glance_is_what_the_parser_understands() {
        let cases: [&[&str]; 9] = [
            &["husk", "exec", "ci", "--", "make", "-j2"],
            &["husk", "exec", "ci", "--", "--", "x"],
            &["husk", "exec", "ci", "make"],
            &["husk", "exec", "--", "ci", "make"],
            &["husk", "exec", "--help", "--", "x"],
            &["husk", "exec", "ci", "--"],
            &["husk", "exec"],
            &["husk", "run", "ci", "--", "x"],
            &["husk"],
        ];
        let mut seen = 0;
        for words in cases {
            let glance = Exec::at_a_glance(words.iter().map(OsString::from));
            let Some(glance) = glance else { continue };
            let Command::Exec(parsed) = Options::try_parse_from(words).unwrap().command else {
                panic!("{words:?} is no exec")
            };
            assert_eq!((&glance.name, &glance.command), (&parsed.name, &parsed.command));
            seen += 1;
        }
        assert_eq!(seen, 2);
    }
}
