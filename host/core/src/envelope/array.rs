//! What all forms are made of: arrays that are read element by element, by somebody who knows what came before.
//!
//! Serde's own implementations would do for numbers only. A row needs its table's columns, text needs the buffer that it
//! is a part of, and an error must say more than the library's, and less: its texts repeat what was found.

use std::cell::Cell;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::ser::{self, Serialize, Serializer};

use super::Malformed;
use crate::value::Text;

/// What an entry is read with.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// The whole entry: what text and bytes are parts of.
    pub(super) buffer: &'a Bytes,
    /// Why the reading was given up, where the library's error would not say it.
    pub(super) reason: &'a Cell<Option<Malformed>>,
}

impl Context<'_> {
    pub(super) fn refuse<E: de::Error>(self, reason: Malformed) -> E {
        self.reason.set(Some(reason));
        E::custom("refused")
    }

    pub(super) fn unknown<E: de::Error>(self, what: &'static str, tag: u8) -> E {
        self.refuse(Malformed::Tag { what, tag })
    }

    /// How many elements to make room for, of those that an array claims to have: each is at least this long.
    pub(super) fn room<'de>(self, array: &impl SeqAccess<'de>, element_bytes: usize) -> usize {
        array.size_hint().unwrap_or_default().min(self.buffer.len() / element_bytes)
    }

    pub(super) fn text<'de, A: SeqAccess<'de>>(self, array: &mut A) -> Result<Text, A::Error> {
        next_by(array, TextOf(self.buffer))
    }

    pub(super) fn bytes<'de, A: SeqAccess<'de>>(self, array: &mut A) -> Result<Bytes, A::Error> {
        next_by(array, BytesOf(self.buffer))
    }
}

/// Reads the elements of an array. Elements that it leaves are an error.
pub(super) trait Elements<'de> {
    type Value;

    fn read<A: SeqAccess<'de>>(self, array: &mut A) -> Result<Self::Value, A::Error>;
}

pub(super) fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    array: &mut A,
) -> Result<T, A::Error> {
    array.next_element()?.ok_or_else(too_short)
}

pub(super) fn next_by<'de, T: DeserializeSeed<'de>, A: SeqAccess<'de>>(
    array: &mut A,
    seed: T,
) -> Result<T::Value, A::Error> {
    array.next_element_seed(seed)?.ok_or_else(too_short)
}

fn too_short<E: de::Error>() -> E {
    E::custom("array with too few elements")
}

/// An array and nothing else: bytes, which the library takes for an array of numbers where one is asked for, are not.
pub(super) struct Array<T>(pub(super) T);

impl<'de, T: Elements<'de>> DeserializeSeed<'de> for Array<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Elements<'de>> Visitor<'de> for Array<T> {
    type Value = T::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<T::Value, A::Error> {
        self.0.read(&mut array)
    }
}

/// An array or nil.
pub(super) struct Optional<T>(pub(super) T);

impl<'de, T: Elements<'de>> DeserializeSeed<'de> for Optional<T> {
    type Value = Option<T::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Elements<'de>> Visitor<'de> for Optional<T> {
    type Value = Option<T::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or nil")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        self.0.read(&mut array).map(Some)
    }
}

struct TextOf<'a>(&'a Bytes);

impl<'de> DeserializeSeed<'de> for TextOf<'_> {
    type Value = Text;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextOf<'_> {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text, E> {
        Ok(Text::shared(self.0, text))
    }
}

struct BytesOf<'a>(&'a Bytes);

impl<'de> DeserializeSeed<'de> for BytesOf<'_> {
    type Value = Bytes;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for BytesOf<'_> {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<Bytes, E> {
        Ok(self.0.slice_ref(bytes))
    }
}

/// Text that is written.
pub(super) struct Str<'a>(pub(super) &'a str);

impl Serialize for Str<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fits(self.0.len())?;
        serializer.serialize_str(self.0)
    }
}

/// Bytes that are written; serde would make an array of them.
pub(super) struct Binary<'a>(pub(super) &'a [u8]);

impl Serialize for Binary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fits(self.0.len())?;
        serializer.serialize_bytes(self.0)
    }
}

/// The library cuts a length off at 32 bits.
fn fits<E: ser::Error>(length: usize) -> Result<(), E> {
    match u32::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(E::custom("value of 4 GiB or more")),
    }
}
