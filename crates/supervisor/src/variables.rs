//! What the environment says: `HUSK_TRACE`, `HUSK_REWRITE`, `HUSK_PIPES`, `HUSK_FSCK`, `HUSK_DIR`,
//! `HUSK_WITHOUT`.
//! A value that means nothing is a mistake, not a wish for the default.

use std::env;

use husk_carrier::{Directories, Without};

use crate::failure::Failure;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// `HUSK_TRACE=unsupported`: name the calls Husk refused when the run ends.
    pub trace: bool,
    /// `HUSK_REWRITE=off`: never use rewritten copies of programs, trap every call.
    pub trap_only: bool,
    /// `HUSK_PIPES=husk`: bytes of pipes go through shared memory where they can.
    pub pipes: bool,
    /// `HUSK_FSCK=1`: check the image's structure when the run ends.
    pub check: bool,
    /// `HUSK_DIR=narrow` or `wide`: how directories are shared between processes.
    pub directories: Directories,
    /// `HUSK_WITHOUT=NAME,NAME`: techniques to do without, to see what each is worth.
    pub without: Without,
}

/// Techniques that `HUSK_WITHOUT` can name.
pub const TECHNIQUES: [(&str, Without); 5] = [
    ("optimistic", Without::OPTIMISTIC),
    ("direct", Without::DIRECT),
    ("affinity", Without::AFFINITY),
    ("ahead", Without::AHEAD),
    ("gathered", Without::GATHERED),
];

impl Variables {
    /// Reads the environment of this process.
    pub fn read() -> Result<Self, Failure> {
        Ok(Self {
            trace: choice("HUSK_TRACE", "", "unsupported")?,
            trap_only: choice("HUSK_REWRITE", "on", "off")?,
            pipes: choice("HUSK_PIPES", "host", "husk")?,
            check: choice("HUSK_FSCK", "0", "1")?,
            directories: directories()?,
            without: without()?,
        })
    }
}

/// The rule that `HUSK_DIR` names.
fn directories() -> Result<Directories, Failure> {
    match env::var_os("HUSK_DIR").as_deref().and_then(|value| value.to_str()) {
        Some("narrow") => Ok(Directories::Narrow),
        Some("wide") => Ok(Directories::Wide),
        _ => choice("HUSK_DIR", "", "auto").map(|_| Directories::ByContention),
    }
}

/// The techniques that `HUSK_WITHOUT` names.
fn without() -> Result<Without, Failure> {
    let value = env::var_os("HUSK_WITHOUT").unwrap_or_default();
    let value = value.to_string_lossy();
    let mut all = Without::NOTHING;
    for name in value.split(',').filter(|name| !name.is_empty()) {
        let Some((_, one)) = TECHNIQUES.iter().find(|(known, _)| *known == name) else {
            let names = TECHNIQUES.map(|(name, _)| name).join(", ");
            return Err(Failure::new(
                format!("cannot do without {name}"),
                "HUSK_WITHOUT names no technique by that name",
                format!("write some of {names}, or leave it out"),
            ));
        };
        all = all.and(*one);
    }
    Ok(all)
}

/// Whether `name` is set to `chosen`; not set, empty and `usual` are the same.
fn choice(name: &str, usual: &str, chosen: &str) -> Result<bool, Failure> {
    let Some(value) = env::var_os(name) else { return Ok(false) };
    if value.is_empty() || value == usual {
        return Ok(false);
    }
    if value == chosen {
        return Ok(true);
    }
    let usual = if usual.is_empty() { String::new() } else { format!(" or {name}={usual}") };
    Err(Failure::new(
        format!("cannot take {name}={}", value.to_string_lossy()),
        "it means nothing",
        format!("write {name}={chosen}{usual}, or leave it out"),
    ))
}
