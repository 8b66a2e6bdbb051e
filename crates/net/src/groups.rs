//! The table of flow groups: the kernel of each, and how many connections have come and gone.
//!
//! Invariants
//! 1. Every group has exactly one kernel.
//! 2. A group has never fewer SYNs than FINs: their difference is its open connections.

/// Flow groups; a power of two.
pub const GROUPS: usize = 4096;
/// Bits of a source port that do not matter.
const PORT_SHIFT: u32 = u16::BITS - GROUPS.trailing_zeros();

/// The flow group of connections from a source port: its upper 12 bits.
pub fn group_of(port: u16) -> usize {
    usize::from(port >> PORT_SHIFT)
}

/// One flow group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Group {
    /// The kernel that accepts its connections.
    pub kernel: usize,
    /// Connections that have come.
    pub syns: u64,
    /// Connections that have ended.
    pub fins: u64,
}

impl Group {
    /// Connections that are open.
    pub fn open(&self) -> u64 {
        self.syns - self.fins
    }
}

/// All flow groups.
#[derive(Debug, Clone)]
pub struct Table {
    groups: Vec<Group>,
}

impl Table {
    /// Neighbouring groups belong to different kernels: a client takes its ports one after the
    /// other. At least one kernel.
    pub fn spread(kernels: usize) -> Table {
        assert!(kernels > 0, "a table needs a kernel");
        Table::of(|group| group % kernels)
    }

    /// All groups belong to one kernel.
    pub fn all_on(kernel: usize) -> Table {
        Table::of(|_| kernel)
    }

    /// Each group belongs to the kernel that `kernel` names.
    pub fn of(kernel: impl Fn(usize) -> usize) -> Table {
        let group = |group| Group { kernel: kernel(group), ..Group::default() };
        Table { groups: (0..GROUPS).map(group).collect() }
    }

    /// One group.
    pub fn group(&self, group: usize) -> &Group {
        &self.groups[group]
    }

    /// All groups, in order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A connection has come.
    pub fn opened(&mut self, group: usize) {
        self.groups[group].syns += 1;
    }

    /// A connection has ended.
    pub fn closed(&mut self, group: usize) {
        let group = &mut self.groups[group];
        group.fins += 1;
        assert!(group.fins <= group.syns, "invariant 2");
    }

    /// So many connections have come, and so many of them are open.
    pub fn count(&mut self, group: usize, syns: u64, open: u64) {
        assert!(open <= syns, "invariant 2");
        let group = &mut self.groups[group];
        (group.syns, group.fins) = (syns, syns - open);
    }

    /// Gives a group to another kernel.
    pub fn assign(&mut self, group: usize, kernel: usize) {
        self.groups[group].kernel = kernel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_neighbouring_ports_are_one_group() {
        assert_eq!((group_of(0), group_of(15), group_of(16)), (0, 0, 1));
        assert_eq!(group_of(u16::MAX), GROUPS - 1);
    }

    #[test]
    fn neighbouring_groups_have_different_kernels() {
        let table = Table::spread(3);
        let kernels: Vec<_> = table.groups()[..5].iter().map(|group| group.kernel).collect();
        assert_eq!(kernels, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn open_connections_are_those_that_came_and_did_not_end() {
        let mut table = Table::all_on(0);
        (0..3).for_each(|_| table.opened(7));
        table.closed(7);
        assert_eq!((table.group(7).open(), table.group(8).open()), (2, 0));
    }
}
