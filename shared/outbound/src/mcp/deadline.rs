//! When a request must have ended: a clock that stands still while its caller is asked something.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// When a request must have ended. Its clock stands still while questions of the server are open with
/// whoever made it ([`Clocks::pause`]), however many there are, and no longer in all than was allowed.
/// Clones are the same deadline.
#[derive(Debug, Clone)]
pub struct Deadline(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy)]
struct State {
    /// The end, as long as nothing is asked.
    at: Instant,
    /// What is left for pauses, when the last one began.
    left: Duration,
    open: usize,
    /// When the first of the open questions was asked.
    since: Option<Instant>,
}

impl Deadline {
    /// In `timeout` from now, not counting pauses of `pauses` in all.
    #[must_use]
    pub fn after(timeout: Duration, pauses: Duration) -> Self {
        Self::new(Instant::now() + timeout, pauses)
    }

    fn new(at: Instant, left: Duration) -> Self {
        Self(Arc::new(watch::Sender::new(State { at, left, open: 0, since: None })))
    }

    /// Waits for the end. Cancel-safe.
    pub async fn passed(&self) {
        let mut states = self.0.subscribe();
        loop {
            let end = states.borrow_and_update().end();
            tokio::select! {
                biased;
                // Nobody else has to hold the deadline for it to come.
                Ok(()) = states.changed() => {}
                () = sleep_until(end) => return,
            }
        }
    }

    /// Waits until the clock stands still. Cancel-safe.
    pub async fn paused(&self) {
        let mut states = self.0.subscribe();
        // It ends early if nobody can ask any more; nobody waits then, either.
        let _state = states.wait_for(|state| state.runs_again() > Some(Instant::now())).await;
    }

    /// Waits until the clock runs again: nothing is asked any more, or no pause is left. Cancel-safe.
    pub async fn running(&self) {
        let mut states = self.0.subscribe();
        loop {
            let Some(at) = states.borrow_and_update().runs_again() else { return };
            tokio::select! {
                biased;
                Ok(()) = states.changed() => {}
                () = sleep_until(at) => return,
            }
        }
    }
}

/// A deadline that waits for nobody.
impl From<Instant> for Deadline {
    fn from(at: Instant) -> Self {
        Self::new(at, Duration::ZERO)
    }
}

impl State {
    fn end(&self) -> Instant {
        if self.since.is_some() { self.at + self.left } else { self.at }
    }

    /// When it runs again at the latest; `None`: it runs.
    fn runs_again(&self) -> Option<Instant> {
        self.since.map(|since| since + self.left)
    }

    fn asked(&mut self, now: Instant) {
        self.open += 1;
        // What is over is not prolonged.
        if self.open == 1 && now < self.at {
            self.since = Some(now);
        }
    }

    fn settled(&mut self, now: Instant) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0
            && let Some(since) = self.since.take()
        {
            let paused = (now - since).min(self.left);
            self.at += paused;
            self.left -= paused;
        }
    }
}

/// The clocks that a question of the server stops for as long as it is open.
#[derive(Debug, Clone, Default)]
pub struct Clocks(Vec<Deadline>);

impl Clocks {
    pub(super) fn of(deadline: &Deadline) -> Self {
        Self(vec![deadline.clone()])
    }

    /// Stops them until the answer is dropped.
    pub fn pause(&self) -> Pause {
        for Deadline(state) in &self.0 {
            state.send_modify(|state| state.asked(Instant::now()));
        }
        Pause(self.0.clone())
    }
}

/// A question that is open.
#[derive(Debug)]
#[must_use]
pub struct Pause(Vec<Deadline>);

impl Drop for Pause {
    fn drop(&mut self) {
        for Deadline(state) in &self.0 {
            state.send_modify(|state| state.settled(Instant::now()));
        }
    }
}

/// The requests under way in an own session.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<Mutex<Vec<Deadline>>>);

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Entered(UnderWay, Deadline);

impl UnderWay {
    pub(super) fn enter(&self, deadline: &Deadline) -> Entered {
        self.lock().push(deadline.clone());
        Entered(self.clone(), deadline.clone())
    }

    pub(super) fn clocks(&self) -> Clocks {
        Clocks(self.lock().clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Deadline>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Self(under_way, deadline) = self;
        under_way.lock().retain(|other| !Arc::ptr_eq(&other.0, &deadline.0));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const S: Duration = Duration::from_secs(1);

    async fn has_passed(deadline: &Deadline) -> bool {
        timeout(Duration::ZERO, deadline.passed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_stands_still_until_the_last_question_is_closed() {
        let deadline = Deadline::after(10 * S, 100 * S);
        let clocks = Clocks::of(&deadline);
        advance(9 * S).await;
        let one = clocks.pause();
        advance(30 * S).await;
        let two = clocks.pause();
        drop(one);
        advance(30 * S).await;
        assert!(!has_passed(&deadline).await);
        drop(two);
        let began = Instant::now();
        deadline.passed().await;
        assert_eq!(began.elapsed(), S, "what was left of its own time");
    }

    #[tokio::test(start_paused = true)]
    async fn all_pauses_together_are_bounded() {
        let deadline = Deadline::after(10 * S, 20 * S);
        let began = Instant::now();
        let clocks = Clocks::of(&deadline);
        for _ in 0..3 {
            let _pause = clocks.pause();
            advance(7 * S).await;
        }
        let _open = clocks.pause();
        deadline.running().await;
        deadline.passed().await;
        assert_eq!(began.elapsed(), 30 * S);
        let _late = clocks.pause();
        assert!(has_passed(&deadline).await, "what is over is over");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_learns_when_it_stands_still_and_when_it_runs_again() {
        let deadline = Deadline::after(10 * S, 20 * S);
        assert!(timeout(S, deadline.paused()).await.is_err());
        deadline.running().await;
        let pause = Clocks::of(&deadline).pause();
        deadline.paused().await;
        assert!(timeout(S, deadline.running()).await.is_err());
        drop(pause);
        deadline.running().await;
        let _pause = Clocks::of(&deadline).pause();
        let began = Instant::now();
        deadline.running().await;
        assert_eq!(began.elapsed(), 19 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn only_requests_under_way_are_stopped() {
        let under_way = UnderWay::default();
        let (early, late) = (Deadline::after(10 * S, 20 * S), Deadline::after(10 * S, 20 * S));
        let entered = under_way.enter(&early);
        drop(under_way.enter(&late));
        let _pause = under_way.clocks().pause();
        advance(15 * S).await;
        assert!(!has_passed(&early).await && has_passed(&late).await);
        drop(entered);
        assert!(under_way.clocks().0.is_empty());
    }
}
