//! The structure checker (`fsck`): everything counted twice, from the objects and from who names
//! them.
//!
//! No operation may run: the image is quiet, or its transactions are held up (`check_live`).
//! Nothing is changed. It needs one `u32` of scratch memory for each object and block that was ever
//! used, and four more for each inode (`scratch_words`).
//!
//! 1. Each object is free once, or used once; each block too.
//! 2. Links, opens, pins, references, sharers, entries and subdirectories equal what is found.
//! 3. Each entry is in its bucket's chain and in one of its directory's arrays, and nothing else
//!    is; all records of a directory together count what is there.
//! 4. Nobody holds a lock word; journals are empty. Of a live image: locks that outlive
//!    transactions may be held, and what is freed step by step may be half-way.

use husk_proto::Files;
use husk_region::rings::epoll::SETS_MAX;
use husk_region::rings::pipes::PIPES_MAX;
use husk_region::{CLASSES, Cell, INODE, LINE, NODE, RECORD, Region, is_locked};

use crate::Kernel;
use crate::descriptor::{flight, leases, open};
use crate::fs::directory::entries::{self, slot_hole, slot_line};
use crate::fs::directory::share;
use crate::fs::extended;
use crate::image::{
    EVENTS_MAX, LANES_AWAITING, RENAME_LOCK, WATCH_COUNT, WATCH_INSTANCES, mount, mounts,
};
use crate::pipe::lanes;
use crate::process::{Holding, context_facts, each_held};
use crate::readiness::{epoll, eventfd};
use crate::state::fd_table;
use crate::state::name;
use crate::state::process::PROCESS_LOCK;
use crate::state::{ent, high, ino, kind_bits, low, tag};
use crate::state::{text, tree};
use crate::watch::INSTANCES_MAX;
use crate::{lock, pipe, watch};

/// One thing that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Of which object (inode, line, block, ...).
    pub object: u32,
    /// What was found.
    pub found: u64,
    /// What there should be.
    pub expected: u64,
}

/// `u32`s that `check` needs.
pub fn scratch_words(kernel: &Kernel) -> usize {
    let session = &kernel.session;
    let objects: usize = (0..CLASSES).map(|class| session.never_used(class) as usize).sum();
    let inodes = 4 * session.never_used(INODE) as usize;
    objects
        + inodes
        + PIPES_MAX as usize
        + INSTANCES_MAX as usize
        + SETS_MAX as usize
        + EVENTS_MAX as usize
        + session.region.block_count() as usize
}

/// Checks a quiet image; how many findings were reported. `scratch` holds `scratch_words` zeros.
pub fn check(kernel: &Kernel, scratch: &mut [u32], report: &mut dyn FnMut(Finding)) -> u32 {
    look(kernel, false, scratch, report)
}

/// Whether the numbers of objects can be true: of a damaged image nothing else is worth a look.
pub fn makes_sense(kernel: &Kernel) -> bool {
    let session = &kernel.session;
    let classes = session.region.map.classes;
    (0..CLASSES).all(|class| session.never_used(class) <= classes[class].count)
}

/// Checks an image whose programs run; the caller has held its transactions up
/// (`Session::freeze`). `report` must not sleep.
pub fn check_live(kernel: &Kernel, scratch: &mut [u32], report: &mut dyn FnMut(Finding)) -> u32 {
    look(kernel, true, scratch, report)
}

