//! What it takes to begin a session with another host, and to run `/bin/true` there; beside ssh.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::host::{Host, finish};
use super::tools::Site;
use crate::bench::measure::stop;
use crate::bench::report::median;

/// How often `/bin/true` runs for one figure.
const TIMES: u32 = 10;
/// Wanted at most.
const SESSION_MS: f64 = 300.0;
const TRUE_RATIO: f64 = 2.0;

/// Medians, ms; with all processors.
#[derive(Serialize, Debug)]
pub struct Starts {
    /// `husk run -- true`.
    image_ms: f64,
    /// `husk run --on h1 -- true`; husk is there.
    session_ms: f64,
    /// `ssh h1 true`, with a connection of its own.
    ssh_ms: f64,
    /// What a session takes beyond an image and ssh.
    session_over_ssh_ms: f64,
    /// `/bin/true` on the other host, from a program of the image.
    true_ms: f64,
    /// `ssh h1 /bin/true`, over a connection that is there.
    ssh_true_ms: f64,
    /// Median of the rounds' ratios of these two.
    true_ratio: f64,
}

struct Round {
    image: f64,
    session: f64,
    ssh: f64,
    there: f64,
    shared: f64,
}

/// Measures it with all processors for both hosts.
pub fn measure(site: &Site<'_>, rounds: u32) -> anyhow::Result<Starts> {
    site.hosts.iter().try_for_each(|host| host.group.limit(None))?;
    let home = site.hosts[0];
    let shared = home.files.join("shared").display().to_string();
    // It ends with the host.
    let master = ssh(site, home, &["-M", "-S", &shared, "-o", "ControlPersist=yes", "h1", "true"]);
    timed(master)?;
    let mut all = Vec::new();
    for round in 0..=rounds {
        stop::check()?;
        let one = Round {
            image: timed(words(site.husk(0, &["--discard"]), &["true"]))?,
            session: timed(words(site.husk(1, &["--discard"]), &["true"]))?,
            ssh: timed(ssh(site, home, &["h1", "true"]))?,
            there: there(site)?,
            shared: repeated(home, site, &format!("ssh -S {shared} h1 /bin/true"))?,
        };
        if round > 0 {
            all.push(one);
        }
    }
    let of = |pick: fn(&Round) -> f64| median(all.iter().map(pick));
    Ok(Starts {
        image_ms: of(|round| round.image),
        session_ms: of(|round| round.session),
        ssh_ms: of(|round| round.ssh),
        session_over_ssh_ms: of(|round| round.session - round.image - round.ssh),
        true_ms: of(|round| round.there),
        ssh_true_ms: of(|round| round.shared),
        true_ratio: of(|round| round.there / round.shared),
    })
}

fn words(mut command: Command, words: &[&str]) -> Command {
    command.args(words);
    command
}

fn ssh(site: &Site<'_>, home: &Host, words: &[&str]) -> Command {
    let own = site.bin.join("ssh").display().to_string();
    let mut command = home.command(&home.files, &own);
    command.args(words);
    command
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn timed(command: Command) -> anyhow::Result<f64> {
    let (output, took) = finish(command)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "a start fails: {}", said.trim_end());
    Ok(ms(took))
}

/// A shell that runs something several times, once before that, and prints what one takes.
fn script(what: &str) -> String {
    format!(
        "{what} || exit 1; s=$EPOCHREALTIME; for ((i = 0; i < {TIMES}; i++)); do {what} || exit 1; \
         done; e=$EPOCHREALTIME; echo $((${{e/./}} - ${{s/./}}))"
    )
}

/// What one takes, ms.
fn each(command: Command) -> anyhow::Result<f64> {
    let (output, _) = finish(command)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "/bin/true there fails: {}", said.trim_end());
    let us: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().context("no time")?;
    Ok(us / 1e3 / f64::from(TIMES))
}

fn there(site: &Site<'_>) -> anyhow::Result<f64> {
    let script = format!("exec </dev/null; {}", script("HUSK_NODE=1 /bin/true"));
    each(words(site.husk(1, &["--discard"]), &["bash", "-c", &script]))
}

fn repeated(home: &Host, site: &Site<'_>, what: &str) -> anyhow::Result<f64> {
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("exec </dev/null; PATH={}:{path}; {}", site.bin.display(), script(what));
    let file = home.files.join("times.sh");
    fs::write(&file, script)?;
    each(words(home.command(&home.files, "bash"), &[&file.display().to_string()]))
}

impl Starts {
    /// For people.
    pub fn text(&self) -> String {
        let mark = |met: bool| if met { "ok" } else { "MISSED" };
        let Starts { image_ms, session_ms, ssh_ms, session_over_ssh_ms: over, .. } = self;
        let Starts { true_ms, ssh_true_ms, true_ratio, .. } = self;
        format!(
            "with all processors, ms\n\
             {:<44} {session_ms:>9.1}\n{:<44} {image_ms:>9.1}\n{:<44} {ssh_ms:>9.1}\n\
             {:<44} {over:>9.1}  <= {SESSION_MS} {}\n\
             {:<44} {true_ms:>9.1}\n{:<44} {ssh_true_ms:>9.1}\n\
             {:<44} {true_ratio:>9.2}  <= {TRUE_RATIO} {}\n",
            "husk run --on h1 -- true",
            "husk run -- true",
            "ssh h1 true",
            "session beyond image and ssh",
            mark(*over <= SESSION_MS),
            "/bin/true there, from the image",
            "ssh h1 /bin/true, shared connection",
            "ratio",
            mark(*true_ratio <= TRUE_RATIO),
        )
    }
}
