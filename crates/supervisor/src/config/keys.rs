//! The configuration keys: each is the same word in files, as variable `HUSK_WORD`, and (if there
//! is one) as an option.

use husk_proto::place::Policy;

use crate::run::fate::OnFailure;
use crate::run::request::{KERNELS_MAX, default_kernels, default_memory_bytes, parse_size};
use crate::run::variables::TECHNIQUES;
use crate::show::check::can_guard;

/// What a key can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Count,
    /// Bytes, with a unit or without.
    Size,
    /// Directories; as a variable with colons between.
    Paths,
    /// Yes or no.
    Switch,
    /// One of some words.
    Words(&'static [&'static str]),
    /// Techniques; as a variable with commas between.
    Techniques,
}

/// What a key decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// What becomes of the user's data: what is kept, dropped, written or reached, and what
    /// protects it. The user decides: a `husk.toml` of the current directory, which may have come
    /// with somebody else's files, must be trusted first (`trust`).
    Data,
    /// How the image works, and what is said of it.
    Work,
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Its name in files.
    pub name: &'static str,
    /// What it can say.
    pub kind: Kind,
    /// What it decides about.
    pub decides: Decides,
    /// What holds where it says nothing; empty: that depends on the host (`Key::default`).
    default: &'static [&'static str],
}

const fn key(
    name: &'static str,
    kind: Kind,
    decides: Decides,
    default: &'static [&'static str],
) -> Key {
    Key { name, kind, decides, default }
}

/// Words for how processes are placed.
const PLACES: [&str; Policy::ALL.len()] = {
    let mut names = [""; Policy::ALL.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = Policy::ALL[n].name();
        n += 1;
    }
    names
};

/// All keys, in the order in which they are shown.
pub static KEYS: [Key; 19] = [
    key("kernels", Kind::Count, Decides::Work, &[]),
    key("memory", Kind::Size, Decides::Work, &[]),
    key("overlay", Kind::Paths, Decides::Data, &[]),
    key("mount", Kind::Paths, Decides::Data, &["/tmp"]),
    key("discard", Kind::Switch, Decides::Data, &["false"]),
    key("on_failure", Kind::Words(&OnFailure::NAMES), Decides::Data, &["write"]),
    key("ask", Kind::Switch, Decides::Data, &["false"]),
    key("read_only_outside", Kind::Switch, Decides::Data, &["false"]),
    key("guard", Kind::Words(&["on", "off"]), Decides::Data, &[]),
    key("place", Kind::Words(&PLACES), Decides::Work, &["host"]),
    key("pin", Kind::Switch, Decides::Work, &["false"]),
    key("trace", Kind::Words(&["off", "unsupported"]), Decides::Work, &["off"]),
    key("rewrite", Kind::Words(&["on", "off"]), Decides::Work, &["on"]),
    key("pipes", Kind::Words(&["husk", "host"]), Decides::Work, &["husk"]),
    key("sockets", Kind::Words(&["husk", "host"]), Decides::Work, &["husk"]),
    key("dir", Kind::Words(&["auto", "narrow", "wide"]), Decides::Work, &["auto"]),
    key("without", Kind::Techniques, Decides::Work, &[]),
    key("fsck", Kind::Switch, Decides::Work, &["false"]),
    key("holds", Kind::Switch, Decides::Work, &["false"]),
];

/// The key that `typed` was meant for, if one is near.
pub fn nearest(typed: &str) -> Option<&'static str> {
    const NEAR: f64 = 0.6;
    let typed = typed.to_ascii_lowercase();
    let nearness = |key: &Key| strsim::normalized_damerau_levenshtein(&typed, key.name);
    let best = KEYS.iter().max_by(|one, two| nearness(one).total_cmp(&nearness(two)))?;
    (nearness(best) >= NEAR).then_some(best.name)
}

impl Kind {
    /// What can be written in a file, for people.
    pub fn form_in_file(self, name: &str) -> String {
        match self {
            Kind::Size => "a size, as \"512M\" or \"2G\"".to_owned(),
            Kind::Paths => "a list of directories without colons in their names".to_owned(),
            Kind::Switch => format!("{name} = true or {name} = false"),
            Kind::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("{name} = {word:?}")).collect();
                words.join(" or ")
            }
            Kind::Count | Kind::Techniques => self.form(name),
        }
    }

    /// What can be written in a variable, for people; `name` in front of words.
    pub fn form(self, name: &str) -> String {
        match self {
            Kind::Count => format!("a whole number, 1 to {KERNELS_MAX}"),
            Kind::Size => "a size, as 512M or 2G".to_owned(),
            Kind::Paths => "directories without colons in their names".to_owned(),
            Kind::Switch => "1 or 0, true or false".to_owned(),
            Kind::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("{name}={word}")).collect();
                words.join(" or ")
            }
            Kind::Techniques => format!("some of {}", TECHNIQUES.map(|(name, _)| name).join(", ")),
        }
    }
}

