//! Settings of images from configuration files and variables; later ones override earlier ones.
//!
//! ```text
//!   /etc/husk/husk.toml < $XDG_CONFIG_HOME/husk/husk.toml < ./husk.toml < HUSK_KEY < --flag
//! ```
//!
//! Invariants
//! 1. The last one that says something about a key wins, as a whole: lists are not joined.
//! 2. Whatever a key says is checked where it was said, also when it is not the last.
//! 3. A key that is not known is a mistake, not a wish for nothing.
//! 4. A file counts only where it, and each link to it, is the user's own or root's, and nobody
//!    else may write to it: who may write to the current directory decides nothing.
//! 5. In `./husk.toml`, which may have come with somebody else's files, keys that decide about the
//!    user's data count only once the user has trusted this very content (`trust`).

mod file;
mod keys;
pub(crate) mod state;
mod trust;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use husk_proto::place::{self, Policy};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::output::failure::Failure;
use crate::run::fate::OnFailure;
use crate::run::request::{self, Request, parse_size, reason};
use crate::run::whole;
use file::Fetched;
use keys::nearest;
pub use keys::{Decides, KEYS, Key, Kind};

/// Says which files count: `none`, or the one of this path.
pub const FILES: &str = "HUSK_CONFIG";
/// The variable that says where this user's images are to be found.
pub const IMAGES: &str = "HUSK_IMAGES";
/// Value of `FILES`: variables and flags only.
const NONE: &str = "none";
const SYSTEM: &str = "/etc/husk/husk.toml";
const NAME: &str = "husk.toml";

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a file, at a line.
    File(PathBuf, usize),
    /// In a variable.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Variable(name) => f.write_str(name),
        }
    }
}

/// What was said about one key; nothing in it: the default.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    values: Vec<String>,
    origin: Origin,
}

/// What all say together.
#[derive(Debug, Clone, Default)]
pub struct Config {
    said: [Option<Said>; KEYS.len()],
    files: Vec<Standing>,
}

/// A file that may say something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where it is, if it is there.
    pub path: PathBuf,
    /// It is in the current directory, and nobody has named it.
    pub here: bool,
}

/// How far a file that is there counts.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where it is.
    path: PathBuf,
    /// Whether it counts.
    counts: Counts,
    /// Keys in it that do not count, with the lines they are in.
    ignored: Vec<(&'static str, usize)>,
}

/// Whether a file counts.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Counts {
    /// It is the user's, root's, or named by the user.
    Always,
    /// The user has trusted this content.
    Trusted,
    /// Keys that decide about data do not.
    Untrusted,
    /// Nothing in it does: it is another user's, or others may write to it.
    #[serde(untagged)]
    Refused(&'static str),
}

impl Standing {
    /// What there is to tell: nothing, where all of it counts.
    fn note(&self) -> Option<String> {
        let path = self.path.to_string_lossy().replace(char::is_control, "?");
        let names: Vec<_> = self.ignored.iter().map(|(name, _)| *name).collect();
        let remedy = "read it, then type: husk config trust";
        match self.counts {
            Counts::Always | Counts::Trusted => None,
            Counts::Untrusted if names.is_empty() => None,
            Counts::Untrusted => {
                let names = names.join(", ");
                Some(format!("{path} is not trusted, what it says of {names} is ignored; {remedy}"))
            }
            Counts::Refused(why) => Some(format!("{path} is ignored: {why}; {remedy}")),
        }
    }

    /// The same beside what counts.
    fn text(&self) -> String {
        let path = self.path.to_string_lossy().replace(char::is_control, "?");
        let state = match self.counts {
            Counts::Always => "counts",
            Counts::Trusted => "trusted",
            Counts::Untrusted => "not trusted",
            Counts::Refused(why) => why,
        };
        let ignored: Vec<_> =
            self.ignored.iter().map(|(name, line)| format!("{name} (line {line})")).collect();
        let ignored = match (self.counts, ignored.as_slice()) {
            (Counts::Refused(_), _) => ", ignored".to_owned(),
            (_, []) => String::new(),
            (_, names) => format!(", ignored: {}", names.join(", ")),
        };
        format!("# {path}: {state}{ignored}\n")
    }
}

impl Config {
    /// Reads what there is.
    pub fn load() -> Result<Config, Failure> {
        let mut config = Config::default();
        for place in files()? {
            config.read(&place)?;
        }
        config.read_variables()?;
        Ok(config)
    }

