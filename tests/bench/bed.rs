//! The server, the table and the pipeline that everything is measured with.

use std::path::PathBuf;

use anyhow::{Context, Result};
use dovetail_tests::engine::Setup;
use dovetail_tests::postgres::{Options, Server, Version};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Eight columns of the usual types; about 130 bytes a row as text.
const TABLE: &str = "CREATE TABLE bench (
    id bigint PRIMARY KEY, active boolean NOT NULL, name text NOT NULL, email text NOT NULL, phone varchar(20),
    balance numeric(12,2) NOT NULL, created timestamptz NOT NULL, notes text)";

pub(crate) const COLUMNS: &str = "id, id % 4 <> 0, 'Ada Lovelace ' || id, 'ada.' || id || '@example.org', \
    '+44 20 7946 ' || id % 10000, (id % 100000) / 100.0, timestamptz '2026-01-01' + id * interval '1 second', \
    CASE WHEN id % 3 = 0 THEN NULL ELSE 'wrote the first program' END";

/// The table whose name the figures' queries use.
pub(crate) const NAME: &str = "public.bench";

/// A private server with an empty table, and a session of its superuser.
pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) client: Client,
}

impl Bed {
    pub(crate) async fn make() -> Result<Self> {
        // Room for the table, so that the disk is not what is measured; nothing in the background in the middle of it.
        let options = Options::default()
            .set("shared_buffers", "512MB")
            .set("max_wal_size", "16GB")
            .set("checkpoint_timeout", "1h")
            .set("autovacuum", "off");
        let server = Server::start_with(Version::V15, options)?;
        let client = server.connect().await?;
        client.batch_execute(TABLE).await?;
        Ok(Self { server, client })
    }

    /// Through the identity plugin, which wants every column, into the outlet that forgets; all else by default.
    pub(crate) fn pipeline(&self, name: &str) -> Result<Setup> {
        let setup = Setup::new(name, &self.server, &[NAME])?;
        Ok(setup
            .without("/snapshot")
            .without("/lanes")
            .set("/outlets/none", json!({ "discard": {} }))
            .plugin("identity", &identity()?, Value::Null))
    }
}

/// The plugin as `tests/bench/run` built it.
fn identity() -> Result<PathBuf> {
    let guests =
        std::env::var_os("DOVETAIL_GUESTS").context("DOVETAIL_GUESTS: use tests/bench/run")?;
    Ok(PathBuf::from(guests).join("guest_identity_packed.wasm"))
}
