//! What went on with another host: counted by the starter, asked for by people.
//!
//! ```text
//!   guest: a request of job N ─► starter: counted for N ─► N has ended: added to its program's
//!   husk nodes, husk explain ─► the starter's socket ─► `Account` as JSON
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the starter is asked for an account.
pub const SEES: u8 = b'S';
/// How long it may take to give one.
const SEEN_MAX: Duration = Duration::from_secs(5);
/// Most programs of different names that are told apart.
const NAMES_MAX: usize = 256;
/// Where those beyond are counted.
const OTHERS: &str = "others";

/// What was spent on the network.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct Spent {
    /// Requests that were answered at home.
    pub round_trips: u64,
    /// Bytes of these, of their answers, and of output.
    pub bytes: u64,
    /// Requests by what they ask.
    pub kinds: BTreeMap<String, u64>,
}

impl Spent {
    /// A request that asks for this.
    pub fn ask(&mut self, kind: &str) {
        self.round_trips += 1;
        match self.kinds.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(self.kinds.insert(kind.to_owned(), 1)),
        }
    }

    /// For people: how often, how much, and for what.
    pub fn text(&self) -> String {
        let kinds: Vec<_> =
            self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let kinds =
            if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        format!("{} round trips, {} KiB{kinds}", self.round_trips, self.bytes >> 10)
    }

    /// And what was spent besides.
    pub fn add(&mut self, other: &Spent) {
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
        for (kind, count) in &other.kinds {
            *self.kinds.entry(kind.clone()).or_default() += count;
        }
    }
}

/// Programs of one name that have ended there.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How many.
    pub programs: u64,
    /// What they spent.
    pub spent: Spent,
}

/// A program that runs there.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its number here: the shadow's.
    pub pid: u32,
    /// What it is called.
    pub name: String,
    /// What it has spent so far.
    pub spent: Spent,
}

/// What went on with a host, for people.
#[derive(Serialize, Deserialize, Debug, Default, Clone)]
pub struct Account {
    /// What it is called.
    pub host: String,
    /// Programs that ran there.
    pub programs: u64,
    /// Of these, those that were lost with it.
    pub lost: u64,
    /// Requests of its programs to the home of all names.
    pub round_trips: u64,
    /// Bytes over the link, both ways.
    pub bytes: u64,
    /// Programs that could have run there and ran here: it was busy.
    pub busy: u64,
    /// The same: nothing had come from it for some seconds.
    pub silent: u64,
    /// The same: whether it has the same program was not known yet.
    pub unknown: u64,
    /// The same: it has not the same program.
    pub different: u64,
    /// The same: others may not read it.
    #[serde(default)]
    pub hidden: u64,
    /// Bytes of files of this host that were sent for programs there.
    #[serde(default)]
    pub files_bytes: u64,
    /// Those that have ended, by name.
    pub ended: BTreeMap<String, Ended>,
    /// Those that run.
    pub running: Vec<Running>,
    /// What was asked on behalf of no program: for those that have ended.
    pub nobody: Spent,
    /// The host is lost.
    pub is_lost: bool,
}

impl Account {
    /// A program has ended.
    pub fn end(&mut self, name: &str, spent: &Spent) {
        let known = self.ended.contains_key(name) || self.ended.len() < NAMES_MAX;
        let ended = self.ended.entry(if known { name } else { OTHERS }.to_owned()).or_default();
        ended.programs += 1;
        ended.spent.add(spent);
    }

    /// The closing line of a session.
    pub fn line(&self) -> String {
        let Account { host, programs, lost, round_trips, bytes, .. } = self;
        let mut line = format!(
            "{host}: {programs} programs ran there, {round_trips} round trips, {} KiB",
            bytes >> 10
        );
        if self.files_bytes > 0 {
            line.push_str(&format!(", of them {} KiB of files", self.files_bytes >> 10));
        }
        for (count, what) in [
            (*lost, "were lost with it"),
            (self.busy, "ran here because it was busy"),
            (self.silent, "ran here because it did not answer"),
            (self.unknown, "ran here because they were not compared yet"),
            (self.hidden, "ran here because other users may not read them"),
            (self.different, "ran here because it does not have the same program"),
        ] {
            if count > 0 {
                line.push_str(&format!("; {count} {what}"));
            }
        }
        if self.different > 0 {
            line.push_str(" (--root home lets them run there)");
        }
        line
    }

    /// Programs and what they have spent, a line each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |who: &str, spent: &Spent| {
            let _ = writeln!(text, "     {who}: {}", spent.text());
        };
        for (name, Ended { programs, spent }) in &self.ended {
            line(&format!("{programs} x {name}"), spent);
        }
        for Running { pid, name, spent } in &self.running {
            line(&format!("{name} ({pid})"), spent);
        }
        if self.nobody.round_trips > 0 {
            line("for programs that have ended", &self.nobody);
        }
        text
    }
}

/// The account of the starter that listens at `socket`; `None`: it does not answer.
pub fn ask(socket: &Path, what: u8, patience: Duration) -> Option<Account> {
    let mut talk = UnixStream::connect(socket).ok()?;
    talk.set_read_timeout(Some(patience)).ok()?;
    talk.write_all(&[what]).ok()?;
    let mut text = Vec::new();
    talk.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// What goes on with the other hosts of an image whose private directory this is.
pub fn seen(private: &Path, hosts: u16) -> Vec<Option<Account>> {
    let socket = |host| private.join(super::socket_name(host));
    (1..=hosts).map(|host| ask(&socket(host), SEES, SEEN_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_added_up_by_name_and_names_are_bounded() {
        let mut account = Account::default();
        let mut spent = Spent { bytes: 7, ..Spent::default() };
        spent.ask("walk");
        spent.ask("walk");
        spent.ask("read");
        account.end("cc", &spent);
        account.end("cc", &spent);
        let ended = &account.ended["cc"];
        assert_eq!((ended.programs, ended.spent.round_trips, ended.spent.bytes), (2, 6, 14));
        assert_eq!(ended.spent.kinds["walk"], 4);
        for number in 0..2 * NAMES_MAX {
            account.end(&format!("p{number}"), &Spent::default());
        }
        assert_eq!(account.ended.len(), NAMES_MAX + 1);
        assert_eq!(account.ended.values().map(|ended| ended.programs).sum::<u64>(), 514);
        let text = serde_json::to_vec(&account).unwrap();
        let read: Account = serde_json::from_slice(&text).unwrap();
        assert_eq!(read.ended, account.ended);
    }
}
