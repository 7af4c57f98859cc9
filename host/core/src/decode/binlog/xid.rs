//! The names of XA transactions.

use super::reader::{Reader, Short};

/// A format, a global and a branch qualifier; compared by all three, as servers do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Xid {
    pub format: u32,
    pub global: Vec<u8>,
    pub branch: Vec<u8>,
}

impl Xid {
    /// Of each qualifier.
    pub const LENGTH_MAX: usize = 64;
}

/// The body of an `XA_PREPARE`: whether it is a commit in one phase, and the name.
pub(super) fn prepare(body: &[u8]) -> Result<(bool, Xid), Short> {
    let mut reader = Reader::new(body);
    let is_commit = reader.u8()? != 0;
    let format = reader.u32()?;
    let global_length = usize::try_from(reader.u32()?).map_err(|_| Short)?;
    let branch_length = usize::try_from(reader.u32()?).map_err(|_| Short)?;
    if global_length > Xid::LENGTH_MAX || branch_length > Xid::LENGTH_MAX {
        return Err(Short);
    }
    let global = reader.take(global_length)?.to_vec();
    let branch = reader.take(branch_length)?.to_vec();
    Ok((is_commit, Xid { format, global, branch }))
}