fn look(kernel: &Kernel, live: bool, scratch: &mut [u32], report: &mut dyn FnMut(Finding)) -> u32 {
    let inodes = kernel.session.never_used(INODE) as usize;
    let (uses, scratch) = scratch.split_at_mut(inodes);
    let (links, scratch) = scratch.split_at_mut(inodes);
    let (opens, scratch) = scratch.split_at_mut(inodes);
    let (writers, scratch) = scratch.split_at_mut(inodes);
    let (pins, scratch) = scratch.split_at_mut(inodes);
    let (lines, scratch) = scratch.split_at_mut(kernel.session.never_used(LINE) as usize);
    let (nodes, scratch) = scratch.split_at_mut(kernel.session.never_used(NODE) as usize);
    let (pipes, scratch) = scratch.split_at_mut(PIPES_MAX as usize);
    let (watchers, scratch) = scratch.split_at_mut(INSTANCES_MAX as usize);
    let (sets, scratch) = scratch.split_at_mut(SETS_MAX as usize);
    let (events, scratch) = scratch.split_at_mut(EVENTS_MAX as usize);
    let (records, blocks) = scratch.split_at_mut(kernel.session.never_used(RECORD) as usize);
    let region = &kernel.session.region;
    let mut checker = Checker {
        kernel,
        live,
        region,
        used: [uses, lines, nodes, records],
        links,
        opens,
        writers,
        pins,
        pipes,
        watchers,
        sets,
        events,
        blocks,
        entries: 0,
        report,
        count: 0,
    };
    checker.everything();
    checker.count
}

/// Mark of a free object.
const FREE: u32 = 1 << 31;

/// What the arrays of a directory hold.
#[derive(Default)]
struct Contents {
    entries: u64,
    subdirectories: u64,
    holes: u64,
}

struct Checker<'a> {
    kernel: &'a Kernel,
    live: bool,
    region: &'a Region,
    used: [&'a mut [u32]; CLASSES],
    links: &'a mut [u32],
    opens: &'a mut [u32],
    writers: &'a mut [u32],
    pins: &'a mut [u32],
    pipes: &'a mut [u32],
    watchers: &'a mut [u32],
    sets: &'a mut [u32],
    events: &'a mut [u32],
    blocks: &'a mut [u32],
    entries: u64,
    report: &'a mut dyn FnMut(Finding),
    count: u32,
}

