//! Holds the scan back while the server is busy.
//!
//! A scan can wait, the application cannot. Before the first chunk, and then once a second, the number of statements under
//! way is looked at; above the configured limit no worker begins another chunk until it has fallen. The view stays open meanwhile, so a server that
//! is busy for hours pays for it in undo; the wait is logged.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::connection::Session;
use super::failure::Failure;
use crate::config::MySql;

/// Short beside a chunk that is large, and no load by itself.
const EVERY: Duration = Duration::from_secs(1);

/// Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    busy: watch::Receiver<bool>,
    /// Owned: dropped, the task is aborted.
    _task: JoinSet<()>,
}

/// What a worker waits on.
#[derive(Debug, Clone)]
pub(super) struct Gate(watch::Receiver<bool>);

impl Guard {
    pub(super) async fn start(config: &MySql) -> Result<Self, Failure> {
        let mut session = Session::open(&config.server).await?;
        let over = is_busy(config, running(&mut session).await?, false);
        let (sender, busy) = watch::channel(over);
        let mut task = JoinSet::new();
        task.spawn(look(config.clone(), session, sender));
        Ok(Self { busy, _task: task })
    }

    pub(super) fn gate(&self) -> Gate {
        Gate(self.busy.clone())
    }
}

impl Gate {
    /// Until the server is not busy. Cancel-safe.
    pub(super) async fn pass(&mut self) {
        // A guard that is gone holds nobody back: the scan is ending.
        _ = self.0.wait_for(|busy| !busy).await;
    }
}

/// Says when it changes.
fn is_busy(config: &MySql, running: u32, before: bool) -> bool {
    let over = running > config.threads_running_max;
    if over != before {
        tracing::info!(running, paused = over, "the scan heeds the server's load");
    }
    over
}

async fn look(config: MySql, session: Session, busy: watch::Sender<bool>) {
    let mut session = Some(session);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let running = match &mut session {
            Some(session) => running(session).await,
            None => Err(Failure::transient("look at the server's load", "it is tried again")),
        };
        match running {
            Ok(running) => {
                let before = *busy.borrow();
                busy.send_replace(is_busy(&config, running, before));
            }
            // Without an answer there is no reason to hold the scan back; its own statements tell how the server is.
            Err(error) => {
                tracing::debug!(error = %error, "the server's load is not known");
                busy.send_replace(false);
                session = Session::open(&config.server).await.ok();
            }
        }
    }
}

async fn running(session: &mut Session) -> Result<u32, Failure> {
    let what = "look at the server's load";
    let (_, running): (String, u32) =
        session.one(what, "SHOW GLOBAL STATUS LIKE 'Threads\\_running'").await?;
    Ok(running)
}
