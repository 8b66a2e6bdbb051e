//! The supervisor's part: runs a separate process that records a program, and publishes the
//! recording to the image's processes.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_host::huge::HUGE_BYTES;
use husk_proto::Shortcuts as _;
use husk_proto::fs::HostIdentity;
use husk_proto::image::Image as _;
use husk_proto::snapshot::{HEAD_BYTES_MAX, Head, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};

use super::memory::word_of;
use super::{BYTES_MAX, LATER, NEVER, PAGE, RECORD_MAX_S};
use crate::named::SELF;
use crate::write_back::host::path_of;

/// By then the process that records has ended by itself.
const RECORD_MAX: Duration = Duration::from_secs(RECORD_MAX_S as u64 + 1);
const PART_BYTES: usize = 256 << 10;
/// Where recorded programs lie: above all that is Husk's, below what the host chooses itself.
const LOWEST: u64 = 0x5450_0000_0000;
const SPAN: u64 = 0x2f_0000_0000;

/// Has `file` at `path` recorded. Where it cannot be, nobody asks again; where nothing came of it
/// this time, they do.
pub fn grant(direct: &mut Direct, region: &OwnedFd, file: &HostIdentity, path: &Path) {
    let key = file.recorded();
    let (at, left) = direct.room_to_gather();
    let Some(said) = made(path).filter(|said| !said.is_empty() && said != LATER) else { return };
    let recorded = Some(said).filter(|said| said != NEVER && is_sound(direct, file, said));
    let fits = |bytes: &Vec<u8>| bytes.len().next_multiple_of(HUGE_BYTES) as u64 <= left;
    let put = |bytes: Vec<u8>| {
        let target = File::from(region.try_clone().ok()?);
        target.write_all_at(&bytes, at).ok()?;
        Some(bytes.len() as u64)
    };
    match recorded.filter(fits).and_then(put) {
        Some(bytes) => direct.set_gathered(&key, bytes),
        None => direct.refuse_to_gather(&key),
    }
}

/// What the process that records says, as far as it comes in time.
fn made(path: &Path) -> Option<Vec<u8>> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    let low = LOWEST + u64::from_le_bytes(random) % SPAN / PAGE * PAGE;
    let mut child = Command::new(SELF)
        .arg("record")
        .arg(path)
        .arg(low.to_string())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Signals of the terminal are the program's.
        .process_group(0)
        .spawn()
        .ok()?;
    let said = child.stdout.take().and_then(read_in_time);
    if said.is_none() {
        // Only this thread waits for it. It may have ended at this moment.
        let _ = child.kill();
    }
    let ended = child.wait();
    said.filter(|said| !said.is_empty() && ended.is_ok())
}

fn read_in_time(mut from: ChildStdout) -> Option<Vec<u8>> {
    let end = Instant::now() + RECORD_MAX;
    let (mut bytes, mut part) = (Vec::new(), vec![0; PART_BYTES]);
    while bytes.len() <= BYTES_MAX {
        let left = end.saturating_duration_since(Instant::now());
        let left =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut watched = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
        if poll(&mut watched, Some(&left)).ok()? == 0 {
            return None;
        }
        match from.read(&mut part).ok()? {
            0 => return Some(bytes),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
    None
}

/// Whether a recording is whole, of this file, and rests on nothing that lies in a tree of the
/// image.
fn is_sound(direct: &Direct, file: &HostIdentity, bytes: &[u8]) -> bool {
    let Some((head, pages)) = bytes.split_at_checked(HEAD_BYTES_MAX) else { return false };
    let words: Vec<u64> = head.chunks_exact(8).map(word_of).collect();
    let Some(parsed) = Head::parse(&words) else { return false };
    let whole = parsed.areas().all(|area| match area.source {
        Source::Recorded(at) => at + area.bytes <= pages.len() as u64,
        _ => true,
    });
    let outside = parsed.files().all(|file| {
        let text = head.get(file.path as usize..).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let path = &path_of(text);
        // Of what is not there, where it would be.
        let real = path.ancestors().find_map(|path| fs::canonicalize(path).ok());
        path.is_absolute()
            && is_outside(direct, path)
            && real.is_some_and(|real| is_outside(direct, &real))
    });
    whole && outside && parsed.files().any(|one| one.identity == *file)
}

fn is_outside(direct: &Direct, path: &Path) -> bool {
    (0..direct.mounts()).all(|index| !path.starts_with(path_of(direct.mount(index).path)))
}
