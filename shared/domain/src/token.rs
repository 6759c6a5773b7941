//! API tokens: what one may give to the next, and for how long.

use chrono::TimeDelta;

use crate::{Caller, Code, Error, Reach, Scopes, Timestamp, limits};

/// Every token begins with this, so that scanners for leaked secrets find it.
pub const PREFIX: &str = "blw_";

/// The token's text for 32 random bytes in base64url without padding (43 characters).
#[must_use]
pub fn text(random_base64url: &str) -> String {
    format!("{PREFIX}{random_base64url}")
}

/// A token gives at most what it has: a subset of its scopes ([`Code::Denied`] otherwise).
pub fn may_mint(maker: &Caller, scopes: &Scopes) -> Result<(), Error> {
    if scopes.within(&maker.scopes) {
        return Ok(());
    }
    Err(Error::new(Code::Denied, "a token's scopes must be a subset of its maker's"))
}

/// The new token's reach: what is not said is the maker's, what is said must lie within it
/// ([`Code::Denied`] otherwise).
pub fn reach_within(maker: &Reach, asked: Reach) -> Result<Reach, Error> {
    let reach = Reach {
        sources: asked.sources.or_else(|| maker.sources.clone()),
        tools: asked.tools.or_else(|| maker.tools.clone()),
        sessions: asked.sessions.or_else(|| maker.sessions.clone()),
    };
    if reach.within(maker) {
        return Ok(reach);
    }
    Err(Error::new(Code::Denied, "a token cannot reach further than its maker"))
}

/// When the new token ends: as asked, else after the default; never later than the token that makes
/// it, else a leaked token could live for ever by making its successor.
///
/// `INVALID_INPUT` for a time that is over, beyond the ceiling, or beyond the maker's end.
pub fn expiry(
    now: Timestamp,
    asked: Option<Timestamp>,
    maker_ends: Option<Timestamp>,
) -> Result<Timestamp, Error> {
    let ceiling = now + days(limits::TOKEN_DAYS.ceiling);
    let latest = maker_ends.map_or(ceiling, |ends| ends.min(ceiling));
    let Some(asked) = asked else {
        return Ok(latest.min(now + days(limits::TOKEN_DAYS.default)));
    };
    if asked <= now {
        return Err(Error::new(Code::InvalidInput, "expiresAt must lie in the future"));
    }
    if asked > ceiling {
        let most = limits::TOKEN_DAYS.ceiling;
        return Err(Error::new(Code::InvalidInput, format!("a token lives at most {most} days")));
    }
    if asked > latest {
        return Err(Error::new(Code::InvalidInput, "a token cannot outlive the one that makes it"));
    }
    Ok(asked)
}

fn days(count: u64) -> TimeDelta {
    TimeDelta::days(i64::try_from(count).unwrap_or(i64::from(u16::MAX)))
}

#[cfg(test)]
mod tests {
    use chrono::{TimeZone, Utc};

    use super::*;
    use crate::ids::ServerId;

    fn at(day: i64) -> Timestamp {
        Utc.timestamp_opt(1_796_000_000, 0).unwrap() + TimeDelta::days(day)
    }

    #[test]
    fn ninety_days_unless_it_asks_or_its_maker_ends_before() {
        assert_eq!(expiry(at(0), None, None).unwrap(), at(90));
        assert_eq!(expiry(at(0), None, Some(at(10))).unwrap(), at(10));
        assert_eq!(expiry(at(0), Some(at(200)), Some(at(300))).unwrap(), at(200));
    }

    #[test]
    fn no_token_outlives_its_maker_or_a_year() {
        for (asked, maker) in [(at(11), Some(at(10))), (at(367), None), (at(0), None)] {
            let refused = expiry(at(0), Some(asked), maker).unwrap_err();
            assert_eq!(refused.code, Code::InvalidInput);
        }
    }

    #[test]
    fn what_is_not_said_is_the_makers() {
        let maker = Reach { sources: Some(vec![ServerId::from("a")]), ..Reach::default() };
        assert_eq!(reach_within(&maker, Reach::default()).unwrap(), maker);
        let wider = Reach { sources: Some(vec![ServerId::from("b")]), ..Reach::default() };
        assert_eq!(reach_within(&maker, wider).unwrap_err().code, Code::Denied);
    }
}
