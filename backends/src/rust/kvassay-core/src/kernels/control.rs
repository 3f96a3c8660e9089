//! The floating-point control register (numeric contract, section 0): set for a call, restored after it.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// While it lives, arithmetic rounds to nearest even, keeps subnormals and traps nothing on this thread.
pub struct StandardArithmetic {
    before: Register,
    /// It must end on the thread it began on.
    _here: PhantomData<*const ()>,
}

impl StandardArithmetic {
    /// Sets the register of this thread.
    pub fn begin() -> Self {
        let before = read();
        if before != STANDARD {
            write(STANDARD);
        }
        Self { before, _here: PhantomData }
    }
}

impl Drop for StandardArithmetic {
    fn drop(&mut self) {
        if self.before != STANDARD {
            write(self.before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
type Register = u32;
/// All exceptions masked, to nearest, no flags.
#[cfg(target_arch = "x86_64")]
const STANDARD: Register = 0x1f80;

#[cfg(target_arch = "x86_64")]
fn read() -> Register {
    let mut value: Register = 0;
    // SAFETY: stores the register into `value`. The flags of what happened so far are no part of the state.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
    value & !0x3f
}

#[cfg(target_arch = "x86_64")]
fn write(value: Register) {
    // SAFETY: `value` was read from the register or is its standard value: no reserved bit is set.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &value, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
type Register = u64;
#[cfg(target_arch = "aarch64")]
const STANDARD: Register = 0;

#[cfg(target_arch = "aarch64")]
fn read() -> Register {
    let value: Register;
    // SAFETY: reads a register that user code may read.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

#[cfg(target_arch = "aarch64")]
fn write(value: Register) {
    // SAFETY: `value` was read from the register or is 0, its standard value.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) value, options(nomem, nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("how to set the floating-point control register of this machine is not known");
