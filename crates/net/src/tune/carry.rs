//! The order in which settings are looked at, put on record, set and set back.

use husk_abi::Errno;
use serde::{Deserialize, Serialize};

use super::plan::{Device, plan};
use super::setting::{Kind, Setting, same};
use super::{Options, Outcome, Report, Row};
use crate::problem::Problem;

/// The interface, and the record of it.
pub trait Host {
    /// Its name, as typed.
    fn interface(&self) -> &str;
    /// A number of its network namespace that no later one gets; 0: Linux has none.
    fn namespace(&self) -> u64;
    /// Its queues and interrupts.
    fn device(&self) -> Result<Device, Problem>;
    /// Goes on with the interface of this number, whatever its name is by now; whether it exists.
    fn find(&mut self, index: u32) -> bool;
    /// A value now.
    fn get(&self, setting: Setting) -> Result<String, Errno>;
    /// Sets a value.
    fn set(&mut self, setting: Setting, value: &str) -> Result<(), Errno>;
    /// The record, if there is one.
    fn recall(&self) -> Result<Option<String>, Problem>;
    /// Puts on record; when this returns, no crash loses it, and none leaves half of it.
    fn record(&mut self, text: &str) -> Result<(), Problem>;
    /// Removes the record.
    fn forget(&mut self) -> Result<(), Problem>;
}

/// The changes that `tune` is about to make.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Another one may be found by the same name later.
    #[serde(default)]
    namespace: u64,
    index: u32,
    changes: Vec<Change>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    setting: Setting,
    before: String,
    after: String,
}

/// The changes that `tune` would make.
pub fn dry_run(host: &impl Host, options: &Options) -> Result<Report, Problem> {
    let (_, mut rows, _) = survey(host, options)?;
    for row in rows.iter_mut().filter(|row| row.outcome == Outcome::Set) {
        row.outcome = Outcome::WouldSet;
    }
    Ok(Report { interface: host.interface().to_owned(), rows })
}

/// Tunes.
pub fn tune(host: &mut impl Host, options: &Options) -> Result<Report, Problem> {
    let interface = host.interface().to_owned();
    if recalled(host)?.is_some() {
        let why = "it is tuned already, or an earlier run was killed";
        let remedy = format!("`husk net untune {interface}` sets it back");
        return Err(Problem::new(format!("cannot tune {interface}"), why, remedy));
    }
    let (index, mut rows, changes) = survey(host, options)?;
    if changes.is_empty() {
        return Ok(Report { interface, rows });
    }
    let record = Record { namespace: host.namespace(), index, changes };
    host.record(&serde_json::to_string(&record).expect("plain data"))?;
    for change in &record.changes {
        let Err(errno) = put(host, change) else { continue };
        if is_refusal(errno) || options.only.contains(&change.setting.kind()) {
            untune(host)?;
            return Err(impossible(&interface, change.setting, errno));
        }
        let name = change.setting.to_string();
        if let Some(row) = rows.iter_mut().find(|row| row.setting == name) {
            *row = cannot(name, reason(change.setting, errno));
        }
    }
    if rows.iter().all(|row| row.outcome != Outcome::Set) {
        host.forget()?;
    }
    Ok(Report { interface, rows })
}

/// The record of this interface. One of a namespace that has gone is none: its values went too.
fn recalled(host: &impl Host) -> Result<Option<Record>, Problem> {
    let Some(text) = host.recall()? else { return Ok(None) };
    let record: Record = serde_json::from_str(&text).map_err(|why| {
        let what = format!("cannot set {} back", host.interface());
        Problem::new(what, format!("its record is not readable: {why}"), "set it by hand")
    })?;
    Ok((record.namespace == host.namespace()).then_some(record))
}

/// Sets one value. If Linux reports success but has another value then, it is set back.
fn put(host: &mut impl Host, change: &Change) -> Result<(), Errno> {
    host.set(change.setting, &change.after)?;
    if same(&host.get(change.setting)?, &change.after) {
        return Ok(());
    }
    host.set(change.setting, &change.before)?;
    Err(Errno::EOPNOTSUPP)
}

