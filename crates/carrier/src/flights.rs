//! `Flights`, by calling the handlers.

use husk_kernel::descriptor::flight;
use husk_proto::flight::{Flight, Flights};
use husk_proto::{Files, Operation, Result};

use crate::Direct;

impl Flights for Direct {
    fn fly(&mut self, files: Files, fd: u32, flight: Flight) -> Result<()> {
        self.kernel.count(Operation::Message);
        flight::fly(&self.kernel, files, fd, flight)
    }
    fn land(
        &mut self,
        files: Files,
        flight: Flight,
        limit: u32,
        close_on_exec: bool,
    ) -> Result<u32> {
        self.kernel.count(Operation::Message);
        flight::land(&self.kernel, files, flight, limit, close_on_exec)
    }
    fn flight(&self, index: u32) -> Option<Option<Flight>> {
        flight::at(&self.kernel.session.region, index)
    }
    fn end_flight(&mut self, flight: Flight) -> Result<()> {
        flight::end(&self.kernel, flight)
    }
}
