//! The messages of the `pgoutput` plugin, protocol versions 1 and 2 without streaming of open transactions.
//!
//! A message is checked to its last byte before anything of it is used: an unknown message, a flag or a kind of column
//! that was not asked for, an end too early or too late is an error. Rows are not copied here: a [`Tuple`] is a place in
//! the message, read later under the definition of its table. Source: "Logical Replication Message Formats" in
//! PostgreSQL's manual.

use std::ops::Range;

use bytes::Bytes;

use super::reader::{Reader, Short};
use super::replication::unix_micros;
use crate::position::Lsn;
use crate::schema::RelationId;

#[derive(Debug, Clone)]
pub enum Message<'a> {
    Begin {
        /// Start of the commit record.
        commit: Lsn,
        commit_time_micros: i64,
        transaction: u32,
    },
    Commit {
        /// The same as in `Begin`.
        commit: Lsn,
        /// End of the commit record.
        end: Lsn,
    },
    /// Where the transaction was first committed, if it came by replication.
    Origin,
    Relation(Definition<'a>),
    /// Names a type that is not built in; of a domain, its base type.
    Type {
        id: u32,
        namespace: &'a str,
        name: &'a str,
    },
    Insert {
        relation: RelationId,
        new: Tuple<'a>,
    },
    Update {
        relation: RelationId,
        old: Old<'a>,
        new: Tuple<'a>,
    },
    Delete {
        relation: RelationId,
        /// Never [`Old::None`].
        old: Old<'a>,
    },
    Truncate {
        relations: Vec<RelationId>,
        cascade: bool,
        restart_identity: bool,
    },
    Message {
        transactional: bool,
        /// End of the message's own record.
        end: Lsn,
        prefix: &'a str,
        content: Bytes,
    },
}

/// `relreplident`: what the log holds of an old row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The primary key's columns.
    Default,
    /// The columns of an index.
    Index,
    Full,
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Definition<'a> {
    pub id: RelationId,
    pub namespace: &'a str,
    pub name: &'a str,
    pub identity: Identity,
    pub columns: Vec<ColumnDefinition<'a>>,
}

#[derive(Debug, Clone)]
pub struct ColumnDefinition<'a> {
    /// Part of the replica identity; under [`Identity::Full`] every column is.
    pub identifies: bool,
    pub name: &'a str,
    pub type_id: u32,
    pub type_modifier: i32,
}

/// The old row that comes with an update or a delete.
#[derive(Debug, Clone)]
pub enum Old<'a> {
    None,
    /// Only the columns of the replica identity mean anything; the others are sent as null.
    Key(Tuple<'a>),
    Full(Tuple<'a>),
}

/// A row that has been checked to be there, and not been read.
#[derive(Debug, Clone)]
pub struct Tuple<'a> {
    fields: u16,
    /// Behind the number of fields.
    reader: Reader<'a>,
}

/// One field of a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Null,
    /// Out-of-line and not changed, so not in the log.
    Unchanged,
    /// The place of its text in the message.
    Text(Range<usize>),
}

/// Definite: nothing behind such a message can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("empty message")]
    Empty,
    #[error(
        "message of unknown kind {tag:#04x}; this server or the options of the stream are not supported"
    )]
    Unknown { tag: u8 },
    #[error("message of kind {tag:#04x} ends early, after {length} bytes")]
    Short { tag: u8, length: usize },
    #[error("message of kind {tag:#04x} with {excess} bytes behind its end")]
    Excess { tag: u8, excess: usize },
    #[error("message of kind {tag:#04x} with unknown mark {mark:#04x} in its {part}")]
    Mark { tag: u8, part: &'static str, mark: u8 },
    #[error("message of kind {tag:#04x} with a name that is not utf-8")]
    Name { tag: u8 },
}

