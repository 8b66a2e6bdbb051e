//! What the threads of a process wait for, as the host shows it (`/proc/PID/task/TID/syscall`).
//!
//! A thread that waits for another program of the image sleeps on a word of the image's memory, or
//! in a call of the host that the other one ends (`docs/adr/0061`). Which of both it does is what a
//! person asks who wonders why a program is slow.

use std::fs;
use std::ops::Range;

use husk_abi::nr;
use husk_carrier::{CACHE_ADDRESS, HOME_SLOTS_ADDRESS, SLOTS_BYTES, STATE_ADDRESS};
use serde::Serialize;

/// Where programs have the image's memory, up to what the runtime keeps for threads; the program's
/// heap lies behind that.
const IMAGE: Range<usize> = CACHE_ADDRESS..0x5430_0000_0000;
const _: () = assert!(STATE_ADDRESS < IMAGE.end);
/// Where programs of other nodes have the memory in which they ask the home.
const ASKED: Range<usize> = HOME_SLOTS_ADDRESS..HOME_SLOTS_ADDRESS + SLOTS_BYTES;

/// A thread, and what it does now.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Its number.
    pub thread: u32,
    /// The call that it is in; `None`: it runs, or does not let itself be looked at.
    pub call: Option<String>,
    /// Where it sleeps: `image` (a word of its memory), `home` (until the home of all names has
    /// answered), `program` (a word of the program's own), `host`; `None`: it does not.
    pub sleeps: Option<&'static str>,
    /// The descriptor that the call names.
    pub fd: Option<u32>,
    /// The call may be the sleep of a read of that descriptor, by a bell: the socket's lane.
    #[serde(skip)]
    pub lane: Option<u32>,
}

/// How bytes come to who waits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Bytes of the descriptor that it waits for go through shared memory, or those of a socket in
    /// that set.
    pub by_ring: bool,
    /// Of a set: sockets in it whose bytes do.
    pub ring_sockets: u32,
    /// Who writes them wakes it by a bell, an eventfd of the process.
    pub by_bell: bool,
    /// It waits in a read of the descriptor; `call` is what that sleeps in.
    pub reads: bool,
}

/// Arguments of a call.
const ARGUMENTS: usize = 6;

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
    in_order(pid, &mut threads);
    let wait = |thread: u32| {
        let said = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall"));
        of_line(thread, &said.unwrap_or_default())
    };
    threads.into_iter().map(wait).collect()
}

/// The first thread of the process, then the others: their numbers begin anew when they have come
/// to an end, so the first one need not have the lowest.
fn in_order(pid: u32, threads: &mut [u32]) {
    threads.sort_unstable_by_key(|&thread| (thread != pid, thread));
}

/// What a line of `syscall` says: `running`, or number and arguments of the call it sleeps in.
fn of_line(thread: u32, line: &str) -> Wait {
    let mut words = line.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<usize>().ok());
    let argument = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut args = [0; ARGUMENTS];
    args.iter_mut().zip(words).for_each(|(to, word)| *to = argument(word).unwrap_or_default());
    let Some(number) = number else {
        return Wait { thread, call: None, sleeps: None, fd: None, lane: None };
    };
    let first = args[0];
    let sleeps = match number {
        nr::futex if ASKED.contains(&first) => "home",
        nr::futex if IMAGE.contains(&first) => "image",
        nr::futex => "program",
        _ => "host",
    };
    let named = OF_DESCRIPTORS.contains(&number).then_some(first as u32);
    let (fd, lane) = match (number, args) {
        // `client::ready::read_bell`.
        (nr::ppoll, [_, 2, 0, 0, fd, how]) if how >> u32::BITS != 0 => {
            (u32::try_from(fd).ok(), Some((how >> u32::BITS) as u32))
        }
        _ => (named, None),
    };
    Wait { thread, call: Some(nr::name(number).to_owned()), sleeps: Some(sleeps), fd, lane }
}