/// Number of the interface, a row for each setting, and the changes to make.
fn survey(host: &impl Host, options: &Options) -> Result<(u32, Vec<Row>, Vec<Change>), Problem> {
    let device = host.device()?;
    let asked = |kind: Kind| options.only.is_empty() || options.only.contains(&kind);
    let (wanted, lacks) = plan(&device);
    let (mut rows, mut changes) = (Vec::new(), Vec::new());
    for (kind, why) in lacks.into_iter().filter(|&(kind, _)| asked(kind)) {
        if !options.only.is_empty() {
            let what = format!("cannot set {} of {}", word(kind), host.interface());
            return Err(Problem::new(what, why, "leave it out"));
        }
        rows.push(cannot(word(kind), why.to_owned()));
    }
    for (setting, after) in wanted.into_iter().filter(|(setting, _)| asked(setting.kind())) {
        let name = setting.to_string();
        match host.get(setting) {
            Err(errno) if !options.only.is_empty() => {
                return Err(impossible(host.interface(), setting, errno));
            }
            Err(errno) => rows.push(cannot(name, reason(setting, errno))),
            Ok(before) => {
                let outcome = if same(&before, &after) { Outcome::AsWanted } else { Outcome::Set };
                rows.push(row(name, Some(&before), Some(&after), outcome));
                if outcome == Outcome::Set {
                    changes.push(Change { setting, before, after });
                }
            }
        }
    }
    Ok((device.index, rows, changes))
}

/// Sets back.
pub fn untune(host: &mut impl Host) -> Result<Report, Problem> {
    let interface = host.interface().to_owned();
    let what = format!("cannot set {interface} back");
    let Some(record) = recalled(host)? else {
        let remedy = "tune with `husk net tune` first; only root sees what root has tuned";
        return Err(Problem::new(what, "it is not tuned", remedy));
    };
    let there = host.find(record.index);
    let mut rows = Vec::new();
    for change in record.changes.iter().rev() {
        let name = change.setting.to_string();
        if !there && change.setting.kind() != Kind::BusyPoll {
            rows.push(row(name, None, None, Outcome::Gone));
            continue;
        }
        let (now, outcome) = put_back(host, change).map_err(|errno| {
            let remedy = "run it again as root; what is left is still on record";
            Problem::new(&what, format!("{name}: Linux says {errno:?}"), remedy)
        })?;
        let after = (outcome != Outcome::Gone).then_some(&change.before);
        let mut row = row(name, now.as_ref(), after, outcome);
        if outcome == Outcome::Foreign {
            row.why = Some(format!("changed since it was set to {}", change.after));
            row.after = row.before.clone();
        }
        rows.push(row);
    }
    host.forget()?;
    Ok(Report { interface, rows })
}

fn put_back(host: &mut impl Host, change: &Change) -> Result<(Option<String>, Outcome), Errno> {
    let now = match host.get(change.setting) {
        Ok(now) => now,
        Err(errno) if is_gone(errno) => return Ok((None, Outcome::Gone)),
        Err(errno) => return Err(errno),
    };
    if same(&now, &change.before) {
        return Ok((Some(now), Outcome::AsWanted));
    }
    if !same(&now, &change.after) {
        return Ok((Some(now), Outcome::Foreign));
    }
    match host.set(change.setting, &change.before) {
        Ok(()) => Ok((Some(now), Outcome::Set)),
        Err(errno) if is_gone(errno) => Ok((None, Outcome::Gone)),
        Err(errno) => Err(errno),
    }
}

fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENODEV)
}

fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::EACCES | Errno::EROFS)
}

fn reason(setting: Setting, errno: Errno) -> String {
    match (errno, setting.kind()) {
        (Errno::ENOENT, Kind::BusyPoll) => "only the first network namespace has it".to_owned(),
        (Errno::EOPNOTSUPP | Errno::ENOENT, _) => "the device cannot".to_owned(),
        _ => format!("Linux says {errno:?}"),
    }
}

