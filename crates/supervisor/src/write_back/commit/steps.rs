//! Makes the steps of a manifest from a plan.

use std::path::{Path, PathBuf};

use husk_proto::fs::{HostIdentity, Rights};

use super::grow::Tail;
use super::make::{Kept, Made};
use super::old_must_stay;
use crate::write_back::host::beneath::{Beneath, object_of};
use crate::write_back::host::unlock::Unlocked;
use crate::write_back::plan::{Content, Plan, Put, Touch};
use crate::write_back::record::ledger::Text;
use crate::write_back::record::manifest::{Bytes, Facts, Head, Manifest, Seen, Step};
use crate::write_back::{Outcome, Work, host};

/// A plan, and what is ready for it.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    /// What is to happen.
    pub plan: &'a Plan,
    /// What was made for its puts.
    pub made: &'a [Option<Made>],
    /// Temporary names for its deletes.
    pub goings: &'a [PathBuf],
}

/// A temporary name for each object that goes.
pub fn goings(names: &mut host::Names, plan: &Plan) -> Vec<PathBuf> {
    let parents = plan.deletes.iter().map(|one| one.path.parent().unwrap_or(Path::new("/")));
    parents.map(|parent| names.fresh(parent)).collect()
}

/// Whether `plan` is one change, after which nothing is left that has something below it.
fn is_atomic(beneath: &Beneath, plan: &Plan) -> bool {
    let olds = plan.puts.iter().filter(|put| put.replaces.is_some()).map(Put::target);
    let mut olds = olds.chain(plan.deletes.iter().map(|delete| delete.path.clone()));
    let directory = |path: PathBuf| {
        // What cannot be looked at may be one.
        beneath.glance(&path).map_or(true, |found| found.is_some_and(|one| one.directory))
    };
    plan.puts.len() + plan.deletes.len() <= 1 && !olds.any(directory)
}