impl Wait {
    /// One line, for people.
    pub fn line(&self, bytes: &Bytes) -> String {
        let Some(call) = &self.call else { return format!("thread {} runs", self.thread) };
        let fd = self.fd.map_or(String::new(), |fd| format!("({fd})"));
        let call =
            if bytes.reads { format!("a read{fd}, by {call}") } else { format!("{call}{fd}") };
        let place = match self.sleeps {
            Some("image") => "on a word of the image's memory",
            Some("home") => "until node 0 has answered",
            Some("program") => "on a word of the program's own memory",
            _ => "in the host",
        };
        let comes = match bytes.ring_sockets {
            _ if !bytes.by_ring => String::new(),
            0 => "; its bytes come by ring".to_owned(),
            count => format!("; bytes of {count} of its sockets come by ring"),
        };
        let bell = if bytes.by_bell { ", and a bell wakes it" } else { "" };
        format!("thread {} sleeps in {call}, {place}{comes}{bell}", self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        of_line(7, text).line(&Bytes::default())
    }

    #[test]
    fn a_thread_sleeps_on_a_word_of_the_image_or_its_own_or_in_the_host() {
        assert_eq!(line("running\n"), "thread 7 runs");
        assert_eq!(line(""), "thread 7 runs", "it has ended, or is another user's");
        let words = "0x0 0x0 0x0 0x0 0x0 0x7ff0 0x5440";
        let image = line(&format!("202 {STATE_ADDRESS:#x} {words}"));
        assert_eq!(image, "thread 7 sleeps in futex, on a word of the image's memory");
        let home = line(&format!("202 {:#x} {words}", HOME_SLOTS_ADDRESS + 4096));
        assert_eq!(home, "thread 7 sleeps in futex, until node 0 has answered");
        // In a mapping, and in the heap.
        for word in ["0x7f0000001000", "0x5440100cc000"] {
            let own = line(&format!("202 {word} {words}"));
            assert_eq!(own, "thread 7 sleeps in futex, on a word of the program's own memory");
        }
        assert_eq!(line(&format!("0 0x8 {words}")), "thread 7 sleeps in read(8), in the host");
        assert_eq!(line(&format!("35 0x8 {words}")), "thread 7 sleeps in nanosleep, in the host");
        let ring = of_line(7, &format!("232 0xb {words}"));
        assert_eq!((ring.fd, ring.sleeps), (Some(11), Some("host")));
        let by = |ring_sockets| Bytes { by_ring: true, ring_sockets, ..Bytes::default() };
        assert!(ring.line(&by(0)).ends_with("epoll_wait(11), in the host; its bytes come by ring"));
        let bell = Bytes { by_bell: true, ..by(3) };
        let told = "; bytes of 3 of its sockets come by ring, and a bell wakes it";
        assert!(ring.line(&bell).ends_with(told), "{}", ring.line(&bell));
    }

    #[test]
    fn a_read_that_sleeps_by_a_bell_names_its_socket_and_lane() {
        let read = of_line(7, "271 0x7ffd10 0x2 0x0 0x0 0x5 0x4500000003 0x7ff0 0x5440");
        assert_eq!((read.fd, read.lane), (Some(5), Some(0x45)));
        let bytes = Bytes { by_ring: true, by_bell: true, reads: true, ..Bytes::default() };
        let told = "thread 7 sleeps in a read(5), by ppoll, in the host; its bytes come by ring, \
                    and a bell wakes it";
        assert_eq!(read.line(&bytes), told);
        // A poll of the program's own.
        let own = of_line(7, "271 0x7ffd10 0x2 0x0 0x0 0x8 0x0 0x7ff0 0x5440");
        assert_eq!((own.fd, own.lane), (None, None));
    }

    #[test]
    fn the_first_thread_comes_first_where_numbers_began_anew() {
        let pid = std::process::id();
        let numbers: Vec<u32> = of(pid).iter().map(|one| one.thread).collect();
        assert_eq!(numbers.first(), Some(&pid));
        let mut later = vec![569, 31_442, 29_802, 31_441];
        in_order(29_802, &mut later);
        assert_eq!(later, [29_802, 569, 31_441, 31_442]);
    }

    #[test]
    fn this_very_thread_is_in_the_call_that_asks() {
        let all = of(std::process::id());
        assert!(all.iter().any(|one| one.call.as_deref() == Some("read")), "{all:?}");
    }
}
