//! `husk cp`: files from an image to the host, and back.
//!
//! ```text
//!   husk cp NAME:/a b                         husk cp a NAME:/b
//!     | unpack b                                | pack a
//!     '◄── pipe ── husk exec NAME               '── pipe ──► husk exec NAME
//!                    -- husk parcel /a                          -- husk unparcel /b
//! ```
//!
//! The other half runs as a program of the image, and sees what programs see.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::parcel::{pack, unpack};
use super::up::SELF;
use crate::named::place::{Name, Place};
use crate::output::failure::Failure;
use crate::run::request::reason;

/// Copies a file, or with `recursive` a tree; one of both is `NAME:PATH`. Whether all of it was
/// copied: if not, that has been said.
pub fn copy(source: &OsStr, target: &OsStr, recursive: bool) -> Result<bool, Failure> {
    match (in_image(source), in_image(target)) {
        (Some((name, path)), None) => copy_out(&name, path, Path::new(target), recursive),
        (None, Some((name, path))) => copy_in(Path::new(source), &name, path, recursive),
        (None, None) => {
            let remedy = "write the one that is as NAME:/path";
            Err(Failure::new("cannot copy", "neither is in an image", remedy))
        }
        (Some(_), Some(_)) => {
            let remedy = "copy to a place outside first, and from there";
            Err(Failure::new("cannot copy", "both are in images", remedy))
        }
    }
}

/// `NAME:PATH`.
pub fn in_image(typed: &OsStr) -> Option<(Name, &OsStr)> {
    let bytes = typed.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let name = Name::parse(OsStr::from_bytes(&bytes[..colon])).ok()?;
    let path = &bytes[colon + 1..];
    (!path.is_empty()).then_some((name, OsStr::from_bytes(path)))
}

fn copy_out(name: &Name, path: &OsStr, target: &Path, recursive: bool) -> Result<bool, Failure> {
    let mut words = vec![OsString::from("parcel")];
    words.extend(recursive.then(|| "-r".into()));
    words.extend(["--".into(), path.to_owned()]);
    let mut child = inside(name, &words, Stdio::null(), Stdio::piped())?;
    let output = child.stdout.take().map(BufReader::new);
    let unpacked = output.map(|mut output| unpack(target, &mut output));
    ended(name, child, unpacked)
}

fn copy_in(source: &Path, name: &Name, path: &OsStr, recursive: bool) -> Result<bool, Failure> {
    let words = [OsString::from("unparcel"), "--".into(), path.to_owned()];
    let mut child = inside(name, &words, Stdio::piped(), Stdio::null())?;
    let input = child.stdin.take().map(BufWriter::new);
    let packed = input.map(|mut input| pack(source, recursive, &mut input));
    ended(name, child, packed)
}

/// Starts `husk WORDS` as a program of the image: this very file, which may be out of its sight.
pub fn inside(
    name: &Name,
    words: &[OsString],
    input: Stdio,
    output: Stdio,
) -> Result<Child, Failure> {
    Place::find(name)?;
    let failed = |problem: io::Error| {
        let remedy = "raise the limits on processes and open files";
        Failure::new(format!("cannot copy with image {name}"), reason(&problem), remedy)
    };
    let own: OwnedFd = File::open(SELF).map_err(failed)?.into();
    rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty())
        .map_err(|errno| failed(errno.into()))?;
    let mut command = Command::new(SELF);
    command.arg0("husk").args(["exec", &name.to_string(), "--"]);
    command.arg(format!("/proc/self/fd/{}", own.as_raw_fd())).args(words);
    command.stdin(input).stdout(output).spawn().map_err(failed)
}

/// Whether both halves did all of it.
fn ended(name: &Name, mut child: Child, ours: Option<io::Result<bool>>) -> Result<bool, Failure> {
    let broken =
        |why: String| Failure::new(format!("cannot copy with image {name}"), why, "try again");
    let status = child.wait().map_err(|problem| broken(reason(&problem)))?;
    if let Some(signal) = status.signal() {
        return Err(broken(format!("its half was ended by signal {signal}")));
    }
    match ours {
        Some(Ok(complete)) => Ok(complete && status.success()),
        // The other half has said why.
        _ if !status.success() => Ok(false),
        Some(Err(problem)) => Err(broken(reason(&problem))),
        None => Err(broken("there is no way to it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_behind_the_name_of_an_image_leads_into_it() {
        let (name, path) = in_image(OsStr::new("ci:/a:b")).unwrap();
        assert_eq!((name.to_string().as_str(), path), ("ci", OsStr::new("/a:b")));
        for host in ["ci", "ci:", ":/a", "./ci:/a", "/ci:/a", "7:/a"] {
            assert!(in_image(OsStr::new(host)).is_none(), "{host}");
        }
    }
}
