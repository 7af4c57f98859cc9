//! What the exploration went through.

/// What an exploration has to have been through, to be worth something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Situation {
    CrashBeforeThePin,
    CrashBetween,
    CrashInTheScan,
    CrashInTheStream,
    CrashInsideATransaction,
    LeftoverSlotDropped,
    PinnedWithoutAView,
    SkippedByThePin,
    ViewLost,
    ViewReopened,
    LateNewsOfAChunk,
    LaterView,
    RunningInTheFence,
    TruncateBarrier,
    TruncatedUnderTheView,
    DroppedByTheFence,
    PassedTheFence,
    Repeated,
    OutletAheadOfTheRecord,
    Finished,
    Refused,
    AtRest,
}

impl Situation {
    pub const ALL: [Self; 22] = [
        Self::CrashBeforeThePin,
        Self::CrashBetween,
        Self::CrashInTheScan,
        Self::CrashInTheStream,
        Self::CrashInsideATransaction,
        Self::LeftoverSlotDropped,
        Self::PinnedWithoutAView,
        Self::SkippedByThePin,
        Self::ViewLost,
        Self::ViewReopened,
        Self::LateNewsOfAChunk,
        Self::LaterView,
        Self::RunningInTheFence,
        Self::TruncateBarrier,
        Self::TruncatedUnderTheView,
        Self::DroppedByTheFence,
        Self::PassedTheFence,
        Self::Repeated,
        Self::OutletAheadOfTheRecord,
        Self::Finished,
        Self::Refused,
        Self::AtRest,
    ];
}
