//! The server's own account of the order in which transactions were committed.
//!
//! A second logical slot, read through `test_decoding` with plain SQL, has nothing in common with the engine under
//! test. It gives the ids of the committed transactions in the order of their commit records: what versions cannot
//! tell where transactions share no key, or where a truncate touches all keys.

use anyhow::{Context, Result};
use tokio_postgres::Client;

const SLOT: &str = "witness";

/// Begins to witness. Whatever commits afterwards will be in [`commits`].
pub async fn begin(client: &Client) -> Result<()> {
    let query = "SELECT pg_create_logical_replication_slot($1, 'test_decoding')";
    client.execute(query, &[&SLOT]).await.context("create the witness slot")?;
    Ok(())
}

/// Ids of the transactions committed so far, in order, and the position where each commit record ends.
pub async fn commits(client: &Client) -> Result<Vec<(u64, String)>> {
    let query = "SELECT xid::text, lsn::text FROM pg_logical_slot_peek_changes($1, NULL, NULL) \
                 WHERE data LIKE 'COMMIT%'";
    let rows = client.query(query, &[&SLOT]).await.context("read the witness slot")?;
    // Fewer than 2^32 transactions: no epoch to add.
    rows.iter().map(|row| Ok((row.get::<_, &str>(0).parse()?, row.get(1)))).collect()
}
