//! Chooses the value of each setting.
//!
//! ```text
//!   flow ──device hashes ports──► queue n ──interrupt──► core n ──► its receiver
//!                                    '── no interrupts: RPS to core n ──┘
//! ```
//!
//! Where there are fewer queues than cores, queue n serves the cores n, n + queues, n + 2 queues,
//! and so on: its interrupt goes to the first, RPS spreads its packets over all.

use super::setting::{Flow, KINDS, Kind, Setting, mask};

/// Source and target address, source and target port: `RXH_IP_SRC`, `_IP_DST`, `_L4_B_0_1`,
/// `_L4_B_2_3`.
const ADDRESSES_AND_PORTS: &str = "0xf0";
/// How long receivers poll, in microseconds (what Linux's documentation recommends).
const BUSY_US: &str = "50";

/// Queues and interrupts of an interface, and the cores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number: another interface of the same name has another one.
    pub index: u32,
    /// Online cores, in order; at least one.
    pub cores: Vec<usize>,
    /// Receive queues.
    pub rx: u32,
    /// Transmit queues.
    pub tx: u32,
    /// Interrupts, each with its queue.
    pub irqs: Vec<(u32, u32)>,
}

/// The settings, in order, and the kinds that the device does not support, with the reason.
pub fn plan(device: &Device) -> (Vec<(Setting, String)>, Vec<(Kind, &'static str)>) {
    let (mut wanted, mut lacks) = (Vec::new(), Vec::new());
    for &kind in KINDS {
        match of_kind(kind, device) {
            Ok(values) => wanted.extend(values),
            Err(why) => lacks.push((kind, why)),
        }
    }
    (wanted, lacks)
}

fn of_kind(kind: Kind, device: &Device) -> Result<Vec<(Setting, String)>, &'static str> {
    let first = |queue: u32| mask(&cores(device, queue, device.rx)[..1]);
    let of_rx = |queue: u32| {
        let all = cores(device, queue, device.rx);
        // A core that takes the interrupt itself needs no help.
        if all.len() == 1 && !device.irqs.is_empty() { "0".to_owned() } else { mask(&all) }
    };
    let of_tx = |queue: u32| mask(&cores(device, queue, device.tx));
    Ok(match kind {
        Kind::RxFlowHash => {
            let value = ADDRESSES_AND_PORTS.to_owned();
            [Flow::Udp4, Flow::Udp6].map(|flow| (Setting::RxFlowHash(flow), value.clone())).into()
        }
        Kind::Irq if device.irqs.is_empty() => return Err("it has no interrupt for each queue"),
        Kind::Irq => {
            device.irqs.iter().map(|&(irq, queue)| (Setting::Irq(irq), first(queue))).collect()
        }
        Kind::Rps => (0..device.rx).map(|queue| (Setting::Rps(queue), of_rx(queue))).collect(),
        Kind::Xps if device.tx < 2 => return Err("it has one transmit queue"),
        Kind::Xps => (0..device.tx).map(|queue| (Setting::Xps(queue), of_tx(queue))).collect(),
        Kind::Gro => vec![(Setting::Gro, "1".to_owned())],
        Kind::BusyPoll => {
            [Setting::BusyRead, Setting::BusyPoll].map(|one| (one, BUSY_US.to_owned())).into()
        }
    })
}

/// The cores that a queue serves; at least one.
fn cores(device: &Device, queue: u32, queues: u32) -> Vec<usize> {
    let (queue, queues) = (queue as usize, (queues as usize).max(1));
    let all = &device.cores;
    if queues >= all.len() {
        return vec![all[queue % all.len()]];
    }
    all.iter().copied().skip(queue % queues).step_by(queues).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(device: &Device, kind: Kind) -> Vec<String> {
        let (wanted, _) = plan(device);
        wanted.into_iter().filter(|(one, _)| one.kind() == kind).map(|(_, value)| value).collect()
    }

    #[test]
    fn queue_n_goes_to_core_n_by_its_interrupt() {
        let irqs = vec![(30, 0), (31, 1)];
        let device = Device { cores: vec![0, 1], rx: 2, tx: 2, irqs, ..Device::default() };
        assert_eq!(values(&device, Kind::Irq), ["1", "2"]);
        assert_eq!(values(&device, Kind::Rps), ["0", "0"], "the interrupt does it");
        assert_eq!(values(&device, Kind::Xps), ["1", "2"]);
        assert!(plan(&device).1.is_empty());
    }

    #[test]
    fn a_device_without_interrupts_has_its_queues_spread_by_rps() {
        let device = Device { cores: vec![0, 1], rx: 2, tx: 2, ..Device::default() };
        assert_eq!(values(&device, Kind::Rps), ["1", "2"]);
        assert_eq!(plan(&device).1, [(Kind::Irq, "it has no interrupt for each queue")]);
    }

    #[test]
    fn one_queue_serves_all_cores_and_has_no_choice_when_it_sends() {
        let irqs = vec![(30, 0)];
        let device = Device { cores: vec![0, 1, 2], rx: 1, tx: 1, irqs, ..Device::default() };
        assert_eq!(
            (values(&device, Kind::Irq), values(&device, Kind::Rps)),
            (vec!["1".to_owned()], vec!["7".to_owned()])
        );
        assert_eq!(plan(&device).1, [(Kind::Xps, "it has one transmit queue")]);
    }

    #[test]
    fn every_online_core_serves_a_queue_and_no_other_does() {
        for (queues, cores) in [(2, vec![0, 1, 2, 3]), (3, vec![0, 2, 5]), (8, vec![1, 3])] {
            let device =
                Device { cores: cores.clone(), rx: queues, tx: queues, ..Device::default() };
            let mut served: Vec<_> =
                (0..queues).flat_map(|queue| super::cores(&device, queue, queues)).collect();
            served.sort_unstable();
            served.dedup();
            assert_eq!(served, cores);
        }
    }
}