    /// What there is to tell of files that do not count, or not as a whole; a line each.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(Standing::note)
    }

    /// The variables alone.
    pub fn of_variables() -> Result<Config, Failure> {
        let mut config = Config::default();
        config.read_variables()?;
        Ok(config)
    }

    /// Whether there is a file of which nothing counts.
    pub fn is_refused(&self) -> bool {
        self.files.iter().any(|file| matches!(file.counts, Counts::Refused(_)))
    }

    /// A file over what was read before, as far as it counts; whether it is there.
    pub fn read(&mut self, place: &Place) -> Result<bool, Failure> {
        match place.here {
            true => self.read_here(&place.path),
            false => self.read_file(&place.path),
        }
    }

    /// A file over what was read before; whether it is there.
    pub fn read_file(&mut self, path: &Path) -> Result<bool, Failure> {
        let Some(found) = file::read(path)? else { return Ok(false) };
        self.take(path, found, Counts::Always);
        Ok(true)
    }

    /// The same of the file in the current directory (invariant 5).
    fn read_here(&mut self, path: &Path) -> Result<bool, Failure> {
        let (counts, text) = match file::fetch(path)? {
            None => return Ok(false),
            Some(Fetched::Text(text)) => (Counts::Untrusted, text),
            Some(Fetched::Refused(why, _, text)) => {
                (Counts::Refused(why), text.unwrap_or_default())
            }
        };
        let counts = match trust::is_trusted(path, text.as_bytes()) {
            true => Counts::Trusted,
            false => counts,
        };
        let found = match counts {
            // Not even its mistakes count.
            Counts::Refused(_) => Vec::new(),
            _ => file::parse(path, &text)?,
        };
        self.take(path, found, counts);
        Ok(true)
    }

    fn take(&mut self, path: &Path, found: file::Found, counts: Counts) {
        let mut ignored = Vec::new();
        for (key, values, line) in found {
            if counts == Counts::Untrusted && KEYS[key].decides == Decides::Data {
                ignored.push((KEYS[key].name, line));
            } else {
                self.said[key] = Some(Said { values, origin: Origin::File(path.to_owned(), line) });
            }
        }
        ignored.sort_by_key(|(_, line)| *line);
        self.files.push(Standing { path: path.to_owned(), counts, ignored });
    }

    fn read_variables(&mut self) -> Result<(), Failure> {
        for (index, key) in KEYS.iter().enumerate() {
            let name = key.variable();
            let Some(value) = env::var_os(&name).filter(|value| !value.is_empty()) else {
                continue;
            };
            let what = || format!("cannot take {name}={}", value.to_string_lossy());
            let text = value.to_str().ok_or_else(|| {
                Failure::new(what(), "it is not UTF-8", "write it in UTF-8, or leave it out")
            })?;
            let values = key.split(text);
            key.check(&values).map_err(|wrong| {
                let remedy = format!("write {}, or leave it out", key.kind.form(&name));
                Failure::new(what(), wrong, remedy)
            })?;
            self.said[index] = Some(Said { values, origin: Origin::Variable(name) });
        }
        Ok(())
    }

    /// Whether an image could be made of each value, and of all together: the directories are there
    /// and can be covered, and this host has the memory. What is advised names keys.
    pub fn check(&self) -> Result<(), Failure> {
        let together = || self.complete(Request::default()).check().map(drop);
        self.check_each()
            .and_then(|()| together())
            .map_err(|wrong| Failure { remedy: wrong.remedy.replace("--", ""), ..wrong })
    }

    fn check_each(&self) -> Result<(), Failure> {
        let written_back = self.is_on("discard") != Some(true);
        for (key, said) in KEYS.iter().zip(&self.said) {
            let Some(said) = said else { continue };
            for value in &said.values {
                let what = format!("cannot take {} {value} ({})", key.name, said.origin);
                could_be(key, value, written_back).map_err(|wrong| Failure { what, ..wrong })?;
            }
        }
        Ok(())
    }

    fn said(&self, name: &str) -> Option<&Said> {
        let index = KEYS.iter().position(|key| key.name == name)?;
        self.said[index].as_ref().filter(|said| !said.values.is_empty())
    }

    /// What a key of one value says.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.said(name).and_then(|said| said.values.first()).map(String::as_str)
    }

    /// What a key of several values says.
    pub fn many(&self, name: &str) -> &[String] {
        self.said(name).map_or(&[], |said| &said.values)
    }

    /// Whether a key says yes.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        self.one(name).map(|value| matches!(value, "1" | "true" | "on"))
    }

    /// What was typed, completed by what is said here.
    pub fn complete(&self, typed: Request) -> Request {
        let paths = |typed: Vec<PathBuf>, name| match typed.is_empty() {
            true => self.many(name).iter().map(PathBuf::from).collect(),
            false => typed,
        };
        // A typed --discard discards whatever changes; other overlays than the current directory
        // were named where nothing is typed, and do not lead out of that.
        let covers_here =
            typed.covers_here || typed.discard == Some(true) && typed.overlays.is_empty();
        // All were checked when they were read.
        let kernels = || self.one("kernels")?.parse().ok();
        let memory = || parse_size(self.one("memory")?).ok();
        let placed = || {
            let policy = Policy::parse(self.one("place")?.as_bytes())?;
            Some((policy, place::Origin::Configuration))
        };
        // One of the two is typed: what is said of the other elsewhere does not count.
        let not_dropped = (typed.ask == Some(true)).then_some(false);
        let not_asked = (typed.discard == Some(true)).then_some(false);
        let on_failure = || {
            let index =
                OnFailure::NAMES.iter().position(|name| Some(*name) == self.one("on_failure"));
            index.map(|index| OnFailure::ALL[index])
        };
        Request {
            kernels: typed.kernels.or_else(kernels),
            memory_bytes: typed.memory_bytes.or_else(memory),
            overlays: paths(typed.overlays, "overlay"),
            mounts: paths(typed.mounts, "mount"),
            volumes: typed.volumes,
            discard: typed.discard.or(not_dropped).or_else(|| self.is_on("discard")),
            on_failure: typed.on_failure.or_else(on_failure),
            ask: typed.ask.or(not_asked).or_else(|| self.is_on("ask")),
            sealed: typed.sealed.or_else(|| self.is_on("read_only_outside")),
            guard: typed.guard.or_else(|| self.is_on("guard")),
            place: typed.place.or_else(placed),
            pin: typed.pin.or_else(|| self.is_on("pin")),
            covers_here,
            udp: typed.udp,
            nodes: typed.nodes,
            hosts: typed.hosts,
            root: typed.root,
            part_of: typed.part_of,
        }
    }

    /// As variables, for a process that reads no file.
    pub fn variables(&self) -> Vec<(String, String)> {
        let said = KEYS.iter().zip(&self.said);
        let said =
            said.filter_map(|(key, said)| Some((key.variable(), key.join(&said.as_ref()?.values))));
        said.chain([(FILES.to_owned(), NONE.to_owned())]).collect()
    }

    /// As a file that says the same; `origin`: with who said it.
    pub fn text(&self, origin: bool) -> String {
        let line = |(key, said): (&Key, &Option<Said>)| {
            let set = said.as_ref().filter(|said| !said.values.is_empty());
            let shown = match set {
                Some(said) => format!("{} = {}", key.name, key.toml(&said.values)),
                None => format!("# {} = {}", key.name, key.toml(&key.default())),
            };
            let from = said.as_ref().map_or("default".to_owned(), |said| said.origin.to_string());
            if origin { format!("{shown:<48} # {from}\n") } else { shown + "\n" }
        };
        let files = self.files.iter().filter(|_| origin).map(Standing::text);
        KEYS.iter().zip(&self.said).map(line).chain(files).collect()
    }
}

