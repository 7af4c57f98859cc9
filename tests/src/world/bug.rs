//! Wrong drivers. Each does one thing otherwise than the seam asks, around the real seam.

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The view is opened, then the position is taken.
    ViewThenPin,
    /// A restart in mid-scan takes a new pin, and keeps the tables that are done.
    PinMovedOnResume,
    /// The source is told before the checkpoint is saved.
    AcknowledgeBeforeSave,
    /// A batch that ends inside a transaction counts as its end.
    CheckpointInsideTransaction,
    /// What was read from the stream counts as delivered.
    CheckpointBeforeDurable,
    /// Every table counts as done when the last row is read.
    FinishedBeforeDurable,
    /// A chunk counts as durable when it is put on the channel.
    DoneOnChannel,
    /// The rows of a table that is scanned again follow those of the first attempt.
    NoBarrierOnRescan,
    /// Changes that the later view holds are emitted after it.
    NoFenceOnRescan,
    /// The fence is read from another view than the rows.
    FenceOfAnotherView,
    /// A later view is opened while transactions before the stream's position may still be invisible.
    NoSettling,
    /// A fence is given up before the stream has passed what it holds.
    HorizonTooEarly,
    /// Chunks of an abandoned scan have the numbers of those that follow.
    ChunkNumbersUsedTwice,
    /// What repeats is not flagged.
    RepetitionNotFlagged,
    /// The slot is taken for the one that was left behind, without looking where it stands.
    SlotNotExamined,
}

impl Bug {
    pub const ALL: [Self; 15] = [
        Self::ViewThenPin,
        Self::PinMovedOnResume,
        Self::AcknowledgeBeforeSave,
        Self::CheckpointInsideTransaction,
        Self::CheckpointBeforeDurable,
        Self::FinishedBeforeDurable,
        Self::DoneOnChannel,
        Self::NoBarrierOnRescan,
        Self::NoFenceOnRescan,
        Self::FenceOfAnotherView,
        Self::NoSettling,
        Self::HorizonTooEarly,
        Self::ChunkNumbersUsedTwice,
        Self::RepetitionNotFlagged,
        Self::SlotNotExamined,
    ];

    /// Name of a world that is enough to show it.
    pub fn shown_by(self) -> &'static str {
        match self {
            Self::NoSettling => "transactions overlap, and one hangs between its log and its rows",
            Self::ChunkNumbersUsedTwice => "the view's connection is lost",
            Self::SlotNotExamined => "the slot is made again while down",
            _ => "a row moves between tables, and a delete",
        }
    }
}
