//! Wrong drivers. Each does one thing otherwise than the seam asks, around the real seam.

use super::scenario::Server;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The view is opened, then the position is taken.
    ViewThenPin,
    /// The end of the log is read, then a view is opened, and taken for what the log held.
    PositionThenView,
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
    /// The log that the server holds is taken for the one that was left behind, without looking where it begins.
    LogNotExamined,
    /// The source is told of what was appended to the spool before it is durable.
    AcknowledgeBeforeSync,
    /// The spool lets go of what the outlet made durable, before a checkpoint says so.
    TrimmedBeforeSaved,
    /// After a crash the log is read on behind what was appended, and not behind what is left of it.
    ReadOnBehindWhatIsLost,
    /// Where the spool has not what the stream goes on from, the log is read from where the server would go on.
    ReadAnewWhereTheServerStands,
    /// An attempt that finds the log being read takes what the spool holds just then for all that it will.
    EndOfAGrowingSpool,
    /// The stream goes on with what is read from now on, and passes over what the spool holds.
    StreamBehindTheSpool,
    /// Where the log is read anew, what the spool held before stays in it. No order of steps gets at the hole between
    /// the two, since no checkpoint falls; an outlet that is restored would.
    SpoolKeptWhenReadAnew,
}

impl Bug {
    pub const ALL: [Self; 23] = [
        Self::ViewThenPin,
        Self::PositionThenView,
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
        Self::LogNotExamined,
        Self::AcknowledgeBeforeSync,
        Self::TrimmedBeforeSaved,
        Self::ReadOnBehindWhatIsLost,
        Self::ReadAnewWhereTheServerStands,
        Self::EndOfAGrowingSpool,
        Self::StreamBehindTheSpool,
        Self::SpoolKeptWhenReadAnew,
    ];

    /// Whether a driver of such a source can do it. A slot brings its view along, and is told how far
    /// it is needed.
    pub fn is_of(self, server: Server) -> bool {
        match self {
            Self::PositionThenView => server == Server::MySql,
            Self::AcknowledgeBeforeSync | Self::ReadAnewWhereTheServerStands => {
                server == Server::Postgres
            }
            _ => true,
        }
    }

    /// Name of a world that is enough to show it.
    pub fn shown_by(self, server: Server) -> &'static str {
        match (server, self) {
            (Server::Postgres, Self::AcknowledgeBeforeSync | Self::TrimmedBeforeSaved)
            | (Server::Postgres, Self::ReadOnBehindWhatIsLost | Self::StreamBehindTheSpool) => {
                "spool: an update, and a delete"
            }
            (Server::Postgres, Self::SpoolKeptWhenReadAnew) => {
                "spool: an update, and a delete, transactional"
            }
            (Server::Postgres, Self::ReadAnewWhereTheServerStands) => {
                "spool: it is lost while down"
            }
            (Server::MySql, Self::ReadOnBehindWhatIsLost | Self::StreamBehindTheSpool) => {
                "mysql, spool: a commit hangs between its log and its rows"
            }
            (Server::Postgres, Self::EndOfAGrowingSpool) => "spool: the outlet fails",
            (Server::MySql, Self::EndOfAGrowingSpool) => "mysql, spool: the outlet fails",
            (Server::MySql, Self::SpoolKeptWhenReadAnew) => {
                "mysql, spool: an update, and a delete, transactional"
            }
            (Server::MySql, Self::TrimmedBeforeSaved) => {
                "mysql, spool: the log is purged behind the reader"
            }
            (Server::Postgres, Self::NoSettling) => {
                "transactions overlap, and one hangs between its log and its rows"
            }
            (Server::Postgres, Self::ChunkNumbersUsedTwice) => "the view's connection is lost",
            (Server::Postgres, Self::LogNotExamined) => "the slot is made again while down",
            (Server::Postgres, _) => "a row moves between tables, and a delete",
            (Server::MySql, Self::NoSettling) => "mysql: every start scans again",
            (Server::MySql, Self::HorizonTooEarly) => {
                "mysql: commits become visible in another order"
            }
            (Server::MySql, Self::ChunkNumbersUsedTwice) => {
                "mysql: the view's connection is lost, and a commit hangs"
            }
            (Server::MySql, Self::LogNotExamined) => "mysql: the log is purged while down",
            (Server::MySql, _) => "mysql: a commit hangs between its log and its rows",
        }
    }
}
