//! An interface that exists in memory only, and crashes at a chosen step.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use husk_abi::Errno;

use super::carry::Host;
use super::plan::Device;
use super::setting::{Flow, Setting};
use crate::problem::Problem;

/// The planted crash.
struct Crash;

/// Two queues, two cores, an interrupt for each.
pub struct Fake {
    values: BTreeMap<String, String>,
    refused: BTreeMap<String, (bool, Errno)>,
    record: Option<String>,
    there: bool,
    namespace: u64,
    /// Changes until the crash.
    steps: Option<usize>,
}

fn key(setting: Setting) -> String {
    setting.to_string()
}

impl Fake {
    /// Nothing is tuned; each value is one that a plan changes.
    pub fn new() -> Fake {
        let values = [
            (Setting::RxFlowHash(Flow::Udp4), "0x30"),
            (Setting::RxFlowHash(Flow::Udp6), "0x30"),
            (Setting::Irq(30), "00000003"),
            (Setting::Irq(31), "00000003"),
            (Setting::Rps(0), "3"),
            (Setting::Rps(1), "00000001"),
            (Setting::Xps(0), "0"),
            (Setting::Xps(1), "0"),
            (Setting::Gro, "0"),
            (Setting::BusyRead, "0"),
            (Setting::BusyPoll, "0"),
        ];
        let values = values.map(|(setting, value)| (key(setting), value.to_owned())).into();
        Fake {
            values,
            refused: BTreeMap::new(),
            record: None,
            there: true,
            namespace: 1,
            steps: None,
        }
    }

    pub fn values(&self) -> BTreeMap<String, String> {
        self.values.clone()
    }

    /// This setting is not there.
    pub fn refuse(&mut self, setting: Setting, errno: Errno) {
        self.refused.insert(key(setting), (true, errno));
    }

    /// This setting cannot be changed.
    pub fn refuse_writes(&mut self, setting: Setting, errno: Errno) {
        self.refused.insert(key(setting), (false, errno));
    }

    /// The interface goes.
    pub fn lose(&mut self) {
        self.there = false;
    }

    /// Another one, in which an interface of this name and number is as this one is.
    pub fn enter_another_namespace(&mut self) {
        self.namespace += 1;
    }

    fn step(&mut self) {
        match &mut self.steps {
            Some(0) => resume_unwind(Box::new(Crash)),
            Some(left) => *left -= 1,
            None => {}
        }
    }

    fn refusal(&self, setting: Setting, writes: bool) -> Result<(), Errno> {
        match self.refused.get(&key(setting)) {
            Some(&(reads, errno)) if writes || reads => Err(errno),
            _ => Ok(()),
        }
    }
}

/// Runs `work`; whether it crashed before its change of that number.
pub fn crashes_at(host: &mut Fake, step: usize, work: impl FnOnce(&mut Fake)) -> bool {
    host.steps = Some(step);
    let crashed = catch_unwind(AssertUnwindSafe(|| work(host))).is_err();
    host.steps = None;
    crashed
}

impl Host for Fake {
    fn interface(&self) -> &str {
        "fake0"
    }

    fn namespace(&self) -> u64 {
        self.namespace
    }

    fn device(&self) -> Result<Device, Problem> {
        let irqs = vec![(30, 0), (31, 1)];
        Ok(Device { index: 7, cores: vec![0, 1], rx: 2, tx: 2, irqs })
    }

    fn find(&mut self, index: u32) -> bool {
        self.there && index == 7
    }

    fn get(&self, setting: Setting) -> Result<String, Errno> {
        self.refusal(setting, false)?;
        Ok(self.values[&key(setting)].clone())
    }

    fn set(&mut self, setting: Setting, value: &str) -> Result<(), Errno> {
        self.step();
        self.refusal(setting, true)?;
        self.values.insert(key(setting), value.to_owned());
        Ok(())
    }

    fn recall(&self) -> Result<Option<String>, Problem> {
        Ok(self.record.clone())
    }

    fn record(&mut self, text: &str) -> Result<(), Problem> {
        self.step();
        self.record = Some(text.to_owned());
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Problem> {
        self.step();
        self.record = None;
        Ok(())
    }
}
