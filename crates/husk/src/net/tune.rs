//! `husk net tune` and `untune`: what is typed and printed.

use clap::ValueEnum;
use husk_net::steer::Problem;
use husk_net::tune::{self, Kind, Options, Outcome, Report};

use crate::shown;

/// `husk net tune`.
#[derive(clap::Args, Debug)]
pub struct Tune {
    /// The interface, as `ip link` shows it.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// Say what would be set, and set nothing. Needs no privilege.
    #[arg(long)]
    dry_run: bool,
    /// Set only these. If the device does not support one, that is an error and nothing is changed.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<Part>,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

/// `husk net untune`.
#[derive(clap::Args, Debug)]
pub struct Untune {
    /// The interface, as it was called when it was tuned.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

/// A group of settings.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Part {
    /// Choose the receive queue of UDP packets by addresses and ports.
    RxFlowHash,
    /// Queue n interrupts core n.
    Irq,
    /// Packets of queue n are processed on core n (or on several, if there are few queues).
    Rps,
    /// Core n sends on queue n.
    Xps,
    /// Merge packets of one flow.
    Gro,
    /// `net.core.busy_read` and `busy_poll`: poll for 50 us before sleeping.
    BusyPoll,
}

impl From<Part> for Kind {
    fn from(part: Part) -> Kind {
        match part {
            Part::RxFlowHash => Kind::RxFlowHash,
            Part::Irq => Kind::Irq,
            Part::Rps => Kind::Rps,
            Part::Xps => Kind::Xps,
            Part::Gro => Kind::Gro,
            Part::BusyPoll => Kind::BusyPoll,
        }
    }
}

/// Whether anything is as wanted, and printed.
pub fn tune(typed: &Tune) -> Result<bool, Problem> {
    let only = typed.only.iter().map(|&part| part.into()).collect();
    let report = tune::tune(&typed.interface, &Options { only, dry_run: typed.dry_run })?;
    let able = report.rows.iter().any(|row| row.outcome != Outcome::Cannot);
    Ok(shown(&report, typed.json, Report::text) && able)
}

/// Whether it was printed.
pub fn untune(typed: &Untune) -> Result<bool, Problem> {
    let report = tune::untune(&typed.interface)?;
    Ok(shown(&report, typed.json, Report::text))
}
