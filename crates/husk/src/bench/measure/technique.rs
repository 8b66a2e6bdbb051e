//! Techniques that an image can do without, one at a time, to see what each is worth.
//!
//! The idea is that of Hare (Gruenwald et al., EuroSys 2015, section 5.4). Each is switched off in
//! the product's own path, by what the image is started with.

use std::process::Command;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Technique {
    /// Directories that several kernels change at once (off: HUSK_DIR=narrow).
    Wide,
    /// Names, attributes and block maps read without a lock.
    Optimistic,
    /// Bytes copied straight to and from the buffer cache, not by calls of the host.
    Direct,
    /// Each thread has its own free objects and blocks.
    Affinity,
    /// Memory for many blocks mapped at once for a thread that fills one run after the other.
    Ahead,
    /// Large programs that start often run from huge pages.
    Gathered,
    /// Programs that start often are linked once and then started from a recording.
    Recorded,
    /// Bytes of sockets in shared memory.
    Sockets,
    /// Names, attributes and bytes of another node looked at in its memory, without a message.
    Looks,
    /// Short requests to another node in its memory, not by its socket.
    Slots,
    /// Files of another node kept open when they are closed, to be opened again without a message.
    Leases,
    /// A file of another node made and opened with one message.
    Coalesced,
    /// Calls answered at patched call sites, not by a trap (off: HUSK_REWRITE=off).
    Rewrite,
    /// The protection key on the image's state (off: --guard=off).
    Guard,
}

impl Technique {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Technique::Wide => "wide",
            Technique::Optimistic => "optimistic",
            Technique::Direct => "direct",
            Technique::Affinity => "affinity",
            Technique::Ahead => "ahead",
            Technique::Gathered => "gathered",
            Technique::Recorded => "recorded",
            Technique::Sockets => "sockets",
            Technique::Looks => "looks",
            Technique::Slots => "slots",
            Technique::Leases => "leases",
            Technique::Coalesced => "coalesced",
            Technique::Rewrite => "rewrite",
            Technique::Guard => "guard",
        }
    }

    /// The environment of `husk run` in which it is off.
    pub fn switch_off(self, run: &mut Command) {
        match self {
            Technique::Wide => run.env("HUSK_DIR", "narrow"),
            Technique::Rewrite => run.env("HUSK_REWRITE", "off"),
            Technique::Guard => run,
            _ => run.env("HUSK_WITHOUT", self.name()),
        };
    }

    /// What `--guard` is to say then.
    pub fn guard(self, asked: Option<&str>) -> Option<&str> {
        if self == Technique::Guard { Some("off") } else { asked }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use husk_supervisor::run::variables::TECHNIQUES;

    use super::Technique;

    #[test]
    fn every_technique_of_an_image_can_be_measured() {
        let names = Technique::value_variants().iter().map(|technique| technique.name());
        let known = names.collect::<Vec<_>>();
        assert!(TECHNIQUES.iter().all(|(name, _)| known.contains(name)), "{known:?}");
    }
}
