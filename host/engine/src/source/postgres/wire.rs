//! The wire protocol, as far as the engine speaks it itself.
