//! Checks the structure of an image when it ends.
//!
//! 1. If the counts in its header are impossible, nothing is read and nothing is written back.
//! 2. From any other damaged image all that can be read is written back, as it would be lost
//!    otherwise; one line reports the damage, and the status is a failure.

use std::fs::File;

use husk_carrier::Finding;

use crate::image::Image;
use crate::image::attach::{self, SENSELESS};

/// What a look came to.
pub enum Soundness {
    /// Nothing is wrong.
    Sound,
    /// So many findings.
    Damaged(u32),
    /// There is no way to tell what belongs where.
    Senseless,
}

/// Looks at a quiet image; `report` gets a line for each finding.
pub fn look(image: &Image, report: &mut dyn FnMut(String)) -> Soundness {
    let kernel = image.direct.kernel();
    let header = match image.region.try_clone().map(|region| attach::layout(&File::from(region))) {
        // Without a descriptor for it there is no look at the header.
        Err(_) => 0,
        Ok(Ok(layout)) if layout == kernel.session.region.layout() => 0,
        Ok(Ok(_)) => told(report, "the header describes another image".to_owned()),
        Ok(Err(why)) => told(report, format!("the header: {why}")),
    };
    if !husk_carrier::makes_sense(kernel) {
        told(report, SENSELESS.to_owned());
        return Soundness::Senseless;
    }
    let mut scratch = vec![0; husk_carrier::scratch_words(kernel)];
    let findings = husk_carrier::check(kernel, &mut scratch, &mut |finding: Finding| {
        report(format!("{finding:?}"));
    });
    match header + findings {
        0 => Soundness::Sound,
        count => Soundness::Damaged(count),
    }
}

fn told(report: &mut dyn FnMut(String), line: String) -> u32 {
    report(line);
    1
}

impl Soundness {
    /// The line that says what became of what the image held. `dropped`: that was asked for;
    /// `complete`: all that it showed is on the host.
    pub fn line(&self, dropped: bool, complete: bool) -> Option<String> {
        let findings = match self {
            Soundness::Sound => return None,
            Soundness::Senseless => {
                let became =
                    if dropped { "as asked" } else { "because no part of it can be trusted" };
                return Some(format!("the image is damaged: nothing was written back, {became}"));
            }
            Soundness::Damaged(1) => "1 finding".to_owned(),
            Soundness::Damaged(count) => format!("{count} findings"),
        };
        let became = match (dropped, complete) {
            (true, _) => "nothing was written back, as asked",
            (false, true) => "all that it showed was written back; compare what it changed",
            (false, false) => "what could be read was written back; compare what it changed",
        };
        Some(format!("the image is damaged ({findings} of its structure): {became}"))
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        matches!(self, Soundness::Sound)
    }
}
