//! Sessions beside the engine: users with few rights, and statements that go on and on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::postgres::{PASSWORD, Server};

/// Runs statements in a session of its own until it is stopped; how many times.
#[derive(Debug)]
pub struct Repeated {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<u64>>,
}

impl Repeated {
    pub async fn start(
        server: &Server,
        statement: impl Fn(u64) -> String + Send + 'static,
    ) -> Result<Self> {
        let client = server.connect().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                client.batch_execute(&statement(count)).await?;
                count += 1;
            }
            Ok(count)
        });
        Ok(Self { stop, task })
    }

    /// Lets the statement that runs come to its end.
    pub async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}

/// A user that may only read `tables` and replicate; the publication, which it may not create, is made for it.
pub async fn create_user(
    client: &Client,
    user: &str,
    publication: &str,
    tables: &[&str],
) -> Result<()> {
    let tables = tables.join(", ");
    client
        .batch_execute(&format!(
            "CREATE ROLE {user} LOGIN REPLICATION PASSWORD '{PASSWORD}';
             GRANT SELECT ON {tables} TO {user};
             CREATE PUBLICATION {publication} FOR TABLE {tables};"
        ))
        .await?;
    Ok(())
}
