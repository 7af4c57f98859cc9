//! Whether an event allows what a plugin made of it.
//!
//! Guests count the columns that they were shown; outcomes leave here in the columns of the relation. What an event does
//! not allow becomes the failure of that event alone, with a reason for the plugin's author, and nothing of it is
//! applied. The rules: what a plugin was not shown it cannot change; the key stays, because the lane was chosen by it; a
//! value is of its column's type; a value that the source did not send cannot be invented.

use bytes::Bytes;
use dovetail_core::change::{Change, Event};
use dovetail_core::outcome::{Cell, Emission, Failure, FailureClass, Outcome, Payload};
use dovetail_core::schema::Kind;
use dovetail_core::value::{Row, Value};

use crate::limits::Limits;
use crate::relations::Known;

pub(crate) struct Verdict<'a> {
    pub(crate) limits: &'a Limits,
}

/// Code and message of a failure that the host found. Neither holds a value.
struct Denied(&'static str, String);

impl Verdict<'_> {
    pub(crate) fn settle(&self, reply: Outcome, event: &Event, known: Option<&Known>) -> Outcome {
        let settled = match reply {
            Outcome::Patch(cells) => patch(cells, event, known).map(Outcome::Patch),
            Outcome::Emit(emissions) => self.emit(emissions, event, known).map(Outcome::Emit),
            Outcome::Route(targets) => self.route(targets).map(Outcome::Route),
            Outcome::Pass | Outcome::Drop | Outcome::Fail(_) => Ok(reply),
        };
        settled.unwrap_or_else(|Denied(code, message)| {
            let class = FailureClass::InvalidData;
            Outcome::Fail(Failure { class, code: code.into(), message })
        })
    }

    fn route(&self, targets: Vec<u16>) -> Result<Vec<u16>, Denied> {
        let configured = self.limits.targets;
        if let Some(unknown) = targets.iter().find(|target| **target >= configured) {
            let message = format!("route to target {unknown} of {configured}");
            return Err(Denied("host.route-unknown", message));
        }
        let mut sorted = targets.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != targets.len() {
            return Err(Denied("host.route-twice", "route names a target twice".into()));
        }
        Ok(targets)
    }

    fn emit(
        &self,
        emissions: Vec<Emission>,
        event: &Event,
        known: Option<&Known>,
    ) -> Result<Vec<Emission>, Denied> {
        let limit = self.limits.emissions_per_event;
        if emissions.len() > limit {
            let message =
                format!("{} emissions for one event, of {limit} allowed", emissions.len());
            return Err(Denied("host.emissions", message));
        }
        emissions.into_iter().map(|emission| emit_one(emission, event, known)).collect()
    }
}

fn patch(cells: Vec<Cell>, event: &Event, known: Option<&Known>) -> Result<Vec<Cell>, Denied> {
    let (Some(known), Some(after)) = (known, event.change.after()) else {
        let operation = event.change.operation().name();
        return Err(Denied("host.patch-no-row", format!("a {operation} has no row to patch")));
    };
    let real = |cell: Cell| {
        let column = real_column(cell.column, known)?;
        check(column, &cell.value, after, known)?;
        Ok(Cell { column, value: cell.value })
    };
    cells.into_iter().map(real).collect()
}

fn real_column(projected: usize, known: &Known) -> Result<usize, Denied> {
    known.column(projected).ok_or_else(|| {
        let shown = known.projection().map_or(0, |projection| projection.columns.len());
        Denied("host.column", format!("column {projected} of {shown} that the plugin was shown"))
    })
}

/// The one place that says whether a value may stand in a column of a row.
fn check(column: usize, value: &Value, row: &Row, known: &Known) -> Result<(), Denied> {
    let Some(definition) = known.relation.columns.get(column) else {
        return Err(Denied("host.column", format!("column {column} beyond the relation")));
    };
    let name = &definition.name;
    let kept = row.get(column).is_some_and(|before| is_same(before, value));
    if known.relation.key.contains(&column) && !kept {
        return Err(Denied("host.key", format!("key column {name} would change")));
    }
    match value {
        Value::Null => Ok(()),
        Value::Unavailable if row.get(column) == Some(&Value::Unavailable) => Ok(()),
        Value::Unavailable => {
            Err(Denied("host.unavailable", format!("column {name} would lose its value")))
        }
        _ if fits(definition.kind, value) => Ok(()),
        _ => {
            let message =
                format!("value of another type than {} in column {name}", definition.type_name);
            Err(Denied("host.type", message))
        }
    }
}

