//! Several programs change names of one volume at once, each syncs its own, and all are killed.

use std::path::Path;

use husk_tests::toolchain::build_c_with;

use super::Room;
use crate::Dice;

const PROGRAMS: usize = 6;
const ROUNDS: usize = 8;
/// Lines of all of them at most before a kill.
const STEPS_MAX: usize = 1500;

#[test]
fn what_one_of_several_programs_synced_survives_the_death_of_all() {
    let (mut dice, room) = (Dice::new(), Room::new("crowd", "16M"));
    let program = room.path("crowd");
    build_c_with(include_str!("../sources/crowd.c"), Path::new(&program), &[]);
    let tree = room.tree();
    let command = |verb: &str, steps: &[u64; PROGRAMS]| {
        let steps = steps.map(|step| step.to_string());
        let mut words = vec![program.as_str(), verb, &tree];
        words.extend(steps.iter().map(String::as_str));
        room.command("128M", &words)
    };
    let mut at = [0; PROGRAMS];
    for round in 0..ROUNDS {
        let steps = 1 + dice.below(STEPS_MAX);
        let printed = room.printed_before_death(command("go", &at), "crowd", steps);
        let before = at;
        for line in printed.lines() {
            let (who, step) = line.split_once(' ').expect("two numbers");
            let who: usize = who.parse().expect("a program");
            at[who] = step.parse().expect("a step");
        }
        let outcome = room.run(command("look", &at));
        assert_eq!(outcome.code(), 0, "round {round}: {at:?}: {}", outcome.shown());
        let text = String::from_utf8(outcome.stdout).expect("text");
        let there: Vec<u64> =
            text.split_whitespace().map(|step| step.parse().expect("a step")).collect();
        for who in (0..PROGRAMS).filter(|&who| at[who] != before[who]) {
            assert!(there[who] >= at[who], "round {round}, {who}: {at:?}, but {there:?}");
        }
    }
    room.is_clean();
}
