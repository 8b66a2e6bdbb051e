//! What is asked again: changes are there already, and are answered as they were.

use husk_abi::Errno;
use husk_wire::Failure;
use husk_wire::record::{Object, Sort};

use super::{Facts, Hold, Tree, Who, errno};
use crate::sim::asks::{AT_END, Ask, Heard, TRUNCATE};

/// What a change came to, when it was made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Made {
    /// All of it, of this object if it is one.
    Whole(Option<Object>),
    /// Bytes from here on, and how many so far.
    Bytes(u64, u64),
}

impl Tree {
    /// Whether a request changes something, by which it leaves a record, if it does not fail.
    pub fn is_change(&self, ask: &Ask) -> bool {
        match ask {
            Ask::Write(_, _, bytes) => !bytes.is_empty(),
            Ask::Open(_, flags) => flags & TRUNCATE != 0,
            // Two names of one file stay as they are.
            Ask::Rename(dir, name, to, new, _) => {
                self.find(*dir, *name).ok() != self.find(*to, *new).ok()
            }
            Ask::GetExtended(..) => false,
            _ => ask.retry().is_once(),
        }
    }

    /// What a change came to that was answered so.
    pub fn made(ask: &Ask, outcome: &Heard) -> Made {
        match (ask, outcome) {
            (Ask::Write(..), Heard::Written(_, offset, count)) => Made::Bytes(*offset, *count),
            (_, Heard::Facts(facts, ..)) => Made::Whole(Some(facts.object)),
            _ => Made::Whole(None),
        }
    }

    /// The holds of an earlier try of a request that is asked again: nobody has heard of them.
    pub(super) fn first_try(&self, who: Who) -> Vec<u64> {
        let is_its = |hold: &Hold| {
            let of = (hold.node, hold.epoch, hold.request);
            who.again && of == (who.node, who.epoch, who.request)
        };
        self.holds.iter().filter(|(_, hold)| is_its(hold)).map(|(number, _)| *number).collect()
    }

    /// They are closed.
    pub(super) fn close_first_try(&mut self, who: Who) {
        self.first_try(who).into_iter().for_each(|number| self.close(who.node, number));
    }

    fn facts_since(&self, object: Object) -> Facts {
        match self.there(object) {
            Ok(_) => self.facts(object),
            Err(_) => Facts { object, sort: Sort::File, mode: 0, links: 0, size: 0 },
        }
    }

    /// What the home must answer to what is there already, where it has answered `said`; what is
    /// missing of a write is done.
    pub fn apply_again(
        &mut self,
        who: Who,
        ask: &Ask,
        made: &mut Made,
        said: &Result<Heard, Failure>,
    ) -> Result<Heard, Failure> {
        if self.is_fenced(who.node, who.epoch) {
            return Err(Failure::Fenced);
        }
        let number = match said {
            Ok(Heard::Facts(_, _, number)) => *number,
            _ => None,
        };
        match (ask, *made) {
            (Ask::Create(_, _, _, Some(_)) | Ask::Open(..), Made::Whole(Some(object))) => {
                if self.there(object).is_err() {
                    self.close_first_try(who);
                    return errno(Errno::EIO);
                }
                let held = self.hold(who, object, number);
                Ok(Heard::Facts(self.facts(object), None, held))
            }
            (Ask::Write(object, at, bytes), Made::Bytes(offset, count)) => {
                let (rest, end) = (&bytes[count as usize..], offset + count);
                let is_last =
                    self.there(*object).is_ok_and(|thing| thing.bytes.len() as u64 == end);
                let mut count = count;
                if !rest.is_empty() && (*at != AT_END || is_last) {
                    let rest = Ask::Write(*object, end, rest.to_vec());
                    if let Ok(Heard::Written(_, _, more)) = self.bytes(&rest) {
                        count += more;
                    }
                }
                *made = Made::Bytes(offset, count);
                Ok(Heard::Written(self.facts_since(*object), offset, count))
            }
            (_, Made::Whole(Some(object))) => {
                Ok(Heard::Facts(self.facts_since(object), None, None))
            }
            _ => Ok(Heard::Nothing),
        }
    }
}
