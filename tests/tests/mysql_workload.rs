//! The workload keeps its own promises on MySQL and MariaDB too.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dovetail_tests::mysql::{Server, Version};
use dovetail_tests::workload::{Options, What, Workload, mysql};
use mysql_async::prelude::Queryable;

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_workload_is_what_the_server_holds() -> Result<()> {
    let mut server = Server::start(Version::under_test())?;
    let options = Options { big_rows: 500, items: 200, bulk: 1_000, ..Options::default() };
    let workload = Workload::prepare_mysql(&server, options).await?;
    let (sum, mut running) = (workload.sum(), workload.start());

    running.advance(500).await?;
    server.kill()?;
    server.restart()?;
    running.advance(1_500).await?;
    let mut workload = running.stop().await?;

    let mut connection = server.connect().await?;
    let query = "SELECT CAST(sum(balance) AS SIGNED) FROM trial.account";
    let balance: i64 = connection.query_first(query).await?.context("a sum")?;
    assert_eq!(balance, sum);

    let record = workload.record_mysql(&server).await?;
    let by_marker: BTreeMap<i64, _> = record.committed().map(|tx| (tx.marker, tx)).collect();
    let mut rows: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut witnessed = 0;
    for commit in mysql::commits(&server).await? {
        let transaction = by_marker.get(&commit.marker);
        let transaction = transaction.with_context(|| format!("unrecorded: {commit:?}"))?;
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
    assert_eq!(witnessed, by_marker.len(), "committed according to the server, and to the writers");

    for table in ["trial.account", "trial.item", "trial.bulk", "trial.scratch"] {
        let query = format!("SELECT CAST(id AS CHAR), version FROM {table}");
        let held: Vec<(String, i64)> = connection.query(query).await?;
        let held: BTreeMap<String, i64> = held.into_iter().collect();
        let recorded: BTreeMap<String, i64> = rows
            .iter()
            .filter(|((name, _), _)| *name == table)
            .map(|((_, key), version)| ((*key).to_owned(), *version))
            .collect();
        assert_eq!(held, recorded, "{table}");
    }
    Ok(())
}
