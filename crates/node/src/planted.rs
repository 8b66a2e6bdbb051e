//! Bugs that tests plant, each the loss of one rule, to show that the simulator finds it. Outside
//! of tests there is none.

/// Whether a bug is planted: `planted!(NoFence)`.
#[cfg(test)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_planted($crate::planted::Bug::$bug)
    };
}

/// Never.
#[cfg(not(test))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

pub(crate) use planted;

#[cfg(test)]
pub use tests_only::{Bug, is_planted, plant};

#[cfg(test)]
mod tests_only {
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// What is left out, or done otherwise.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Bug {
        /// What is of an epoch that is over is done.
        NoFence,
        /// Another agent is not told of deaths before it serves.
        DeathsForgotten,
        /// A dead node's files stay open.
        DeathKeepsHolds,
        /// A death that is told again is that of the node's next life.
        DeathOfAllLives,
        /// Numbers of holds are used again.
        HoldsNumberedAgain,
        /// What is open for other nodes is closed with the agent that was killed.
        HoldsDieWithAgent,
        /// A hold is given back by whoever knows its number.
        AnyoneReturns,
        /// Who only says that it has closed a file before may still write to it.
        QuietWriters,
        /// A hold whose number nobody has heard is kept.
        UnheardHoldKept,
        /// What has never been made is looked at as an inode.
        NeverMade,
        /// Whoever says that nodes are dead is believed.
        AnyoneTellsDeaths,
        /// What is told, not asked, is done all the same.
        PostedIsDone,
        /// What breaks the rules is not counted.
        FaultsUncounted,
        /// A change whose answer was lost is asked for again under another number.
        AsksAgainChanges,
        /// Changes leave no record.
        NoRecord,
        /// A record is not part of the transaction that makes its change.
        RecordApart,
        /// A record does not say of which life of its node it is.
        EpochNotInRecords,
        /// A record is dropped as soon as its answer is on the way.
        ForgottenOnceSent,
        /// What was opened for a request that is sent again stays open beside what is opened now.
        FirstTryKept,
        /// What was not answered in time is asked for again.
        AsksAgainLate,
        /// The answer to an earlier try is taken for one to this.
        TakesAnyAnswer,
    }

    /// As the rooms below know them.
    const RECORD_APART: u64 = 81;
    const HOLDS_NUMBERED_AGAIN: u64 = 82;
    const QUIET_WRITERS: u64 = 84;

    static PLANTED: AtomicUsize = AtomicUsize::new(0);

    /// Plants one, or none, in this process.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |bug| bug as usize + 1), Ordering::Relaxed);
        let below = match bug {
            Some(Bug::RecordApart) => RECORD_APART,
            Some(Bug::HoldsNumberedAgain) => HOLDS_NUMBERED_AGAIN,
            Some(Bug::QuietWriters) => QUIET_WRITERS,
            _ => 0,
        };
        husk_region::observe::kill::mutate(below);
    }

    /// Whether it is.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as usize + 1
    }
}
