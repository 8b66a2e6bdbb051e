//! All that a tree has comes back: a command changes names, kinds, links, modes, times, attributes,
//! access control lists and holes, natively and in an image, and both trees are the same.

use std::path::Path;
use std::process::Command;

use husk_tests::{Scratch, against_native, husk};

use crate::{Outcome, run};

const SCRIPT: &str = include_str!("../sources/fidelity.sh");

/// Does a part of the script in `tree`, by these words before it.
fn part(scratch: &Scratch, before: Option<Command>, name: &str, tree: &Path) -> Outcome {
    let mut command = before.unwrap_or_else(|| Command::new("env"));
    command.args(["bash", "-c", SCRIPT, "bash", name]).arg(tree);
    let outcome = run(scratch, tree, command);
    assert!(outcome.code() == 0 && outcome.stderr.is_empty(), "{name}: {}", outcome.shown());
    outcome
}

#[test]
fn all_that_a_tree_has_is_written_back_as_linux_would_have_left_it() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("fidelity");
    let (native, image) = (scratch.fresh("native"), scratch.fresh("image"));
    for tree in [&native, &image] {
        part(&scratch, None, "seed", tree);
    }
    part(&scratch, None, "work", &native);
    let mut inside = Command::new(husk(&[], &["true"]).get_program());
    inside.args(["run", "--memory", "256M", "--overlay"]).arg(&image).arg("--");
    part(&scratch, Some(inside), "work", &image);
    let [wanted, found] = [&native, &image].map(|tree| {
        let outcome = part(&scratch, None, "dump", tree);
        String::from_utf8_lossy(&outcome.stdout).into_owned()
    });
    assert!(wanted.lines().count() > 120, "{wanted}");
    let differ: Vec<_> = wanted.lines().zip(found.lines()).filter(|(a, b)| a != b).collect();
    assert!(wanted == found, "Linux's and ours: {differ:#?}");
}