/// # Errors
/// When the payload is not exactly one message that is understood.
pub fn message(payload: &Bytes) -> Result<Message<'_>, InvalidMessage> {
    let mut reader = Reader::new(payload);
    let tag = reader.u8().map_err(|Short| InvalidMessage::Empty)?;
    let parse = match tag {
        b'B' => begin,
        b'C' => commit,
        b'O' => origin,
        b'R' => relation,
        b'Y' => type_name,
        b'I' => insert,
        b'U' => update,
        b'D' => delete,
        b'T' => truncate,
        b'M' => logical_message,
        _ => return Err(InvalidMessage::Unknown { tag }),
    };
    let message = parse(&mut reader).map_err(|wrong| match wrong {
        Wrong::Short => InvalidMessage::Short { tag, length: payload.len() },
        Wrong::Mark(part, mark) => InvalidMessage::Mark { tag, part, mark },
        Wrong::Name => InvalidMessage::Name { tag },
    })?;
    match reader.left() {
        0 => Ok(message),
        excess => Err(InvalidMessage::Excess { tag, excess }),
    }
}

enum Wrong {
    Short,
    Mark(&'static str, u8),
    Name,
}

impl From<Short> for Wrong {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

type Parsed<'a> = Result<Message<'a>, Wrong>;

fn begin<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    Ok(Message::Begin {
        commit: Lsn::new(reader.u64()?),
        commit_time_micros: unix_micros(reader.i64()?),
        transaction: reader.u32()?,
    })
}

fn commit<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    // Reserved, always 0: a flag would change what the message means.
    no_flags(reader)?;
    let (commit, end) = (Lsn::new(reader.u64()?), Lsn::new(reader.u64()?));
    reader.i64()?;
    Ok(Message::Commit { commit, end })
}

fn no_flags(reader: &mut Reader<'_>) -> Result<(), Wrong> {
    match reader.u8()? {
        0 => Ok(()),
        mark => Err(Wrong::Mark("flags", mark)),
    }
}

fn origin<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    reader.u64()?;
    name(reader)?;
    Ok(Message::Origin)
}

fn relation<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    let id = RelationId(reader.u32()?);
    let (namespace, table) = (name(reader)?, name(reader)?);
    let identity = match reader.u8()? {
        b'd' => Identity::Default,
        b'i' => Identity::Index,
        b'f' => Identity::Full,
        b'n' => Identity::Nothing,
        mark => return Err(Wrong::Mark("replica identity", mark)),
    };
    let count = reader.u16()?;
    let mut columns = Vec::with_capacity(usize::from(count).min(reader.left()));
    for _ in 0..count {
        let identifies = match reader.u8()? {
            0 => false,
            1 => true,
            mark => return Err(Wrong::Mark("column's flags", mark)),
        };
        columns.push(ColumnDefinition {
            identifies,
            name: name(reader)?,
            type_id: reader.u32()?,
            type_modifier: reader.i32()?,
        });
    }
    // pgoutput writes pg_catalog as the empty string.
    let namespace = if namespace.is_empty() { "pg_catalog" } else { namespace };
    Ok(Message::Relation(Definition { id, namespace, name: table, identity, columns }))
}

fn type_name<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    Ok(Message::Type { id: reader.u32()?, namespace: name(reader)?, name: name(reader)? })
}

fn insert<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    let relation = RelationId(reader.u32()?);
    match reader.u8()? {
        b'N' => Ok(Message::Insert { relation, new: tuple(reader)? }),
        mark => Err(Wrong::Mark("row", mark)),
    }
}

fn update<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    let relation = RelationId(reader.u32()?);
    let (old, mark) = match reader.u8()? {
        b'K' => (Old::Key(tuple(reader)?), reader.u8()?),
        b'O' => (Old::Full(tuple(reader)?), reader.u8()?),
        mark => (Old::None, mark),
    };
    match mark {
        b'N' => Ok(Message::Update { relation, old, new: tuple(reader)? }),
        mark => Err(Wrong::Mark("row", mark)),
    }
}