impl Checker<'_> {
    fn find(&mut self, what: &'static str, object: u32, found: u64, expected: u64) {
        self.count += 1;
        (self.report)(Finding { what, object, found, expected });
    }

    fn equal(&mut self, what: &'static str, object: u32, found: u64, expected: u64) {
        if found != expected {
            self.find(what, object, found, expected);
        }
    }

    fn rest(&mut self, what: &'static str, object: u32, cell: Cell) {
        let word = self.region.load(cell);
        if is_locked(word) {
            self.find(what, object, word, 0);
        }
    }

    /// A lock that may outlive a transaction.
    fn rest_long(&mut self, what: &'static str, object: u32, cell: Cell) {
        if !self.live {
            self.rest(what, object, cell);
        }
    }

    /// Counts a use of an object.
    fn name(&mut self, class: usize, number: u32) {
        match self.used[class].get_mut(number as usize) {
            Some(uses) if number != 0 => *uses += 1,
            _ => self.find("object that never was is named", number, class as u64, 0),
        }
    }

    fn everything(&mut self) {
        self.free_objects();
        self.slots();
        self.holdings();
        let region = self.region;
        flight::each(region, &mut |description| self.name(RECORD, description));
        leases::each(region, &mut |description| self.lease(description));
        self.holds();
        for number in 1..self.used[INODE].len() as u32 {
            if self.used[INODE][number as usize] & FREE == 0 {
                self.inode(number);
            }
        }
        for number in 1..self.used[RECORD].len() as u32 {
            self.description(number);
        }
        for index in 0..mounts(self.kernel) {
            let root = mount(self.kernel, index).root.number;
            self.name(INODE, root);
        }
        self.chains();
        self.watches();
        self.inode_counts();
        self.leaks();
        self.all_blocks();
        self.pipes();
        self.sets();
        self.events();
    }

    /// What is open for other nodes.
    fn holds(&mut self) {
        #[cfg(feature = "answers")]
        for number in 1..self.used[RECORD].len() as u32 {
            let held = crate::descriptor::open::held_by_record(self.kernel, number);
            if let Some(description) =
                held.filter(|_| self.used[RECORD][number as usize] & FREE == 0)
            {
                self.name(RECORD, number);
                self.name(RECORD, description);
            }
        }
    }

    fn slots(&mut self) {
        for id in 1..=self.kernel.session.slots_high() {
            if let Some(length) = self.kernel.session.open_journal(id) {
                self.find("journal is not empty", id, length, 0);
            }
            let view = self.kernel.session.view(id);
            if high(view.pending) != 0 && self.live {
                // An instance of inotify whose watches are removed one by one.
            } else if view.pending != 0 && self.live {
                self.name(INODE, low(view.pending));
            } else if view.pending != 0 {
                self.find("work left over", id, view.pending, 0);
            }
        }
        for (what, word) in [("rename lock held", RENAME_LOCK), ("process lock held", PROCESS_LOCK)]
        {
            self.rest(what, word, self.region.map.fixed(word));
        }
        #[cfg(feature = "answers")]
        for (number, lock) in (0..).zip(crate::image::answers::locks(self.region)) {
            self.rest("reply cache locked", number, lock);
        }
        for index in 0..=self.region.map.partition_mask {
            self.rest("token held", index, self.region.map.partition(index));
        }
    }

    fn free_objects(&mut self) {
        let session = &self.kernel.session;
        for class in 0..CLASSES {
            let mut twice = 0;
            let used = &mut self.used[class];
            session.each_free(class, &mut |number| match used.get_mut(number as usize) {
                Some(mark) if *mark == 0 && number != 0 => *mark = FREE,
                _ => twice = number.max(1),
            });
            if twice != 0 {
                self.find("object is free twice", twice, class as u64, 0);
            }
        }
    }

    /// What process records name: tables and their entries, contexts, pins.
    fn holdings(&mut self) {
        let region = self.region;
        each_held(region, &mut |holding| match holding {
            Holding::Table(0) | Holding::Context(0) => {}
            Holding::Table(files) => self.table(files),
            Holding::Context(context) => {
                self.name(RECORD, context);
                let (_, dir) = context_facts(region, context);
                let first = self.used[RECORD].get(context as usize) == Some(&1);
                if let Some(dir) = dir.filter(|_| first) {
                    self.open_of(dir.number);
                }
            }
            Holding::Program(0) => {}
            Holding::Program(inode) => {
                self.written_by(inode, -1);
                if let Some(pins) = self.pins.get_mut(inode as usize) {
                    *pins += 1;
                }
            }
            Holding::Pin { line, inode, writes } => {
                self.name(LINE, line);
                self.written_by(inode, i32::from(writes));
                if let Some(pins) = self.pins.get_mut(inode as usize) {
                    *pins += 1;
                }
            }
        });
    }

    /// Counts a writer of an inode, or with -1 a process that runs it.
    fn written_by(&mut self, inode: u32, by: i32) {
        if let Some(writers) = self.writers.get_mut(inode as usize) {
            *writers = writers.wrapping_add_signed(by);
        }
    }

    fn open_of(&mut self, inode: u32) {
        if let Some(opens) = self.opens.get_mut(inode as usize) {
            *opens += 1;
        }
    }

    fn table(&mut self, files: u32) {
        self.name(RECORD, files);
        if self.used[RECORD].get(files as usize) != Some(&1) {
            return;
        }
        let cell = fd_table::cell(self.region, Files(files));
        self.rest("table is locked", files, cell);
        let root = self.region.load(cell.word(fd_table::ROOT));
        let first = self.region.load(cell.word(fd_table::FIRST));
        self.equal(
            "first leaf of a table",
            files,
            first,
            fd_table::first_of_root(self.region, root).into(),
        );
        let region = self.region;
        tree::each_node(region, root, &mut |node| self.name(NODE, node));
        let mut from = 0;
        while let Some((fd, entry)) = fd_table::next_used(region, Files(files), from) {
            if let Some(description) = fd_table::description_of(entry) {
                self.name(RECORD, description);
                let hosted = fd_table::is_husk(entry) && open::is_hosted(region, description);
                self.equal("offset of a descriptor is the host's", fd, hosted.into(), 0);
            } else if let Some(end) = pipe::end_of(entry) {
                self.pipes[pipe::NAMES.number(end.pipe.0) as usize] += 1;
            } else if let Some(set) = epoll::set_of(entry) {
                self.sets[epoll::NAMES.number(set.0) as usize] += 1;
            } else if let Some(event) = eventfd::event_of(entry) {
                self.events[eventfd::NAMES.number(event.0) as usize] += 1;
            } else if let Some(instance) = watch::instance_of(entry) {
                self.watchers[watch::number(instance) as usize] += 1;
            } else if high(entry) != 0 {
                self.open_of(high(entry));
            }
            from = fd + 1;
        }
    }

    /// References of the pipes, once all tables are counted.
    fn pipes(&mut self) {
        let mut waiting = 0;
        for number in 0..PIPES_MAX {
            if pipe::NAMES.references(self.region, number).is_none() {
                break;
            }
            if let Some(awaited) = lanes::awaited_by(self.region, number) {
                self.pipes[awaited as usize] += 1;
                waiting += 1;
            }
        }
        let counted = self.region.load(self.region.map.fixed(LANES_AWAITING));
        self.equal("lanes that await a reader", 0, counted, waiting);
        for number in 0..PIPES_MAX {
            let Some(references) = pipe::NAMES.references(self.region, number) else { return };
            let uses = self.pipes[number as usize];
            self.equal("references of a pipe", number, references as u64, uses as u64);
        }
    }

    /// References of the epoll sets, once all tables are counted.
    fn sets(&mut self) {
        for number in 0..SETS_MAX {
            let Some(references) = epoll::NAMES.references(self.region, number) else { return };
            let uses = self.sets[number as usize];
            self.equal("references of an epoll set", number, references as u64, uses as u64);
        }
    }

    /// References of the eventfds, once all tables are counted.
    fn events(&mut self) {
        for number in 0..EVENTS_MAX {
            let Some(references) = eventfd::NAMES.references(self.region, number) else { return };
            let uses = self.events[number as usize];
            self.equal("references of an eventfd", number, references as u64, uses as u64);
        }
    }

    /// Instances of inotify, their watches and queues, once all tables are counted.
    fn watches(&mut self) {
        let region = self.region;
        let (mut watches, mut instances) = (0, 0);
        for number in 0..INSTANCES_MAX {
            let Some(view) = watch::view(region, number) else { break };
            let [all, readers] = watch::locks(region, number);
            self.rest("lock of the watches is held", number, all);
            self.rest_long("lock of an instance's readers is held", number, readers);
            let names = self.watchers[number as usize];
            self.equal("names of an instance", number, view.uses as u64, names as u64);
            instances += view.phase as u64;
            if view.uses == 0 && view.phase != 0 && !self.live {
                self.find("instance without a name", number, 1, 0);
            }
            let empty = watch::queue::is_empty(region, number, view.cell);
            if view.uses != 0 && empty != Ok(view.idle) {
                self.find("queue of an instance", number, view.idle as u64, 0);
            }
            watches += self.watches_of(number, watch::trees(region, view.cell));
        }
        let counted = |index| region.load(region.map.fixed(index));
        self.equal("instances", 0, counted(WATCH_INSTANCES), instances);
        self.equal("watches", 0, counted(WATCH_COUNT), watches);
        self.equal("watches in chains", 0, watch::list::count(region), watches);
    }

    /// How many watches an instance has; both its trees are right.
    fn watches_of(&mut self, number: u32, [watches, hosts]: [u64; 2]) -> u64 {
        let region = self.region;
        for root in [watches, hosts] {
            tree::each_node(region, root, &mut |node| self.name(NODE, node));
        }
        let (mut count, mut of_host) = (0, 0);
        watch::each_word(region, watches, &mut |wd, value| match watch::list::seen(
            region, number, wd, value,
        ) {
            watch::list::Seen::Host(host) => {
                let back = tree::get(region, hosts, host as u64);
                self.equal("descriptor of a watch of the host", host, back, wd);
                of_host += 1;
            }
            watch::list::Seen::Watch(line, right) => {
                self.name(LINE, line);
                self.equal("watch in its chain", line, right as u64, 1);
                count += 1;
            }
        });
        let mut back = 0;
        watch::each_word(region, hosts, &mut |_, _| back += 1);
        self.equal("watches of the host", number, back, of_host);
        count
    }

    /// Counts and target of a record, once all who name it are counted.
    fn description(&mut self, number: u32) {
        let uses = self.used[RECORD][number as usize];
        if uses & FREE != 0 || uses == 0 {
            return;
        }
        let cell = self.region.map.object(RECORD, number);
        self.rest_long("record is locked", number, cell);
        match low(self.region.load(cell.word(1))) {
            tag::DESCRIPTION | tag::LEASE => {
                let references = open::references(self.region, number);
                self.equal("references of a description", number, references, uses as u64);
                self.open_of(open::inode_number(self.region, number));
                if let Some(inode) = open::written(self.region, number) {
                    self.written_by(inode, 1);
                }
            }
            tag::FILES => {
                let sharers = self.region.load(cell.word(fd_table::SHARERS));
                self.equal("sharers of a table", number, sharers, uses as u64);
            }
            tag::CONTEXT => {
                let (references, _) = context_facts(self.region, number);
                self.equal("references of a context", number, references, uses as u64);
            }
            #[cfg(feature = "answers")]
            tag::HOLD => self.equal("names of a hold", number, uses as u64, 1),
            other => self.find("record of no kind", number, other as u64, 0),
        }
        self.used[RECORD][number as usize] = 1;
    }

    /// A description that a lease names is no number's.
    fn lease(&mut self, number: u32) {
        self.name(RECORD, number);
        if let Some(1) = self.used[RECORD].get(number as usize) {
            let found = low(self.region.load(open::cell(self.region, number).word(open::TAG)));
            self.equal("tag of a lease", number, found.into(), tag::LEASE.into());
        }
    }

    fn inode(&mut self, number: u32) {
        let cell = self.region.map.object(INODE, number);
        self.rest("inode is locked", number, cell);
        self.rest_long("inode's writer lock is held", number, cell.word(ino::WRITER));
        let region = self.region;
        lock::each_line(region, cell, &mut |line| self.name(LINE, line));
        extended::each_part(
            region,
            cell,
            &mut |class, part| match self.links.get_mut(part as usize) {
                Some(links) if class == INODE => *links += 1,
                _ => self.name(class, part),
            },
        );
        let root = region.load(cell.word(ino::ROOT));
        match kind_bits(region.load(cell.word(ino::IDENT))) {
            ino::FILE => self.file(number, cell, root),
            ino::DIRECTORY => self.directory(number, cell),
            ino::SYMLINK | ino::SOCKET => {
                let region = self.region;
                text::each_part(region, low(root), &mut |class, part| self.name(class, part));
            }
            ino::PORTAL | ino::FIFO => {}
            ino::CHARACTER_DEVICE | ino::BLOCK_DEVICE => {}
            other => self.find("inode of no kind", number, other as u64, 0),
        }
    }

    fn file(&mut self, number: u32, cell: Cell, root: u64) {
        let region = self.region;
        tree::each_node(region, root, &mut |node| self.name(NODE, node));
        let (mut from, mut held) = (0, 0);
        while let Some((node, base)) = tree::next_leaf(region, root, from) {
            for way in 0..tree::WAYS as u64 {
                let word = region.load(tree::entry(region, node, way, 0));
                for block in [low(word), high(word)] {
                    if block != 0 {
                        held += 1;
                        self.block(block);
                    }
                }
            }
            from = base + 64;
        }
        if low(region.load(cell.word(ino::IDENT))) & ino::HOST != 0 {
            // Its count is the host's.
            return self.equal("blocks of a file of the host", number, 0, held);
        }
        self.equal("blocks of a file", number, region.load(cell.word(ino::BLOCKS)), held);
    }

    fn block(&mut self, block: u32) {
        match self.blocks.get_mut(block as usize) {
            Some(uses) => *uses += 1,
            None => self.find("block out of range", block, 0, 0),
        }
    }

    fn directory(&mut self, number: u32, cell: Cell) {
        let region = self.region;
        let share = region.load(cell.word(ino::SHARE));
        self.parts(number, share);
        let mut found = Contents::default();
        for array in 0..=share::PARTS_MAX {
            if let Some((root, array)) = share::array(region, cell, array) {
                self.array(number, root, low(array), &mut found);
            }
        }
        let mut listed = 0;
        for array in 0..=share::PARTS_MAX {
            if let Some((_, array)) = share::array(region, cell, array) {
                listed += self.hole_list(number, high(array), found.holes);
            }
        }
        self.equal("holes of a directory", number, listed, found.holes);
        let totals = share::totals(region, cell);
        self.equal("entries of a directory", number, totals.entries, found.entries);
        let subdirectories = totals.subdirectories as u64;
        self.equal("subdirectories", number, subdirectories, found.subdirectories);
    }

    /// Table and parts: a joined bit for each part, and a part for each bit.
    fn parts(&mut self, number: u32, share: u64) {
        if high(share) == 0 {
            self.equal("wide directory without parts", number, share::is_wide(share) as u64, 0);
            return;
        }
        let region = self.region;
        self.name(NODE, high(share));
        let bits = region.load(share::joined(region, share));
        for k in 0..share::PARTS_MAX {
            let line = low(region.load(share::place(region, share, k)));
            self.equal("joined bit of a part", number, bits >> k & 1, (line != 0) as u64);
            if line != 0 {
                self.name(LINE, line);
                let head = low(region.load(region.map.object(LINE, line)));
                self.equal("tag of a part", line, (head & 0xff) as u64, tag::PART as u64);
            }
        }
    }

    fn array(&mut self, number: u32, root: u64, length: u32, found: &mut Contents) {
        let region = self.region;
        tree::each_node(region, root, &mut |node| self.name(NODE, node));
        for index in 0..length {
            let slot = tree::get(region, root, index as u64);
            found.holes += slot_hole(slot).is_some() as u64;
            let Some(line) = slot_line(slot) else { continue };
            let (entry, subdirectory) = self.entry(number, slot, line);
            found.entries += entry as u64;
            found.subdirectories += subdirectory as u64;
        }
    }

    /// Holes in one record's list, of at most `most` in all.
    fn hole_list(&mut self, number: u32, mut hole: u32, most: u64) -> u64 {
        let mut length = 0;
        while hole != 0 && length <= most {
            let next = slot_hole(self.region.load(entries::slot(self.region, hole)));
            if next.is_none() {
                self.find("hole list leads to no hole", number, hole as u64, 0);
            }
            length += 1;
            hole = next.unwrap_or(0);
        }
        length
    }

    /// Whether a line is an entry (no whiteout), and one of a directory.
    fn entry(&mut self, dir: u32, slot: u64, line: u32) -> (bool, bool) {
        let region = self.region;
        self.name(LINE, line);
        self.entries += 1;
        let cell = region.map.object(LINE, line);
        let (head, link) = (low(region.load(cell)), region.load(cell.word(ent::LINK)));
        let place = region.load(cell.word(ent::PLACE));
        self.equal("directory of an entry", line, high(link) as u64, dir as u64);
        let found = region.load(entries::slot(region, high(place)));
        self.equal("slot of an entry", line, found, slot);
        self.equal("tag of an entry", line, (head & 0xff) as u64, tag::ENTRY as u64);
        text::each_part(region, low(place), &mut |class, part| self.name(class, part));
        if head & ent::WHITEOUT != 0 {
            return (false, false);
        }
        let target = low(link);
        let inode = region.map.object(INODE, target);
        let kind = kind_bits(region.load(inode.word(ino::IDENT)));
        self.equal("kind of an entry", line, (head >> 16 & 0xff) as u64, kind as u64);
        if let Some(links) = self.links.get_mut(target as usize) {
            *links += 1;
        }
        let mut name = [0; 255];
        let length = name::copy_name(region, cell, &mut name);
        let found = entries::Key::new(dir, &name[..length])
            .ok()
            .and_then(|key| entries::find(region, &key));
        self.equal("entry in its bucket", line, found.unwrap_or(0) as u64, line as u64);
        let directory = kind == ino::DIRECTORY;
        if directory {
            let parent = region.load(inode.word(ino::PARENT));
            self.equal("parent of a directory", target, high(parent) as u64, dir as u64);
            self.equal("name of a directory", target, low(parent) as u64, line as u64);
        }
        (true, directory)
    }

    /// Nothing but the entries of directories, and what leads to shared inodes, is in the chains.
    fn chains(&mut self) {
        let mut chained = 0;
        for bucket in 0..=self.region.map.bucket_mask {
            let cell = self.region.map.bucket(bucket);
            self.rest("bucket is locked", bucket, cell);
            let mut line = low(self.region.load(cell.word(1)));
            let mut left = 1 << 20;
            while line != 0 && left > 0 {
                chained += 1;
                left -= 1;
                let cell = self.region.map.object(LINE, line);
                if low(self.region.load(cell)) & 0xff == tag::SHARED {
                    self.name(LINE, line);
                    self.entries += 1;
                }
                line = low(self.region.load(cell.word(ent::NEXT)));
            }
        }
        self.equal("entries in chains", 0, chained, self.entries);
    }

    fn inode_counts(&mut self) {
        for number in 1..self.used[INODE].len() as u32 {
            let n = number as usize;
            if self.used[INODE][n] & FREE != 0 {
                continue;
            }
            let cell = self.region.map.object(INODE, number);
            let users = self.region.load(cell.word(ino::USERS));
            self.equal("opens", number, low(users) as u64, self.opens[n] as u64);
            self.equal("pins", number, high(users) as u64, self.pins[n] as u64);
            let ident = self.region.load(cell.word(ino::IDENT));
            if kind_bits(ident) != ino::DIRECTORY {
                let links = self.region.load(cell.word(ino::LINKS));
                self.equal("links", number, low(links) as u64, self.links[n] as u64);
                // Names of the host that no entry stands for hold it, too (`fs::shared`).
                self.used[INODE][n] += (high(links) != 0) as u32;
                let writers = high(self.region.load(cell.word(ino::KNOWN)));
                self.equal("writers", number, writers as u64, self.writers[n] as u64);
            } else {
                let here = low(ident) & ino::REMOVED == 0;
                let root = self.used[INODE][n];
                let named = self.links[n] + root;
                self.equal("names of a directory", number, named as u64, here as u64);
            }
            let held = self.links[n] + self.opens[n] + self.pins[n] + self.used[INODE][n];
            self.used[INODE][n] = (held != 0) as u32;
        }
    }

    fn leaks(&mut self) {
        for class in 0..CLASSES {
            for number in 1..self.used[class].len() as u32 {
                let uses = self.used[class][number as usize];
                if uses != FREE && uses != 1 {
                    let what = match class {
                        INODE => "inode is leaked or used twice",
                        LINE => "line is leaked or used twice",
                        NODE => "node is leaked or used twice",
                        _ => "record is leaked or used twice",
                    };
                    self.find(what, number, (uses & !FREE) as u64, 1);
                }
            }
        }
    }

    fn all_blocks(&mut self) {
        let session = &self.kernel.session;
        let blocks = &mut *self.blocks;
        session.each_block_aside(&mut |block| {
            if let Some(uses) = blocks.get_mut(block as usize) {
                *uses += 1;
            }
        });
        blocks[0] += 1;
        let mut free = 0;
        for block in 0..self.region.block_count() {
            let taken = session.block_taken(block) as u64;
            let uses = self.blocks[block as usize] as u64;
            self.equal("uses of a block", block, uses, taken);
            free += 1 - taken;
            if (block + 1).is_multiple_of(1024) {
                let chunk = block / 1024;
                self.equal("free blocks of a chunk", chunk, session.chunk_free(chunk), free);
                free = 0;
            }
        }
    }
}
