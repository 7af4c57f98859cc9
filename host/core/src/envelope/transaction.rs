//! Names of transactions.

use serde::de::{Error as _, SeqAccess};
use serde::ser::{Serialize, SerializeTupleStruct, Serializer};

use super::array::{Binary, Context, Elements, next};
use crate::change::{TransactionId, Xid};
use crate::gtid::mysql::{Issuer, Uuid};
use crate::gtid::{mariadb, mysql};
use crate::position::Lsn;

/// Numbers of the cases. They are in files: none is ever changed or given to another case.
mod tag {
    pub(super) const XID: u8 = 1;
    pub(super) const GTID: u8 = 2;
    pub(super) const MARIADB: u8 = 3;
    pub(super) const PLACE: u8 = 4;
}

pub(super) struct TransactionForm<'a>(pub(super) &'a TransactionId);

impl Serialize for TransactionForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let begin = |tag: u8, more: usize| {
            let mut array = serializer.serialize_tuple_struct("transaction", 1 + more)?;
            array.serialize_field(&tag)?;
            Ok(array)
        };
        match self.0 {
            TransactionId::Xid(Xid(number)) => {
                let mut array = begin(tag::XID, 1)?;
                array.serialize_field(number)?;
                array.end()
            }
            TransactionId::Gtid(mysql::Gtid { issuer: Issuer { uuid, tag }, number }) => {
                let mut array = begin(tag::GTID, 3)?;
                array.serialize_field(&Binary(&uuid.0))?;
                array.serialize_field(&tag.as_ref().map(mysql::Tag::as_str))?;
                array.serialize_field(number)?;
                array.end()
            }
            TransactionId::MariaDb(mariadb::Gtid { domain, server, sequence }) => {
                let mut array = begin(tag::MARIADB, 3)?;
                array.serialize_field(domain)?;
                array.serialize_field(server)?;
                array.serialize_field(sequence)?;
                array.end()
            }
            TransactionId::Place(lsn) => {
                let mut array = begin(tag::PLACE, 2)?;
                write_lsn(*lsn, &mut array)?;
                array.end()
            }
        }
    }
}

pub(super) struct TransactionOf<'a>(pub(super) Context<'a>);

impl<'de> Elements<'de> for TransactionOf<'_> {
    type Value = TransactionId;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<TransactionId, A::Error> {
        Ok(match next(array)? {
            tag::XID => TransactionId::Xid(Xid(next(array)?)),
            tag::GTID => {
                let uuid = self.0.bytes(array)?.as_ref().try_into();
                let uuid = Uuid(uuid.map_err(|_| A::Error::custom("uuid of another length"))?);
                let tag: Option<&str> = next(array)?;
                let tag = tag.map(str::parse).transpose();
                let tag = tag.map_err(|_| A::Error::custom("not a tag"))?;
                let issuer = Issuer { uuid, tag };
                TransactionId::Gtid(mysql::Gtid { issuer, number: next(array)? })
            }
            tag::MARIADB => TransactionId::MariaDb(mariadb::Gtid {
                domain: next(array)?,
                server: next(array)?,
                sequence: next(array)?,
            }),
            tag::PLACE => TransactionId::Place(lsn(array)?),
            unknown => return Err(self.0.unknown("transaction", unknown)),
        })
    }
}

/// Two elements.
pub(super) fn write_lsn<S: SerializeTupleStruct>(lsn: Lsn, array: &mut S) -> Result<(), S::Error> {
    array.serialize_field(&lsn.file())?;
    array.serialize_field(&lsn.offset())
}

pub(super) fn lsn<'de, A: SeqAccess<'de>>(array: &mut A) -> Result<Lsn, A::Error> {
    Ok(Lsn::from_parts(next(array)?, next(array)?))
}
