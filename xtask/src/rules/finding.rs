//! One thing that is wrong, and where.

use std::fmt;

/// What a static step found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File, relative to the workspace.
    pub path: String,
    /// Line, from 1; 0 = the file as a whole.
    pub line: usize,
    /// What is wrong and what to do.
    pub text: String,
}

impl Finding {
    /// A finding at `line` of `path`.
    pub fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.text),
            line => write!(out, "{}:{line}: {}", self.path, self.text),
        }
    }
}
