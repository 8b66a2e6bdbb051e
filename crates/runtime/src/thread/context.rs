//! What the host tells a handler of what it interrupted: registers, mask, stack, protection keys.

/// Offset of `uc_sigmask` in a ucontext.
pub const UC_MASK: usize = 296;
/// Offset of the general registers in a ucontext, 8 bytes each.
const UC_REGISTERS: usize = 40;

/// Index of a register in a ucontext.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub enum Register {
    Rdi = 8,
    Rdx = 12,
    Rax = 13,
    Rcx = 14,
    Rsp = 15,
    Rip = 16,
}

/// The interrupted context of a handler.
#[derive(Clone, Copy)]
pub struct Context(pub usize);

impl Context {
    pub fn get(self, register: Register) -> usize {
        // SAFETY: the host put a ucontext there for the handler that runs now.
        unsafe { *((self.0 + UC_REGISTERS + 8 * register as usize) as *const usize) }
    }
    pub fn set(self, register: Register, value: usize) {
        // SAFETY: as above; the host reads it at sigreturn.
        unsafe { *((self.0 + UC_REGISTERS + 8 * register as usize) as *mut usize) = value }
    }
    /// Where the frame keeps PKRU; `None` where the host saves none.
    pub fn protection_keys(self) -> Option<*mut u32> {
        const STATE_POINTER: usize = 224;
        const LEGACY_BYTES: usize = 512;
        const PKRU: u32 = 9;
        // SAFETY: the processor has protection keys, so it has this leaf; the host put a ucontext
        // here, whose state pointer leads to an XSAVE area in standard format.
        unsafe {
            let offset = core::arch::x86_64::__cpuid_count(0xd, PKRU).ebx as usize;
            let state = *((self.0 + STATE_POINTER) as *const usize);
            if state == 0 || offset == 0 {
                return None;
            }
            let present = (state + LEGACY_BYTES) as *mut u64;
            *present |= 1 << PKRU;
            Some((state + offset) as *mut u32)
        }
    }
    /// The signal stack that the handler runs on, if it does: where it begins, and its bytes.
    pub fn signal_stack(self) -> Option<[usize; 2]> {
        const STACK: usize = 16;
        const STACK_BYTES: usize = 32;
        // SAFETY: as above.
        let [start, bytes] =
            [STACK, STACK_BYTES].map(|at| unsafe { *((self.0 + at) as *const usize) });
        (self.0.wrapping_sub(start) < bytes).then_some([start, bytes])
    }
    pub fn mask(self) -> u64 {
        // SAFETY: as above.
        unsafe { *((self.0 + UC_MASK) as *const u64) }
    }
    pub fn set_mask(self, mask: u64) {
        // SAFETY: as above.
        unsafe { *((self.0 + UC_MASK) as *mut u64) = mask }
    }
}
