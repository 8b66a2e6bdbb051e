//! Names of images in shells' completions: what the options cannot tell, `husk ls --names` does.

use clap::{Arg, Command};
use clap_complete::Shell;

/// What asks for the names; who has none is offered none.
const ASK: &str = "husk ls --names 2> /dev/null";

/// `script`, made from the options, with names of images where `command` takes one that there is.
pub fn with_names(shell: Shell, command: &Command, script: &str) -> String {
    let verbs: Vec<&str> =
        command.get_subcommands().filter(|one| names_one(one)).map(Command::get_name).collect();
    match shell {
        Shell::Bash => format!("{script}{}", bash(command, &verbs)),
        Shell::Zsh => zsh(script),
        Shell::Fish => {
            let offer = |verb: &&str| {
                format!(
                    "complete -c husk -n \"__fish_husk_using_subcommand {verb}\" -a \"({ASK})\"\n"
                )
            };
            verbs.iter().fold(script.to_owned(), |all, verb| all + &offer(verb))
        }
        _ => script.to_owned(),
    }
}

/// Whether the first word behind the command is the name of an image that there is.
fn names_one(command: &Command) -> bool {
    let first = command.get_positionals().next().map(|first| first.get_id().as_str());
    matches!(first, Some("name" | "image")) && command.get_name() != "up"
}

/// Options that are followed by a word of their own.
fn with_values(command: &Command) -> Vec<String> {
    let takes = |arg: &&Arg| {
        let valued = arg.get_action().takes_values() && !arg.is_require_equals_set();
        valued && !arg.is_positional()
    };
    let spelt = |arg: &Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        [long, short].into_iter().flatten().collect::<Vec<_>>()
    };
    let of = |one: &Command| one.get_arguments().filter(takes).flat_map(spelt).collect::<Vec<_>>();
    let mut all: Vec<String> = command.get_subcommands().flat_map(of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn bash(command: &Command, verbs: &[&str]) -> String {
    let (verbs, valued) = (verbs.join("|"), with_values(command).join("|"));
    format!(
        r#"
# The first word behind a command that takes an image is its name.
_husk_named() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" at verb="" one
    for ((at = 1; at < COMP_CWORD; at++)); do
        one="${{COMP_WORDS[at]}}"
        case "$one" in
            {valued}) ((at++)); [[ $at -lt $COMP_CWORD ]] || verb=-; continue ;;
            -*) continue ;;
        esac
        [[ -z "$verb" ]] || {{ verb=-; break; }}
        verb="$one"
    done
    case "$word$verb" in
        -*) ;;
        *) case "$verb" in
            {verbs}) COMPREPLY=( $(compgen -W "$({ASK})" -- "$word") ); return 0 ;;
        esac ;;
    esac
    _husk "$@"
}}
complete -F _husk_named -o bashdefault -o default husk
"#
    )
}

/// Lines that take the name of an image are told by what they say of it.
fn zsh(script: &str) -> String {
    let names = |line: &str| {
        let line = line.trim_start();
        line.starts_with("':name -- Name of") || line.starts_with("':image -- Name of")
    };
    let line = |line: &str| match names(line) {
        true => line.replace(":_default'", ":_husk_named'"),
        false => line.to_owned(),
    };
    let mut lines: Vec<String> = script.lines().map(line).collect();
    let function = format!(
        "(( $+functions[_husk_named] )) ||\n_husk_named() {{\n    local -a names\n    \
         names=(${{(f)\"$({ASK})\"}})\n    _describe -t images 'image' names\n}}\n"
    );
    // Behind the line that says what is completed, before what is done.
    lines.insert(1, function);
    lines.join("\n") + "\n"
}
