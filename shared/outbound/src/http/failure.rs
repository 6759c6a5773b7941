//! What a failed request means, by type and status; never by a message's text.

use std::time::{Duration, SystemTime};

use domain::{Code, Error, limits};
use http::{HeaderMap, StatusCode, header};

use crate::{egress::Refused, oauth::asks_for_scope, words};

/// Whether the request may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    /// Proven: it was not sent, or the peer refused to look at it.
    No,
    Unknown,
}

/// A request without a usable answer.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub ran: Ran,
}

impl Failure {
    pub(crate) fn not_run(error: Error) -> Self {
        Self { error, ran: Ran::No }
    }

    pub(crate) fn unknown(error: Error) -> Self {
        Self { error, ran: Ran::Unknown }
    }

    pub(crate) fn from_reqwest(error: reqwest::Error) -> Self {
        // Its query may hold a secret.
        let error = error.without_url();
        if let Some(refused) = refusal(&error) {
            return Self::not_run(refused.into());
        }
        let unavailable = |words: &str| Error::new(Code::UpstreamUnavailable, words);
        if error.is_connect() {
            return Self::not_run(unavailable("the server cannot be reached").because(error));
        }
        if error.is_builder() {
            return Self::not_run(
                Error::new(Code::ServerMisconfigured, "no request can be made to the server's URL")
                    .because(error),
            );
        }
        // What breaks while a body is read comes as one kind with what cannot be decompressed.
        if error.is_decode() && !is_broken(&error) {
            return Self::unknown(
                Error::new(Code::UpstreamFormat, "the server's answer cannot be decompressed")
                    .because(error),
            );
        }
        Self::unknown(unavailable("the connection to the server broke").because(error))
    }
}

fn refusal(error: &reqwest::Error) -> Option<Refused> {
    causes(error).find_map(|cause| cause.downcast_ref::<Refused>().copied())
}

/// The connection broke, whatever was made of its bytes.
fn is_broken(error: &reqwest::Error) -> bool {
    causes(error).any(<dyn std::error::Error>::is::<hyper::Error>)
}

type Cause = dyn std::error::Error + 'static;

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &Cause> {
    std::iter::successors(Some(error as &Cause), |cause| {
        // An I/O error that wraps another names the other's source, not the other.
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        wrapped.map(|inner| inner as &Cause).or_else(|| cause.source())
    })
}

/// The answer is not what the protocol asks for.
pub(crate) fn format(words: &str) -> Failure {
    Failure::unknown(Error::new(Code::UpstreamFormat, words))
}

/// What a status other than 2xx means.
pub(crate) fn status_failure(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let number = status.as_u16();
    let (code, words) = match status {
        StatusCode::UNAUTHORIZED => {
            (Code::Unauthorized, "the server refused the credential".into())
        }
        StatusCode::FORBIDDEN if asks_for_scope(headers) => {
            (Code::InsufficientScope, "the credential has too few rights on the server".into())
        }
        StatusCode::FORBIDDEN => (Code::Unauthorized, "the server refused access (403)".into()),
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            (Code::NotFound, format!("the server has nothing at this address ({number})"))
        }
        StatusCode::TOO_MANY_REQUESTS => {
            (Code::RateLimited, "the server asks to slow down (429)".into())
        }
        _ if status.is_server_error() => {
            (Code::UpstreamUnavailable, format!("the server failed ({number})"))
        }
        _ => (Code::UpstreamFormat, format!("the server answered with status {number}")),
    };
    let mut error = Error::new(code, words);
    if error.retryable()
        && let Some(wait) = rate_limit_wait(headers)
    {
        error = error.retry_after(wait);
    }
    let own_words = words::untrusted(&String::from_utf8_lossy(body));
    if !own_words.is_empty() {
        error = error.with_untrusted(own_words);
    }
    // A 401 is the peer's word that it did not look at the request.
    let ran = if status == StatusCode::UNAUTHORIZED { Ran::No } else { Ran::Unknown };
    Failure { error, ran }
}

/// `Retry-After` (RFC 9110, section 10.2.3): seconds, which some servers give with decimals, or a
/// date, which counts from the answer's own `Date`, so that no two clocks are compared. At most
/// [`limits::RETRY_AFTER_CAP_MS`].
fn rate_limit_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) if seconds >= 0.0 => Duration::try_from_secs_f64(seconds.min(1e9)).ok()?,
        Ok(_) => return None,
        Err(_) => {
            let then = httpdate::parse_http_date(text).ok()?;
            then.duration_since(answered_at(headers)?).unwrap_or_default()
        }
    };
    Some(wait.min(limits::RETRY_AFTER_CAP_MS.millis()))
}

fn answered_at(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use domain::Retry;

    use super::*;

    fn headers(list: &[(header::HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn wait(retry_after: &str) -> Option<Duration> {
        rate_limit_wait(&headers(&[
            (header::RETRY_AFTER, retry_after),
            (header::DATE, "Wed, 21 Oct 2026 07:28:00 GMT"),
        ]))
    }

    #[test]
    fn retry_after_is_read_as_seconds_decimals_or_date_and_capped() {
        assert_eq!(wait("2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("1.5"), Some(Duration::from_millis(1_500)));
        assert_eq!(wait("Wed, 21 Oct 2026 07:28:07 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Wed, 21 Oct 2026 07:27:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("86400"), Some(Duration::from_mins(1)));
        assert_eq!(wait("inf"), Some(Duration::from_mins(1)));
        for nonsense in ["-1", "soon", "NaN", ""] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_status_decides_code_retry_and_proof() {
        let failed = |status: u16, list: &[(header::HeaderName, &str)]| {
            let status = StatusCode::from_u16(status).unwrap();
            let failure = status_failure(status, &headers(list), b"own\x07 words");
            (failure.error.code, failure.error.retry, failure.ran, failure.error.untrusted.unwrap())
        };
        let own = || "own words".to_owned();
        assert_eq!(failed(401, &[]), (Code::Unauthorized, Retry::Never, Ran::No, own()));
        assert_eq!(failed(403, &[]), (Code::Unauthorized, Retry::Never, Ran::Unknown, own()));
        let challenge = [(header::WWW_AUTHENTICATE, r#"Bearer error="insufficient_scope""#)];
        assert_eq!(failed(403, &challenge).0, Code::InsufficientScope);
        assert_eq!(failed(404, &[]).0, Code::NotFound);
        let after = Retry::After(Duration::from_secs(3));
        assert_eq!(failed(429, &[(header::RETRY_AFTER, "3")]).1, after);
        assert_eq!(failed(503, &[(header::RETRY_AFTER, "3")]).0, Code::UpstreamUnavailable);
        assert_eq!(failed(400, &[]).0, Code::UpstreamFormat);
    }
}