impl Key {
    /// The variable that says the same.
    pub fn variable(&self) -> String {
        format!("HUSK_{}", self.name.to_ascii_uppercase())
    }

    /// Values out of the text of a variable.
    pub fn split(&self, text: &str) -> Vec<String> {
        let parts = |between| {
            text.split(between).filter(|part: &&str| !part.is_empty()).map(str::to_owned).collect()
        };
        match self.kind {
            Kind::Paths => parts(':'),
            Kind::Techniques => parts(','),
            _ => vec![text.to_owned()],
        }
    }

    /// Values as the text of a variable.
    pub fn join(&self, values: &[String]) -> String {
        values.join(if self.kind == Kind::Paths { ":" } else { "," })
    }

    /// Why values are none for this key.
    pub fn check(&self, values: &[String]) -> Result<(), String> {
        let wrong = values.iter().find(|value| !self.takes(value));
        match wrong {
            None => Ok(()),
            Some(value) if self.kind == Kind::Techniques => {
                Err(format!("there is no technique {value}"))
            }
            Some(value) if self.kind == Kind::Paths => Err(match value.is_empty() {
                true => "a directory is empty".to_owned(),
                false => "directories are separated by colons".to_owned(),
            }),
            Some(value) if matches!(self.kind, Kind::Words(_) | Kind::Switch) => {
                Err(format!("{} cannot be {value:?}", self.name))
            }
            Some(value)
                if self.kind == Kind::Count && value.parse::<u32>().is_ok_and(|n| n > 0) =>
            {
                Err(format!("an image has at most {KERNELS_MAX} kernels"))
            }
            Some(value) if self.kind == Kind::Size => Err(format!("{value:?} is not a size")),
            Some(value) => Err(format!("{value:?} is not a number of {}", self.name)),
        }
    }

    fn takes(&self, value: &str) -> bool {
        match self.kind {
            Kind::Count => value.parse().is_ok_and(|count| (1..=KERNELS_MAX).contains(&count)),
            Kind::Size => parse_size(value).is_ok(),
            Kind::Paths => !value.is_empty() && !value.contains(':'),
            Kind::Switch => matches!(value, "0" | "1" | "true" | "false"),
            Kind::Words(words) => words.contains(&value),
            Kind::Techniques => TECHNIQUES.iter().any(|(name, _)| *name == value),
        }
    }

    /// What holds here where nothing is said.
    pub fn default(&self) -> Vec<String> {
        match self.name {
            "kernels" => vec![default_kernels().to_string()],
            "memory" => vec![format!("{}M", default_memory_bytes() >> 20)],
            "overlay" => {
                let here =
                    std::env::current_dir().ok().and_then(|here| here.to_str().map(Into::into));
                here.into_iter().collect()
            }
            "guard" => vec![if can_guard() { "on" } else { "off" }.to_owned()],
            _ => self.default.iter().map(|&value| value.to_owned()).collect(),
        }
    }

    /// Values as TOML.
    pub fn toml(&self, values: &[String]) -> String {
        // Every JSON string is one of TOML.
        self.json(values).to_string()
    }

    /// Values as JSON.
    pub fn json(&self, values: &[String]) -> serde_json::Value {
        let first = values.first().map_or("", String::as_str);
        match self.kind {
            Kind::Count => first.parse::<u32>().map_or(serde_json::Value::Null, Into::into),
            Kind::Switch => matches!(first, "1" | "true").into(),
            Kind::Paths | Kind::Techniques => values.into(),
            Kind::Size | Kind::Words(_) => first.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_meant_is_found() {
        for (typed, meant) in [
            ("memroy", Some("memory")),
            ("kernel", Some("kernels")),
            ("Overlays", Some("overlay")),
            ("mounts", Some("mount")),
            ("xyz", None),
        ] {
            assert_eq!(nearest(typed), meant, "{typed}");
        }
    }
}