/// Whether an image could be made of this value of `key`, which was checked when it was read.
fn could_be(key: &Key, value: &str, written_back: bool) -> Result<(), Failure> {
    let path = Path::new(value);
    match key.kind {
        Kind::Paths if !path.is_dir() => {
            let remedy = "make it, or name another one";
            Err(Failure::new(value, "there is no such directory", remedy))
        }
        Kind::Paths if key.name == "overlay" && whole::is_root(path) => Ok(()),
        Kind::Paths if key.name == "overlay" => request::overlay(path, written_back).map(drop),
        Kind::Paths => request::memory(path).map(drop),
        Kind::Size => request::settle_memory(parse_size(value).ok()).map(drop),
        _ => Ok(()),
    }
}

/// The same for programs: by key, what counts and who said it.
impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(KEYS.len() + 1))?;
        for (key, said) in KEYS.iter().zip(&self.said) {
            let set = said.as_ref().filter(|said| !said.values.is_empty());
            let value = match set {
                Some(said) => key.json(&said.values),
                None => key.json(&key.default()),
            };
            let origin = said.as_ref().map_or("default".to_owned(), |s| s.origin.to_string());
            map.serialize_entry(key.name, &Shown { value, origin })?;
        }
        map.serialize_entry("files", &self.files)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Shown {
    value: serde_json::Value,
    origin: String,
}

