//! What callers saw, and what it cost.

use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Of calls that succeeded.
    latencies: Vec<Duration>,
    elapsed: Duration,
    pub(crate) errors: u32,
    pub(crate) first_error: Option<String>,
    /// Requests that reached the echo server.
    pub(crate) upstream: u64,
    /// Of the gateway's process.
    pub(crate) cpu: Duration,
    /// Of all processes of its Postgres.
    pub(crate) postgres_cpu: Duration,
}

impl Measured {
    pub(crate) fn of(latencies: Vec<Duration>, elapsed: Duration) -> Self {
        Self { latencies, elapsed, ..Self::default() }
    }

    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }

    /// Another part of the same figure.
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.elapsed += other.elapsed;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.upstream += other.upstream;
        self.cpu += other.cpu;
        self.postgres_cpu += other.postgres_cpu;
    }

    /// Callers that worked side by side.
    pub(crate) fn beside(&mut self, other: Self) {
        let elapsed = self.elapsed.max(other.elapsed);
        self.add(other);
        self.elapsed = elapsed;
    }

    pub(crate) fn must_be_clean(&self) -> anyhow::Result<()> {
        match &self.first_error {
            None => Ok(()),
            Some(error) => anyhow::bail!("{} calls failed before measuring: {error}", self.errors),
        }
    }

    pub(crate) fn calls(&self) -> u32 {
        u32::try_from(self.latencies.len()).unwrap_or(u32::MAX)
    }

    /// In ms; `part` of the calls, in thousandths, were as fast as this. 0 without calls.
    pub(crate) fn percentile_ms(&self, part: usize) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * part / 1_000).min(sorted.len().saturating_sub(1));
        sorted.get(index).map_or(0.0, |latency| milliseconds(*latency))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn per_second(&self) -> f64 {
        f64::from(self.calls()) / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// A sum as its part of each call.
    pub(crate) fn per_call(&self, sum: f64) -> f64 {
        sum / f64::from(self.calls().max(1))
    }

    pub(crate) fn cpu_ms(&self) -> f64 {
        self.per_call(milliseconds(self.cpu))
    }

    pub(crate) fn postgres_cpu_ms(&self) -> f64 {
        self.per_call(milliseconds(self.postgres_cpu))
    }

    pub(crate) fn upstream_per_call(&self) -> f64 {
        self.per_call(f64::from(u32::try_from(self.upstream).unwrap_or(u32::MAX)))
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
