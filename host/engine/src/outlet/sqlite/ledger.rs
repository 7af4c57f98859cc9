//! What the outlet notes in the replica beside the rows, and in their transaction.

use dovetail_core::position::Lsn;
use dovetail_core::schema::{Relation, TableName};
use rusqlite::{Connection, OptionalExtension, params};

use super::failure::{self, Doing};
use crate::origin::Origin;
use crate::outlet::Error;
use crate::outlet::table::Known;

/// Of the two tables below. A newer engine that needs other ones counts it up.
const FORMAT: i64 = 1;

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS _dovetail (
    pipeline TEXT PRIMARY KEY,
    format INTEGER NOT NULL,
    system TEXT NOT NULL,
    database TEXT NOT NULL,
    checkpoint TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _dovetail_tables (
    name TEXT PRIMARY KEY COLLATE NOCASE,
    pipeline TEXT NOT NULL,
    namespace TEXT NOT NULL,
    source_name TEXT NOT NULL,
    definition TEXT NOT NULL
) WITHOUT ROWID;";

/// Registers the pipeline in the replica, or finds it there with its checkpoint.
pub(super) fn enter(connection: &Connection, origin: &Origin) -> Result<Option<Lsn>, Error> {
    let doing = Doing::new("read the checkpoint in the replica");
    connection.execute_batch(CREATE).map_err(|error| doing.failed(error))?;
    let found: Option<(i64, String, String, Option<String>)> = connection
        .query_row(
            "SELECT format, system, database, checkpoint FROM _dovetail WHERE pipeline = ?",
            [&origin.pipeline],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .optional()
        .map_err(|error| doing.failed(error))?;
    let Some((format, system, database, checkpoint)) = found else {
        let source = &origin.source;
        connection
            .execute(
                "INSERT INTO _dovetail (pipeline, format, system, database) VALUES (?, ?, ?, ?)",
                params![origin.pipeline, FORMAT, source.system, source.database],
            )
            .map_err(|error| doing.failed(error))?;
        return Ok(None);
    };
    if format > FORMAT {
        return Err(Error::definite(
            format!("the replica's notes have format {format}, and this engine knows {FORMAT}"),
            "run the newer engine that wrote them",
        ));
    }
    if (&system, &database) != (&origin.source.system, &origin.source.database) {
        return Err(Error::definite(
            format!(
                "the replica holds pipeline {} of database {database} of system {system}, \
                 and the source is {}",
                origin.pipeline, origin.source
            ),
            "name another replica, or delete this one to fill it anew",
        ));
    }
    let checkpoint = checkpoint.map(|text| text.parse()).transpose();
    checkpoint.map_err(|error| {
        failure::corrupt("the checkpoint in table _dovetail is not a log position", error)
    })
}

/// Moves the checkpoint, unless another process moved it meanwhile.
pub(super) fn advance(
    connection: &Connection,
    pipeline: &str,
    from: Option<Lsn>,
    to: Lsn,
) -> Result<(), Error> {
    let doing = Doing::new("write the checkpoint into the replica");
    let moved = connection
        .prepare_cached(
            "UPDATE _dovetail SET checkpoint = ?1 WHERE pipeline = ?2 AND checkpoint IS ?3",
        )
        .and_then(|mut statement| {
            let from = from.map(|lsn| lsn.to_string());
            statement.execute(params![to.to_string(), pipeline, from])
        })
        .map_err(|error| doing.failed(error))?;
    if moved == 0 {
        return Err(Error::definite(
            "another process moved this pipeline's checkpoint in the replica",
            "let one engine at a time run the pipeline",
        ));
    }
    Ok(())
}

/// Forgets the checkpoint: it is of a log that was given up.
pub(super) fn forget(connection: &Connection, pipeline: &str) -> Result<(), Error> {
    let doing = Doing::new("forget the checkpoint in the replica");
    connection
        .execute("UPDATE _dovetail SET checkpoint = NULL WHERE pipeline = ?", [pipeline])
        .map(drop)
        .map_err(|error| doing.failed(error))
}

/// What is noted of a table.
pub(super) fn definition(
    connection: &Connection,
    pipeline: &str,
    name: &str,
    table: &TableName,
) -> Result<Known, Error> {
    let doing = Doing::new("read the tables of the replica");
    let found: Option<(String, String, String, String)> = connection
        .query_row(
            "SELECT pipeline, namespace, source_name, definition FROM _dovetail_tables WHERE name = ?",
            [name],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .optional()
        .map_err(|error| doing.failed(error))?;
    let Some((owner, namespace, source_name, definition)) = found else {
        return Ok(Known::Nothing);
    };
    if owner != pipeline || namespace != table.namespace || source_name != table.name {
        return Err(Error::definite(
            format!(
                "table {name} of the replica already holds {namespace}.{source_name} of pipeline \
                 {owner}, so {table} has no place there"
            ),
            "give one of them a replica of its own (names differ in more than case)",
        ));
    }
    if definition.is_empty() {
        return Ok(Known::Table);
    }
    serde_json::from_str(&definition).map(Known::Definition).map_err(|error| {
        failure::corrupt(&format!("the definition of {name} in _dovetail_tables"), error)
    })
}

/// Notes the definition under which rows are written from here on.
pub(super) fn define(
    connection: &Connection,
    pipeline: &str,
    name: &str,
    relation: &Relation,
) -> Result<(), Error> {
    let doing = Doing::new("write the tables of the replica");
    let definition = serde_json::to_string(relation)
        .map_err(|error| failure::corrupt("a table's definition", error))?;
    let table = &relation.table;
    connection
        .execute(
            "INSERT INTO _dovetail_tables (name, pipeline, namespace, source_name, definition)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
            params![name, pipeline, table.namespace, table.name, definition],
        )
        .map_err(|error| doing.failed(error))?;
    Ok(())
}
