//! What the threads of a process wait for, as the host shows it (`/proc/PID/task/TID/syscall`).
//!
//! A thread that waits for another program of the image sleeps on a word of the image's memory, or
//! in a call of the host that the other one ends (`docs/adr/0061`). Which of both it does is what a
//! person asks who wonders why a program is slow.

use std::fs;
use std::ops::Range;

use husk_abi::nr;
use husk_carrier::{CACHE_ADDRESS, STATE_ADDRESS};
use serde::Serialize;

/// Where programs have the image's memory, up to what the runtime keeps for threads; the program's
/// heap lies behind that.
const IMAGE: Range<usize> = CACHE_ADDRESS..0x5430_0000_0000;
const _: () = assert!(STATE_ADDRESS < IMAGE.end);

/// A thread, and what it does now.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Its number.
    pub thread: u32,
    /// The call that it is in; `None`: it runs, or does not let itself be looked at.
    pub call: Option<String>,
    /// Where it sleeps: `image` (a word of its memory), `program` (a word of the program's own),
    /// `host`; `None`: it does not.
    pub sleeps: Option<&'static str>,
    /// The descriptor that the call names.
    pub fd: Option<u32>,
}

/// Calls whose first argument is a descriptor that they may wait for.
const OF_DESCRIPTORS: [usize; 20] = [
    nr::read,
    nr::readv,
    nr::pread64,
    nr::preadv,
    nr::write,
    nr::writev,
    nr::recvfrom,
    nr::recvmsg,
    nr::recvmmsg,
    nr::sendto,
    nr::sendmsg,
    nr::accept,
    nr::accept4,
    nr::connect,
    nr::epoll_wait,
    nr::epoll_pwait,
    nr::epoll_pwait2,
    nr::flock,
    nr::fcntl,
    nr::ioctl,
];

/// All threads of a process, the first one first.
pub fn of(pid: u32) -> Vec<Wait> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> =
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    let wait = |thread: u32| {
        let said = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall"));
        of_line(thread, &said.unwrap_or_default())
    };
    threads.into_iter().map(wait).collect()
}

/// What a line of `syscall` says: `running`, or number and arguments of the call it sleeps in.
fn of_line(thread: u32, line: &str) -> Wait {
    let mut words = line.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<usize>().ok());
    let first = words.next().and_then(|word| word.strip_prefix("0x"));
    let first = first.and_then(|word| usize::from_str_radix(word, 16).ok()).unwrap_or_default();
    let Some(number) = number else {
        return Wait { thread, call: None, sleeps: None, fd: None };
    };
    let sleeps = match number {
        nr::futex if IMAGE.contains(&first) => "image",
        nr::futex => "program",
        _ => "host",
    };
    let fd = OF_DESCRIPTORS.contains(&number).then_some(first as u32);
    Wait { thread, call: Some(nr::name(number).to_owned()), sleeps: Some(sleeps), fd }
}

impl Wait {
    /// One line, for people; `by_ring`: bytes of that descriptor go through shared memory.
    pub fn line(&self, by_ring: bool) -> String {
        let Some(call) = &self.call else { return format!("thread {} runs", self.thread) };
        let fd = self.fd.map_or(String::new(), |fd| format!("({fd})"));
        let place = match self.sleeps {
            Some("image") => "on a word of the image's memory",
            Some("program") => "on a word of the program's own memory",
            _ if by_ring => "in the host; its bytes come by ring",
            _ => "in the host",
        };
        format!("thread {} sleeps in {call}{fd}, {place}", self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        of_line(7, text).line(false)
    }

    #[test]
    fn a_thread_sleeps_on_a_word_of_the_image_or_its_own_or_in_the_host() {
        assert_eq!(line("running\n"), "thread 7 runs");
        assert_eq!(line(""), "thread 7 runs", "it has ended, or is another user's");
        let words = "0x0 0x0 0x0 0x0 0x0 0x7ff0 0x5440";
        let image = line(&format!("202 {STATE_ADDRESS:#x} {words}"));
        assert_eq!(image, "thread 7 sleeps in futex, on a word of the image's memory");
        // In a mapping, and in the heap.
        for word in ["0x7f0000001000", "0x5440100cc000"] {
            let own = line(&format!("202 {word} {words}"));
            assert_eq!(own, "thread 7 sleeps in futex, on a word of the program's own memory");
        }
        assert_eq!(line(&format!("0 0x8 {words}")), "thread 7 sleeps in read(8), in the host");
        assert_eq!(line(&format!("35 0x8 {words}")), "thread 7 sleeps in nanosleep, in the host");
        let ring = of_line(7, &format!("232 0xb {words}"));
        assert_eq!((ring.fd, ring.sleeps), (Some(11), Some("host")));
        assert!(ring.line(true).ends_with("epoll_wait(11), in the host; its bytes come by ring"));
    }

    #[test]
    fn this_very_thread_is_in_the_call_that_asks() {
        let pid = std::process::id();
        let all = of(pid);
        assert!(all.first().is_some_and(|first| first.thread == pid), "{all:?}");
        assert!(all.iter().any(|one| one.call.as_deref() == Some("read")), "{all:?}");
    }
}
