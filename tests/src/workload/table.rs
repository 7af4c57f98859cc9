//! The tables that a workload writes.

use anyhow::Result;
use tokio_postgres::Client;

use super::{Change, Options, Outcome, Transaction, What};

/// Names as a configuration lists them.
pub const TABLES: [&str; 5] =
    ["public.account", "public.item", "public.note", "public.bulk", "public.scratch"];

/// Added to the id of a row that moves away, taken from the id of one that comes back.
pub(super) const AWAY: i64 = 1_000_000_000;

pub(super) const BALANCE: i64 = 1_000;

const CREATE: &str = "
    CREATE TABLE account (id bigint PRIMARY KEY, version bigint NOT NULL, balance bigint NOT NULL);
    -- EXTERNAL: a body beyond 2 kB is stored out of line, so an update that leaves it alone does not log it.
    CREATE TABLE item (id bigint PRIMARY KEY, version bigint NOT NULL, label text, body text);
    ALTER TABLE item ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE note (line text NOT NULL, version bigint NOT NULL);
    ALTER TABLE note REPLICA IDENTITY FULL;
    CREATE TABLE bulk (id bigint PRIMARY KEY, version bigint NOT NULL, payload text);
    CREATE TABLE scratch (id bigint PRIMARY KEY, version bigint NOT NULL);
    -- Not captured: says which transactions were committed, and is the busy neighbour of the captured tables.
    CREATE TABLE marker (id bigint PRIMARY KEY);";

/// Makes the tables and their first rows, which count as one committed transaction.
pub(super) async fn create(client: &Client, options: &Options) -> Result<Transaction> {
    client.batch_execute(CREATE).await?;
    let fill = format!(
        "INSERT INTO account SELECT i, 1, {BALANCE} FROM generate_series(0, {accounts} - 1) i;
         INSERT INTO item SELECT i, 1, 'label ' || i, repeat(md5(i::text), 1 + i % 300)
             FROM generate_series(0, {items} - 1) i;
         INSERT INTO bulk SELECT i, 1, repeat(md5(i::text), 4) FROM generate_series(0, {bulk} - 1) i;",
        accounts = i64::from(options.accounts),
        items = i64::from(options.items),
        bulk = i64::from(options.bulk),
    );
    client.batch_execute("BEGIN").await?;
    client.batch_execute(&fill).await?;
    let xid = client.query_one("SELECT pg_current_xact_id()::text", &[]).await?;
    let xid = Some(xid.get::<_, &str>(0).parse()?);
    client.batch_execute("COMMIT").await?;
    let rows = |table, count| {
        (0..count).map(move |id: u32| Change {
            table,
            key: id.to_string(),
            what: What::Insert,
            version: 1,
        })
    };
    let changes = rows("public.account", options.accounts)
        .chain(rows("public.item", options.items))
        .chain(rows("public.bulk", options.bulk))
        .collect();
    Ok(Transaction { marker: 0, xid, outcome: Outcome::Committed, changes, undone: Vec::new() })
}

pub(super) fn sum(options: &Options) -> i64 {
    i64::from(options.accounts) * BALANCE
}