/// Whether every variable that begins as ours do is one of ours.
pub fn check_names_of_variables() -> Result<(), Failure> {
    const PREFIX: &str = "HUSK_";
    let is_ours = |name: &str| {
        [FILES, IMAGES].contains(&name) || KEYS.iter().any(|key| key.variable() == name)
    };
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = names.filter(|name| name.starts_with(PREFIX)).find(|name| !is_ours(name));
    let Some(name) = unknown else { return Ok(()) };
    let remedy = match nearest(&name[PREFIX.len()..]) {
        Some(key) => format!("did you mean {PREFIX}{}?", key.to_ascii_uppercase()),
        None => "unset it; `husk config show` lists the keys".to_owned(),
    };
    Err(Failure::new(format!("cannot take {name}"), "there is no such variable", remedy))
}

/// Files that count, the strongest last, whether they are there or not.
pub fn files() -> Result<Vec<Place>, Failure> {
    let named = |path| Place { path, here: false };
    match env::var_os(FILES) {
        Some(value) if value == NONE => return Ok(Vec::new()),
        Some(value) if !value.is_empty() => {
            let path = PathBuf::from(value);
            let what = || format!("cannot take {FILES}={}", path.display());
            return match path.try_exists() {
                Ok(true) => Ok(vec![named(path)]),
                Ok(false) => {
                    let remedy = "name a file, or write none";
                    Err(Failure::new(what(), "there is no such file", remedy))
                }
                Err(problem) => Err(Failure::new(what(), reason(&problem), "name another file")),
            };
        }
        _ => {}
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".config"));
    let own = absolute("XDG_CONFIG_HOME").or_else(home).map(|base| base.join("husk").join(NAME));
    let mut files: Vec<_> =
        [Some(PathBuf::from(SYSTEM)), own].into_iter().flatten().map(named).collect();
    let here = env::current_dir().ok().map(|here| here.join(NAME));
    // Who works in one of those directories reads that file once.
    let here =
        here.filter(|here| files.iter().all(|one| trust::real(&one.path) != trust::real(here)));
    files.extend(here.map(|path| Place { path, here: true }));
    Ok(files)
}

/// Trusts the file at `path` as it is now, or the one in the current directory; what it decides
/// about data, for the user to see.
pub fn trust(path: Option<&Path>) -> Result<String, Failure> {
    let path = path.unwrap_or(Path::new(NAME));
    let what = || format!("cannot trust {}", path.display());
    if path.file_name() != Some(NAME.as_ref()) {
        let why = format!("only {NAME} of a current directory needs it");
        return Err(Failure::new(what(), why, "name another file with HUSK_CONFIG=FILE to use it"));
    }
    let text = match file::fetch(path)? {
        Some(Fetched::Text(text) | Fetched::Refused(_, _, Some(text))) => text,
        Some(Fetched::Refused(why, remedy, None)) => return Err(Failure::new(what(), why, remedy)),
        None => return Err(Failure::new(what(), "there is no such file", "name another one")),
    };
    let mut found = file::parse(path, &text)?;
    trust::trust(path, text.as_bytes())?;
    found.retain(|(key, ..)| KEYS[*key].decides == Decides::Data);
    found.sort_by_key(|(_, _, line)| *line);
    let said = found.iter().map(|(key, values, line)| {
        let key = &KEYS[*key];
        format!("  {} = {} (line {line})\n", key.name, key.toml(values))
    });
    let said: String = said.collect();
    let head = match said.is_empty() {
        true => "trusted; it says nothing that needs that\n",
        false => "trusted as it is now; it says:\n",
    };
    Ok(format!("{}: {head}{said}", path.display()))
}

