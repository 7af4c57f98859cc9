//! What the outlet notes in the database beside the rows, and in their transaction.

use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};

use super::server::Server;
use super::statements::Place;
use crate::origin::Origin;
use crate::outlet::Error;
use crate::outlet::table::Known;

/// Of the two tables below. A newer engine that needs other ones counts it up.
const FORMAT: i32 = 1;

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS _dovetail.pipelines (
    pipeline text PRIMARY KEY,
    format integer NOT NULL,
    system text NOT NULL,
    database text NOT NULL,
    checkpoint text
);
CREATE TABLE IF NOT EXISTS _dovetail.tables (
    namespace text,
    name text,
    pipeline text NOT NULL,
    source_namespace text NOT NULL,
    source_name text NOT NULL,
    definition text NOT NULL,
    PRIMARY KEY (namespace, name)
);";

/// Registers the pipeline, or finds it there with its checkpoint.
pub(super) async fn enter(server: &mut Server, origin: &Origin) -> Result<Option<Lsn>, Error> {
    let what = "read the checkpoint at the outlet";
    let is_there = "SELECT to_regclass('_dovetail.pipelines') IS NOT NULL
                       AND to_regclass('_dovetail.tables') IS NOT NULL";
    if !server.one::<bool>(what, is_there, &[]).await?.unwrap_or(false) {
        server.create_schema("_dovetail").await?;
        server.run(what, CREATE).await?;
    }
    let find =
        "SELECT format, system, database, checkpoint FROM _dovetail.pipelines WHERE pipeline = $1";
    let Some(row) = server.row(what, find, &[&origin.pipeline]).await? else {
        let source = &origin.source;
        server
            .execute(
                what,
                "INSERT INTO _dovetail.pipelines (pipeline, format, system, database) VALUES ($1, $2, $3, $4)",
                &[&origin.pipeline, &FORMAT, &source.system, &source.database],
            )
            .await?;
        return Ok(None);
    };
    let unreadable = |error: tokio_postgres::Error| corrupt("_dovetail.pipelines", error);
    let format: i32 = row.try_get(0).map_err(unreadable)?;
    let system: String = row.try_get(1).map_err(unreadable)?;
    let database: String = row.try_get(2).map_err(unreadable)?;
    let checkpoint: Option<String> = row.try_get(3).map_err(unreadable)?;
    if format > FORMAT {
        return Err(Error::definite(
            format!(
                "the outlet's schema _dovetail has format {format}, and this engine knows {FORMAT}"
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
            "name another database, or drop this pipeline's tables and its row in _dovetail.pipelines",
        ));
    }
    let checkpoint = checkpoint.map(|text| text.parse()).transpose();
    checkpoint.map_err(|error| corrupt("the checkpoint in _dovetail.pipelines", error))
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
            "UPDATE _dovetail.pipelines SET checkpoint = $1
             WHERE pipeline = $2 AND checkpoint IS NOT DISTINCT FROM $3::text",
            &[&to.to_string(), &pipeline, &from.map(|lsn| lsn.to_string())],
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
    let update = "UPDATE _dovetail.pipelines SET checkpoint = NULL WHERE pipeline = $1";
    server.execute(what, update, &[&pipeline]).await.map(drop)
}

/// What is noted of a table.
pub(super) async fn definition(
    server: &mut Server,
    pipeline: &str,
    place: &Place,
    table: &TableName,
) -> Result<Known, Error> {
    let row = server
        .row(
            "read the tables of the outlet",
            "SELECT pipeline, source_namespace, source_name, definition FROM _dovetail.tables
             WHERE namespace = $1 AND name = $2",
            &[&place.schema, &place.name],
        )
        .await?;
    let Some(row) = row else { return Ok(Known::Nothing) };
    let unreadable = |error: tokio_postgres::Error| corrupt("_dovetail.tables", error);
    let owner: String = row.try_get(0).map_err(unreadable)?;
    let namespace: String = row.try_get(1).map_err(unreadable)?;
    let source_name: String = row.try_get(2).map_err(unreadable)?;
    let definition: String = row.try_get(3).map_err(unreadable)?;
    if owner != pipeline || namespace != table.namespace || source_name != table.name {
        return Err(Error::definite(
            format!(
                "table {} of the outlet already holds {namespace}.{source_name} of pipeline {owner}, so {table} has no \
                 place there",
                place.quoted()
            ),
            "give one of them a schema or a database of its own",
        ));
    }
    if definition.is_empty() {
        return Ok(Known::Table);
    }
    serde_json::from_str(&definition)
        .map(Known::Definition)
        .map_err(|error| corrupt(&format!("the definition of {}", place.quoted()), error))
}

/// Notes the definition under which rows are written from here on.
pub(super) async fn define(
    server: &mut Server,
    pipeline: &str,
    place: &Place,
    relation: &Relation,
) -> Result<(), Error> {
    let definition =
        serde_json::to_string(relation).map_err(|error| corrupt("a table's definition", error))?;
    let table = &relation.table;
    server
        .execute(
            "write the tables of the outlet",
            "INSERT INTO _dovetail.tables (namespace, name, pipeline, source_namespace, source_name, definition)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (namespace, name) DO UPDATE SET definition = excluded.definition",
            &[&place.schema, &place.name, &pipeline, &table.namespace, &table.name, &definition],
        )
        .await
        .map(drop)
}

fn corrupt(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::definite_because(
        format!("{what} cannot be read"),
        "restore the database, or drop the pipeline's tables and schema _dovetail, and scan again",
        error,
    )
}
