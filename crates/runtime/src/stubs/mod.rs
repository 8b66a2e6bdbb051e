//! Where a call enters the gate: the addresses of its code, and the tables that lead there.
//!
//! The code is in `crate::gate`, above all that it calls. What is below it knows the gate's code by
//! address alone: a handler looks where it has interrupted it, a filter of calls lets it pass, and
//! the gate table leads to its stubs.

pub(crate) mod arguments;
pub(crate) mod classes;
pub(crate) mod table;

use crate::thread::parts::Launch;

/// The stubs from here on take the number from rax.
pub const NUMBERS: usize = 510;
/// Bytes of a stub.
pub const STUB_BYTES: usize = 16;

/// Whether `address` is one where such a call goes on.
pub fn is_entry(address: usize) -> bool {
    let entries = [husk_enter as *const () as usize, husk_diverted as *const () as usize];
    entries.contains(&address)
}

/// Whether a handler of a signal is due at `address`, and has not begun: number and context are in
/// the registers that the host put them in.
pub fn begins_handler(address: usize) -> bool {
    let wrapper = husk_on_signal as *const () as usize..husk_signal_begun as *const () as usize;
    wrapper.contains(&address) || address == husk_on_fault as *const () as usize
}

#[allow(improper_ctypes)]
unsafe extern "C" {
    /// Stubs that make the call at once.
    pub static husk_passes: u8;
    /// Stubs of calls for `serve`.
    pub static husk_serves: u8;
    /// Stubs of the calls in `husk_client::GLANCED`, in that order.
    pub static husk_glances: u8;
    /// Stubs that look the class up.
    pub static husk_stubs: u8;
    /// `sa_restorer` of every handler: the instructions unwinders look for.
    pub fn husk_restorer();
    /// Kernel-side handler of ordinary signals.
    pub fn husk_on_signal();
    /// Where it has taken over what was deferred.
    pub fn husk_signal_begun();
    /// Kernel-side handler of SIGSYS, SIGSEGV, SIGBUS and SIGILL.
    pub fn husk_on_fault();
    /// Entry with number in rax and return address in rcx.
    pub fn husk_enter();
    /// The same, but that `serve` sees what would go straight to the host.
    pub fn husk_diverted();
    /// The same for a patched site.
    pub fn husk_diverts();
    /// Entry of a call that is traced.
    pub fn husk_traced();
    /// Stubs of traced calls.
    pub static husk_traces: u8;
    /// Where the host's answer to a call of the application comes that is passed as it is.
    pub static husk_passed: u8;
    /// From here to `husk_detour_goes` or `husk_detour_asks` a `Detour` is on its way to the host.
    pub fn husk_detour_begun();
    /// Where the host gets it.
    pub fn husk_detour_goes();
    /// Where the host gets it when the call has the number that the application gave it.
    pub fn husk_detour_asks();
    /// Where a sleeping `Detour` comes back from the host.
    pub fn husk_detour_done();
    /// The same when the call has the number that the application gave it.
    pub fn husk_detour_asked();
    /// Where a clone-like call comes back.
    pub static husk_cloned: u8;
    /// The one instruction of the gate that reads application memory.
    pub fn husk_mask_load();
    /// Continues a call as failed with `EFAULT`.
    pub fn husk_efault();
    /// Makes a clone-like call; in the child continues in `child_main`.
    pub fn husk_clone(launch: *mut Launch, number: usize) -> i64;
    /// Calls `step(argument)` on this thread's service stack, which nobody uses now.
    pub fn husk_aside(step: extern "C" fn(usize) -> usize, argument: usize) -> usize;
    /// Gives the thread block back and ends the thread.
    pub fn husk_vanish(owner: *const u32, app_rsp: usize, status: usize) -> !;
    /// Where the host's answer to a call comes that opens something outside (`gate::outside`).
    pub static husk_opened: u8;
    /// The one instruction there that reads application memory.
    pub fn husk_path_look();
    /// Where a call goes on that needs a look.
    pub fn husk_glance();
    /// Makes a call as it is.
    pub fn husk_pass();
    /// Where the gate looks whose a number is, up to `husk_glance`.
    pub fn husk_moves_bytes();
    /// The same, up to the next label.
    pub fn husk_passes_on();
    pub fn husk_act_beyond_pass();
    /// Where a service has found that a call is to be passed, up to the next label.
    pub fn husk_act_passes();
    pub fn husk_act_passed();
    /// The same while handlers are due, up to the next label.
    pub fn husk_unblock_and_pass();
    pub fn husk_unblocks_and_passes();
    /// Where such a call starts once more.
    pub fn husk_looks_again();
}