fn delete<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    let relation = RelationId(reader.u32()?);
    let old = match reader.u8()? {
        b'K' => Old::Key(tuple(reader)?),
        b'O' => Old::Full(tuple(reader)?),
        mark => return Err(Wrong::Mark("row", mark)),
    };
    Ok(Message::Delete { relation, old })
}

fn truncate<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    let count = reader.u32()?;
    let flags = reader.u8()?;
    if flags & !3 != 0 {
        return Err(Wrong::Mark("flags", flags));
    }
    // The announced number is not believed before its bytes are seen to be there.
    let mut relations = Vec::with_capacity(reader.left() / size_of::<u32>());
    for _ in 0..count {
        relations.push(RelationId(reader.u32()?));
    }
    let (cascade, restart_identity) = (flags & 1 != 0, flags & 2 != 0);
    Ok(Message::Truncate { relations, cascade, restart_identity })
}

fn logical_message<'a>(reader: &mut Reader<'a>) -> Parsed<'a> {
    let transactional = match reader.u8()? {
        0 => false,
        1 => true,
        mark => return Err(Wrong::Mark("flags", mark)),
    };
    let end = Lsn::new(reader.u64()?);
    let prefix = name(reader)?;
    let length = reader.u32()?;
    let range = reader.range(length)?;
    let content = reader.message().slice(range);
    Ok(Message::Message { transactional, end, prefix, content })
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Wrong> {
    std::str::from_utf8(reader.string()?).map_err(|_| Wrong::Name)
}

/// Walks over a row, so that what follows it is found and every later read of it succeeds.
fn tuple<'a>(reader: &mut Reader<'a>) -> Result<Tuple<'a>, Wrong> {
    let fields = reader.u16()?;
    let tuple = Tuple { fields, reader: reader.clone() };
    for _ in 0..fields {
        field(reader)?;
    }
    Ok(tuple)
}

fn field(reader: &mut Reader<'_>) -> Result<Field, Wrong> {
    match reader.u8()? {
        b't' => {
            let length = reader.u32()?;
            Ok(Field::Text(reader.range(length)?))
        }
        b'n' => Ok(Field::Null),
        b'u' => Ok(Field::Unchanged),
        // `b` among them: the binary form is not asked for.
        mark => Err(Wrong::Mark("column", mark)),
    }
}

