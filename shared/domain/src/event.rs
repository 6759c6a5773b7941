//! The place of an event in its session.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::{Code, Error};

/// `<xid8>-<seq>`: the transaction that wrote the event, and its place among that transaction's.
/// Opaque to clients; grows within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventId {
    pub transaction: u64,
    pub sequence: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.transaction, self.sequence)
    }
}

impl FromStr for EventId {
    type Err = Error;

    /// [`Code::InvalidInput`] for whatever we never gave out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::new(Code::InvalidInput, "that is no id of an event");
        let number = |digits: &str| {
            // The sequence is a signed 64-bit number in the database.
            digits.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok())
        };
        let (transaction, sequence) = text.split_once('-').ok_or_else(refused)?;
        let id = Self {
            transaction: number(transaction).ok_or_else(refused)?,
            sequence: number(sequence).ok_or_else(refused)?,
        };
        // One spelling only: no signs, no leading zeros.
        if id.to_string() == text { Ok(id) } else { Err(refused()) }
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_as_it_is_written_and_in_no_other_spelling() {
        let id: EventId = "734-12".parse().unwrap();
        assert_eq!(id, EventId { transaction: 734, sequence: 12 });
        assert_eq!(id.to_string(), "734-12");
        for wrong in
            ["", "-", "734", "734-", "0734-12", "+734-12", "734-12-1", "99999999999999999999-1"]
        {
            assert!(wrong.parse::<EventId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ids_grow_by_transaction_first() {
        let id = |text: &str| text.parse::<EventId>().unwrap();
        assert!(id("9-100") < id("10-1"));
        assert!(id("10-1") < id("10-2"));
    }
}
