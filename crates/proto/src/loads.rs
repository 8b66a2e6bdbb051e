//! Which host the next program runs on: the file `loads` in an image's directory at the host.
//!
//! ```text
//!   | places, u32: of this host, of host 1, ... | pid u32, host u32 | pid, host | ... |
//!     written by supervisor and starters          written by programs that begin another one
//! ```
//!
//! A host with more places takes more programs: the next one goes where it finds most room. This
//! host serves the others: while programs run there, that counts as one more beside its own, if it
//! has any. A program keeps its number when it runs on another host, as its shadow has it. So
//! whether one has ended is asked of this host, and nobody has to take a note back.
//!
//! All of it is a hint: a lost note makes a host look less busy than it is.

/// Hosts that are told apart, this one among them.
pub const HOSTS: usize = 65;
/// Programs that are noted; what is beyond is not counted.
pub const JOBS: usize = 256;
const PLACES_BYTES: usize = 4;
const JOB_BYTES: usize = 8;
/// Bytes of the file.
pub const BYTES: usize = HOSTS * PLACES_BYTES + JOBS * JOB_BYTES;
/// Where the file has the places of a host; `None`: it has none.
pub fn places_at(host: usize) -> Option<usize> {
    (host < HOSTS).then_some(host * PLACES_BYTES)
}

/// Where it has a program.
pub fn job_at(slot: usize) -> usize {
    HOSTS * PLACES_BYTES + slot * JOB_BYTES
}

/// What is written there.
pub fn job(pid: u32, host: usize) -> [u8; JOB_BYTES] {
    (u64::from(pid) | (host as u64) << 32).to_le_bytes()
}

/// What is known of all hosts.
pub struct Loads {
    bytes: [u8; BYTES],
}

impl Loads {
    /// Nothing yet: to be read into.
    pub const fn empty() -> Loads {
        Loads { bytes: [0; BYTES] }
    }

    /// The file.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Where a program of process `own` begins best, but for hosts that `refused` has a bit for;
    /// and the slot for its note, if one is free.
    pub fn choose(
        &self,
        own: u32,
        refused: u128,
        mut lives: impl FnMut(u32) -> bool,
    ) -> (usize, Option<usize>) {
        let (mut running, mut free) = ([0u32; HOSTS], None);
        for slot in 0..JOBS {
            let (pid, host) = (self.word(job_at(slot)), self.word(job_at(slot) + 4));
            match running.get_mut(host as usize) {
                Some(count) if pid != 0 && pid != own && lives(pid) => *count += 1,
                _ => free = free.or(Some(slot)),
            }
        }
        let elsewhere = running[1..].iter().any(|count| *count > 0);
        let (mut best, mut load, mut of) = (0, 0, 1);
        for host in (1..HOSTS).chain([0]) {
            let places = u64::from(self.word(host * PLACES_BYTES));
            if places == 0 || refused >> host & 1 == 1 {
                continue;
            }
            let serves = host == 0 && elsewhere && running[0] > 0;
            let more = u64::from(running[host]) + 1 + u64::from(serves);
            if load == 0 || more * of < load * places {
                (best, load, of) = (host, more, places);
            }
        }
        (best, free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(places: &[u32], jobs: &[(u32, usize)]) -> Loads {
        let mut loads = Loads::empty();
        for (host, places) in places.iter().enumerate() {
            let at = places_at(host).unwrap();
            loads.bytes[at..at + 4].copy_from_slice(&places.to_le_bytes());
        }
        for (slot, (pid, host)) in jobs.iter().enumerate() {
            let at = job_at(slot);
            loads.bytes[at..at + 8].copy_from_slice(&job(*pid, *host));
        }
        loads
    }

    #[test]
    fn the_host_with_most_room_is_chosen_and_another_one_among_equals() {
        let chosen =
            |places: &[u32], jobs: &[(u32, usize)]| loads(places, jobs).choose(99, 0, |_| true).0;
        assert_eq!(chosen(&[2, 2], &[]), 1);
        assert_eq!(chosen(&[2, 2, 2], &[(5, 1)]), 2);
        assert_eq!(chosen(&[4, 2], &[]), 0);
        assert_eq!(chosen(&[2, 4], &[(5, 1)]), 1);
        assert_eq!(chosen(&[1, 1, 1], &[(5, 0), (6, 1)]), 2);
        assert_eq!(chosen(&[1, 0, 0], &[(5, 0), (6, 0)]), 0, "others are not there");
        assert_eq!(chosen(&[0, 0], &[]), 0, "nothing is known");
    }

    #[test]
    fn this_host_has_the_others_to_serve() {
        let jobs: [_; 5] = core::array::from_fn(|n| (n as u32 + 10, 1));
        let chosen = |count| loads(&[2, 2], &jobs[..count]).choose(99, 0, |_| true).0;
        assert_eq!([0, 1, 2, 5].map(chosen), [1, 0, 0, 0], "it has nothing to do");
        let beside = |count: u32| {
            let jobs: [_; 8] = core::array::from_fn(|n| (n as u32 + 10, usize::from(n > 0)));
            loads(&[1, 1], &jobs[..count as usize]).choose(99, 0, |_| true).0
        };
        assert_eq!([1, 2, 3, 4].map(beside), [1, 1, 1, 0]);
    }

    #[test]
    fn the_dead_are_not_counted_and_their_slots_are_free() {
        let loads = loads(&[1, 1], &[(5, 0), (6, 0), (7, 1)]);
        assert_eq!(loads.choose(99, 0, |pid| pid == 6), (1, Some(0)));
        assert_eq!(loads.choose(5, 0, |_| true).1, Some(0), "it is not there beside itself");
        assert_eq!(loads.choose(99, 0, |_| true), (1, Some(3)));
        assert_eq!(loads.choose(99, 2, |_| true), (0, Some(3)), "a host has refused");
        let full: [_; JOBS] = core::array::from_fn(|slot| (slot as u32 + 1, slot % 2));
        assert_eq!(self::loads(&[1, 1], &full).choose(999, 0, |_| true).1, None);
    }

    #[test]
    fn noise_is_some_host_and_no_more() {
        let mut loads = Loads::empty();
        loads.bytes.fill(0xff);
        assert!(loads.choose(1, 0, |_| true).0 < HOSTS);
        assert_eq!(loads.choose(1, !0, |_| true).0, 0);
    }
}
