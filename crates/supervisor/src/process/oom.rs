//! OOM scores: when memory runs out, Linux kills programs before the processes that hold an image.
//!
//! Lowering a score below its inherited value needs privilege, so an ordinary user's supervisor
//! keeps the score it was started with, and its programs get a higher one.

use std::fs;

/// The score of who holds an image, where that is allowed; and the one that everybody has.
const HOLDERS: [i32; 2] = [-500, 0];
/// So much more have programs, of 1000: part of the memory that there is.
const PROGRAMS_MORE: i32 = 300;
const SCORE_MAX: i32 = 1000;

/// This process is to be ended late.
pub fn hold() {
    hold_with(score_of("self"));
}

/// The same of one that has the score `now`.
fn hold_with(now: Option<i32>) {
    // Whatever is refused stays as it was.
    let lower = |score: &&i32| now.is_none_or(|now| **score < now);
    let _ = HOLDERS.iter().filter(lower).find(|score| set("self", **score));
}

/// Process `pid` is to be ended before who holds its image.
pub fn give_way(pid: u32) {
    let process = pid.to_string();
    // One that lets nobody look into it keeps its own.
    let _ = score_of(&process).map(|score| set(&process, of_programs(score)));
}

/// Starts a program, which is to be ended before this process, as all that it starts. The program
/// inherits its score: nothing that it does can come before that.
pub fn giving_way<T>(start: impl FnOnce() -> T) -> T {
    let own = score_of("self");
    let _ = own.map(|score| set("self", of_programs(score)));
    let started = start();
    // Back to what it was needs no privilege.
    let _ = own.map(|score| set("self", score));
    hold_with(own);
    started
}

fn of_programs(score: i32) -> i32 {
    (score + PROGRAMS_MORE).min(SCORE_MAX)
}

fn score_of(process: &str) -> Option<i32> {
    fs::read_to_string(path(process)).ok()?.trim().parse().ok()
}

/// Whether that was allowed.
fn set(process: &str, score: i32) -> bool {
    fs::write(path(process), score.to_string()).is_ok()
}

fn path(process: &str) -> String {
    format!("/proc/{process}/oom_score_adj")
}
