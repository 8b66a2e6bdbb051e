//! `husk explain`, and how policies are written on the command line.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use husk_proto::place::Policy;
use husk_supervisor::output::failure::STATUS_HUSK;
use husk_supervisor::show::explain;

use crate::{failed, shown};

/// `husk explain [NAME] PID`.
#[derive(clap::Args, Debug)]
#[command(override_usage = "husk explain [OPTIONS] [NAME] <PID>")]
pub struct Options {
    /// Name of the image [default: the one in which the process runs].
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Number of the process.
    #[arg(value_name = "PID")]
    pid: Option<String>,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> ExitCode {
    let (name, pid) = match &options.pid {
        Some(pid) => (Some(options.name.as_str()), pid),
        None => (None, &options.name),
    };
    match explain::report(name, pid) {
        Ok(report) if shown(&report, options.json, explain::Report::text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(STATUS_HUSK),
        Err(failure) => failed(&failure),
    }
}

/// A policy as typed; shells offer those there are.
#[derive(Clone, Copy)]
pub struct PolicyParser;

impl TypedValueParser for PolicyParser {
    type Value = Policy;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Policy, clap::Error> {
        policy.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = Policy::ALL.into_iter().map(Policy::name);
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

fn policy(typed: &str) -> Result<Policy, String> {
    let names = Policy::ALL.map(Policy::name).join(", ");
    Policy::parse(typed.as_bytes()).ok_or_else(|| format!("there are {names}"))
}
