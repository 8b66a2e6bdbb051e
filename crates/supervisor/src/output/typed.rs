//! Paths as a person can type them to a shell: what a line says to type works, whatever the name.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Serialize, Serializer};

/// A path as POSIX shells take it; one with control characters, or bytes that are no text, as bash
/// and zsh do.
pub fn typed(path: &Path) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,=@:%".contains(c);
    let bytes = path.as_os_str().as_bytes();
    match path.to_str().filter(|text| !text.contains(char::is_control)) {
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', "'\\''")),
        None => format!("$'{}'", bytes.iter().map(|byte| escaped(*byte)).collect::<String>()),
    }
}

/// A path in JSON: text, or a list of bytes where it is none.
pub fn in_json<P: AsRef<Path>, S: Serializer>(path: &P, to: S) -> Result<S::Ok, S::Error> {
    Json(path.as_ref()).serialize(to)
}

/// The same of several.
pub fn all_in_json<P: AsRef<Path>, S: Serializer>(paths: &[P], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| Json(path.as_ref())))
}

struct Json<'a>(&'a Path);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => to.serialize_str(text),
            None => self.0.as_os_str().as_bytes().serialize(to),
        }
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::process::Command;

    #[test]
    fn a_shell_reads_what_was_written_in_one_line_without_control_characters() {
        let names: [&[u8]; 8] = [
            b"plain-1.txt",
            b"with blank",
            b"it's",
            b"$HOME `x` \"y\" \\",
            b"two\nlines",
            b"\xff\xfe'\\8",
            b"\x1b[31mred\x07",
            "gr\u{fc}n".as_bytes(),
        ];
        for name in names {
            let words = typed(Path::new(OsStr::from_bytes(name)));
            assert!(!words.contains(char::is_control), "{words:?}");
            let script = format!("printf %s {words}");
            let got = Command::new("bash").args(["-c", &script]).output().unwrap().stdout;
            assert_eq!(got, name, "{words}");
        }
        assert_eq!(typed(Path::new("/a/b-1")), "/a/b-1");
    }
}
