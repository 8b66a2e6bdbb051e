//! What the documentation tells people to type works when it is typed.
//!
//! Every block marked `sh` in README.md and docs/ is run line by line from the root of the
//! repository, or stands below a comment: `<!-- not run: reason -->`, or `<!-- needs PATH -->`: it
//! is run on a host that has that file. Of what is not run, the options of `husk` are looked at.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Longest time for one line.
const LINE_LIMIT_S: u32 = 300;
/// What the README's first command makes.
const EXAMPLE_RESULT: &str = "examples/hello-c/build/hunt";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Images of this test have a place of their own: names are free there.
fn images() -> PathBuf {
    let path = root().join("target/docs-images");
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// A block of commands and, when it is not to be run, why.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    commands: Vec<String>,
    reason: Option<String>,
}

/// Why the next block is not run, if a line says so and it is so.
fn reason_in(line: &str) -> Option<String> {
    let said = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    if let Some(path) = said.strip_prefix("needs ") {
        return (!Path::new(path).exists()).then(|| format!("there is no {path} here"));
    }
    said.strip_prefix("not run: ").map(str::to_owned)
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut reason = None;
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("<!-- ") {
            reason = reason_in(line);
        } else if line == "```sh" {
            let inside = lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>();
            let whole = inside.join("\n").replace("\\\n", " ");
            let commands =
                whole.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
            found.push(Block { commands, reason: reason.take() });
        } else if line.starts_with("```") {
            lines.by_ref().take_while(|line| *line != "```").for_each(drop);
        } else {
            reason = None;
        }
    }
    found
}

fn documents() -> Vec<PathBuf> {
    let root = root();
    let listed = fs::read_dir(root.join("docs")).expect("docs").flatten().map(|entry| entry.path());
    let mut all = vec![root.join("README.md")];
    all.extend(listed.filter(|path| path.extension().is_some_and(|end| end == "md")));
    all
}

fn type_in(line: &str) -> Output {
    let mut shell = Command::new("timeout");
    shell.args(["--kill-after=5", &LINE_LIMIT_S.to_string(), "sh", "-c", line]);
    // The README's first command has built it.
    let path = format!("{}:{}", root().join("target/release").display(), env!("PATH"));
    shell.env("PATH", path).env("HUSK_IMAGES", images().join("husk"));
    // And volumes one of theirs.
    shell.env("XDG_STATE_HOME", images().join("state"));
    // What the tests are told by is none of Husk's.
    for name in ["HUSK_FULL", "HUSK_TEST_PATIENCE", "HUSK_BIN"] {
        shell.env_remove(name);
    }
    shell.current_dir(root()).output().expect("a shell")
}

#[test]
fn every_command_of_the_documents_works() {
    let _ = fs::remove_file(root().join(EXAMPLE_RESULT));
    // What a run that failed has left.
    let _ = fs::remove_dir_all(images().join("state"));
    let mut count = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a document");
        for block in blocks(&text) {
            for line in &block.commands {
                let typed = match &block.reason {
                    None => line.clone(),
                    Some(reason) => {
                        println!("not run, for {reason}: {line}");
                        looked_at(line)
                    }
                };
                let output = type_in(&typed);
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{path:?}: {typed}: {}\n{said}", output.status);
                count += usize::from(block.reason.is_none());
            }
        }
    }
    assert!(count > 0, "no document has a command to run");
    assert_example_written_back();
}

/// What is typed in place of a line that is not run: of a `husk`, its help. That comes only if all
/// options before it are right.
fn looked_at(line: &str) -> String {
    const BUILT: &str = "cargo run --release -- ";
    let husk = line.strip_prefix("husk ").or_else(|| line.strip_prefix(BUILT));
    let Some(words) = husk.map(|words| words.split(" #").next().unwrap_or_default()) else {
        return "true".to_owned();
    };
    match words.split_once(" -- ") {
        Some((options, _)) => format!("husk {options} --help"),
        None => format!("husk {words} --help"),
    }
}

/// The first command of the README built the example, and the host has it now.
fn assert_example_written_back() {
    let output = type_in(&format!("{EXAMPLE_RESULT} -V"));
    assert!(output.status.success(), "{EXAMPLE_RESULT} was not written back");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hunt 1.0.0\n");
}

#[test]
fn the_readme_has_a_command_for_the_main_job_and_one_for_the_tests() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let all: Vec<String> = blocks(&text).into_iter().flat_map(|block| block.commands).collect();
    assert!(all[0].starts_with("cargo run --release -- run "), "first: {}", all[0]);
    assert_eq!(all[1], "cargo xtask check");
}

#[test]
fn of_what_is_not_run_the_options_are_looked_at() {
    assert_eq!(
        looked_at("cargo run --release -- bench fs --json   # x"),
        "husk bench fs --json   --help"
    );
    assert_eq!(looked_at("husk run --discard -- make -j2"), "husk run --discard --help");
    assert_eq!(looked_at("cargo xtask check"), "true");
    let text =
        "<!-- needs /proc/self -->\n```sh\na \\\n  b\n```\n<!-- needs /none -->\n```sh\nc\n```\n";
    let found = blocks(text);
    assert_eq!((&found[0].commands[..], &found[0].reason), (&["a    b".to_owned()][..], &None));
    assert_eq!(found[1].reason.as_deref(), Some("there is no /none here"));
}

#[test]
fn a_block_below_a_reason_is_not_run() {
    let text = "<!-- not run: slow -->\n```sh\na\n```\n\n```text\nb\n```\n```sh\nc\n\nd\n```\n";
    let block = |commands: &[&str], reason: Option<&str>| Block {
        commands: commands.iter().map(|line| (*line).to_owned()).collect(),
        reason: reason.map(str::to_owned),
    };
    assert_eq!(blocks(text), [block(&["a"], Some("slow")), block(&["c", "d"], None)]);
}
