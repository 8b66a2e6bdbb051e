//! What bash offers where the name of an image is to be typed.

use std::fs;

use husk_tests::against_native;
use husk_tests::husk::binary;

use crate::{Images, shown, text};

/// Completes the words of `$1` as bash does, the last one being typed; prints what is offered.
const COMPLETE: &str = r#"
PATH="$(dirname "$0"):$PATH"
source ./script
read -ra COMP_WORDS <<< "$1"
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
    images.down("nightly");
    assert_eq!(offered("husk down "), ["ci"]);
    images.down("ci");
}
