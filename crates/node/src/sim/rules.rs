//! The rules that the protocol needs, as a model of it found them, each with the bugs that are
//! planted here where one is left out; or why there is none yet.

use super::home;
use super::own_process::in_own_process;
use super::play::play_caught;
use crate::planted::{Bug, plant};

/// Where a rule is kept to.
enum Kept {
    /// Here: bugs that are found.
    Here(&'static [Bug]),
    /// There is nothing yet that it could be broken with.
    NotYet(&'static str),
}

use Kept::{Here, NotYet};

const NO_COPIES: &str = "no node of this host keeps a copy; another host hears by one link only";
const ONE_HOME: &str = "one node is the home of all names";

/// Each rule.
const RULES: [(&str, Kept); 19] = [
    ("who has a copy is told before a change is answered", NotYet(NO_COPIES)),
    ("and before it can be seen at home", NotYet(NO_COPIES)),
    ("a copy counts once its home's lane is drained", NotYet(NO_COPIES)),
    ("a reply that a call-back overtook is not kept", NotYet(NO_COPIES)),
    ("while a change waits for its holders nobody is promised anything", NotYet(NO_COPIES)),
    ("one's own copy does not count while one changes it", NotYet(NO_COPIES)),
    (
        "what is given back has a number, which is used once",
        Here(&[Bug::HoldsNumberedAgain, Bug::AnyoneReturns]),
    ),
    ("a promise runs from the first sending", NotYet("promises without end, as on a ring")),
    ("a lock brings the number of the last change", NotYet("locks are not served")),
    ("bytes go home before their promise ends", NotYet(NO_COPIES)),
    (
        "unlinked files live as long as somebody has them open, and no longer",
        Here(&[
            Bug::DeathKeepsHolds,
            Bug::UnheardHoldKept,
            Bug::FirstTryKept,
            Bug::HoldsDieWithAgent,
            Bug::QuietWriters,
        ]),
    ),
    (
        "what may not be done twice is done once, and its own answer is heard",
        Here(&[
            Bug::NoRecord,
            Bug::RecordApart,
            Bug::EpochNotInRecords,
            Bug::ForgottenOnceSent,
            Bug::AsksAgainChanges,
            Bug::TakesAnyAnswer,
        ]),
    ),
    ("requests of one process on one object are done in order", Here(&[Bug::AsksAgainLate])),
    ("a rename over two homes has an order and an intent", NotYet(ONE_HOME)),
    ("intents are remembered until they are released", NotYet(ONE_HOME)),
    ("a spread directory is removed in three phases", NotYet(ONE_HOME)),
    ("an offset is its user's, or the home's", NotYet("offsets are not shared over nodes")),
    (
        "a dead node is fenced before what it had goes on, and only that life of it",
        Here(&[Bug::NoFence, Bug::DeathsForgotten, Bug::DeathOfAllLives]),
    ),
    (
        "what breaks the rules is counted, and nothing of it is done",
        Here(&[Bug::AnyoneTellsDeaths, Bug::PostedIsDone, Bug::FaultsUncounted, Bug::NeverMade]),
    ),
];

/// Seeds that a bug is looked for in: those of the test that finds none.
const SEEDS: u64 = super::SEEDS.0;

/// The first seed that finds a bug, and how.
fn found(bug: Bug) -> Option<(u64, String)> {
    plant(Some(bug));
    let found = (1..=SEEDS).find_map(|seed| play_caught(seed).err().map(|why| (seed, why)));
    plant(None);
    found
}

#[test]
fn each_rule_that_is_left_out_is_missed() {
    in_own_process("sim::rules::each_rule_that_is_left_out_is_missed", || {
        home::map();
        std::panic::set_hook(Box::new(|_| {}));
        let mut missed = Vec::new();
        for (rule, kept) in RULES {
            match kept {
                NotYet(why) => println!("not yet: {rule}: {why}"),
                Here(bugs) => {
                    for bug in bugs {
                        let found = found(*bug);
                        let told = found.as_ref().map(|(seed, why)| {
                            let why = why.lines().next().unwrap_or_default();
                            format!("seed {seed}: {}", why.get(..160).unwrap_or(why))
                        });
                        println!("{rule}: {bug:?}: {told:?}");
                        missed.extend(found.is_none().then_some(*bug));
                    }
                }
            }
        }
        let _ = std::panic::take_hook();
        assert_eq!(missed, [], "no seed finds them");
    });
}
