//! The first line of a script: `#!interpreter [one argument]`, read as Linux reads it.

/// Bytes of a file that are looked at for `#!` and the ELF header (`BINPRM_BUF_SIZE`).
pub const HEAD_BYTES: usize = 256;
/// Interpreters that may themselves be scripts (Linux allows five rewrites).
pub const NESTING_MAX: usize = 5;

/// Where interpreter and argument lie within the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The interpreter's path.
    pub interpreter: core::ops::Range<usize>,
    /// The rest of the line as one argument, if there is one.
    pub argument: Option<core::ops::Range<usize>>,
}

fn blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Reads the line. `None`: not a script, or one Linux answers with `ENOEXEC` (no interpreter, or a
/// path that was cut off).
pub fn parse(head: &[u8]) -> Option<Line> {
    if !head.starts_with(b"#!") {
        return None;
    }
    let end = head.iter().position(|&b| b == b'\n' || b == 0);
    let cut = end.is_none() && head.len() >= HEAD_BYTES;
    let mut stop = end.unwrap_or(head.len());
    while stop > 2 && blank(head[stop - 1]) {
        stop -= 1;
    }
    let start = (2..stop).find(|&i| !blank(head[i]))?;
    let after = (start..stop).find(|&i| blank(head[i]));
    if cut && after.is_none() {
        return None;
    }
    let interpreter = start..after.unwrap_or(stop);
    let argument = after.and_then(|a| (a..stop).find(|&i| !blank(head[i]))).map(|i| i..stop);
    Some(Line { interpreter, argument })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        parse(text).map(|l| (&text[l.interpreter], l.argument.map(|a| &text[a])))
    }

    #[test]
    fn one_argument_with_its_blanks() {
        assert_eq!(split(b"#!/bin/sh\n"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(
            split(b"#! \t/bin/sh  -e  x \nrest"),
            Some((&b"/bin/sh"[..], Some(&b"-e  x"[..])))
        );
        assert_eq!(split(b"#!/bin/sh"), Some((&b"/bin/sh"[..], None)));
    }

    #[test]
    fn no_interpreter_or_a_cut_one_is_no_script() {
        assert_eq!(split(b"#!\n"), None);
        assert_eq!(split(b"#!   \n"), None);
        assert_eq!(split(b"echo hi\n"), None);
        let mut long = b"#!/".to_vec();
        long.resize(HEAD_BYTES, b'a');
        assert_eq!(split(&long), None);
    }
}
