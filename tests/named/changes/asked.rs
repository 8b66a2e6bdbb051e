//! `husk run --ask`: what a command has changed is shown on the terminal, and written as answered.

use std::fs;
use std::process::Output;

use husk_tests::against_native;
use husk_tests::husk::{binary, workspace};

use crate::{Images, shown, text, until};

const BEFORE: [(&str, &str); 4] =
    [("old", "host\n"), ("gone", "host\n"), ("src/a", "a\n"), ("tree/deep/x", "x\n")];
const CHANGES: &str =
    "echo image >> old; rm -r gone tree; mv src/a src/b; mkdir -p new/in; echo 1 > new/in/1
    echo 2 > new/in/2";
const QUESTION: &str = "Write back? ";

/// What `script` says and leaves where the answers are given.
fn asked(images: &Images, options: &[&str], script: &str, answers: &[(&str, &str)]) -> Output {
    let work = images.work.to_str().expect("a plain path");
    let husk = binary().to_str().expect("a plain path");
    let driver = workspace().join("tests/named/sources/answers.py");
    let answers = serde_json::to_string(answers).expect("JSON");
    let driver = [driver.to_str().expect("a plain path"), &answers, husk];
    let fixed = ["run", "--ask", "--memory", "64M", "--overlay", work];
    let words = [&driver[..], &fixed, options, &["--", "sh", "-c", script]].concat();
    let mut command = images.command("python3", &words);
    command.env("PAGER", "cat; echo END");
    command.output().expect("python3")
}

fn prepared(name: &str) -> Images {
    let images = Images::new(name);
    for (path, content) in BEFORE {
        let path = images.work.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
        fs::write(path, content).expect("it can be written");
    }
    images
}

/// All files with their content.
fn files(images: &Images) -> String {
    let list = "find . -type f | sort | while read -r f; do echo \"$f $(xargs < \"$f\")\"; done";
    text(&images.command("sh", &["-c", list]).output().expect("sh").stdout)
}

const UNCHANGED: &str = "./gone host\n./old host\n./src/a a\n./tree/deep/x x\n";
const WRITTEN: &str = "./new/in/1 1\n./new/in/2 2\n./old host image\n./src/b a\n";

