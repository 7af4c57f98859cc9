//! From the exported functions of the component to the plugin's methods.

use std::cell::RefCell;

pub use crate::bindings::exports::dovetail::plugin::{lifecycle, packed};

use crate::bindings::dovetail::plugin::types;
use crate::event::{Event, Operation};
use crate::frame::{Request, Writer};
use crate::relation::{Column, Kind, Relation};
use crate::{CallError, Lane, Transform};

/// Makes a type that implements [`Transform`](crate::Transform) the plugin of this component.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        const _: () = {
            thread_local! {
                static RUNTIME: $crate::private::Runtime<$plugin> =
                    const { $crate::private::Runtime::new() };
            }

            struct Component;

            impl $crate::private::lifecycle::Guest for Component {
                fn describe(
                    config: String,
                ) -> Result<$crate::private::lifecycle::Descriptor, String> {
                    $crate::private::describe::<$plugin>(&config)
                }

                fn init(config: String, lane: u32, lanes: u32) -> Result<(), String> {
                    RUNTIME.with(|runtime| runtime.init(&config, lane, lanes))
                }

                fn on_relation(
                    relation: $crate::private::lifecycle::Relation,
                ) -> Result<(), $crate::private::lifecycle::CallError> {
                    RUNTIME.with(|runtime| runtime.on_relation(relation))
                }
            }

            impl $crate::private::packed::Guest for Component {
                fn process(
                    frame: Vec<u8>,
                ) -> Result<Vec<u8>, $crate::private::lifecycle::CallError> {
                    RUNTIME.with(|runtime| runtime.process(&frame))
                }
            }

    $crate::bindings::export_bindings!(Component with_types_in $crate::bindings);
        };
    };
}

/// The plugin of this component, once it is initialized.
pub struct Runtime<T> {
    state: RefCell<Option<State<T>>>,
}

struct State<T> {
    plugin: T,
    relations: Vec<Relation>,
    /// Of the last event: neighbours mostly share their relation.
    last: usize,
    writer: Writer,
}

impl<T: Transform> Runtime<T> {
    #[expect(clippy::new_without_default, reason = "made in a const block, by the macro only")]
    pub const fn new() -> Self {
        Self { state: RefCell::new(None) }
    }

    pub fn init(&self, config: &str, number: u32, count: u32) -> Result<(), String> {
        let plugin = T::new(config, Lane { number, count })?;
        let writer = Writer::default();
        *self.state.borrow_mut() = Some(State { plugin, relations: Vec::new(), last: 0, writer });
        Ok(())
    }

    pub fn on_relation(&self, relation: lifecycle::Relation) -> Result<(), types::CallError> {
        self.with_state(|state| {
            let relation = relation_of(relation);
            state.plugin.relation(&relation)?;
            let same =
                |known: &Relation| (known.id, known.version) == (relation.id, relation.version);
            state.relations.retain(|known| !same(known));
            state.relations.push(relation);
            Ok(())
        })
    }

    pub fn process(&self, frame: &[u8]) -> Result<Vec<u8>, types::CallError> {
        self.with_state(|state| {
            let request = Request::read(frame).map_err(unreadable)?;
            state.writer.begin(request.rows());
            for row in request.iter() {
                let row = row.map_err(unreadable)?;
                let relation = match row.relation() {
                    Some((id, version)) => Some(state.find(id, version)?),
                    None => None,
                };
                let relation = relation.and_then(|index| state.relations.get(index));
                let event = Event { row, values: request.values(), relation };
                let outcome = state.plugin.event(event);
                state.writer.push(outcome, relation);
            }
            state
                .writer
                .finish()
                .ok_or_else(|| CallError::Fatal("outcomes of one batch beyond 4 GiB".to_owned()))
        })
    }

    fn with_state<R>(
        &self,
        call: impl FnOnce(&mut State<T>) -> Result<R, CallError>,
    ) -> Result<R, types::CallError> {
        let mut state = self.state.borrow_mut();
        let Some(state) = state.as_mut() else {
            return Err(types::CallError::Fatal("called before init".to_owned()));
        };
        call(state).map_err(|error| match error {
            CallError::Retry(after) => types::CallError::Retry(after),
            CallError::Fatal(reason) => types::CallError::Fatal(reason),
        })
    }
}

fn unreadable(what: &'static str) -> CallError {
    CallError::Fatal(format!("frame that this SDK cannot read: {what}"))
}

impl<T> State<T> {
    fn find(&mut self, id: u32, version: u32) -> Result<usize, CallError> {
        let is = |relation: &Relation| relation.id == id && relation.version == version;
        if self.relations.get(self.last).is_some_and(is) {
            return Ok(self.last);
        }
        let Some(found) = self.relations.iter().position(is) else {
            return Err(unreadable("an event of a relation that was not announced"));
        };
        self.last = found;
        Ok(found)
    }
}

pub fn describe<T: Transform>(config: &str) -> Result<lifecycle::Descriptor, String> {
    let descriptor = T::describe(config)?;
    let interest = |interest: crate::Interest| lifecycle::Interest {
        tables: interest.tables,
        operations: interest.operations.into_iter().map(operation).collect(),
        columns: interest.columns,
        before: interest.before,
    };
    Ok(lifecycle::Descriptor {
        name: descriptor.name,
        version: descriptor.version,
        interests: descriptor.interests.into_iter().map(interest).collect(),
    })
}

fn operation(operation: Operation) -> types::Operation {
    match operation {
        Operation::Read => types::Operation::Read,
        Operation::Insert => types::Operation::Insert,
        Operation::Update => types::Operation::Update,
        Operation::Delete => types::Operation::Delete,
        Operation::Truncate => types::Operation::Truncate,
        Operation::Message => types::Operation::Message,
    }
}

fn relation_of(relation: lifecycle::Relation) -> Relation {
    let column = |column: types::Column| Column {
        name: column.name,
        type_name: column.type_name,
        type_modifier: column.type_modifier,
        kind: kind(column.kind),
        key_ordinal: column.key_ordinal,
    };
    Relation {
        id: relation.id.id,
        version: relation.id.version,
        namespace: relation.namespace,
        name: relation.name,
        columns: relation.columns.into_iter().map(column).collect(),
    }
}

fn kind(kind: types::Kind) -> Kind {
    match kind {
        types::Kind::Boolean => Kind::Boolean,
        types::Kind::Int => Kind::Int,
        types::Kind::Uint => Kind::Uint,
        types::Kind::Float32 => Kind::Float32,
        types::Kind::Float64 => Kind::Float64,
        types::Kind::Decimal => Kind::Decimal,
        types::Kind::Text => Kind::Text,
        types::Kind::Bytes => Kind::Bytes,
        types::Kind::Json => Kind::Json,
        types::Kind::Uuid => Kind::Uuid,
        types::Kind::Date => Kind::Date,
        types::Kind::Time => Kind::Time,
        types::Kind::TimeTz => Kind::TimeTz,
        types::Kind::Timestamp => Kind::Timestamp,
        types::Kind::TimestampTz => Kind::TimestampTz,
        types::Kind::Interval => Kind::Interval,
        types::Kind::Bits => Kind::Bits,
        types::Kind::Raw => Kind::Raw,
    }
}
