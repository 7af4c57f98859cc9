//! From the runtime's errors to what they mean.

use crate::error::{Trap, TrapKind};
use crate::host::{Host, TooMuch};
use crate::wasi::{Denied, Exited};

/// Long enough for a cause and a short backtrace.
const DETAIL_CHARACTERS: usize = 600;

pub(crate) fn trap_of(error: &wasmtime::Error, host: &Host, function: &'static str) -> Box<Trap> {
    let detail: String = format!("{error:#}").chars().take(DETAIL_CHARACTERS).collect();
    Box::new(Trap {
        kind: kind_of(error, host),
        function,
        detail: detail.replace(char::is_control, " "),
        output: String::from_utf8_lossy(&host.output).into_owned(),
    })
}

fn kind_of(error: &wasmtime::Error, host: &Host) -> TrapKind {
    use wasmtime::Trap as Wasm;
    if error.downcast_ref::<Exited>().is_some() {
        return TrapKind::Exit;
    }
    if error.downcast_ref::<Denied>().is_some() {
        return TrapKind::Denied;
    }
    if error.downcast_ref::<TooMuch>().is_some() {
        return TrapKind::HostCalls;
    }
    match error.downcast_ref::<Wasm>() {
        Some(Wasm::Interrupt) => TrapKind::Deadline,
        Some(Wasm::StackOverflow) => TrapKind::Stack,
        Some(Wasm::AllocationTooLarge) => TrapKind::Memory,
        // A guest whose allocation fails gives up like this.
        Some(Wasm::UnreachableCodeReached) if host.meter.refused => TrapKind::Memory,
        Some(Wasm::UnreachableCodeReached) => TrapKind::Unreachable,
        Some(_) => TrapKind::Other,
        None if host.meter.refused => TrapKind::Memory,
        None => TrapKind::Abi,
    }
}
