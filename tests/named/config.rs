//! Configuration: files, variables and flags, one over the other, and mistakes in them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::process::Output;

use husk_tests::against_native;
use husk_tests::husk::binary;
use serde_json::Value;

use crate::{Images, refusal, shown, text};

/// A user with a file of their own, and one in the directory they work in.
struct User {
    images: Images,
}

impl User {
    fn new(name: &str) -> User {
        let images = Images::new(name);
        fs::create_dir_all(images.scratch.path().join("config/husk")).expect("a directory");
        User { images }
    }

    fn own(&self, text: &str) {
        let path = self.images.scratch.path().join("config/husk/husk.toml");
        fs::write(path, text).expect("written");
    }

    fn here(&self, text: &str) {
        fs::write(self.images.work.join("husk.toml"), text).expect("written");
    }

    /// The same, which the user has looked at.
    fn trusted(&self, text: &str) {
        self.here(text);
        self.done(&[], &["config", "trust"]);
    }

    fn husk(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        let husk = binary().to_str().expect("a plain path");
        let mut command = self.images.command(husk, arguments);
        command.env("XDG_CONFIG_HOME", self.images.scratch.path().join("config"));
        command.env("XDG_STATE_HOME", self.images.scratch.path().join("state"));
        // Those of the tests are none of Husk's.
        let ours = std::env::vars_os().map(|(name, _)| name);
        ours.filter(|name| name.to_string_lossy().starts_with("HUSK_")).for_each(|name| {
            command.env_remove(name);
        });
        command.env_remove("HUSK_FSCK").envs(variables.iter().copied());
        command.output().expect("husk")
    }