#[test]
fn changes_are_shown_with_what_goes_and_written_or_dropped_as_answered() {
    if against_native() {
        return;
    }
    for (answer, then) in [("a", WRITTEN), ("n", UNCHANGED)] {
        let images = prepared("ask");
        let answer = format!("{answer}\n");
        let steps = [(QUESTION, "l\n"), ("END", ""), (QUESTION, "what\n"), (QUESTION, &*answer)];
        let output = asked(&images, &[], &format!("{CHANGES}; exit 3"), &steps);
        let said = text(&output.stdout);
        assert!(said.ends_with("exit 3\n"), "{}", shown(&output));
        for line in [
            "D  gone\n",
            "D  tree/  and 2 below it\n",
            "A  new/  and 3 below it\n",
            "M  old\n",
            "R  src/a -> src/b\n",
            "4 added, 1 changed, 4 removed, 1 moved\n",
            "+image\n",
            "rename to src/b\n",
            "k  keep the image",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        assert_eq!(files(&images), then, "{said}");
        assert_eq!(images.done(&["ls", "--names"]), "");
    }
}

#[test]
fn some_paths_are_chosen_by_patterns_or_one_by_one() {
    if against_native() {
        return;
    }
    let by_pattern = [
        (QUESTION, "s\n"),
        ("pattern: ", "src/b\n"),
        ("chosen: 1; ", "new\n"),
        ("chosen: 4; ", "!2\n"),
        ("away: 1; 4 in all", "\n"),
        ("to be dropped: 1 added, 1 changed, 4 removed", ""),
        ("Do that? ", "y\n"),
    ];
    let one_by_one = [
        (QUESTION, "s\n"),
        ("pattern: ", "\n"),
        ("D  gone", "n\n"),
        ("A  new/", "o\n"),
        ("A  new/in/ ", "o\n"),
        ("A  new/in/1", "y\n"),
        ("A  new/in/2", "n\n"),
        ("M  old", "l\n"),
        ("END", ""),
        ("M  old", "n\n"),
        ("R  src/a -> src/b", "y\n"),
        ("D  tree/", "d\n"),
        ("Do that? ", "y\n"),
    ];
    for steps in [&by_pattern[..], &one_by_one] {
        let images = prepared("ask-some");
        let output = asked(&images, &[], CHANGES, steps);
        assert!(text(&output.stdout).ends_with("exit 0\n"), "{}", shown(&output));
        let then = "./gone host\n./new/in/1 1\n./old host\n./src/b a\n./tree/deep/x x\n";
        assert_eq!(files(&images), then, "{}", shown(&output));
    }
}

#[test]
fn an_image_stays_whose_user_does_not_answer() {
    if against_native() {
        return;
    }
    let looks = [(QUESTION, "s\n"), ("pattern: ", "new\n"), ("chosen", "\x03")];
    let ways: [(&str, &[(&str, &str)]); 5] = [
        ("Ctrl-C", &[(QUESTION, "\x03")]),
        ("end of input", &[(QUESTION, "\x04")]),
        ("a hang-up", &[(QUESTION, "HANGUP")]),
        ("Ctrl-C in a choice", &looks),
        ("keep", &[(QUESTION, "k\n")]),
    ];
    for (way, steps) in ways {
        let images = prepared("ask-keeps");
        let output = asked(&images, &[], CHANGES, steps);
        let said = text(&output.stdout);
        let status = if way == "keep" { "exit 0\n" } else { "exit 125\n" };
        assert!(said.ends_with(status), "{way}: {}", shown(&output));
        assert_eq!(files(&images), UNCHANGED, "{way}");
        until("it is kept", || images.done(&["ls", "--names"]).starts_with("run-"));
        let name = images.done(&["ls", "--names"]).trim().to_owned();
        let told = format!("`husk down {name}` writes them back, with --discard it drops them");
        assert!(way == "a hang-up" || said.contains(&told), "{way}: {said}");
        assert_eq!(images.row(&name)["state"], "up", "{way}");
        images.down(&name);
        assert_eq!(files(&images), WRITTEN, "{way}");
    }
}

/// What was typed before it was asked, a terminal in raw mode, a pipe as standard input.
#[test]
fn nothing_but_an_answer_to_the_question_counts() {
    if against_native() {
        return;
    }
    let images = prepared("ask-typed-ahead");
    // It takes one of the keys; the others wait when the question comes.
    let script = "stty raw -echo < /dev/tty; echo begun; echo image > old
        dd bs=1 count=1 < /dev/tty > /dev/null 2>&1; kill -KILL $$";
    let answers = [("begun", "xn\nn\n"), (QUESTION, "a\n")];
    let output = asked(&images, &[], script, &answers);
    assert!(text(&output.stdout).contains("M  old\n"), "{}", shown(&output));
    assert!(files(&images).contains("./old image\n"), "{}", shown(&output));
}

#[test]
fn who_cannot_be_asked_is_refused_before_anything_runs() {
    if against_native() {
        return;
    }
    let images = prepared("ask-nobody");
    let husk = binary().to_str().expect("a plain path");
    let refused = |words: &[&str]| {
        // In a session without a terminal.
        let words = [&["-w", husk, "run", "--ask", "--memory", "64M"], words].concat();
        crate::refusal(&images.command("setsid", &words).output().expect("setsid"), 125)
    };
    let said = refused(&["--", "touch", "made"]);
    assert!(said.contains("cannot ask what to write back: there is no terminal; "), "{said}");
    assert!(refused(&["--discard", "--", "touch", "made"]).contains("--discard"));
    assert_eq!(files(&images), UNCHANGED);
}

#[test]
fn a_failed_command_is_kept_or_dropped_unasked_where_that_was_typed() {
    if against_native() {
        return;
    }
    let images = prepared("ask-failed");
    let output = asked(&images, &["--on-failure", "discard"], &format!("{CHANGES}; exit 3"), &[]);
    assert!(text(&output.stdout).ends_with("its changes are dropped\nhusk: fsck: clean\nexit 3\n"));
    assert_eq!(files(&images), UNCHANGED);
    // Nothing has changed: nothing is asked.
    let output = asked(&images, &[], "true", &[]);
    assert_eq!(text(&output.stdout), "husk: fsck: clean\nexit 0\n", "{}", shown(&output));
}

/// Neither written nor dropped: the run itself holds the changes until the image can be kept.
#[test]
fn what_cannot_be_kept_yet_is_held_until_it_can_be() {
    if against_native() {
        return;
    }
    let images = prepared("ask-holds");
    fs::write(images.all(), "no directory").expect("it can be written");
    let all = images.all();
    let remove = format!("DO rm {}", all.display());
    let steps =
        [(QUESTION, "k\n"), ("cannot ", ""), (QUESTION, "\x03"), ("until that works", &*remove)];
    let output = asked(&images, &[], CHANGES, &steps);
    assert!(text(&output.stdout).ends_with("exit 125\n"), "{}", shown(&output));
    assert_eq!(files(&images), UNCHANGED);
    let name = images.done(&["ls", "--names"]).trim().to_owned();
    images.down(&name);
    assert_eq!(files(&images), WRITTEN);
}
