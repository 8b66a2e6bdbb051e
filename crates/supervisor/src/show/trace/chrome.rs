//! Calls as events for the Perfetto viewer: the JSON of the Trace Event Format, as an array, which
//! may end anywhere (a file whose writer was killed can be looked at, too).
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::collections::HashMap;

use serde_json::{Value, json};

use super::show::{error, who};
use super::{Call, End};

/// What is known of the file so far.
#[derive(Debug, Default)]
pub struct Chrome {
    /// Programs and threads that have a name in it.
    programs: HashMap<u32, String>,
    threads: HashMap<u32, u32>,
    events: u64,
}

impl Chrome {
    /// The text that adds a call to the file.
    pub fn add(&mut self, call: &Call) -> String {
        let mut text = String::new();
        if self.programs.get(&call.pid) != Some(&call.program) {
            self.programs.insert(call.pid, call.program.clone());
            let name = format!("{} ({})", call.program, call.pid);
            text += &self.event(&named("process_name", call.pid, call.pid, &name));
        }
        if self.threads.insert(call.tid, call.pid) != Some(call.pid) {
            let name = format!("thread {}", call.tid);
            text += &self.event(&named("thread_name", call.pid, call.tid, &name));
        }
        text + &self.event(&event(call))
    }

    fn event(&mut self, event: &Value) -> String {
        let before = if self.events == 0 { "[\n" } else { ",\n" };
        self.events += 1;
        format!("{before}{event}")
    }

    /// The text behind the last call.
    pub fn end(&self) -> &'static str {
        if self.events == 0 { "[]\n" } else { "\n]\n" }
    }
}

fn named(what: &str, pid: u32, tid: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } })
}

fn event(call: &Call) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    let mut args = json!({ "arguments": call.arguments(), "result": call.result() });
    let duration_ns = match call.end {
        Some(End { result, by, duration_ns }) => {
            args["answered by"] = json!(who(by));
            args["ns"] = json!(duration_ns);
            if let Some(errno) = error(result) {
                args["error"] = json!(format!("{errno:?}"));
            }
            duration_ns
        }
        None => 0,
    };
    json!({
        "ph": "X", "cat": "call", "name": call.name(), "pid": call.pid, "tid": call.tid,
        "ts": us(call.at_ns), "dur": us(duration_ns), "args": args,
    })
}
