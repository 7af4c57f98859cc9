//! Who we are to the server: a replica, with a server id that nobody else has.
//!
//! A server that hears of a second replica with the id of a first ends the first one's stream: on MariaDB by the id, on
//! MySQL by the uuid, or by the id of a replica that gives no uuid. So an id in use is not taken, were it configured
//! or not, because taking it would end what is not ours. 1. Engine A streams with id 7. 2. B starts with id 7. 3. The
//! server ends A's stream; A comes back and ends B's. Result: both live from reconnecting, and which of them it is
//! that disturbs a real replica is left to chance.
//!
//! Ids in use are known where the account may see the replicas. Two engines that start in the same moment can still
//! choose one number, once in two thousand million; the loser of that comes back, sees the other, and chooses again.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

use super::failure::{self, Failure};
use super::wire::Wire;

/// What the server shows of a replica that is us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replica {
    pub id: NonZeroU32,
    /// New in each life. MySQL tells replicas apart by it.
    pub uuid: String,
}

impl Replica {
    /// Chooses who to be. `configured` is taken unless somebody has it.
    pub(super) async fn choose(
        wire: &mut Wire,
        configured: Option<NonZeroU32>,
    ) -> Result<Self, Failure> {
        let taken = taken(wire).await?;
        let id = match configured {
            Some(id) if !taken.contains(&id.get()) => id,
            Some(id) => {
                let other = by_chance(&taken, random);
                tracing::warn!(
                    server_id = id,
                    chosen = other,
                    "the configured server id is in use"
                );
                other
            }
            None => by_chance(&taken, random),
        };
        Ok(Self { id, uuid: uuid([random(), random()]) })
    }
}

/// Ids that cannot be ours: the server's own, and those of its replicas where we may see them.
async fn taken(wire: &mut Wire) -> Result<HashSet<u32>, Failure> {
    let what = "look for replicas with our server id";
    let mut taken = HashSet::new();
    let own = wire.query(what, "SELECT @@GLOBAL.server_id").await?;
    // The newer word first: MySQL 8.4 dropped the older one, MariaDB before 10.5 lacks the newer one.
    let mut replicas = wire.query(what, "SHOW REPLICAS").await;
    if replicas.as_ref().is_err_and(|error| failure::number(error) == Some(failure::code::SYNTAX)) {
        replicas = wire.query(what, "SHOW SLAVE HOSTS").await;
    }
    let replicas = match replicas {
        Ok(replicas) => replicas,
        // Not to be allowed to look is no reason not to stream.
        Err(error) if !error.is_transient() => Vec::new(),
        Err(error) => return Err(error),
    };
    for row in own.into_iter().chain(replicas) {
        taken.extend(row.into_iter().next().flatten().and_then(|id| id.parse::<u32>().ok()));
    }
    Ok(taken)
}

/// One out of the upper half of the ids: people number their servers from below, or by address and port.
fn by_chance(taken: &HashSet<u32>, random: impl Fn() -> u64) -> NonZeroU32 {
    const UPPER_HALF: u32 = 1 << 31;
    loop {
        let [a, b, c, d, ..] = random().to_le_bytes();
        let id = NonZeroU32::new(u32::from_le_bytes([a, b, c, d])).unwrap_or(NonZeroU32::MAX);
        let id = id | UPPER_HALF;
        if !taken.contains(&id.get()) {
            return id;
        }
    }
}

fn uuid(random: [u64; 2]) -> String {
    let hex = random.iter().fold(String::new(), |mut text, word| {
        write!(text, "{word:016x}").expect("a String takes everything");
        text
    });
    let (a, rest) = hex.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    // The digit that says "by chance".
    format!("{a}-{b}-4{}-{d}-{e}", &c[1..])
}

/// The standard library keys its maps by the system's random source, anew each time.
fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_id_in_use_is_not_taken() {
        let numbers = Cell::new(4);
        let next = || {
            numbers.set(numbers.get() + 1);
            numbers.get()
        };
        let taken = [5 | 1 << 31, 6 | 1 << 31].into();
        assert_eq!(by_chance(&taken, next).get(), 7 | 1 << 31);
    }

    #[test]
    fn a_uuid_looks_like_one() {
        let text = uuid([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        assert_eq!(text, "01234567-89ab-4def-fedc-ba9876543210");
        assert_ne!(uuid([random(), random()]), uuid([random(), random()]));
    }
}
