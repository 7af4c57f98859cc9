//! The workload keeps its own promises; otherwise nothing that is judged by it would mean anything.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dovetail_tests::postgres::{Server, Version};
use dovetail_tests::workload::{Options, What, Workload, witness};

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_workload_is_what_the_server_holds() -> Result<()> {
    let mut server = Server::start(Version::V15)?;
    let client = server.connect().await?;
    witness::begin(&client).await?;
    let options = Options { big_rows: 500, items: 200, bulk: 1_000, ..Options::default() };
    let workload = Workload::prepare(&server, options).await?;
    let (sum, mut running) = (workload.sum(), workload.start());

    running.advance(500).await?;
    server.kill()?;
    server.restart()?;
    running.advance(1_500).await?;
    let mut workload = running.stop().await?;

    let client = server.connect().await?;
    let balance: i64 =
        client.query_one("SELECT sum(balance)::bigint FROM account", &[]).await?.get(0);
    assert_eq!(balance, sum);

    let record = workload.record(&client).await?;
    let by_xid: BTreeMap<u64, _> =
        record.committed().filter_map(|tx| Some((tx.xid?, tx))).collect();
    assert_eq!(by_xid.len(), record.committed().count(), "two committed under one id");
    let mut rows: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut witnessed = 0;
    for (xid, _) in witness::commits(&client).await? {
        let Some(transaction) = by_xid.get(&xid) else { continue };
        witnessed += 1;
        for change in &transaction.changes {
            let place = (change.table, change.key.as_str());
            match &change.what {
                What::Insert | What::Update => drop(rows.insert(place, change.version)),
                What::Move { from } => {
                    rows.remove(&(change.table, from.as_str())).context("moved from nowhere")?;
                    rows.insert(place, change.version);
                }
                What::Delete => drop(rows.remove(&place)),
                What::Truncate => rows.retain(|(table, _), _| *table != change.table),
            }
        }
    }
    assert_eq!(witnessed, by_xid.len(), "committed according to the server, and to the writers");

    for table in ["account", "item", "bulk", "scratch"] {
        let query = format!("SELECT id::text, version FROM {table}");
        let held: BTreeMap<String, i64> =
            client.query(&query, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        let name = format!("public.{table}");
        let recorded: BTreeMap<String, i64> = rows
            .iter()
            .filter(|((table, _), _)| *table == name)
            .map(|((_, key), version)| ((*key).to_owned(), *version))
            .collect();
        assert_eq!(held, recorded, "{table}");
    }
    Ok(())
}