impl<'a> Tuple<'a> {
    pub fn len(&self) -> usize {
        usize::from(self.fields)
    }

    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// What the ranges of [`Field::Text`] are in.
    pub fn message(&self) -> &'a Bytes {
        self.reader.message()
    }

    pub fn fields(&self) -> impl Iterator<Item = Field> {
        let mut reader = self.reader.clone();
        // Every field was read once when the message was checked.
        (0..self.fields).map_while(move |_| field(&mut reader).ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(bytes: &[u8]) -> Result<String, InvalidMessage> {
        let payload = Bytes::copy_from_slice(bytes);
        message(&payload).map(|message| format!("{message:?}"))
    }

    fn bytes(parts: &[&[u8]]) -> Bytes {
        Bytes::from(parts.concat())
    }

    /// One message of every kind, with every part that it can have.
    fn one_of_each() -> Vec<Bytes> {
        let row: &[u8] = b"\0\x03t\0\0\0\x011nu";
        let id: &[u8] = &7_u32.to_be_bytes();
        let word: &[u8] = &9_u64.to_be_bytes();
        vec![
            bytes(&[b"B", word, word, id]),
            bytes(&[b"C\0", word, word, word]),
            bytes(&[b"O", word, b"elsewhere\0"]),
            bytes(&[b"R", id, b"public\0t\0f\0\x01\x01id\0", &23_u32.to_be_bytes(), &[255; 4]]),
            bytes(&[b"Y", id, b"public\0mood\0"]),
            bytes(&[b"I", id, b"N", row]),
            bytes(&[b"U", id, b"N", row]),
            bytes(&[b"U", id, b"K", row, b"N", row]),
            bytes(&[b"U", id, b"O", row, b"N", row]),
            bytes(&[b"D", id, b"K", row]),
            bytes(&[b"D", id, b"O", row]),
            bytes(&[b"T\0\0\0\x02\x03", id, id]),
            bytes(&[b"M\x01", word, b"prefix\0\0\0\0\x02hi"]),
        ]
    }

    #[test]
    fn fields_of_a_row_are_found_in_the_message() {
        let payload = bytes(&[b"U\0\0\0\x07K\0\x01t\0\0\0\x02oldN", b"\0\x03t\0\0\0\x03newnu"]);
        // The length of the old field is wrong on purpose: the row mark is then not where it is looked for.
        assert_eq!(
            parsed(&payload),
            Err(InvalidMessage::Mark { tag: b'U', part: "row", mark: b'd' })
        );
        let payload = bytes(&[b"U\0\0\0\x07K\0\x01t\0\0\0\x03oldN", b"\0\x03t\0\0\0\x03newnu"]);
        let Ok(Message::Update { relation, old: Old::Key(old), new }) = message(&payload) else {
            panic!("an update with its old key");
        };
        let texts = |tuple: &Tuple<'_>| {
            let text = |field| match field {
                Field::Text(range) => tuple.message()[range].to_vec(),
                other => format!("{other:?}").into_bytes(),
            };
            tuple.fields().map(text).collect::<Vec<_>>()
        };
        assert_eq!(relation, RelationId(7));
        assert_eq!(texts(&old), [b"old".to_vec()]);
        assert_eq!(texts(&new), [b"new".to_vec(), b"Null".to_vec(), b"Unchanged".to_vec()]);
    }

    #[test]
    fn every_message_is_read_whole_or_refused() {
        for whole in one_of_each() {
            assert!(parsed(&whole).is_ok(), "{whole:?}");
            let tag = whole[0];
            for length in 1..whole.len() {
                let short = InvalidMessage::Short { tag, length };
                assert_eq!(parsed(&whole[..length]), Err(short), "{whole:?}");
            }
            let long = bytes(&[&whole, b"x"]);
            assert_eq!(parsed(&long), Err(InvalidMessage::Excess { tag, excess: 1 }));
        }
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        assert_eq!(parsed(b""), Err(InvalidMessage::Empty));
        // Stream start, prepare, and what no version has.
        for tag in [b'S', b'E', b'c', b'A', b'b', b'P', b'K', b'r', b'p', b'Z', 0] {
            assert_eq!(parsed(&[tag, 0, 0]), Err(InvalidMessage::Unknown { tag }));
        }
        let binary = b"I\0\0\0\x07N\0\x01b\0\0\0\x04\0\0\0\x01";
        let mark = InvalidMessage::Mark { tag: b'I', part: "column", mark: b'b' };
        assert_eq!(parsed(binary), Err(mark));
        let flags = InvalidMessage::Mark { tag: b'T', part: "flags", mark: 4 };
        assert_eq!(parsed(b"T\0\0\0\0\x04"), Err(flags));
    }

    #[test]
    fn an_announced_size_is_not_believed() {
        let huge = b"I\0\0\0\x07N\0\x01t\xFF\xFF\xFF\xFFx";
        assert_eq!(parsed(huge), Err(InvalidMessage::Short { tag: b'I', length: huge.len() }));
        let many = b"T\xFF\xFF\xFF\xFF\0";
        assert_eq!(parsed(many), Err(InvalidMessage::Short { tag: b'T', length: many.len() }));
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(
            kind in any::<prop::sample::Index>(),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            tail in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let messages = one_of_each();
            let mut payload = kind.get(&messages).to_vec();
            for (at, byte) in edits {
                *at.get_mut(&mut payload) = byte;
            }
            payload.extend(tail);
            let payload = Bytes::from(payload);
            if let Ok(Message::Insert { new, .. }) = message(&payload) {
                prop_assert_eq!(new.fields().count(), new.len());
            }
        }
    }
}
