//! What the outlet notes in the database beside the rows, and in their transaction.

use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};
use mysql_async::Params;

use super::server::Server;
use crate::origin::Origin;
use crate::outlet::Error;
use crate::outlet::table::Known;

/// Of the two tables below. A newer engine that needs other ones counts it up.
const FORMAT: i64 = 1;

/// The name of the table in which definitions are kept, for the advice of errors.
pub(super) const TABLES: &str = "_dovetail_tables";

/// As bytes: names that differ in case, or in a blank at the end, are two.
const CREATE: [(&str, &str); 2] = [
    (
        "_dovetail",
        "CREATE TABLE IF NOT EXISTS _dovetail (
            pipeline varbinary(255) PRIMARY KEY,
            format int NOT NULL,
            `system` text NOT NULL,
            `database` text NOT NULL,
            checkpoint text
        ) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ),
    (
        TABLES,
        "CREATE TABLE IF NOT EXISTS _dovetail_tables (
            name varbinary(255) PRIMARY KEY,
            pipeline text NOT NULL,
            namespace text NOT NULL,
            source_name text NOT NULL,
            definition longtext NOT NULL
        ) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ),
];

/// Makes the tables. Outside a transaction: it would end one. Asks first, because even `IF NOT EXISTS` needs the right
/// to create.
pub(super) async fn create(server: &mut Server) -> Result<(), Error> {
    let what = "make the engine's own tables at the outlet";
    let find = "SELECT table_name FROM information_schema.tables
                WHERE table_schema = database() AND table_name IN ('_dovetail', '_dovetail_tables')";
    let there: Vec<(String,)> = server.rows(what, find, Params::Empty).await?;
    for (name, create) in CREATE {
        if !there.iter().any(|(there,)| there == name) {
            server.run(what, create).await?;
        }
    }
    Ok(())
}

/// Registers the pipeline, or finds it there with its checkpoint.
pub(super) async fn enter(server: &mut Server, origin: &Origin) -> Result<Option<Lsn>, Error> {
    let what = "read the checkpoint at the outlet";
    let find = "SELECT format, `system`, `database`, checkpoint FROM _dovetail WHERE pipeline = ?";
    let found: Option<(i64, String, String, Option<String>)> =
        server.row(what, find, (&origin.pipeline,)).await?;
    let Some((format, system, database, checkpoint)) = found else {
        let insert =
            "INSERT INTO _dovetail (pipeline, format, `system`, `database`) VALUES (?, ?, ?, ?)";
        let source = &origin.source;
        let values = (&origin.pipeline, FORMAT, &source.system, &source.database);
        server.execute(what, insert, values).await?;
        return Ok(None);
    };
    if format > FORMAT {
        return Err(Error::definite(
            format!(
                "the outlet's table _dovetail has format {format}, and this engine knows {FORMAT}"
            ),
            "run the newer engine that wrote it",
        ));
    }
    if (&system, &database) != (&origin.source.system, &origin.source.database) {
        return Err(Error::definite(
            format!(
                "the outlet holds pipeline {} of database {database} of system {system}, and the source is {}",
                origin.pipeline, origin.source
            ),
            "name another database, or drop this pipeline's tables and its row in _dovetail",
        ));
    }
    let checkpoint = checkpoint.map(|text| text.parse()).transpose();
    checkpoint.map_err(|error| corrupt("the checkpoint in _dovetail", error))
}

/// Moves the checkpoint, unless another session moved it meanwhile.
pub(super) async fn advance(
    server: &mut Server,
    pipeline: &str,
    from: Option<Lsn>,
    to: Lsn,
) -> Result<(), Error> {
    let moved = server
        .execute(
            "write the checkpoint at the outlet",
            "UPDATE _dovetail SET checkpoint = ? WHERE pipeline = ? AND checkpoint <=> ?",
            (to.to_string(), pipeline, from.map(|lsn| lsn.to_string())),
        )
        .await?;
    if moved == 0 {
        return Err(Error::transient(
            "another session moved this pipeline's checkpoint at the outlet",
            "the checkpoint is read again",
        ));
    }
    Ok(())
}

/// Forgets the checkpoint: it is of a log that was given up.
pub(super) async fn forget(server: &mut Server, pipeline: &str) -> Result<(), Error> {
    let what = "forget the checkpoint at the outlet";
    let update = "UPDATE _dovetail SET checkpoint = NULL WHERE pipeline = ?";
    server.execute(what, update, (pipeline,)).await.map(drop)
}

/// What is noted of a table.
pub(super) async fn definition(
    server: &mut Server,
    pipeline: &str,
    name: &str,
    table: &TableName,
) -> Result<Known, Error> {
    let found: Option<(String, String, String, String)> = server
        .row(
            "read the tables of the outlet",
            "SELECT pipeline, namespace, source_name, definition FROM _dovetail_tables WHERE name = ?",
            (name,),
        )
        .await?;
    let Some((owner, namespace, source_name, definition)) = found else {
        return Ok(Known::Nothing);
    };
    if owner != pipeline || namespace != table.namespace || source_name != table.name {
        return Err(Error::definite(
            format!(
                "table {name} of the outlet already holds {namespace}.{source_name} of pipeline {owner}, so {table} has \
                 no place there"
            ),
            "give one of them an outlet with a database of its own",
        ));
    }
    if definition.is_empty() {
        return Ok(Known::Table);
    }
    serde_json::from_str(&definition)
        .map(Known::Definition)
        .map_err(|error| corrupt(&format!("the definition of {name} in {TABLES}"), error))
}

/// Notes the definition under which rows are written from here on.
pub(super) async fn define(
    server: &mut Server,
    pipeline: &str,
    name: &str,
    relation: &Relation,
) -> Result<(), Error> {
    let definition =
        serde_json::to_string(relation).map_err(|error| corrupt("a table's definition", error))?;
    let table = &relation.table;
    server
        .execute(
            "write the tables of the outlet",
            "INSERT INTO _dovetail_tables (name, pipeline, namespace, source_name, definition)
             VALUES (?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE definition = ?",
            (name, pipeline, &table.namespace, &table.name, &definition, &definition),
        )
        .await
        .map(drop)
}

fn corrupt(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::definite_because(
        format!("{what} cannot be read"),
        "restore the database, or drop the pipeline's tables and both tables of the engine, and scan again",
        error,
    )
}
