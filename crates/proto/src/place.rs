//! Placement: which kernel a process counts as its own, and on which core it begins.
//!
//! Placement is not an operation. A process that starts or forks decides for itself from shared
//! data, and records the reason beside its process record.

/// Most kernels whose loads a line has room for.
pub const LOADS_SHOWN: usize = 32;
/// A load of one process that never waits.
pub const LOAD_ONE: u32 = 1024;
/// A load as it stands in a line: so many to one process.
pub const SHOWN_ONE: u32 = 16;

/// How a kernel is chosen for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// It is not: Linux chooses a core, and the kernel is that of the first free seat.
    #[default]
    Host,
    /// The one of whoever started it.
    Stay,
    /// One after the other.
    RoundRobin,
    /// Any.
    Random,
    /// The one whose core has least to do.
    LeastLoaded,
}

impl Policy {
    /// All, by number.
    pub const ALL: [Policy; 5] =
        [Policy::Host, Policy::Stay, Policy::RoundRobin, Policy::Random, Policy::LeastLoaded];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Host => "host",
            Policy::Stay => "stay",
            Policy::RoundRobin => "round-robin",
            Policy::Random => "random",
            Policy::LeastLoaded => "least-loaded",
        }
    }

    /// The one of that name.
    pub fn parse(name: &[u8]) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name().as_bytes() == name)
    }

    /// The one of that number.
    pub fn of_number(number: u32) -> Option<Policy> {
        Policy::ALL.get(number as usize).copied()
    }
}

/// Who said which policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// Nobody.
    #[default]
    Default,
    /// Configuration, when the image was made.
    Configuration,
    /// An option, when the image was made.
    Image,
    /// An option of `husk exec`.
    Command,
    /// `HUSK_PLACE` in the program's environment.
    Variable,
}

impl Origin {
    const ALL: [Origin; 5] =
        [Origin::Default, Origin::Configuration, Origin::Image, Origin::Command, Origin::Variable];

    /// The one of that number.
    pub fn of_number(number: u32) -> Origin {
        Origin::ALL.get(number as usize).copied().unwrap_or_default()
    }
}

/// What holds in an image where a program says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// How kernels are chosen.
    pub policy: Policy,
    /// Who said so.
    pub origin: Origin,
    /// A process runs on the core of its kernel only.
    pub pin: bool,
}

/// When a process was placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Moment {
    /// When it began a program.
    #[default]
    Exec,
    /// When it was forked.
    Fork,
}

/// What is known of how a process was placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// Host process.
    pub pid: u32,
    /// Its kernel.
    pub kernel: u32,
    /// How it was chosen.
    pub policy: Policy,
    /// Who said so.
    pub origin: Origin,
    /// When it was chosen.
    pub moment: Moment,
    /// The same, ns since the epoch.
    pub at_ns: i64,
    /// Core it ran on before.
    pub from: u32,
    /// It was made to run on the core of its kernel (else it ran there, or might not).
    pub moved: bool,
    /// It is held there.
    pub pinned: bool,
    /// The program has chosen its cores by itself.
    pub own: bool,
    /// It has begun a program since it was placed.
    pub settled: bool,
    /// Kernels it could have been given, one bit each.
    pub allowed: u64,
    /// Loads seen then, by kernel, in parts of `SHOWN_ONE`.
    pub loads: [u8; LOADS_SHOWN],
}
