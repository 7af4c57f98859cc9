//! Lines for the operator. They may reach a log file: write names and counts, no values.
//!
//! Outside a plugin, as in its unit tests, they go nowhere.

macro_rules! level {
    ($name:ident, $level:ident) => {
        pub fn $name(message: &str) {
            #[cfg(target_arch = "wasm32")]
            {
                use crate::bindings::dovetail::plugin::logging::{Level, log, max_level};
                if Level::$level as u8 >= max_level() as u8 {
                    log(Level::$level, message);
                }
            }
            #[cfg(not(target_arch = "wasm32"))]
            let _ = message;
        }
    };
}

level!(debug, Debug);
level!(info, Info);
level!(warn, Warn);
level!(error, Error);