fn impossible(interface: &str, setting: Setting, errno: Errno) -> Problem {
    let what = format!("cannot set {setting} of {interface}");
    let (why, remedy) = match is_refusal(errno) {
        true => (
            format!("Linux says {errno:?}"),
            "run it as root (CAP_NET_ADMIN), outside of a \
                                                   container",
        ),
        false => (reason(setting, errno), "leave it out"),
    };
    Problem::new(what, why, remedy)
}

fn word(kind: Kind) -> String {
    let word = serde_json::to_value(kind).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn row(setting: String, before: Option<&String>, after: Option<&String>, outcome: Outcome) -> Row {
    Row { setting, before: before.cloned(), after: after.cloned(), outcome, why: None }
}

fn cannot(setting: String, why: String) -> Row {
    Row { setting, before: None, after: None, outcome: Outcome::Cannot, why: Some(why) }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, crashes_at};
    use super::*;

    fn all() -> Options {
        Options::default()
    }

    fn outcomes(report: &Report, outcome: Outcome) -> usize {
        report.rows.iter().filter(|row| row.outcome == outcome).count()
    }

    #[test]
    fn what_is_tuned_is_set_back_to_the_letter() {
        let mut host = Fake::new();
        let before = host.values();
        let tuned = tune(&mut host, &all()).unwrap();
        assert_eq!(outcomes(&tuned, Outcome::Cannot), 0);
        assert!(outcomes(&tuned, Outcome::Set) > 8, "{tuned:?}");
        assert_ne!(host.values(), before);
        untune(&mut host).unwrap();
        assert_eq!(host.values(), before);
        assert_eq!(host.recall().unwrap(), None);
    }

    #[test]
    fn a_crash_at_any_step_of_tune_and_of_untune_is_undone_exactly() {
        let before = Fake::new().values();
        let mut crashed = 0;
        for step in 0.. {
            let mut host = Fake::new();
            if !crashes_at(&mut host, step, |host| drop(tune(host, &all()))) {
                break;
            }
            crashed += 1;
            // Before the record there is nothing to undo.
            if host.recall().unwrap().is_some() {
                assert!(tune(&mut host, &all()).is_err(), "a killed run is to be undone first");
                untune(&mut host).unwrap();
            }
            assert_eq!(host.values(), before, "crash at step {step} of tune");
        }
        for step in 0.. {
            let mut host = Fake::new();
            tune(&mut host, &all()).unwrap();
            if !crashes_at(&mut host, step, |host| drop(untune(host))) {
                break;
            }
            crashed += 1;
            untune(&mut host).unwrap();
            assert_eq!(host.values(), before, "crash at step {step} of untune");
        }
        assert!(crashed > 20, "{crashed} steps");
    }

    #[test]
    fn what_somebody_else_has_changed_since_is_left_alone_and_said() {
        let mut host = Fake::new();
        tune(&mut host, &all()).unwrap();
        host.set(Setting::Rps(0), "2").unwrap();
        let report = untune(&mut host).unwrap();
        let foreign = report.rows.iter().find(|row| row.outcome == Outcome::Foreign).unwrap();
        assert_eq!((&*foreign.setting, foreign.before.as_deref()), ("rps of rx-0", Some("2")));
        assert!(report.text().contains("changed since"), "{}", report.text());
        assert_eq!(host.get(Setting::Rps(0)).unwrap(), "2");
        assert_eq!(host.get(Setting::Gro).unwrap(), "0");
        assert_eq!(host.recall().unwrap(), None);
    }

    #[test]
    fn what_the_device_cannot_is_said_and_the_rest_is_done() {
        let mut host = Fake::new();
        host.refuse(Setting::Gro, Errno::EOPNOTSUPP);
        host.refuse(Setting::BusyRead, Errno::ENOENT);
        // It reads, but does not write.
        host.refuse_writes(Setting::Irq(31), Errno::EIO);
        let report = tune(&mut host, &all()).unwrap();
        let why = |name: &str| {
            report.rows.iter().find(|row| row.setting == name).and_then(|row| row.why.clone())
        };
        assert_eq!(why("gro").as_deref(), Some("the device cannot"));
        assert!(why("net.core.busy_read").unwrap().contains("namespace"));
        assert!(why("irq 31 cores").unwrap().contains("EIO"));
        assert_eq!(outcomes(&report, Outcome::Cannot), 3);
        untune(&mut host).unwrap();
    }

    #[test]
    fn what_was_asked_for_by_name_and_cannot_be_is_an_error_and_changes_nothing() {
        for writes in [false, true] {
            let mut host = Fake::new();
            if writes {
                host.refuse_writes(Setting::Gro, Errno::EOPNOTSUPP);
            } else {
                host.refuse(Setting::Gro, Errno::EOPNOTSUPP);
            }
            let before = host.values();
            let options = Options { only: vec![Kind::Rps, Kind::Gro], dry_run: false };
            let problem = tune(&mut host, &options).unwrap_err();
            assert!(problem.what.contains("gro") && problem.why.contains("cannot"));
            assert_eq!((host.values(), host.recall().unwrap()), (before, None));
        }
    }

    #[test]
    fn without_privilege_nothing_stays_changed() {
        let mut host = Fake::new();
        let before = host.values();
        host.refuse_writes(Setting::Gro, Errno::EPERM);
        let problem = tune(&mut host, &all()).unwrap_err();
        assert!(problem.remedy.contains("root"), "{problem:?}");
        assert_eq!((host.values(), host.recall().unwrap()), (before, None));
    }

    #[test]
    fn an_interface_that_has_gone_leaves_only_what_was_the_hosts() {
        let mut host = Fake::new();
        tune(&mut host, &all()).unwrap();
        host.lose();
        let report = untune(&mut host).unwrap();
        assert_eq!(outcomes(&report, Outcome::Set), 2, "{report:?}");
        assert_eq!(host.get(Setting::BusyPoll).unwrap(), "0");
        assert_eq!(host.recall().unwrap(), None);
    }

    #[test]
    fn the_record_of_a_namespace_that_has_gone_is_nobodys() {
        let mut host = Fake::new();
        tune(&mut host, &all()).unwrap();
        let tuned = host.values();
        host.enter_another_namespace();
        assert!(untune(&mut host).unwrap_err().why.contains("not tuned"));
        assert_eq!(host.values(), tuned, "they are this interface's own");
        host.set(Setting::Gro, "0").unwrap();
        assert_eq!(outcomes(&tune(&mut host, &all()).unwrap(), Outcome::Set), 1);
        assert_eq!(outcomes(&untune(&mut host).unwrap(), Outcome::Set), 1);
    }

    #[test]
    fn a_second_tune_and_an_untune_of_nothing_are_refused() {
        let mut host = Fake::new();
        assert!(untune(&mut host).unwrap_err().why.contains("not tuned"));
        tune(&mut host, &all()).unwrap();
        let tuned = host.values();
        let problem = tune(&mut host, &all()).unwrap_err();
        assert!(problem.remedy.contains("husk net untune"), "{problem:?}");
        assert_eq!(host.values(), tuned);
    }

    #[test]
    fn a_dry_run_says_what_would_be_done_and_does_nothing() {
        let mut host = Fake::new();
        let before = host.values();
        let dry = dry_run(&host, &all()).unwrap();
        assert_eq!((host.values(), host.recall().unwrap()), (before, None));
        assert!(dry.text().contains("gro                  0 -> 1 (dry run)"), "{}", dry.text());
        assert!(outcomes(&dry, Outcome::WouldSet) > 8 && outcomes(&dry, Outcome::Set) == 0);
        let mut tuned = tune(&mut host, &all()).unwrap();
        for row in tuned.rows.iter_mut().filter(|row| row.outcome == Outcome::Set) {
            row.outcome = Outcome::WouldSet;
        }
        assert_eq!(dry, tuned);
    }

    #[test]
    fn an_interface_that_is_as_wanted_leaves_no_record() {
        let mut host = Fake::new();
        tune(&mut host, &all()).unwrap();
        host.forget().unwrap();
        let report = tune(&mut host, &all()).unwrap();
        assert_eq!(outcomes(&report, Outcome::AsWanted), report.rows.len());
        assert_eq!(host.recall().unwrap(), None);
    }
}