    fn done(&self, variables: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.husk(variables, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
        text(&output.stdout)
    }

    fn shown(&self, variables: &[(&str, &str)]) -> Value {
        serde_json::from_str(&self.done(variables, &["config", "show", "--json"])).expect("JSON")
    }
}

#[test]
fn the_last_who_says_something_wins() {
    if against_native() {
        return;
    }
    let user = User::new("config");
    user.own("kernels = 1\nmemory = '96M'\ndiscard = true\n");
    user.here("\nkernels = 2\npipes = 'husk'\n");
    let told = user.shown(&[("HUSK_PIPES", "host")]);
    let of =
        |key: &str| (told[key]["value"].clone(), text(told[key]["origin"].to_string().as_bytes()));
    let (kernels, origin) = of("kernels");
    assert!(kernels == 2 && origin.contains("work") && origin.contains("husk.toml:2"), "{told}");
    assert!(
        of("memory").0 == "96M" && of("memory").1.contains("config/husk/husk.toml:2"),
        "{told}"
    );
    assert!(of("pipes").0 == "host" && of("pipes").1.contains("HUSK_PIPES"), "{told}");
    assert_eq!(of("mount").0[0], "/tmp", "{told}");
    assert!(!of("guard").0.is_null() && of("guard").1.contains("default"), "{told}");
    let lines = user.done(&[], &["config", "show", "--origin"]);
    assert!(lines.contains("kernels = 2 ") && lines.contains("# default"), "{lines}");
    // What is shown is a file that says the same.
    let plain = user.done(&[], &["config", "show"]);
    user.here(&plain);
    assert_eq!(user.done(&[], &["config", "show"]), plain);
    // None of the files.
    let none = user.shown(&[("HUSK_CONFIG", "none")]);
    assert_eq!(none["kernels"]["origin"], "default", "{none}");
}

#[test]
fn images_are_made_from_what_was_said() {
    if against_native() {
        return;
    }
    let user = User::new("config-up");
    user.own("memory = '64M'\nkernels = 1\n");
    user.trusted("discard = true\nfsck = true\n");
    user.done(&[], &["up", "ci", "--kernels", "3"]);
    let row = user.images.row("ci");
    assert_eq!((row["kernels"].as_u64(), row["memory_bytes"].as_u64()), (Some(3), Some(64 << 20)));
    assert_eq!(row["discard"], true);
    // What files say holds for an image as long as it lives.
    fs::remove_file(user.images.work.join("husk.toml")).expect("it goes");
    user.images.kill_supervisor("ci");
    user.images.script("ci", "echo x > gone");
    let down = user.husk(&[], &["down", "ci"]);
    assert!(text(&down.stderr).contains("fsck: clean"), "{}", shown(&down));
    assert!(!user.images.work.join("gone").exists(), "it was to be dropped");
    // A flag takes it back; variables stand between.
    user.trusted("discard = true\n");
    user.done(&[], &["run", "--discard=false", "--", "sh", "-c", "echo x > kept"]);
    user.done(&[("HUSK_DISCARD", "0")], &["run", "--", "sh", "-c", "echo x > too"]);
    user.done(&[], &["run", "--", "sh", "-c", "echo x > lost"]);
    let there = |name: &str| user.images.work.join(name).exists();
    assert!(there("kept") && there("too") && !there("lost"));
}

#[test]
fn mistakes_in_files_are_told_with_their_place() {
    if against_native() {
        return;
    }
    let user = User::new("config-wrong");
    for (text, parts) in [
        (
            "kernels = 1\nmemroy = '1G'\n",
            ["husk.toml:2:1: there is no key memroy", "did you mean memory?"],
        ),
        (
            "kernels = \n",
            ["husk.toml:1:", "there is no value; write for kernels: a whole number, 1"],
        ),
        ("\nmemory = 1 G", ["husk.toml:2:", "write for memory: a size, as \"512M\""]),
        ("memory = '1Q'\n", ["husk.toml:1:10", "512M"]),
        ("rewrite = 'perhaps'\n", ["husk.toml:1:11", "rewrite = \"on\" or rewrite = \"off\""]),
    ] {
        user.here(text);
        for arguments in [
            &["run", "--", "true"][..],
            &["up", "ci"],
            &["config", "show"],
            &["config", "check"],
            &["config", "check", "husk.toml"],
        ] {
            let said = refusal(&user.husk(&[], arguments), 125);
            assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
        }
    }
    assert!(!user.images.place("ci").exists());
    user.here("kernels = 1\n");
    let told = user.done(&[], &["config", "check"]);
    assert!(told.contains("work/husk.toml: ok") && told.contains("variables: ok"), "{told}");
    assert_eq!(user.done(&[], &["config", "check", "husk.toml"]), "husk.toml: ok\n");
    let checked = user.done(&[], &["config", "check", "husk.toml", "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).expect("JSON");
    assert_eq!((&checked[0]["place"], &checked[0]["there"]), (&"husk.toml".into(), &true.into()));
    let said = refusal(&user.husk(&[], &["config", "check", "absent"]), 125);
    assert!(said.contains("there is no such file"), "{said}");
    for (name, value) in [("HUSK_KERNELS", "many"), ("HUSK_MEMORY", "1Q"), ("HUSK_DISCARD", "x")] {
        let said = refusal(&user.husk(&[(name, value)], &["run", "--", "true"]), 125);
        assert!(said.contains(&format!("{name}={value}")), "{said}");
    }
    let said = refusal(&user.husk(&[("HUSK_CONFIG", "absent")], &["run", "--", "true"]), 125);
    assert!(said.contains("HUSK_CONFIG=absent"), "{said}");
}

/// Who may write to a directory in which somebody else works decides nothing for them: not even
/// that nothing can be started there.
#[test]
fn a_file_of_another_user_is_ignored_as_a_whole() {
    if against_native() || !rustix::process::getuid().is_root() {
        return;
    }
    let user = User::new("config-foreign");
    let (here, own) = (user.images.work.join("husk.toml"), user.images.scratch.path().join("own"));
    let ignored = |why: &str| {
        let _ = fs::remove_file(user.images.work.join("result"));
        let ran = user.husk(&[], &["run", "--memory", "64M", "--", "sh", "-c", "echo x > result"]);
        let said = text(&ran.stderr);
        assert!(ran.status.success() && said.contains(why), "{}", shown(&ran));
        assert!(said.contains("work/husk.toml is ignored: "), "{said}");
        assert!(user.images.work.join("result").exists(), "{said}");
        let told = user.done(&[], &["config", "show", "--origin"]);
        assert!(told.contains(why) && told.contains("# discard = false"), "{told}");
        let told = user.done(&[], &["config", "check"]);
        assert!(told.contains(why), "{told}");
    };
    // Not even mistakes in it count.
    for content in ["discard = true\n", "kernels = 0\nnonsense"] {
        user.here(content);
        chown(&here, Some(65534), None).expect("given");
        ignored("it is another user's");
    }
    user.here("discard = true\n");
    // Nor can they choose among files of the user; who links to an own one can.
    fs::rename(&here, &own).expect("moved");
    chown(&own, Some(0), Some(0)).expect("taken");
    symlink(&own, &here).expect("linked");
    user.done(&[], &["config", "check"]);
    lchown(&here, Some(65534), None).expect("given");
    ignored("it is another user's");
    lchown(&here, Some(0), None).expect("taken");
    // A group of the same number is the user's alone.
    fs::set_permissions(&own, fs::Permissions::from_mode(0o664)).expect("shared");
    let told = user.done(&[], &["config", "check"]);
    assert!(told.contains("work/husk.toml: ok") && !told.contains("is ignored:"), "{told}");
    chown(&own, None, Some(65534)).expect("given");
    ignored("others may write to it");
    // One that the user has named is refused.
    let named = [("HUSK_CONFIG", "husk.toml")];
    let said = refusal(&user.husk(&named, &["run", "--", "true"]), 125);
    assert!(said.contains("others may write to it"), "{said}");
    // What somebody else owns is trusted by its content as well.
    user.done(&[], &["config", "trust"]);
    user.done(&[], &["run", "--memory", "64M", "--", "sh", "-c", "echo x > dropped"]);
    assert!(!user.images.work.join("dropped").exists());
    fs::write(&own, "discard = true\n\n").expect("written");
    ignored("others may write to it");
}

/// All keys that decide about data, with a value that would change what becomes of it.
fn about_data(other: &std::path::Path) -> Vec<(&'static str, String)> {
    vec![
        ("discard", "true".to_owned()),
        ("overlay", format!("[{:?}]", other.to_str().expect("plain"))),
        ("mount", "['.']".to_owned()),
        ("on_failure", "'discard'".to_owned()),
        ("ask", "true".to_owned()),
        ("guard", "'off'".to_owned()),
        ("read_only_outside", "true".to_owned()),
    ]
}

#[test]
fn each_key_that_decides_about_data_is_ignored_in_a_file_that_is_not_trusted() {
    if against_native() {
        return;
    }
    let user = User::new("config-keys");
    let keys = about_data(&user.images.work);
    let all = user.shown(&[]);
    let values = all.as_object().expect("keys").iter();
    let line = |(key, at): (&String, &Value)| Some(format!("{key} = {}\n", at.get("value")?));
    user.here(&values.filter_map(line).collect::<String>());
    let told = user.done(&[], &["config", "show", "--origin"]);
    let ignored = told.split("not trusted, ignored: ").nth(1).unwrap_or_else(|| panic!("{told}"));
    let ignored = ignored.lines().next().unwrap_or_default().split(", ");
    let mut ignored: Vec<_> = ignored.filter_map(|one| one.split(' ').next()).collect();
    let mut wanted: Vec<_> = keys.iter().map(|(key, _)| *key).collect();
    ignored.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(ignored, wanted, "{told}");
}

/// A clone may bring a husk.toml: what decides about data in it needs the user's word.
#[test]
fn what_decides_about_data_counts_once_it_is_trusted() {
    if against_native() {
        return;
    }
    let user = User::new("config-trust");
    let other = user.images.scratch.fresh("other");
    let there = |name: &str| user.images.work.join(name).exists();
    let run_to = |name: &str, status: i32| {
        let script = format!("echo x > {name}; exit {status}");
        let ran = user.husk(&[], &["run", "--memory", "64M", "--", "sh", "-c", &script]);
        assert_eq!(ran.status.code(), Some(status), "{}", shown(&ran));
        let lines = text(&ran.stderr);
        lines
            .lines()
            .filter(|line| line.contains("husk.toml"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let run = |name: &str| run_to(name, 0);
    for (key, value) in about_data(&other) {
        user.here(&format!("kernels = 1\n{key} = {value}\n"));
        let lines = run_to("kept", if key == "on_failure" { 3 } else { 0 });
        let right = lines.len() == 1
            && lines[0].contains("work/husk.toml is not trusted")
            && lines[0].contains(&format!("what it says of {key} is ignored"))
            && lines[0].ends_with("type: husk config trust");
        assert!(right, "{key}: {lines:?}");
        assert!(there("kept"), "{key}");
        fs::remove_file(user.images.work.join("kept")).expect("it goes");
        let up = user.husk(&[], &["up", "ci"]);
        assert!(text(&up.stderr).contains("is not trusted"), "{key}: {}", shown(&up));
        assert_eq!(user.images.row("ci")["discard"], false);
        assert_eq!(user.images.row("ci")["kernels"], 1, "what decides about nothing counts");
        user.done(&[], &["down", "ci"]);
    }
    user.here("kernels = 1\ndiscard = true\n");
    let told = user.done(&[], &["config", "show", "--origin"]);
    assert!(told.contains("husk.toml: not trusted, ignored: discard (line 2)"), "{told}");
    assert_eq!(user.shown(&[])["files"][0]["counts"], "untrusted");
    let told = user.done(&[], &["config", "trust", "husk.toml"]);
    assert!(told.contains("discard = true (line 2)"), "{told}");
    assert_eq!(user.shown(&[])["files"][0]["counts"], "trusted");
    assert!(run("dropped").is_empty() && !there("dropped"));
    // By content, and in its place.
    user.here("kernels = 1\ndiscard = true # more\n");
    assert_eq!(run("changed").len(), 1);
    assert!(there("changed"));
    user.here("kernels = 1\ndiscard = true\n");
    assert!(run("again").is_empty() && !there("again"));
    let told = user.done(&[], &["config", "untrust"]);
    assert!(told.contains("not trusted any more"), "{told}");
    assert_eq!(run("untrusted").len(), 1);
    assert!(there("untrusted"));
    // The user's own file, one they name, and their variables need nobody's word.
    user.here("");
    user.own("discard = true\n");
    assert!(run("own").is_empty() && !there("own"));
    user.own("");
    user.done(&[("HUSK_DISCARD", "1")], &["run", "--", "sh", "-c", "echo x > variable"]);
    fs::write(other.join("named.toml"), "discard = true\n").expect("written");
    let named = other.join("named.toml");
    let named = [("HUSK_CONFIG", named.to_str().expect("plain"))];
    user.done(&named, &["run", "--", "sh", "-c", "echo x > named"]);
    assert!(!there("variable") && !there("named"));
}

#[test]
fn a_typed_discard_discards_whatever_overlays_there_are() {
    if against_native() {
        return;
    }
    let user = User::new("config-discard");
    let other = user.images.scratch.fresh("other");
    fs::write(user.images.work.join("precious"), "x").expect("written");
    fs::write(other.join("precious"), "x").expect("written");
    let overlay = format!("overlay = [{:?}]\n", other.to_str().expect("plain"));
    let script = format!("rm precious {}/precious; ls", other.display());
    let kept = || {
        let ran = ["run", "--discard", "--memory", "64M", "--", "sh", "-c", &script];
        assert!(!user.done(&[], &ran).contains("precious"));
        assert!(user.images.work.join("precious").exists());
        assert!(other.join("precious").exists());
    };
    user.trusted(&overlay);
    kept();
    user.here("");
    user.own(&overlay);
    kept();
}

#[test]
fn what_cannot_be_trusted_is_said_in_a_line() {
    if against_native() {
        return;
    }
    let user = User::new("config-untrusted");
    let said = refusal(&user.husk(&[], &["config", "trust"]), 125);
    assert!(said.contains("cannot trust husk.toml: there is no such file"), "{said}");
    user.here("discard = perhaps\n");
    let said = refusal(&user.husk(&[], &["config", "trust"]), 125);
    assert!(said.contains("husk.toml:1:"), "{said}");
    fs::write(user.images.work.join("other.toml"), "discard = true\n").expect("written");
    let said = refusal(&user.husk(&[], &["config", "trust", "other.toml"]), 125);
    assert!(said.contains("HUSK_CONFIG=FILE"), "{said}");
    // Records that others could have written trust nothing, and are not written to.
    user.trusted("discard = true\n");
    let state = user.images.scratch.path().join("state/husk");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("opened");
    let ran = user.husk(&[], &["run", "--memory", "64M", "--", "sh", "-c", "echo x > kept"]);
    assert!(text(&ran.stderr).contains("is not trusted"), "{}", shown(&ran));
    assert!(user.images.work.join("kept").exists());
    let said = refusal(&user.husk(&[], &["config", "trust"]), 125);
    assert!(said.contains("others may write to it"), "{said}");
}

#[test]
fn a_check_finds_what_nobody_would_look_at() {
    if against_native() {
        return;
    }
    let user = User::new("config-check");
    let check = &["config", "check"];
    let said = refusal(&user.husk(&[("HUSK_KERNEL", "1")], check), 125);
    assert!(said.contains("HUSK_KERNEL: there is no such variable"), "{said}");
    assert!(said.contains("did you mean HUSK_KERNELS?"), "{said}");
    let said = refusal(&user.husk(&[("HUSK_FOO", "1")], check), 125);
    assert!(said.contains("HUSK_FOO") && said.contains("unset it"), "{said}");
    let said = refusal(&user.husk(&[("HUSK_OVERLAY", "/nope")], check), 125);
    assert!(said.contains("overlay /nope (HUSK_OVERLAY): there is no such directory"), "{said}");
    // What is there and cannot be had.
    for (name, value, why) in [
        ("HUSK_MOUNT", "/tmp/../proc", "programs need what the host shows there"),
        ("HUSK_OVERLAY", "/dev", "the host's devices"),
        ("HUSK_MEMORY", "9T", "choose memory 32M to "),
        ("HUSK_MEMORY", "1M", "too small; choose memory 32M to "),
    ] {
        let said = refusal(&user.husk(&[(name, value)], check), 125);
        assert!(said.contains(why) && said.contains(&format!("{value} ({name})")), "{said}");
    }
    user.here("kernels = 1\nmount = ['/tmp', '/nope']\n");
    for arguments in [&check[..], &["config", "check", "husk.toml"]] {
        let said = refusal(&user.husk(&[], arguments), 125);
        assert!(said.contains("mount /nope (") && said.contains("husk.toml:2)"), "{said}");
    }
    // What each could be alone, and not together: in one file, and in a file and a variable.
    user.trusted("overlay = '.'\nmount = '.'\n");
    let both = "and mount on it, too: an overlay and a mount name the same directory";
    for arguments in [&["run", "--", "true"][..], check, &["config", "check", "husk.toml"]] {
        let said = refusal(&user.husk(&[], arguments), 125);
        assert!(said.contains(both), "{arguments:?}: {said}");
    }
    user.trusted("overlay = '.'\n");
    let said = refusal(&user.husk(&[("HUSK_MOUNT", ".")], check), 125);
    assert!(said.contains(both), "{said}");
}

#[test]
fn what_a_value_cannot_be_is_said_plainly() {
    if against_native() {
        return;
    }
    let user = User::new("config-values");
    for (name, value, said) in [
        ("HUSK_KERNELS", "many", "\"many\" is not a number of kernels; write a whole number"),
        ("HUSK_MEMORY", "1Q", "\"1Q\" is not a size; write a size, as 512M"),
        ("HUSK_GUARD", "maybe", "guard cannot be \"maybe\"; write HUSK_GUARD=on or HUSK_GUARD=off"),
        ("HUSK_PIN", "2", "pin cannot be \"2\"; write 1 or 0"),
    ] {
        let told = refusal(&user.husk(&[(name, value)], &["run", "--", "true"]), 125);
        assert!(told.contains(said), "{told}");
    }
    // What a file is advised to say it can say.
    user.here("place = 'hots'\n");
    let told = refusal(&user.husk(&[], &["config", "check"]), 125);
    assert!(
        told.contains("place cannot be \"hots\"; write for place: place = \"host\" or"),
        "{told}"
    );
    user.here("place = \"host\"\n");
    user.done(&[], &["config", "check"]);
}
