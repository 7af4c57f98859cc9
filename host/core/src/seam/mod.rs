//! The joint of the scan and the stream: no gap, and nothing goes back.
//!
//! [`Seam`] decides the order in which a pin is taken and saved, tables read and the log streamed, over any number of
//! crashes; and which streamed changes a scan already holds. It does no input or output: the driver tells it what
//! happened ([`Input`]), saves the [`Step`]s and performs the [`Action`]s that it asks for. It knows no kind of database:
//! what sources can say of their logs and views differs, and has a word here each time ([`Log`], [`Fence`], [`Mark`]).
//!
//! [`Fence`]: crate::fence::Fence
//! [`Mark`]: crate::fence::Mark
//!
//! # What it guarantees
//!
//! A transaction is *in a view* when the view shows its rows. For every table there is one view that its rows at the
//! outlet come from in the end, and the stream runs from one position R on. Nothing is lost and nothing goes back, if
//!
//! - (a) every transaction that is not streamed from R on is in the view,
//! - (b) a streamed change is dropped if and only if its transaction is in the view, and
//! - (c) of what an earlier attempt delivered, nothing is left when the view's rows come.
//!
//! By (a) a change is in the view or in the stream; by (b) never in both; so a key's scanned row is followed by exactly
//! the changes that it does not contain, in the order of the log.
//!
//! # Why it holds
//!
//! **The first life** reads in the view that came with the pin, where one did ([`Input::Pinned`]): a slot's exported
//! snapshot, or views that a server gives together with the place in its binlog. The server guarantees that such a view
//! contains exactly what is not streamed from there: (a) holds, no streamed change is in the view, so (b) needs no fence,
//! and there was no earlier attempt.
//!
//! **A pin without a view** is a lower bound: the GTIDs that had been executed when it was taken are not streamed, and
//! *were* visible then, but others may become visible before a view is opened. So the first view is a later view, and
//! what is said of those holds for it. That no view came is no loss of one: nothing was read yet, no row has to be taken
//! back.
//!
//! **After a crash or the loss of the view** the pin's own view is gone for ever. What is not done is read again in
//! a later view:
//! - (a) The pin has not moved, so R is not later than it was. That alone is not enough: a commit record can be before R,
//!   and the rows still be invisible, while the transaction waits for a standby. So the view is opened only after
//!   everything before R has become visible ([`Action::Settle`]), which the seam checks: the fence has to cover the mark
//!   that settling came to. On PostgreSQL the mark is a transaction id taken now, below which all have ended. Ids are
//!   assigned before commit records are written, R was known before that id was taken, so no transaction before R can
//!   still be invisible. A snapshot's own `xmax` would not do as that id: it is only one past the last transaction that
//!   has *ended*, and the one that hangs may be beyond it. With GTIDs the mark is the set of those before R, elsewhere
//!   the place in the log itself. Where there was an earlier life, what it may have delivered is waited for as well, up to
//!   the log's end at the start: not for (a), but because a key would go back to what such a view shows.
//! - (b) The fence is the server's own description of the view. It is saved with the table's completion, in
//!   one step, since it is needed as long as changes from before the view's [horizon](Fenced::horizon) may be streamed
//!   again.
//!
//!   Where all that a server says of a view is a lower bound ([`Fence::AtLeast`]), (b) cannot be had for what lies between
//!   the bound and the truth: dropped it could be lost, so it is emitted, and flagged as a redelivery
//!   ([`Verdict::Repeat`]) up to the horizon, behind which nothing is in the view. A key that changed twice in that
//!   stretch goes back for a moment, and a reader that goes by the flag knows.
//! - (c) The attempt is counted durably before the first row goes out; so a table whose rows may be at an outlet is known
//!   to be one, and [`Action::Truncate`] goes down the lanes before the rows of the next attempt.
//!
//! A table that is done is remembered with its relation id: one that took its name later is refused, because what the
//! log held of it before it was published is in neither. One that mode `never` left out is *skipped*, not done, so that
//! another mode scans it.
//!
//! Tables that are done are never read again: their (a) and (b) were settled by their own view, and R only grows when a
//! checkpoint is saved, behind which nothing is needed any more.
//!
//! **A fence is forgotten** when the checkpoint reaches its horizon. The horizon is the log's end, read after the view was
//! opened: a transaction in the view has written its commit record by then, so it starts before. (On PostgreSQL that is
//! the *insert* position. The write or flush position would not do: with `synchronous_commit = off` rows are visible
//! before their record is written out.)
//!
//! **A checkpoint** is saved only when everything before it is durable at the outlet, it is acknowledged to the source
//! only when it is saved, and neither falls. An outlet that keeps the position in the transaction of its rows may be
//! ahead of the record after a crash: the stream goes on from there, so that nothing is repeated. One that is *behind* the
//! record was restored from an older copy: refused, as is every other pair of positions out of order (`examination`).
//!
//! **A spool** between the reader and the lanes changes none of this, because the stream still runs from R on; it changes
//! what the server has to keep. The log is read from the saved pin on ([`Action::Read`]), beside the scan, and the driver
//! acknowledges what the spool has synced. Where reading goes on after a crash is the spool's end E:
//! - from <= R <= E: everything from R on is in the spool or read behind it. The server has to have the log from E on.
//! - E < R: the outlet, or even the checkpoint, is ahead, because what goes to the lanes does not wait for the sync. Nothing
//!   in the spool is needed; it is begun anew at R, which the server has, as it was told of E at most.
//! - R < from, or no spool where there was one: what lies before E may be gone. The examination compares what the server
//!   keeps with R then, and refuses.
//!
//! (a) speaks of "every transaction that is not streamed". What an earlier configuration left out is not in the spool though
//! it lies behind R, so a table that is scanned then needs a view with everything before E in it: settling covers that, as it
//! covers the log's end at the start.
//!
//! # Counter-examples
//!
//! Each breaks one of the rules above, and is seeded in the explorer as a wrong driver. The missing numbers belong to the
//! decoders, to other sources, or to a resume by chunks.
//!
//! 1. View, then position. A commits in between: not in the view, and before R. Broken: (a). Here the view comes with the
//!    position, or after it with a fence.
//! 2. Crash in mid-scan; the restart takes a new pin P2 and skips the tables that are done; what they missed between P
//!    and P2 is lost. Here [`Record::with`] cannot move a pin.
//! 3. A chunk is put on a channel and its table is marked done; crash; the rows are lost. Here a table is done when the
//!    outlet has made its last chunk durable ([`Input::ChunkDurable`]), and that was saved.
//! 4. The log is lost, the operator restarts as told, and 2 happens. Here a lost or re-created slot is refused at every
//!    start, until the operator removes the state; so are binlog files that were purged or begun anew, and a server that
//!    has not the same history.
//! 5. The acknowledgement runs ahead of the outlet; crash; the server never sends the rest again. Here it follows
//!    [`Input::Saved`], or the spool's sync.
//! 6. and 12. A batch ends inside a transaction and carries the transaction's end; crash; its rest is lost. Here only
//!    [`Closing::Commit`](crate::batch::Closing::Commit) is a position, and a batch that cuts a transaction has none.
//! 9. A row is delivered in attempt A; crash; it is deleted; view B has no row, and the delete is in B's fence. Dropped,
//!    the row stays for ever. Here the table is emptied before the rows of B.
//! 10. TRUNCATE while the table is read: an older view then finds it empty. The changes that follow the view are streamed
//!     onto missing rows, then the truncate itself, so nothing stays. All chunks of a table share one view here, so a
//!     truncate cannot be inside one chunk's fence and outside another's.
//! 11. A key changes while the table is read. Both halves carry one transaction, so one fence judges both alike.
//! 17. The saved position is that of rows read, not of rows delivered. As 3 and 5.
//!
//! And more, found while this was written:
//! - A transaction hangs in its commit, before R and invisible; a later view is opened. It is in neither. (Settling.)
//! - A view is lost while chunks of it are on their way; its tables are read again; news of an old chunk 0 are taken for
//!   news of the new one, the table is done too early; crash. Here chunk numbers are not used twice in one life
//!   ([`Due::first_chunk`]).
//! - The position of a binlog's end is read, then a view is opened. A is in the log and not yet visible: before R, and not
//!   in the view. Here a position without a view is settled for.
//! - A transaction is streamed before it is visible, and hangs; a restart scans its table again. The view has the row that
//!   it replaced, which goes back until the stream brings it once more. Here settling covers what was delivered.
//! - A replica takes over. A fence names GTIDs with a horizon in the old log, the first checkpoint in the new one is past
//!   it, the fence is forgotten, and what it held is streamed from the new server. Here tables with such a fence are
//!   scanned again (`examination`).
//! - A table is taken out of the configuration and put back later: what happened meanwhile is in neither. Here a table
//!   that is not wanted is no longer done.
//!
//! # What the driver owes
//!
//! - To perform actions in their order, and one pipe for scan and stream whose order every lane keeps, with truncates as
//!   barriers.
//! - To say [`Input::ChunkDurable`] and [`Input::CommitDurable`] for what an outlet reported, nothing else.
//! - When the view is lost, to forget the actions that [need it](Action::needs_view) before it says so.
//! - Where there is a spool: to tell the source of nothing before all of the spool up to there is synced, what was found
//!   at the start included; to let go of nothing before [`Action::Release`]. What was delivered may be ahead of what is
//!   synced. While the reader of an earlier attempt is at work: to say [that](Spool::Growing), and not how far it is.
//! - When the stream's connection is lost: to stop everything behind it, and begin again with a new seam from the saved
//!   record, as after a crash.
//!
//! # What is left out
//!
//! *Chunk-level resume* (several [`Fenced`] for one table, each with its key range; the verdict then needs the key) comes
//! later. With it, counter-example 8 (heap pages do not say in which view a moved row was read) and 10 come into play, and
//! the deletes that a later view holds, which are in the spool, take the place of the barrier.
//!
//! A doubt: an outlet that keeps its position, and is emptied between the scan and the first checkpoint, is told from a
//! fresh one only because the driver closes R itself (an empty batch) when the stream begins. Emptied in the moment
//! before that batch lands, it is not.

mod examination;
mod fences;
mod machine;
mod protocol;
mod record;
mod scanning;
#[cfg(test)]
mod tests;

pub use examination::examine;
pub use fences::{Fences, Verdict};
pub use machine::Seam;
pub use protocol::{
    Action, Continuity, Due, Gap, Input, Log, Loss, Mode, Recorded, Refusal, Slot, Spool, Start,
    View,
};
pub use record::{Fenced, Pin, Record, Scan, Step};