/// Equality under which a NaN that was passed through is still the same.
fn is_same(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Float32(before), Value::Float32(after)) => before.to_bits() == after.to_bits(),
        (Value::Float64(before), Value::Float64(after)) => before.to_bits() == after.to_bits(),
        _ => before == after,
    }
}

fn fits(kind: Kind, value: &Value) -> bool {
    let temporal = matches!(value, Value::TemporalSpecial(_));
    match kind {
        Kind::Boolean => matches!(value, Value::Boolean(_)),
        Kind::Int => matches!(value, Value::Int(_)),
        Kind::Uint => matches!(value, Value::Uint(_)),
        Kind::Float32 => matches!(value, Value::Float32(_)),
        Kind::Float64 => matches!(value, Value::Float64(_)),
        Kind::Decimal => matches!(value, Value::Decimal(_)),
        Kind::Text => matches!(value, Value::Text(_)),
        Kind::Bytes => matches!(value, Value::Bytes(_)),
        Kind::Json => matches!(value, Value::Json(_)),
        Kind::Uuid => matches!(value, Value::Uuid(_)),
        Kind::Date => temporal || matches!(value, Value::Date(_)),
        Kind::Time => temporal || matches!(value, Value::Time(_)),
        Kind::TimeTz => temporal || matches!(value, Value::TimeTz { .. }),
        Kind::Timestamp => temporal || matches!(value, Value::Timestamp(_)),
        Kind::TimestampTz => temporal || matches!(value, Value::TimestampTz(_)),
        Kind::Interval => temporal || matches!(value, Value::Interval { .. }),
        Kind::Bits => matches!(value, Value::Bits { .. }),
        Kind::Raw => matches!(value, Value::Raw(_)),
    }
}

fn emit_one(emission: Emission, event: &Event, known: Option<&Known>) -> Result<Emission, Denied> {
    let Emission { topic, key, payload, headers } = emission;
    let payload = match payload {
        Payload::Row(row) => Payload::Row(emitted_row(row, event, known)?),
        Payload::Bytes(bytes) => Payload::Bytes(bytes),
        Payload::Tombstone => Payload::Tombstone,
    };
    Ok(Emission { topic, key: key.filter(|key: &Bytes| !key.is_empty()), payload, headers })
}

