//! What Husk prints. A standard error that takes nothing (a full disk, a reader that has gone) is
//! no reason to lose what a run has changed: nothing here panics or ends the process.

use std::io::{self, Write};

/// One line to standard error, `husk: ` in front.
pub fn say(line: &str) {
    let line = format!("husk: {}\n", line.replace('\n', "?"));
    // Whoever does not listen is not told.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// `text` to standard output, all of it or an error.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}
