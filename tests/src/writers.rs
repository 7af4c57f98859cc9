//! Sessions that change rows until they are stopped, for the examples.
//!
//! Unlike a [workload](crate::workload) they keep no record: an example compares both ends when it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::wait::until;

/// Long enough for a slow disk.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a session goes by.
#[derive(Debug, Clone, Default)]
pub struct Going {
    stop: Arc<AtomicBool>,
    changes: Arc<AtomicU64>,
}

impl Going {
    pub fn is_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// So many rows were changed.
    pub fn count(&self, rows: u64) {
        self.changes.fetch_add(rows, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct Writers {
    going: Going,
    tasks: JoinSet<Result<()>>,
}

impl Writers {
    /// Starts so many sessions, by their number.
    pub fn start<F>(count: u32, session: impl Fn(u32, Going) -> F) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let going = Going::default();
        let mut tasks = JoinSet::new();
        for number in 0..count {
            tasks.spawn(session(number, going.clone()));
        }
        Self { going, tasks }
    }

    /// Waits until `count` more rows are changed.
    pub async fn advance(&self, count: u64) -> Result<()> {
        let changes = &self.going.changes;
        let goal = changes.load(Ordering::Relaxed) + count;
        until(format!("{count} more changes"), PATIENCE, async || {
            Ok((changes.load(Ordering::Relaxed) >= goal).then_some(()))
        })
        .await
    }

    /// How many rows were changed.
    pub async fn stop(mut self) -> Result<u64> {
        self.going.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a writer panicked")??;
        }
        Ok(self.going.changes.load(Ordering::Relaxed))
    }
}
