//! Reduces a plan to some paths, for `husk sync IMAGE PATH...`.
//!
//! ```text
//!   paths ── other ends of moves, other names of files, what cannot be divided ──► chosen
//!   plan  ── what is chosen, directories that lead to it ──► plan
//! ```
//!
//! Invariants
//! 1. A move is one change: with one of its ends comes the other. So is a file with several names
//!    that get it.
//! 2. Of a directory that appears, what leads to something chosen comes. One that takes another
//!    object's place, or stands beside one, is not divided.
//! 3. Of a directory that goes, only what is chosen goes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use husk_proto::Inode;

use super::{Content, Delete, Object, Plan, Put, beside};
use crate::write_back::host::beneath::Beneath;
use crate::write_back::{Source, origin_path};

/// Paths with all that is below, and what leads to them.
#[derive(Debug, Default)]
struct Chosen {
    paths: HashSet<PathBuf>,
    leading: HashSet<PathBuf>,
}

impl Chosen {
    /// Whether it was not chosen before.
    fn add(&mut self, path: &Path) -> bool {
        if self.has(path) {
            return false;
        }
        self.leading.extend(path.ancestors().skip(1).map(Path::to_owned));
        self.paths.insert(path.to_owned())
    }

    fn has(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.paths.contains(above))
    }

    /// Whether something below `path` is chosen, and `path` is not.
    fn leads(&self, path: &Path) -> bool {
        self.leading.contains(path) && !self.has(path)
    }

    /// Whether a line begins with a path that concerns something chosen, or with none.
    fn concerns(&self, line: &str) -> bool {
        let of_path = |(end, _)| {
            let path = Path::new(&line[..end]);
            self.has(path) || self.leads(path)
        };
        !line.starts_with('/') || line.match_indices(": ").any(of_path)
    }
}

/// What of `plan` concerns `paths` and what is below. `number`: of the run whose plan it is.
pub fn choose<S: Source>(
    source: &mut S,
    beneath: &Beneath,
    plan: Plan,
    number: u32,
    paths: &[PathBuf],
) -> Plan {
    let mut chosen = Chosen::default();
    for path in paths {
        chosen.add(path);
    }
    // Asides of one run have one ending, and count as what they stand beside.
    let asides: HashMap<PathBuf, PathBuf> = (plan.conflicts.iter())
        .map(|conflict| (beside(&conflict.path, number), conflict.path.clone()))
        .collect();
    let place = |put: &Put| {
        let target = put.target();
        asides.get(&target).filter(|_| put.aside).cloned().unwrap_or(target)
    };
    let ties = Ties::of(source, &plan, place);
    let whole: Vec<PathBuf> =
        plan.puts.iter().filter(|put| !is_divisible(put)).map(place).collect();
    let mut more = true;
    while more {
        more = ties.tie(&mut chosen);
        for place in &whole {
            more |= chosen.leads(place) && chosen.add(place);
        }
    }
    // What says how to write, and not what, stays as it is.
    let mut some = plan;
    let puts = std::mem::take(&mut some.puts);
    let (deletes, touches) = (std::mem::take(&mut some.deletes), std::mem::take(&mut some.touches));
    for mut put in puts {
        let place = place(&put);
        if chosen.leads(&place) {
            divide(&mut put.object, &place, &chosen);
        } else if !chosen.has(&place) {
            continue;
        }
        some.puts.push(put);
    }
    for delete in deletes {
        if chosen.leads(&delete.path) {
            some.deletes.extend(below(beneath, &delete.path, &chosen));
        } else if chosen.has(&delete.path) {
            some.deletes.push(delete);
        }
    }
    some.touches.extend(touches.into_iter().filter(|touch| chosen.has(&touch.path)));
    let concerned = |path: &Path| chosen.has(path) || chosen.leads(path);
    some.conflicts.retain(|one| concerned(&one.path));
    some.failures.retain(|line| chosen.concerns(line));
    some.busy.retain(|line| chosen.concerns(line));
    // What is left out is not told.
    some.told_extended.clear();
    some
}

