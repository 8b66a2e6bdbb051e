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
    // Whatever is refused stays as it was.
    let _ = HOLDERS.iter().find(|score| fs::write(path("self"), score.to_string()).is_ok());
}

/// Process `pid` is to be ended before who holds its image.
pub fn give_way(pid: u32) {
    let path = path(&pid.to_string());
    let score = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(score) = score {
        // One that lets nobody look into it keeps its own.
        let _ = fs::write(path, (score + PROGRAMS_MORE).min(SCORE_MAX).to_string());
    }
}

fn path(process: &str) -> String {
    format!("/proc/{process}/oom_score_adj")
}
