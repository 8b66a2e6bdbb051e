//! Settings without a command-line option: `trace`, `rewrite`, `pipes`, `sockets`, `fsck`, `holds`,
//! `dir`, `without`, in a configuration file or as `HUSK_TRACE` and so on.

use husk_carrier::{Directories, Without};

use crate::config::Config;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// `HUSK_TRACE=unsupported`: name the calls Husk refused when the run ends.
    pub trace: bool,
    /// `HUSK_REWRITE=off`: never use rewritten copies of programs, trap every call.
    pub trap_only: bool,
    /// Bytes of pipes and stream sockets go through shared memory where they can; not with
    /// `HUSK_PIPES=host`.
    pub pipes: bool,
    /// Those of sockets, where pipes' do; not with `HUSK_SOCKETS=host` or
    /// `HUSK_WITHOUT=sockets`.
    pub sockets: bool,
    /// `HUSK_FSCK=1`: check the image's structure when the run ends.
    pub check: bool,
    /// `HUSK_HOLDS=1`: measure how long the supervisor holds what others wait for.
    pub holds: bool,
    /// `HUSK_DIR=narrow` or `wide`: how directories are shared between processes.
    pub directories: Directories,
    /// `HUSK_WITHOUT=NAME,NAME`: techniques to do without, to see what each is worth.
    pub without: Without,
}

/// Techniques that `HUSK_WITHOUT` can name.
pub const TECHNIQUES: [(&str, Without); 11] = [
    ("optimistic", Without::OPTIMISTIC),
    ("direct", Without::DIRECT),
    ("affinity", Without::AFFINITY),
    ("ahead", Without::AHEAD),
    ("gathered", Without::GATHERED),
    ("recorded", Without::RECORDED),
    ("sockets", Without::SOCKETS),
    ("looks", Without::LOOKS),
    ("slots", Without::SLOTS),
    ("leases", Without::LEASES),
    ("coalesced", Without::COALESCED),
];

impl Variables {
    /// What `config` says, whose words have been checked.
    pub fn of(config: &Config) -> Variables {
        let is = |name: &str, word: &str| config.one(name) == Some(word);
        let named = |name: &String| TECHNIQUES.iter().find(|(known, _)| known == name);
        let without = config.many("without").iter().filter_map(named);
        let without = without.fold(Without::NOTHING, |all, (_, one)| all.and(*one));
        Variables {
            trace: is("trace", "unsupported"),
            trap_only: is("rewrite", "off"),
            pipes: !is("pipes", "host"),
            sockets: !is("sockets", "host") && !without.has(Without::SOCKETS),
            check: config.is_on("fsck") == Some(true),
            holds: config.is_on("holds") == Some(true),
            directories: match config.one("dir") {
                Some("narrow") => Directories::Narrow,
                Some("wide") => Directories::Wide,
                _ => Directories::ByContention,
            },
            without,
        }
    }
}
