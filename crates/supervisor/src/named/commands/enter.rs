//! `husk exec`: this process becomes a program of a named image.
//!
//! ```text
//!   ask to join ─► record, region, loader ─► check them ─► high numbers ─► execve(loader)
//! ```
//!
//! Nothing stays between the caller and the program: it has this process's number, parent, group,
//! terminal, descriptors, directory, environment and limits, and its end is its own. A wait for a
//! parent that relays signals would be one more process that can be killed, stopped or slow.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use husk_proto::place::Policy;
use rustix::fs::Mode;

use super::ask::look;
use crate::image::attach::layout;
use crate::image::descriptors::{hand_down, inherited};
use crate::image::work::ensure_able;
use crate::named::message::{Answer, Ask, Status, ask};
use crate::named::place::{MISSING, Name, Place};
use crate::nodes;
use crate::output::failure::Failure;
use crate::process::reaper::state_and_parent;
use crate::run::launch::{self, HandOver};
use crate::run::request::reason;

/// How long a supervisor may take to answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Becomes `command` in image `name`, placed as the option says; it finds `shown` in place of what
/// it was called by.
pub fn enter(
    name: &OsStr,
    command: &[OsString],
    shown: Option<&OsStr>,
    (policy, node): (Option<Policy>, Option<u32>),
) -> Result<Infallible, Failure> {
    let name = Name::parse(name)?;
    let missing = |failure: Failure| match failure.remedy.as_str() {
        MISSING => {
            let remedy = format!("see `husk ls`, or make it: husk up {name}");
            Failure { remedy, ..failure }
        }
        _ => failure,
    };
    let asked = std::env::var_os(nodes::NODE_NAME);
    let place = match (node, asked) {
        (None, None) => Place::find(&name).map_err(missing)?,
        (node, asked) => {
            let status = look(&name).map_err(missing)?;
            let hosts = status.hosts.len() as u32;
            let count = status.nodes.max(hosts + 1);
            let asked = nodes::settle_asked(asked.as_deref(), count)?;
            match (hosts, node) {
                (0, node) => node_of(&name, node.unwrap_or(asked.unwrap_or(0).into()), count)?,
                // What it starts goes where the variable says.
                (_, None | Some(0)) => Place::find(&name)?,
                (_, Some(node)) => return Err(not_on_host(&name, node)),
            }
        }
    };
    let here = std::env::current_dir().ok().filter(|path| path.to_str().is_some());
    join(&place, here, command, shown, policy)
}

/// A command that is entered runs here, whatever runs on other hosts.
fn not_on_host(name: &Name, node: u32) -> Failure {
    let what = format!("cannot enter node {node} of image {name}");
    let why = "programs on other hosts are started by programs of the image";
    let remedy = format!("set HUSK_NODE={node} in a shell: husk exec {name} -- sh -c COMMAND");
    Failure::new(what, why, remedy)
}

/// The place of a node of image `name`, which has `count`.
fn node_of(name: &Name, node: u32, count: u32) -> Result<Place, Failure> {
    let refuse = |why: &str, remedy: String| {
        Failure::new(format!("cannot enter node {node} of image {name}"), why, remedy)
    };
    let listed = format!("see `husk nodes {name}`");
    match node {
        0 => Place::find(name),
        _ if node >= count && count == 1 => {
            let remedy = format!("make another with nodes: husk up --nodes 2 {name}2");
            Err(refuse("the image has one node", remedy))
        }
        _ if node >= count => {
            Err(refuse(&format!("the image has nodes 0 to {}", count - 1), listed))
        }
        _ => {
            let other = Name::parse(OsStr::new(&nodes::name(&name.to_string(), node as u16)))?;
            let place = Place::find(&other).ok().filter(Place::is_held);
            place.ok_or_else(|| refuse("that node was killed", listed))
        }
    }
}

/// The same in the image whose directory is `place`, and in its directory `here`.
pub fn enter_at(
    (place, name): (&Path, &str),
    here: &Path,
    command: &[OsString],
    shown: &OsStr,
) -> Result<Infallible, Failure> {
    let place = Place::at(&Name::parse(OsStr::new(name))?, place)?;
    join(&place, Some(here.to_owned()), command, Some(shown), None)
}

fn join(
    place: &Place,
    here: Option<PathBuf>,
    command: &[OsString],
    shown: Option<&OsStr>,
    policy: Option<Policy>,
) -> Result<Infallible, Failure> {
    ensure_able()?;
    let name = &place.name;
    let refuse =
        |why: &str, remedy: &str| Failure::new(format!("cannot enter image {name}"), why, remedy);
    let stream = place.connect()?;
    let (pid, inherited, passed) = (std::process::id(), inherited(), vec![]);
    let join = Ask::Join { pid, inherited, passed, umask: umask(), here };
    let asked = stream.set_read_timeout(Some(ANSWER_MAX)).and_then(|()| ask(&stream, &join));
    let (told, descriptors) = asked
        .map_err(|problem| unanswered(place, format!("cannot enter image {name}"), &problem))?;
    let (process, guard, trap_only) = match told {
        Answer::Joined { process, guard, trap_only, .. } => (process, guard, trap_only),
        Answer::Refused(failure) => return Err(failure),
        _ => return Err(refuse("its supervisor's answer is not valid", "take it down")),
    };
    let mut descriptors = descriptors.into_iter();
    let (Some(region), Some(loader)) = (descriptors.next(), descriptors.next()) else {
        return Err(refuse("it gave no descriptor", "raise the limit: ulimit -n 1024"));
    };
    let region = File::from(region);
    layout(&region).map_err(|why| refuse(&why, "take it down"))?;
    let region = hand_down(region.into())?;
    let loader = hand_down(loader)?;
    let (region, loader) = (region.as_raw_fd(), loader.as_raw_fd());
    let joins = HandOver { process, region, loader, guard, trap_only, joins: true, place: policy };
    launch::become_program(command, shown, joins)
}

/// Why there was no answer from the supervisor of `place`, and what to do about it.
pub fn unanswered(place: &Place, what: String, problem: &std::io::Error) -> Failure {
    let again = "try again, and see `husk ls`";
    match problem.kind() {
        std::io::ErrorKind::WouldBlock => {
            let (why, remedy) = silent(place);
            Failure::new(what, why, remedy)
        }
        std::io::ErrorKind::InvalidData => {
            Failure::new(what, "its supervisor's answer is not valid", "see `husk ls`")
        }
        std::io::ErrorKind::UnexpectedEof
        | std::io::ErrorKind::ConnectionReset
        | std::io::ErrorKind::BrokenPipe => {
            Failure::new(what, "it is going down, or its supervisor was killed", again)
        }
        _ => Failure::new(what, reason(problem), again),
    }
}

/// Why a supervisor says nothing for so long.
fn silent(place: &Place) -> (String, String) {
    let facts = place.read("facts").ok();
    let facts = facts.and_then(|text| serde_json::from_str::<Status>(&text).ok());
    let state = facts.as_ref().and_then(|facts| state_and_parent(facts.pid as i32));
    match (facts, state) {
        (Some(facts), Some((state, _))) if state == "T" || state == "t" => {
            let why = format!("its supervisor (process {}) is stopped", facts.pid);
            (why, format!("let it go on: kill -CONT {}", facts.pid))
        }
        _ => {
            let why = format!("its supervisor did not answer in {} s", ANSWER_MAX.as_secs());
            (why, "try again, and see `husk ls`".to_owned())
        }
    }
}

/// Read by setting it: this process has one thread.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits() | crate::run::umask::owners()
}