/// Trusts the file at `path`, or the one in the current directory, no more.
pub fn untrust(path: Option<&Path>) -> Result<String, Failure> {
    let path = path.unwrap_or(Path::new(NAME));
    let known = trust::untrust(path)?;
    let said = if known { "not trusted any more" } else { "it was not trusted" };
    Ok(format!("{}: {said}\n", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn of(texts: &[&str]) -> Result<Config, Failure> {
        let scratch = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        for (n, text) in texts.iter().enumerate() {
            let path = scratch.path().join(format!("{n}.toml"));
            fs::write(&path, text).unwrap();
            config.read_file(&path)?;
        }
        Ok(config)
    }

    #[test]
    fn the_last_one_wins_as_a_whole() {
        let config =
            of(&["kernels = 1\noverlay = ['/a', '/b']", "kernels = 3\noverlay = '/c'"]).unwrap();
        let request = config.complete(Request::default());
        assert_eq!(request.kernels, Some(3));
        assert_eq!(request.overlays, [PathBuf::from("/c")]);
        let typed = Request { kernels: Some(7), discard: Some(false), ..Request::default() };
        let config = of(&["kernels = 1\ndiscard = true"]).unwrap();
        let request = config.complete(typed);
        assert_eq!((request.kernels, request.discard), (Some(7), Some(false)));
    }

    #[test]
    fn an_empty_list_takes_back_what_was_said_before() {
        let config = of(&["mount = ['/srv']", "mount = []"]).unwrap();
        assert!(config.complete(Request::default()).mounts.is_empty());
        assert!(config.text(true).contains("1.toml:1"), "{}", config.text(true));
    }

    #[test]
    fn what_is_shown_says_the_same_when_it_is_read() {
        let text = "kernels = 2\nmemory = '64MiB'\noverlay = ['/a', '/b\"c']\ndiscard = true
guard = 'off'\ntrace = 'unsupported'\nrewrite = false\npipes = 'husk'\ndir = 'wide'
without = ['direct', 'ahead']\nfsck = true\nholds = true\nplace = 'random'\npin = false
read_only_outside = true\non_failure = 'keep'\nask = true\nsockets = 'host'";
        let config = of(&[text]).unwrap();
        let again = of(&[&config.text(false)]).unwrap();
        assert_eq!(config.text(false), again.text(false));
        assert_eq!(config.text(false).lines().filter(|l| l.starts_with('#')).count(), 1);
        assert_eq!(config.variables().len(), again.variables().len());
        assert_eq!(
            Config::default().text(false),
            of(&[&Config::default().text(false)]).unwrap().text(false)
        );
    }

    #[test]
    fn a_default_is_what_a_file_could_say() {
        let shown = Config::default().text(false);
        let said = shown.replace("# ", "");
        assert_eq!(of(&[&said]).unwrap().text(false).replace("# ", ""), said);
        assert_eq!(shown.lines().filter(|line| line.starts_with("# ")).count(), KEYS.len());
        let json = serde_json::to_value(Config::default()).unwrap();
        for key in &KEYS {
            assert!(!json[key.name]["value"].is_null(), "{}", key.name);
            assert_eq!(json[key.name]["origin"], "default");
        }
    }

    #[test]
    fn what_others_may_write_to_does_not_count() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let scratch = tempfile::tempdir().unwrap();
        let (path, link) = (scratch.path().join("file"), scratch.path().join("link"));
        fs::write(&path, "kernels = 1").unwrap();
        symlink("file", &link).unwrap();
        let read = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Config::default().read_file(&link).map_err(|failure| failure.to_string())
        };
        assert_eq!(read(0o644), Ok(true));
        assert!(read(0o646).unwrap_err().contains("others may write to it"));
        // Nor does what is no file, and nobody waits for it.
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(read(0o600).unwrap_err().contains("it is not a regular file"));
        fs::remove_file(&path).unwrap();
        assert!(!Config::default().read_file(&link).unwrap());
        symlink("link", &path).unwrap();
        assert!(Config::default().read_file(&link).is_err());
    }

    #[test]
    fn mistakes_have_a_place_and_a_suggestion() {
        for (text, said) in [
            ("kernels = 1\nmemroy = '1G'", ["0.toml:2:1", "memory"]),
            ("[run]\nkernels = 1", ["0.toml:1:2", "no key run"]),
            ("kernels = 'many'", ["0.toml:1:11", "kernels"]),
            ("kernels = -1", ["0.toml:1:11", "kernels"]),
            ("kernels = 1000", ["0.toml:1:11", "at most"]),
            ("memory = '1Q'", ["0.toml:1:10", "memory"]),
            ("\n  discard = 'perhaps'", ["0.toml:2:13", "discard"]),
            ("guard = 1", ["0.toml:1:9", "guard"]),
            ("place = 'there'", ["0.toml:1:9", "place = \"least-loaded\""]),
            ("pin = 2", ["0.toml:1:7", "pin"]),
            ("overlay = [1]", ["0.toml:1:12", "overlay"]),
            ("overlay = ['a:b']", ["0.toml:1:12", "colon"]),
            ("without = ['speed']", ["0.toml:1:12", "without"]),
            ("kernels = 1\nkernels = 2", ["0.toml:2:1", "duplicate"]),
            ("kernels = ", ["0.toml:1:", "cannot read"]),
            ("kernels 1", ["0.toml:1:", "cannot read"]),
            ("= 3", ["0.toml:1:1", "cannot read"]),
        ] {
            let line = of(&[text]).unwrap_err().to_string();
            assert!(said.iter().all(|part| line.contains(part)), "{text:?}: {line}");
            assert_eq!(line.lines().count(), 1);
        }
    }
}
