//! What shells offer where an image, a process or a path in an image is to be typed.

use std::fs;

use husk_tests::against_native;
use husk_tests::husk::binary;

use crate::{Images, shown, text, until};

/// Completes the words of `$1` as bash does, the last one being typed; prints what is offered.
/// Colons break words, as they do where somebody types.
const COMPLETE: &str = r#"
PATH="$(dirname "$0"):$PATH"
source ./script
read -ra COMP_WORDS <<< "${1//:/ : }"
[[ "$1" != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$1 COMP_POINT=${#1}
function=$(complete -p husk | sed 's/.*-F \([^ ]*\) .*/\1/')
"$function" husk "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_offers_the_names_of_images_there_are() {
    if against_native() {
        return;
    }
    let images = Images::new("completing");
    fs::write(images.work.join("script"), images.done(&["completions", "bash"])).expect("a file");
    let offered = |typed: &str| {
        let husk = binary().to_str().expect("a plain path");
        let output = images.command("bash", &["-c", COMPLETE, husk, typed]).output();
        let output = output.expect("bash starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{typed}: {}", shown(&output));
        text(&output.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered("husk exec "), [""; 0]);
    assert_eq!(offered("husk kill ci "), [""; 0]);
    images.up("nightly");
    images.up("ci");
    for verb in ["exec", "down", "ps", "top", "stat", "kill", "fsck", "explain"] {
        assert_eq!(offered(&format!("husk {verb} ")), ["ci", "nightly"], "{verb}");
        assert_eq!(offered(&format!("husk {verb} n")), ["nightly"], "{verb}");
    }
    assert_eq!(offered("husk exec --place stay c"), ["ci"]);
    assert_eq!(offered("husk exec --place l"), ["least-loaded"]);
    assert!(offered("husk exec --pl").contains(&"--place".to_owned()));
    assert!(!offered("husk exec ci ").contains(&"nightly".to_owned()), "it has its image");
    assert!(!offered("husk up ").contains(&"ci".to_owned()), "that name is taken");
    assert_eq!(offered("husk expl"), ["explain"]);
    // Words that are typed alone: nobody types <NAME>.
    assert!(!offered("husk up ").iter().any(|word| word.starts_with(['<', '['])));
    let pid = sleeper(&images, "ci");
    for typed in ["husk kill ci ", "husk kill -s TERM ci ", "husk explain ci ", "husk trace ci -p "]
    {
        assert_eq!(offered(typed), [&pid[..]], "{typed}");
    }
    assert_eq!(offered("husk kill nightly "), [""; 0], "nothing runs there");
    assert_eq!(offered(&format!("husk explain {}", &pid[..1])), [&pid[..]]);
    paths_are_offered(&images, &offered);
    images.done(&["kill", "ci", &pid]);
    images.down("nightly");
    assert_eq!(offered("husk down "), ["ci"]);
    until("nobody is left", || images.row("ci")["processes"] == 0);
    images.down("ci");
}

/// A process of an image; its number.
fn sleeper(images: &Images, name: &str) -> String {
    let pid = images.script(name, "sleep 83 < /dev/null > /dev/null 2>&1 & echo $!");
    pid.trim().to_owned()
}

/// What `husk cp` and `husk mount` take: names with a colon, and then what there is inside.
fn paths_are_offered(images: &Images, offered: &dyn Fn(&str) -> Vec<String>) {
    fs::write(images.work.join("notes"), "").expect("a file");
    let script = "mkdir /tmp/tree; touch /tmp/text '/tmp/two words' /tmp/tree/leaf only-inside";
    images.script("ci", script);
    assert_eq!(offered("husk cp c"), ["ci:"]);
    assert_eq!(offered("husk cp n"), ["nightly:", "notes"]);
    // What stands before the colon is typed already.
    assert_eq!(offered("husk cp ci:/tm"), ["/tmp/"]);
    assert_eq!(offered("husk cp ci:/tmp/t"), ["/tmp/text", "/tmp/tree/", "/tmp/two\\", "words"]);
    assert_eq!(offered("husk cp -r ci:/tmp/tr"), ["/tmp/tree/"]);
    assert_eq!(offered("husk cp notes ci:/tmp/tree/"), ["/tmp/tree/leaf"]);
    assert_eq!(offered("husk cp ci:on"), ["only-inside"], "from where one is");
    assert!(offered("husk cp ci:").contains(&"only-inside".to_owned()));
    assert_eq!(offered("husk cp nightly:/tmp/t"), [""; 0]);
    assert_eq!(offered("husk cp nix:/tmp/"), [""; 0]);
    assert_eq!(offered("husk mount ci:/tm"), ["/tmp/"]);
    assert_eq!(offered("husk mount c"), ["ci"]);
}

/// Both shells read their scripts; fish says itself what it would offer, zsh is asked word by word.
#[test]
fn fish_and_zsh_understand_their_scripts_and_offer_what_bash_does() {
    if against_native() {
        return;
    }
    let images = Images::new("completing-more");
    let beside = binary().parent().and_then(|path| path.to_str()).expect("a plain path");
    let asked = |shell: &str, script: &str| {
        let mut command = images.command(shell, &["-c", script]);
        let output = command.env("PATH", format!("{beside}:/usr/bin:/bin")).output();
        let output = output.expect("it starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {}", shown(&output));
        text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for shell in ["fish", "zsh"] {
        assert!(has(shell), "{shell} is installed (apt-get install {shell})");
        let path = images.work.join(format!("script.{shell}"));
        fs::write(&path, images.done(&["completions", shell])).expect("a file");
        let output = images.command(shell, &["-n", path.to_str().expect("a path")]).output();
        let output = output.expect("it starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {}", shown(&output));
    }
    images.up("ci");
    let pid = sleeper(&images, "ci");
    images.script("ci", "touch /tmp/text");
    let fish = |typed: &str| asked("fish", &format!("source script.fish; complete -C '{typed}'"));
    assert_eq!(fish("husk exec c"), ["ci"]);
    assert_eq!(fish(&format!("husk kill ci {}", &pid[..1])), [format!("{pid}\tsleep 83")]);
    assert_eq!(fish("husk cp ci:/tmp/t"), ["ci:/tmp/text"]);
    assert!(fish("husk top").iter().any(|line| line.starts_with("top\t")));
    let zsh = |function: &str, prefix: &str, words: &str| {
        asked(
            "zsh",
            &format!(
                "autoload -Uz compinit; compinit -u -d ./dump; source ./script.zsh; PREFIX={prefix}
                 words=({words}); _describe() {{ print -l -- \"${{(@P)argv[-1]}}\" }}
                 compadd() {{ print -l -- \"${{@:4}}\" }}; _files() {{ : }}; {function}"
            ),
        )
    };
    assert_eq!(zsh("_husk_named", "", "exec"), ["ci"]);
    assert_eq!(zsh("_husk_numbers", "", "kill ci"), [format!("{pid}:sleep 83")]);
    assert_eq!(zsh("_husk_paths", "ci:/tmp/t", "cp"), ["ci:/tmp/text"]);
    let script = fs::read_to_string(images.work.join("script.zsh")).expect("a file");
    for (verb, offers) in [("kill", "numbers"), ("explain", "numbers"), ("cp", "paths")] {
        let begin = script.find(&format!("\n({verb})\n")).expect("it is completed");
        let block = script[begin..].split("\n;;").next().unwrap_or_default();
        assert!(block.contains(&format!(":_husk_{offers}'")), "{verb}: {block}");
    }
    images.done(&["kill", "ci", &pid]);
    images.husk(&["down", "ci", "--discard", "--force"]);
}

fn has(shell: &str) -> bool {
    std::process::Command::new(shell).args(["-c", "true"]).status().is_ok_and(|it| it.success())
}
