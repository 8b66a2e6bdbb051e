//! Times that a program on another host sets by a clock that is ahead of its home's.
//!
//! Times of files are their home's: it sets them itself where a program writes, or asks for "now".
//! A program that reads its own host's clock and sets that time would make a file from the future.
//! Only such times are moved: later than now at home, and not later than now where it was set.

use husk_carrier::NOW_S;
use husk_wire::messages::{decode, encode};
use husk_wire::record::{Moment, Settings};
use husk_wire::{HEADER_BYTES, Header, Kind, request};

const NS_PER_S: i64 = 1_000_000_000;

/// A time as home has it, set where it is `now_ns` by a clock that is `ahead_ns` ahead.
fn bridged(said: Moment, ahead_ns: i64, now_ns: i64) -> Moment {
    if said.seconds == NOW_S {
        return said;
    }
    let ns = said.seconds.saturating_mul(NS_PER_S).saturating_add(said.nanoseconds.into());
    if ns <= now_ns.saturating_sub(ahead_ns) || ns > now_ns {
        return said;
    }
    let ns = ns.saturating_sub(ahead_ns);
    Moment { seconds: ns.div_euclid(NS_PER_S), nanoseconds: ns.rem_euclid(NS_PER_S) as u32 }
}

/// A request with its times as home has them; `None`: as it is.
pub fn bridge(message: &[u8], ahead_ns: i64, now_ns: i64) -> Option<Vec<u8>> {
    let (header, body) = Header::split(message).ok()?;
    if ahead_ns <= 0 || header.kind != Kind::SetAttributes as u16 {
        return None;
    }
    let asked = decode::<request::SetAttributes<'_>>(&header, body).ok()?;
    let set = asked.settings;
    let right = |time: Option<Moment>| time.map(|time| bridged(time, ahead_ns, now_ns));
    let (accessed, modified) = (right(set.accessed), right(set.modified));
    let settings = Settings { accessed, modified, ..set };
    let mut whole = vec![0; message.len()];
    let (head, room) = whole.split_at_mut(HEADER_BYTES);
    let length = encode(&request::SetAttributes { settings, ..asked }, room).ok()?;
    (length == body.len()).then_some(())?;
    head.copy_from_slice(&header.encode());
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_between_home_s_now_and_the_other_s_are_moved() {
        let moment = |seconds| Moment { seconds, nanoseconds: 5 };
        let (now, ahead) = (10_000 * NS_PER_S, 3_600 * NS_PER_S);
        let seconds = |at| bridged(moment(at), ahead, now).seconds;
        assert_eq!((seconds(9_999), seconds(9_990)), (6_399, 6_390));
        assert_eq!((seconds(6_399), seconds(100), seconds(-7)), (6_399, 100, -7), "past at home");
        assert_eq!(seconds(10_001), 10_001, "the future on both");
        assert_eq!(seconds(NOW_S), NOW_S);
        assert_eq!(bridged(moment(9_999), 0, now), moment(9_999));
        assert_eq!(bridge(b"noise", ahead, now), None);
    }
}