/// Invariant 2. One that was moved without a look into it is moved as a whole.
fn is_divisible(put: &Put) -> bool {
    let whole = put.aside || put.replaces.is_some();
    !whole && matches!(put.object.content, Content::Tree(_)) && !has_unlooked(&put.object)
}

fn has_unlooked(object: &Object) -> bool {
    match &object.content {
        Content::HostTree(_) => true,
        Content::Tree(children) => children.iter().any(|(_, child)| has_unlooked(child)),
        _ => false,
    }
}

/// Leaves of a directory what is chosen, and what leads to that.
fn divide(object: &mut Object, place: &Path, chosen: &Chosen) {
    let Content::Tree(children) = &mut object.content else { return };
    children.retain_mut(|(name, child)| {
        let place = place.join(name);
        if chosen.leads(&place) {
            divide(child, &place, chosen);
            return true;
        }
        chosen.has(&place)
    });
}

/// What is chosen below a directory that goes: the uppermost of each.
fn below(beneath: &Beneath, directory: &Path, chosen: &Chosen) -> Vec<Delete> {
    let is_below = |path: &&PathBuf| {
        let nested = path.ancestors().skip(1).any(|above| chosen.paths.contains(above));
        path.starts_with(directory) && !nested
    };
    let delete = |path: &PathBuf| {
        let identity = beneath.identity(path).ok().flatten()?;
        Some(Delete { path: path.clone(), identity })
    };
    let mut deletes: Vec<Delete> =
        chosen.paths.iter().filter(is_below).filter_map(delete).collect();
    deletes.sort_by(|one, two| one.path.cmp(&two.path));
    deletes
}

/// Paths that come together.
struct Ties(Vec<Tie>);

struct Tie {
    paths: Vec<PathBuf>,
    /// What is below them is not told apart.
    whole: bool,
}

impl Ties {
    fn of<S: Source>(source: &mut S, plan: &Plan, place: impl Fn(&Put) -> PathBuf) -> Ties {
        let mut found = Vec::new();
        for put in &plan.puts {
            each(&put.object, place(put), &mut |object, place| {
                let origin = match &object.content {
                    Content::HostTree(path) | Content::Host(path) => Some(path.clone()),
                    _ => origin_path(source, &object.attributes).ok().flatten(),
                };
                let whole = matches!(object.content, Content::HostTree(_));
                found.push((object, origin, place, whole));
            });
        }
        // What the host has by now, and what takes its place.
        let gone: HashSet<&Path> = plan.deletes.iter().map(|delete| &*delete.path).collect();
        let replaced: HashSet<PathBuf> =
            plan.puts.iter().filter(|put| put.replaces.is_some()).map(place).collect();
        let goes = |path: &Path| {
            path.ancestors().any(|above| gone.contains(above) || replaced.contains(above))
        };
        let mut names: HashMap<Inode, Vec<PathBuf>> = HashMap::new();
        let mut ties = Vec::new();
        for (object, origin, place, whole) in found {
            if let Some(origin) = origin.filter(|origin| *origin != place && goes(origin)) {
                ties.push(Tie { paths: vec![origin, place.clone()], whole });
            }
            if !object.is_tree() {
                names.entry(object.inode).or_default().push(place);
            }
        }
        let several = names.into_values().filter(|names| names.len() > 1);
        ties.extend(several.map(|paths| Tie { paths, whole: false }));
        Ties(ties)
    }

    /// Chooses what comes with what is chosen; whether that is more.
    fn tie(&self, chosen: &mut Chosen) -> bool {
        let mut more = false;
        for tie in &self.0 {
            let is_in = |path: &PathBuf| chosen.has(path) || tie.whole && chosen.leads(path);
            if tie.paths.iter().any(is_in) {
                tie.paths.iter().for_each(|path| more |= chosen.add(path));
            }
        }
        more
    }
}

fn each<'o>(object: &'o Object, place: PathBuf, look: &mut impl FnMut(&'o Object, PathBuf)) {
    if let Content::Tree(children) = &object.content {
        children.iter().for_each(|(name, child)| each(child, place.join(name), look));
    }
    look(object, place);
}
