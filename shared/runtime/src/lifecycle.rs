//! How a process ends: first it takes no new work, then it cancels what still runs.

use std::{future, time::Duration};

use domain::limits;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The two steps of a shutdown, and the work to be waited for. Clones are the same lifecycle.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    draining: CancellationToken,
    stopping: CancellationToken,
    tracker: TaskTracker,
    grace: Duration,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// Work may finish for [`limits::SHUTDOWN_MS`] after the first signal.
    #[must_use]
    pub fn new() -> Self {
        Self::with_grace(limits::SHUTDOWN_MS.millis())
    }

    /// Work may finish for `grace` after the first signal.
    #[must_use]
    pub fn with_grace(grace: Duration) -> Self {
        Self {
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            tracker: TaskTracker::new(),
            grace,
        }
    }

    /// Cancelled at step 1: accept no new work; what runs may finish.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// Cancelled at step 2: give up what still runs.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Where work is spawned that a shutdown waits for: after [`Lifecycle::drain`], its `wait`
    /// ends with the last task.
    #[must_use]
    pub fn tracker(&self) -> TaskTracker {
        self.tracker.clone()
    }

    /// Step 1.
    pub fn drain(&self) {
        self.draining.cancel();
        self.tracker.close();
    }

    /// Step 2, and step 1 where it was left out.
    pub fn stop(&self) {
        self.drain();
        self.stopping.cancel();
    }

    /// Drains at the first SIGTERM or SIGINT, and stops at the second or when the grace is over.
    /// Returns then, or when somebody else stops this lifecycle. From its first poll on these
    /// signals no longer end the process by themselves.
    ///
    /// Fails if the signals cannot be listened to.
    pub async fn on_signals(self) -> std::io::Result<()> {
        let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];

        tokio::select! {
            () = next(&mut signals) => tracing::info!("draining: a signal came"),
            // Somebody drains without a signal: the grace runs all the same.
            () = self.draining.cancelled() => {}
        }
        self.drain();

        tokio::select! {
            () = next(&mut signals) => tracing::info!("stopping: another signal came"),
            () = time::sleep(self.grace) => tracing::info!("stopping: the grace is over"),
            () = self.stopping.cancelled() => {}
        }
        self.stop();
        Ok(())
    }
}

/// Either signal.
async fn next(signals: &mut [Signal; 2]) {
    future::poll_fn(|context| {
        let [terminate, interrupt] = signals;
        if terminate.poll_recv(context).is_ready() {
            return std::task::Poll::Ready(());
        }
        interrupt.poll_recv(context).map(|_| ())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::{Signal, raise};

    use super::Lifecycle;

    /// Lets `on_signals` take the signals over from the default, which would end the test.
    async fn listening(lifecycle: &Lifecycle) -> tokio::task::JoinHandle<std::io::Result<()>> {
        let task = tokio::spawn(lifecycle.clone().on_signals());
        // The test's runtime has one thread: after a yield the task was polled.
        tokio::task::yield_now().await;
        task
    }

    // One test, since signals reach the whole process and cargo runs tests in threads of one.
    #[tokio::test]
    async fn the_first_signal_drains_and_the_second_or_the_grace_stops() {
        let lifecycle = Lifecycle::with_grace(Duration::from_mins(10));
        let task = listening(&lifecycle).await;
        raise(Signal::SIGTERM).unwrap();
        lifecycle.draining().cancelled().await;
        assert!(!lifecycle.stopping().is_cancelled());
        raise(Signal::SIGINT).unwrap();
        lifecycle.stopping().cancelled().await;
        task.await.unwrap().unwrap();

        let lifecycle = Lifecycle::with_grace(Duration::from_millis(20));
        let task = listening(&lifecycle).await;
        raise(Signal::SIGINT).unwrap();
        lifecycle.stopping().cancelled().await;
        assert!(lifecycle.draining().is_cancelled());
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_drained_lifecycle_waits_for_tracked_work_only() {
        let lifecycle = Lifecycle::new();
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        lifecycle.tracker().spawn(finished);
        lifecycle.drain();
        assert_eq!(lifecycle.tracker().len(), 1);
        finish.send(()).unwrap();
        lifecycle.tracker().wait().await;
        assert!(!lifecycle.stopping().is_cancelled());
    }
}
