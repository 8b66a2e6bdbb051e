//! What the figures were measured on: half of every figure's meaning.

use serde::Serialize;

/// The machine, as far as it moves figures.
#[derive(Serialize, Debug)]
pub struct Machine {
    /// Processor, as Linux names it.
    pub cpu: String,
    /// Processors online.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Load average of the last minute when the measurement began.
    pub load: f64,
    /// How the state arena was guarded: `on`, `off`, or `none` where the processor cannot.
    pub guard: String,
}

impl Machine {
    /// Looks at this machine.
    pub fn look(guard: Option<&str>) -> Self {
        Self {
            cpu: cpu_name(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|x| x.parse().ok())
                .unwrap_or(0.0),
            guard: guarding(guard, husk_supervisor::show::check::can_guard()).to_owned(),
        }
    }
}

/// What `--guard` as it was given comes to on this machine.
fn guarding(asked: Option<&str>, able: bool) -> &'static str {
    match asked {
        Some("off") => "off",
        _ if able => "on",
        _ => "none",
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn cpu_name(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::guarding;

    #[test]
    fn a_guard_that_cannot_be_is_not_said_to_be_on() {
        let all = [(None, true), (None, false), (Some("on"), false), (Some("off"), true)];
        let said = all.map(|(asked, able)| guarding(asked, able));
        assert_eq!(said, ["on", "none", "none", "off"]);
    }
}