/// Begins the manifest of a plan that may be more than one change, or makes a directory.
pub fn begin(
    work: &Work,
    beneath: &Beneath,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Option<Manifest> {
    // What is of the host may get other attributes.
    let many = |put: &Put| put.object.is_tree() || matches!(put.object.content, Content::Host(_));
    if !plan.puts.iter().any(many) && is_atomic(beneath, plan) {
        return None;
    }
    let directories = plan.directories();
    let which = |path: &&Path| Some(object_of(&beneath.directory(path).ok()?.metadata().ok()?));
    let head = Head {
        number: work.number,
        started_ns: work.started_ns,
        stem: work.names.stem().to_owned(),
        roots: beneath.roots().iter().map(|root| Text::of(root)).collect(),
        which: directories.iter().map(which).collect(),
        directories: directories.into_iter().map(Text::of).collect(),
    };
    match Manifest::begin(&work.manifests, head) {
        Ok(manifest) => Some(manifest),
        Err(problem) => {
            untold(outcome, &problem);
            None
        }
    }
}

/// Notes the steps of what is `prepared`, durably. Where that fails, there is no manifest. One new
/// directory has no steps: whoever is killed leaves what it has made, or all is done.
pub fn ready(
    manifest: &mut Option<Manifest>,
    beneath: &Beneath,
    prepared: &Prepared<'_>,
    kept: &Kept,
    unlocked: &Unlocked,
    outcome: &mut Outcome,
) {
    let Some(mut begun) = manifest.take() else { return };
    if kept.touches.is_empty() && is_atomic(beneath, prepared.plan) {
        *manifest = Some(begun);
        return;
    }
    match begun.ready(steps(beneath, prepared, kept, unlocked)) {
        Ok(()) => *manifest = Some(begun),
        Err(problem) => {
            // It tells of temporary names only, which this write-back removes itself.
            let _ = begun.end();
            untold(outcome, &problem);
        }
    }
}

fn untold(outcome: &mut Outcome, problem: &std::io::Error) {
    let why = crate::write_back::reason(problem);
    outcome
        .failures
        .push(format!("no note of what is about to be done, it was done unnoted: {why}"));
}

fn steps(
    beneath: &Beneath,
    prepared: &Prepared<'_>,
    kept: &Kept,
    unlocked: &Unlocked,
) -> Vec<Step> {
    let Prepared { plan, made, goings } = *prepared;
    let early = kept.touches.iter().filter_map(|touch| touched(beneath, touch, unlocked));
    let mut steps: Vec<_> = early.filter_map(made_early).collect();
    for (put, made) in plan.puts.iter().zip(made) {
        let Some(made) = made.as_ref().filter(|made| old_must_stay(put, made, kept).is_none())
        else {
            continue;
        };
        let (temporary, target) = (Text::of(&made.temporary), put.target());
        if let (Some(tail), Some(old)) = (&made.tail, put.replaces) {
            steps.push(grown(put, &old, tail));
            continue;
        }
        let replaces = put.replaces.map(|old| seen(beneath, plan, &target, Seen::of(&old)));
        let rights = replaces.and_then(|old| {
            let [now, new] = rights(beneath, [&target, &made.temporary])?;
            // Before they were merged: what changes from then on is somebody else's.
            Some([plan.rights.get(&old.which).copied().unwrap_or(now), new])
        });
        let (target, made) = (Text::of(&target), made.which);
        steps.push(Step::Put { temporary, target, made, replaces, rights });
    }
    if kept.durable {
        for (delete, temporary) in plan.deletes.iter().zip(goings) {
            if !kept.is_withheld(&delete.path) {
                let what = seen(beneath, plan, &delete.path, Seen::of(&delete.identity));
                let (path, temporary) = (Text::of(&delete.path), Text::of(temporary));
                steps.push(Step::Delete { path, temporary, what });
            }
        }
    }
    steps.extend(plan.touches.iter().filter_map(|touch| touched(beneath, touch, unlocked)));
    steps
}

/// What is there now, if it is the one that was expected: links that were made of it may have
/// changed its times.
fn seen(beneath: &Beneath, plan: &Plan, path: &Path, expected: Seen) -> Seen {
    let now = beneath.identity(path).ok().flatten().map(|found| Seen::of(&found));
    let seen = now.filter(|now| now.which == expected.which).unwrap_or(expected);
    Seen { below: plan.below.get(path).copied(), ..seen }
}

/// Of what is at these places; a symlink has none.
fn rights(beneath: &Beneath, paths: [&Path; 2]) -> Option<[Rights; 2]> {
    let one = |path| {
        let found = beneath.found(path).ok().flatten().filter(|found| !found.is_symlink())?;
        Some(host::rights_of(&found))
    };
    Some([one(paths[0])?, one(paths[1])?])
}

fn grown(put: &Put, old: &HostIdentity, tail: &Tail) -> Step {
    let Tail { before, bytes, begin, .. } = tail;
    let (before, begin) = (*before, Some(*begin));
    let (accessed_ns, modified_ns) =
        (put.object.attributes.accessed_ns, put.object.attributes.modified_ns);
    let after = Facts { accessed_ns, modified_ns, ..before };
    let (path, what, tail) = (Text::of(&put.target()), Seen::of(old), Bytes::of(bytes));
    Step::Append { path, what, size: old.size, begin, tail, after, before }
}

/// The same of what is about to be moved or linked. Who looked at it last is no matter.
fn made_early(step: Step) -> Option<Step> {
    match step {
        Step::Touch { path, what, before, after, .. } if !before.is_like(&after) => {
            Some(Step::Touch { path, what, before, after, early: true })
        }
        _ => None,
    }
}

fn touched(beneath: &Beneath, touch: &Touch, unlocked: &Unlocked) -> Option<Step> {
    let found = beneath.found(&touch.path).ok().flatten()?;
    let mut before = Facts::of(&found);
    // Temporary names have changed it since.
    before.modified_ns = touch.before.modified_ns;
    before.mode = unlocked.mode_before(&touch.path).unwrap_or(before.mode);
    let after = Facts::wanted(&touch.attributes);
    let what = touch.before.object();
    Some(Step::Touch { path: Text::of(&touch.path), what, before, after, early: false })
}
