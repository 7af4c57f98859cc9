//! Runs plugins.