/// The row in the relation's columns: those that the plugin was not shown are the input's.
fn emitted_row(row: Row, event: &Event, known: Option<&Known>) -> Result<Row, Denied> {
    let input = match &event.change {
        Change::Delete { before, .. } => Some(before),
        change => change.after(),
    };
    let (Some(known), Some(input)) = (known, input) else {
        let operation = event.change.operation().name();
        return Err(Denied("host.emit-no-row", format!("a {operation} has no row to emit")));
    };
    let shown = known.projection().map_or(0, |projection| projection.columns.len());
    let found = row.values().len();
    if found != shown {
        let message = format!("emitted row of {found} values, of {shown} columns");
        return Err(Denied("host.emit-columns", message));
    }
    let mut emitted = input.clone();
    for (projected, value) in row.into_values().into_iter().enumerate() {
        let column = real_column(projected, known)?;
        check(column, &value, input, known)?;
        if let Some(place) = emitted.get_mut(column) {
            *place = value;
        }
    }
    Ok(emitted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dovetail_core::change::Operation;
    use dovetail_core::position::Position;
    use dovetail_core::schema::{Column, Initial, Relation, RelationId, TableName};

    use super::*;
    use crate::interest::{Descriptor, Interest};
    use crate::relations::Relations;

    /// `id` (the key), `name`, `born`, and `secret`, which the plugin is not shown.
    fn relation() -> Arc<Relation> {
        let column = |(name, kind): (&str, Kind)| Column {
            name: name.into(),
            type_name: format!("{kind:?}"),
            type_modifier: -1,
            kind,
            initial: Initial::Null,
            number: None,
        };
        let columns =
            [("id", Kind::Int), ("secret", Kind::Text), ("name", Kind::Text), ("born", Kind::Date)];
        let table = TableName { namespace: "public".into(), name: "t".into() };
        let columns = columns.map(column).into();
        Arc::new(Relation::new(RelationId(1), table, columns, vec![0]))
    }

    fn row() -> Row {
        Row::new(vec![Value::Int(1), Value::text("s"), Value::text("n"), Value::Unavailable])
    }

    fn settle_on(change: Change, reply: Outcome) -> Outcome {
        let descriptor = Descriptor {
            name: "test".into(),
            version: "1".into(),
            interests: vec![Interest {
                tables: vec!["*".into()],
                operations: Operation::ALL.into_iter().collect(),
                columns: Some(["id", "name", "born"].map(String::from).into()),
                before: false,
            }],
        };
        let mut relations = Relations::default();
        let known = change
            .relation()
            .map(|relation| relations.index(relation, |relation| descriptor.view(relation)));
        let known = known.and_then(|index| relations.get(index));
        let event = Event {
            position: Position::default(),
            commit_time_micros: 0,
            transaction: None,
            redelivery: false,
            change,
        };
        let limits = Limits::around(1 << 20, Duration::from_secs(1), 2);
        Verdict { limits: &limits }.settle(reply, &event, known)
    }

    fn settle(reply: Outcome) -> Outcome {
        let change = Change::Insert { relation: relation(), after: row(), moved_from: None };
        settle_on(change, reply)
    }

    fn patch_of(column: usize, value: Value) -> Outcome {
        Outcome::Patch(vec![Cell { column, value }])
    }

    fn emit_row(values: Vec<Value>) -> Outcome {
        let payload = Payload::Row(Row::new(values));
        Outcome::Emit(vec![Emission { topic: None, key: None, payload, headers: Vec::new() }])
    }

    fn code(outcome: Outcome) -> String {
        match outcome {
            Outcome::Fail(failure) => failure.code,
            other => panic!("not denied: {other:?}"),
        }
    }

    #[test]
    fn a_patch_comes_back_in_the_columns_of_the_relation() {
        let patched = settle(patch_of(1, Value::text("m")));
        assert_eq!(patched, patch_of(2, Value::text("m")));
        assert_eq!(settle(patch_of(1, Value::Null)), patch_of(2, Value::Null));
    }

    #[test]
    fn a_patch_that_the_event_does_not_allow_fails_it() {
        for (reply, expected) in [
            (patch_of(0, Value::Int(2)), "host.key"),
            (patch_of(0, Value::Null), "host.key"),
            (patch_of(1, Value::Int(2)), "host.type"),
            (patch_of(1, Value::Unavailable), "host.unavailable"),
            (patch_of(3, Value::text("s")), "host.column"),
            (patch_of(usize::MAX, Value::Null), "host.column"),
        ] {
            assert_eq!(code(settle(reply)), expected);
        }
        let relation = relation();
        let delete = Change::Delete { relation, before: row(), moved: false };
        assert_eq!(code(settle_on(delete, patch_of(1, Value::Null))), "host.patch-no-row");
    }

    #[test]
    fn what_changes_nothing_is_allowed() {
        assert_eq!(settle(patch_of(0, Value::Int(1))), patch_of(0, Value::Int(1)));
        assert_eq!(settle(patch_of(2, Value::Unavailable)), patch_of(3, Value::Unavailable));
    }

    #[test]
    fn a_reason_holds_no_value() {
        let Outcome::Fail(failure) = settle(patch_of(0, Value::Int(4711))) else {
            panic!("changes the key")
        };
        assert!(!failure.message.contains("4711"), "{}", failure.message);
    }

    #[test]
    fn an_emitted_row_keeps_what_the_plugin_was_not_shown() {
        let reply = emit_row(vec![Value::Int(1), Value::text("m"), Value::Date(3)]);
        let expected =
            emit_row(vec![Value::Int(1), Value::text("s"), Value::text("m"), Value::Date(3)]);
        assert_eq!(settle(reply), expected);
    }

    #[test]
    fn an_emitted_row_of_another_key_or_width_fails_its_event() {
        let other_key = emit_row(vec![Value::Int(2), Value::text("m"), Value::Null]);
        assert_eq!(code(settle(other_key)), "host.key");
        assert_eq!(code(settle(emit_row(vec![Value::Int(1)]))), "host.emit-columns");
        let truncate = Change::Truncate { relation: relation() };
        assert_eq!(code(settle_on(truncate, emit_row(Vec::new()))), "host.emit-no-row");
    }

    #[test]
    fn emissions_and_routes_have_limits() {
        let tombstone =
            Emission { topic: None, key: None, payload: Payload::Tombstone, headers: Vec::new() };
        assert_eq!(code(settle(Outcome::Emit(vec![tombstone; 65]))), "host.emissions");
        assert_eq!(code(settle(Outcome::Route(vec![2]))), "host.route-unknown");
        assert_eq!(code(settle(Outcome::Route(vec![1, 1]))), "host.route-twice");
        assert_eq!(code(settle(Outcome::Route(vec![0; 65_535]))), "host.route-twice");
        assert_eq!(settle(Outcome::Route(vec![1, 0])), Outcome::Route(vec![1, 0]));
    }
}
