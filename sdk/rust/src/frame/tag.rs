//! Numbers of the cases of a value, in the order of `value` in the interface; the temporal special has three.

pub(super) const NULL: u8 = 0;
pub(super) const UNAVAILABLE: u8 = 1;
pub(super) const BOOLEAN: u8 = 2;
pub(super) const INT: u8 = 3;
pub(super) const UINT: u8 = 4;
pub(super) const FLOAT32: u8 = 5;
pub(super) const FLOAT64: u8 = 6;
pub(super) const DECIMAL: u8 = 7;
pub(super) const TEXT: u8 = 8;
pub(super) const BYTES: u8 = 9;
pub(super) const JSON: u8 = 10;
pub(super) const UUID: u8 = 11;
pub(super) const DATE: u8 = 12;
pub(super) const TIME: u8 = 13;
pub(super) const TIME_TZ: u8 = 14;
pub(super) const TIMESTAMP: u8 = 15;
pub(super) const TIMESTAMP_TZ: u8 = 16;
pub(super) const INTERVAL: u8 = 17;
pub(super) const BITS: u8 = 18;
pub(super) const INFINITY: u8 = 19;
pub(super) const NEGATIVE_INFINITY: u8 = 20;
pub(super) const TEMPORAL_LITERAL: u8 = 21;
pub(super) const RAW: u8 = 22;
