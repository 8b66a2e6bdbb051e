//! `husk sync IMAGE PATH...` and `--dry-run`, and what `husk down` says before.

use serde_json::Value;

use husk_tests::against_native;

use crate::{Images, shown, text};

fn on_host(images: &Images, script: &str) -> String {
    let output = images.command("bash", &["-euc", script]).output().expect("bash");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

const BEFORE: &str =
    "mkdir src dst; echo a > src/a; echo b > src/b; echo gone > gone; echo old > old";
const CHANGES: &str =
    "echo image >> old; rm gone; mv src/a dst/a; mkdir -p new/in; echo 1 > new/in/1
    echo 2 > new/in/2; echo one > one; ln one two";

#[test]
fn a_dry_run_shows_what_is_written_and_writes_nothing() {
    if against_native() {
        return;
    }
    let images = Images::new("dry-run");
    on_host(&images, BEFORE);
    images.up("ci");
    images.script("ci", CHANGES);
    let all = "find . -printf '%p %i %T@ %s\\n' | sort";
    let before = on_host(&images, all);
    let diff = images.done(&["diff", "ci"]);
    assert_eq!(images.done(&["sync", "ci", "--dry-run"]), diff);
    assert!(diff.contains("D  gone\n") && diff.contains("R  src/a -> dst/a\n"), "{diff}");
    let stat = images.done(&["sync", "-n", "ci", "--stat"]);
    assert_eq!(stat, images.done(&["diff", "ci", "--stat"]));
    let json: Value =
        serde_json::from_str(&images.done(&["sync", "ci", "-n", "--json", "gone"])).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(1), "{json}");
    assert_eq!((&json[0]["change"], &json[0]["path"]), (&"removed".into(), &"gone".into()));
    assert_eq!(
        images.done(&["sync", "ci", "-n", "new/in/1", "src", "two"]),
        "R  src/a -> dst/a\nA  new/\nA  new/in/\nA  new/in/1\nA  one\nA  two\n\
         5 added, 1 moved\n"
    );
    assert_eq!(on_host(&images, all), before);
    assert!(images.refused(&["sync", "ci", "--stat"], 125).contains("--dry-run"));
}

#[test]
fn only_named_paths_are_written_until_the_rest_is() {
    if against_native() {
        return;
    }
    let images = Images::new("sync-paths");
    on_host(&images, BEFORE);
    images.up("ci");
    images.script("ci", CHANGES);
    assert_eq!(images.done(&["sync", "ci", "new/in/1", "src", "two"]), "");
    let files = "find . -type f | sort | xargs";
    let then = "./dst/a ./gone ./new/in/1 ./old ./one ./src/b ./two\n";
    assert_eq!(on_host(&images, files), then);
    assert_eq!(on_host(&images, "cat old; stat -c %h one two; cat dst/a"), "old\n2\n2\na\n");
    let json: Value =
        serde_json::from_str(&images.done(&["sync", "ci", "--json", "./gone"])).expect("JSON");
    assert_eq!((&json["written"], &json["removed"]), (&0.into(), &1.into()), "{json}");
    // From without, by its absolute path; nothing is left to do there.
    let work = images.work.to_str().expect("a plain path");
    images.done(&["sync", "ci", &format!("{work}/new/in")]);
    assert_eq!(on_host(&images, "cat new/in/2; ls gone || :"), "2\n");
    assert_eq!(images.done(&["diff", "ci"]), "M  old\n1 changed\n", "all but one has been written");
    for (path, why) in [("/etc", "in no overlay"), ("absent/x", "neither the image nor the host")] {
        let refused = images.refused(&["sync", "ci", path], 125);
        assert!(refused.contains(why) && refused.contains(path), "{refused}");
        assert_eq!(images.refused(&["sync", "-n", "ci", path], 125), refused);
    }
    images.down("ci");
    assert_eq!(on_host(&images, "cat old"), "old\nimage\n");
}

#[test]
fn an_end_says_before_what_it_does() {
    if against_native() {
        return;
    }
    let images = Images::new("down-says");
    on_host(&images, "touch 1 2 3 4 5 6 7; echo old > old");
    images.up("ci");
    images.script("ci", "rm ?; echo image > old; touch new");
    let said = |arguments: &[&str]| {
        let husk = husk_tests::husk::binary().to_str().expect("a plain path");
        let output = images.command(husk, arguments).output().expect("timeout starts");
        assert!(output.status.success(), "{}", shown(&output));
        text(&output.stderr).replace("husk: fsck: clean\n", "")
    };
    assert_eq!(
        said(&["down", "ci"]),
        "husk: image ci: to be written back: 1 added, 1 changed, 7 removed \
         (removed: 1, 2, 3, 4, 5 and 2 more)\n"
    );
    images.up("ci");
    images.script("ci", "rm new");
    assert_eq!(
        said(&["down", "ci", "--discard"]),
        "husk: image ci: to be dropped: 1 removed (removed: new)\n"
    );
    images.up("ci");
    assert_eq!(said(&["down", "ci"]), "");
}
