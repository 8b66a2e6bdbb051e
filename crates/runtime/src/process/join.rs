//! A process of the image begins: it joins at its first instruction, or was made by another one.

use crate::facts;
use crate::memory::{guard, region};
use crate::process::placement::{self, Who};
use crate::stubs::table;
use crate::thread::client::{Embryo, ThreadClient, Unborn};
use husk_abi::Errno;
use husk_client::bells;
use husk_host::calls;
use husk_proto::Shortcuts as _;
use husk_proto::process::{Process, Processes};
use husk_runtime::handover;

impl ThreadClient {
    /// Joins the image as the process the hand-over names.
    pub fn start(&mut self) -> Result<(), Errno> {
        let handover = &facts::facts().handover;
        if !facts::has_region() {
            return Ok(());
        }
        region::join()?;
        self.process = handover.process;
        self.pid = calls::getpid();
        let _open = guard::open();
        let pid = self.pid;
        let served = self.attach(pid)?;
        served.services().set_alone(true);
        if region::made_table() {
            served.services().set_gate(table::identity());
        }
        if handover.flags & handover::INITIAL == 0 {
            placement::at_exec(served.services(), Who { process: handover.process, pid });
            served.services().finish_exec()?;
        } else {
            // Who has started it may die before it notes whom.
            served.services().enter_child(Process(handover.process), pid);
            if served.services().files().0 == 0 {
                // It took longer to come than anybody waits for it.
                return Err(Errno::ESRCH);
            }
            served.meet_inherited();
        }
        bells::begin(served.services().files());
        Ok(())
    }
    /// In a child process.
    pub fn enter_child(&mut self, embryo: Embryo, shares_memory: bool) {
        let Some(Unborn { process, parent }) = embryo else { return };
        let _open = guard::open();
        let pid = calls::getpid();
        self.pid = pid;
        let Some(served) = self.served() else { return };
        let child = Who { process: process.0, pid };
        placement::at_fork(served.services(), parent, child, shares_memory);
        served.services().enter_child(process, pid);
        served.services().set_alone(!shares_memory);
        if shares_memory {
            served.services().set_newborn();
        } else {
            bells::begin(served.services().files());
        }
        self.process = process.0;
    }

    /// The first program of an image, or one that joins it, is about to begin.
    pub fn place_first(&mut self) {
        let _open = guard::open();
        let who = Who { process: self.process, pid: self.pid };
        if let Some(served) = self.served() {
            let services = served.services();
            placement::at_exec(services, who);
            if services.placement(who.process, who.pid).is_some() {
                // It takes a seat of its kernel with its next change.
                services.detach();
            }
        }
    }
}
