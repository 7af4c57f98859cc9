//! The hostile guests: what a guest may try, and what the host makes of it.
//!
//! One table, in five parts by where the attack lies: in what is loaded, in compiling it, in a call, in what a call gives
//! back, and in looking for what was not granted. An entry is a name, a guest, limits where they are not the usual, and the verdict;
//! each is a test of its own name (`cargo test --release --workspace --test hostile a17`). The number before the name
//! is the attack's for good; attacks on the same place share it. After every verdict the judge also asks whether
//! an instance that was stopped stays so, whether its lane goes on with a fresh one, and how much memory the host took.

#[path = "../support/mod.rs"]
mod support;

mod bombs;
mod calls;
#[expect(dead_code, reason = "tests of the engine use the rest")]
mod guest;
mod loading;
mod looking;
mod replies;
mod reply;
mod verdict;

use std::time::Duration;

use dovetail_sandbox::Limits;

/// Makes a test of every entry.
macro_rules! attacks {
    (@limits $limits:expr) => { $limits };
    (@limits) => { $crate::usual() };
    ($($(#[$doc:meta])* $name:ident: $guest:expr $(, within $limits:expr)? => $verdict:expr;)+) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                let limits = $crate::attacks!(@limits $($limits)?);
                $crate::verdict::judge($guest.into(), limits, $verdict);
            }
        )+
    };
}
pub(crate) use attacks;

fn usual() -> Limits {
    support::limits()
}

/// For guests that do not end by themselves.
fn short() -> Limits {
    Limits {
        batch_timeout: Duration::from_millis(50),
        start_timeout: Duration::from_millis(500),
        ..usual()
    }
}

/// For guests that want all the memory there is.
fn small() -> Limits {
    Limits { memory_bytes: 8 << 20, ..usual() }
}
