//! Limits of one server's calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::validate::Mistakes;
use crate::limits::{self, Limit};

/// Limits as a superadmin asks for them; what is left out is the default.
///
/// Numbers as JSON has them, so that a fraction is a mistake with a name like the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GovernanceForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<f64>,
    /// 0 = never queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queue_depth: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<f64>,
    /// Excludes `ratePerSecond`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_interval_ms: Option<f64>,
    /// May be a fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_response_bytes: Option<f64>,
    /// Pass the server's sampling requests on to clients that offer sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_sampling: Option<bool>,
}

/// Limits that hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Governance {
    /// Calls that run at the same moment, over all sessions.
    pub max_concurrent: u32,
    /// Calls that may wait besides.
    pub max_queue_depth: u32,
    /// How long one may wait.
    pub queue_timeout: Duration,
    /// From the start of one call to the start of the next; zero = no pacing.
    pub min_interval: Duration,
    /// Largest result.
    pub max_response_bytes: u64,
    /// Whether the server may ask clients to use their model; not unless somebody says so.
    pub relay_sampling: bool,
}

impl Governance {
    /// The limits of a form, defaults filled in. What [`GovernanceForm`]'s check would refuse is
    /// brought into its range: a stored form may be older than a lowered ceiling.
    #[must_use]
    pub fn resolve(form: Option<GovernanceForm>) -> Self {
        let form = form.unwrap_or_default();
        let interval = form.min_interval_ms.or(form.rate_per_second.map(interval_ms));
        Self {
            max_concurrent: small(within(form.max_concurrent, limits::CALLS_RUNNING, 1)),
            max_queue_depth: small(within(form.max_queue_depth, limits::CALLS_WAITING, 0)),
            queue_timeout: millis(within(form.queue_timeout_ms, limits::QUEUE_TIMEOUT_MS, 1)),
            min_interval: millis(within(interval, limits::MIN_INTERVAL_MS, 0)),
            max_response_bytes: within(form.max_response_bytes, limits::RESPONSE_BYTES, 1),
            relay_sampling: form.relay_sampling.unwrap_or(false),
        }
    }
}

impl Default for Governance {
    fn default() -> Self {
        Self::resolve(None)
    }
}

/// Adds what is wrong with the limits of a form.
pub(super) fn check(form: &GovernanceForm, mistakes: &mut Mistakes) {
    for (name, value, limit, least) in [
        ("maxConcurrent", form.max_concurrent, limits::CALLS_RUNNING, 1),
        ("maxQueueDepth", form.max_queue_depth, limits::CALLS_WAITING, 0),
        ("queueTimeoutMs", form.queue_timeout_ms, limits::QUEUE_TIMEOUT_MS, 1),
        ("minIntervalMs", form.min_interval_ms, limits::MIN_INTERVAL_MS, 0),
        ("maxResponseBytes", form.max_response_bytes, limits::RESPONSE_BYTES, 1),
    ] {
        let most = limit.ceiling;
        if value.is_some_and(|value| whole(value, least, most).is_none()) {
            let words = format!("must be a whole number from {least} to {most} {}", limit.unit);
            mistakes.add(&format!("/governance/{name}"), words);
        }
    }
    let Some(rate) = form.rate_per_second else { return };
    if form.min_interval_ms.is_some() {
        mistakes.add("/governance/ratePerSecond", "and minIntervalMs exclude each other");
    }
    let most = limits::MIN_INTERVAL_MS.ceiling;
    if rate <= 0.0 || whole(interval_ms(rate), 1, most).is_none() {
        let words = format!("must be more than 0, and at least one call in {most} ms");
        mistakes.add("/governance/ratePerSecond", words);
    }
}

/// The value as a whole number within its bounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bounds are far below 2^53 and the value was compared with them"
)]
pub(super) fn whole(value: f64, least: u64, most: u64) -> Option<u64> {
    let fits = value.fract() == 0.0 && value >= least as f64 && value <= most as f64;
    fits.then_some(value as u64)
}

fn interval_ms(rate: f64) -> f64 {
    (1000.0 / rate).ceil()
}

#[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
fn within(value: Option<f64>, limit: Limit, least: u64) -> u64 {
    let Some(value) = value.filter(|value| !value.is_nan()) else { return limit.default };
    let clamped = value.clamp(least as f64, limit.ceiling as f64).trunc();
    whole(clamped, least, limit.ceiling).unwrap_or(limit.default)
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn millis(value: u64) -> Duration {
    Duration::from_millis(value)
}
