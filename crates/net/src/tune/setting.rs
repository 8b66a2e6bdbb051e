//! The settings of `tune`, and how their values are written.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// A group of settings, by the word that selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The parts of a UDP packet by which the device chooses a receive queue.
    RxFlowHash,
    /// Which core takes the interrupts of a queue.
    Irq,
    /// Which cores process the packets of a receive queue.
    Rps,
    /// Which cores send on a transmit queue.
    Xps,
    /// Whether packets of one flow are merged.
    Gro,
    /// How long a receiver polls its queue before it sleeps.
    BusyPoll,
}

/// All of them, in the order in which they are set.
pub const KINDS: &[Kind] =
    &[Kind::RxFlowHash, Kind::Irq, Kind::Rps, Kind::Xps, Kind::Gro, Kind::BusyPoll];

/// UDP over either version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// Over IPv4.
    Udp4,
    /// Over IPv6.
    Udp6,
}

/// One thing that has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// Parts of packets, as a number of `RXH_*` bits.
    RxFlowHash(Flow),
    /// Cores of an interrupt.
    Irq(u32),
    /// Cores of a receive queue.
    Rps(u32),
    /// Cores of a transmit queue.
    Xps(u32),
    /// 0 or 1.
    Gro,
    /// Microseconds, of reads; for sockets that are made later.
    BusyRead,
    /// Microseconds, of `poll` and `select`.
    BusyPoll,
}

impl Setting {
    /// The word that selects it.
    pub fn kind(self) -> Kind {
        match self {
            Setting::RxFlowHash(_) => Kind::RxFlowHash,
            Setting::Irq(_) => Kind::Irq,
            Setting::Rps(_) => Kind::Rps,
            Setting::Xps(_) => Kind::Xps,
            Setting::Gro => Kind::Gro,
            Setting::BusyRead | Setting::BusyPoll => Kind::BusyPoll,
        }
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Setting::RxFlowHash(Flow::Udp4) => "rx-flow-hash udp4".to_owned(),
            Setting::RxFlowHash(Flow::Udp6) => "rx-flow-hash udp6".to_owned(),
            Setting::Irq(number) => format!("irq {number} cores"),
            Setting::Rps(queue) => format!("rps of rx-{queue}"),
            Setting::Xps(queue) => format!("xps of tx-{queue}"),
            Setting::Gro => "gro".to_owned(),
            Setting::BusyRead => "net.core.busy_read".to_owned(),
            Setting::BusyPoll => "net.core.busy_poll".to_owned(),
        };
        f.pad(&text)
    }
}

/// Cores as Linux writes them: groups of eight hexadecimal digits, the highest cores first.
pub fn mask(cores: &[usize]) -> String {
    let digits = cores.iter().max().map_or(1, |core| core / 4 + 1);
    let digit = |at: usize| {
        let bits = cores.iter().filter(|&&core| core / 4 == at).map(|core| 1 << (core % 4));
        char::from_digit(bits.fold(0, |all, bit| all | bit), 16).unwrap_or('0')
    };
    let mut text = String::new();
    for at in (0..digits).rev() {
        text.push(digit(at));
        if at > 0 && at % 8 == 0 {
            text.push(',');
        }
    }
    text
}

/// Whether two values say the same: Linux writes masks and numbers with or without zeros in front.
pub fn same(one: &str, other: &str) -> bool {
    let plain = |value: &str| {
        let value: String = value.trim().chars().filter(|&c| c != ',').collect();
        value.trim_start_matches('0').to_ascii_lowercase()
    };
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_in_groups_of_32_cores() {
        assert_eq!((mask(&[]), mask(&[0, 1]), mask(&[3])), ("0".into(), "3".into(), "8".into()));
        assert_eq!(mask(&[0, 31]), "80000001");
        assert_eq!(mask(&[1, 32]), "1,00000002");
        assert_eq!(mask(&[64]), "1,00000000,00000000");
    }

    #[test]
    fn values_are_compared_by_what_they_say() {
        for same_text in ["3", "00000003", "00000000,00000003\n", " 3"] {
            assert!(same("3", same_text), "{same_text}");
        }
        assert!(same("0", "00000000,00000000"));
        assert!(!same("3", "30") && !same("1,00000000", "1"));
    }
}
