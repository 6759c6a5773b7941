//! Groups in the memory of one process.
//!
//! A slot is handed over under the lock by whoever makes it free, so no waiter has to be quick to
//! get it, and none can overtake. What only time can free (pacing, a cool-down) is freed by one
//! timer of the group.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::limits;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::AbortHandle,
    time::{self, Instant},
};

use crate::{Entry, Group, Queue, QueueTimeout};

/// All groups that have something to remember.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    states: Arc<Mutex<HashMap<Arc<str>, State>>>,
    /// Numbers are never used again, also not when a group was forgotten: a ticket may outlive it.
    arrivals: Arc<AtomicU64>,
}

/// One group. It is forgotten when nothing runs, nothing waits and no pause is left.
#[derive(Debug)]
struct State {
    runtime: Handle,
    max_concurrent: u32,
    min_interval: Duration,
    running: u32,
    /// By order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    /// Of those waiting, how many count against the depth.
    bounded: u32,
    last_start: Option<Instant>,
    cool_until: Option<Instant>,
    /// When the timer looks at this group again.
    timer: Option<(Instant, AbortHandle)>,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    deadline: Option<Instant>,
    grant: oneshot::Sender<Duration>,
}

impl Groups {
    pub(crate) fn enter(&self, group: &Group, queue: Queue) -> Entry {
        let now = Instant::now();
        let key: Arc<str> = group.key.as_str().into();
        let mut groups = self.lock();
        let state = groups.entry(Arc::clone(&key)).or_insert_with(State::new);
        state.max_concurrent = group.max_concurrent.max(1);
        state.min_interval = group.min_interval.min(limits::PACING_MOST_MS.millis());
        // Larger numbers may let waiters start, who come first.
        state.admit(now);

        if state.waiting.is_empty() && state.has_room() && state.free_at(now) <= now {
            state.start(now);
            return Entry::Admitted(self.slot(key, Duration::ZERO));
        }
        let bounded = queue == Queue::Bounded;
        if bounded && state.bounded >= group.max_queue_depth {
            self.settle(&mut groups, &key, now);
            return Entry::Refused;
        }
        let deadline =
            bounded.then(|| now + group.queue_timeout.min(limits::PACING_MOST_MS.millis()));
        let (grant, granted) = oneshot::channel();
        // Under the lock, so that the numbers are in the order of arrival.
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed);
        state.bounded += u32::from(bounded);
        state.waiting.insert(arrival, Waiter { since: now, deadline, grant });
        self.settle(&mut groups, &key, now);
        let place = Place { groups: self.clone(), key, arrival, granted };
        Entry::Queued(Ticket { place: Some(place), since: now, deadline })
    }

    pub(crate) fn retake(&self, group: &Group) -> Slot {
        let key: Arc<str> = group.key.as_str().into();
        let mut groups = self.lock();
        groups.entry(Arc::clone(&key)).or_insert_with(State::new).running += 1;
        drop(groups);
        self.slot(key, Duration::ZERO)
    }

    pub(crate) fn cool_down(&self, key: &str, pause: Duration) {
        let now = Instant::now();
        let until = now + pause.min(limits::PACING_MOST_MS.millis());
        let key: Arc<str> = key.into();
        let mut groups = self.lock();
        let state = groups.entry(Arc::clone(&key)).or_insert_with(State::new);
        state.cool_until = state.cool_until.max(Some(until));
        self.settle(&mut groups, &key, now);
    }

    pub(crate) fn waiting(&self, key: &str) -> usize {
        self.lock().get(key).map_or(0, |state| state.waiting.len())
    }

    pub(crate) fn running(&self, key: &str) -> usize {
        self.lock().get(key).map_or(0, |state| state.running as usize)
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.lock().len()
    }

    fn slot(&self, key: Arc<str>, queue_wait: Duration) -> Slot {
        Slot { groups: self.clone(), key, queue_wait }
    }

    fn release(&self, key: &Arc<str>) {
        let mut groups = self.lock();
        if let Some(state) = groups.get_mut(key) {
            state.running = state.running.saturating_sub(1);
        }
        self.settle(&mut groups, key, Instant::now());
    }

    /// Brings a group to rest after a change: starts what may start, sets the timer for what time
    /// alone will change, and forgets a group that has nothing left.
    fn settle(&self, groups: &mut HashMap<Arc<str>, State>, key: &Arc<str>, now: Instant) {
        let Some(state) = groups.get_mut(key) else { return };
        state.admit(now);
        let free_at = state.free_at(now);
        let idle = state.running == 0 && state.waiting.is_empty();
        if free_at > now && (idle || state.has_room() && !state.waiting.is_empty()) {
            self.set_timer(state, key, free_at);
        } else if let Some((_, timer)) = state.timer.take() {
            timer.abort();
        }
        if idle && free_at <= now {
            groups.remove(key);
        }
    }

    fn set_timer(&self, state: &mut State, key: &Arc<str>, at: Instant) {
        if let Some((set, timer)) = &state.timer {
            if *set == at {
                return;
            }
            timer.abort();
        }
        let (groups, key) = (self.clone(), Arc::clone(key));
        let timer = state.runtime.spawn(async move {
            time::sleep_until(at).await;
            groups.timer_fired(&key, at);
        });
        state.timer = Some((at, timer.abort_handle()));
    }

    fn timer_fired(&self, key: &Arc<str>, at: Instant) {
        let mut groups = self.lock();
        let Some(state) = groups.get_mut(key) else { return };
        // A newer timer may have been set while this one waited for the lock.
        if state.timer.as_ref().is_none_or(|(set, _)| *set != at) {
            return;
        }
        state.timer = None;
        // The timer's word, not the clock's: it must not be set again for the same moment.
        self.settle(&mut groups, key, Instant::now().max(at));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, State>> {
        // Nothing below can panic between two changes that belong together.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new() -> Self {
        Self {
            runtime: Handle::current(),
            max_concurrent: 1,
            min_interval: Duration::ZERO,
            running: 0,
            waiting: BTreeMap::new(),
            bounded: 0,
            last_start: None,
            cool_until: None,
            timer: None,
        }
    }

    fn has_room(&self) -> bool {
        self.running < self.max_concurrent
    }

    /// When pacing and cool-down allow the next start; not before `now`.
    fn free_at(&self, now: Instant) -> Instant {
        let paced = self.last_start.map(|start| start + self.min_interval);
        paced.max(self.cool_until).unwrap_or(now).max(now)
    }

    fn start(&mut self, now: Instant) {
        self.running += 1;
        self.last_start = Some(now);
    }

    /// Starts waiters, first come first, as far as the limits go.
    fn admit(&mut self, now: Instant) {
        while self.has_room() && self.free_at(now) <= now {
            let Some((_, waiter)) = self.waiting.pop_first() else { return };
            self.bounded -= u32::from(waiter.deadline.is_some());
            // One whose time is over learns it by its dropped sender; one that is gone has left the
            // queue already, so that the send succeeds.
            let in_time = waiter.deadline.is_none_or(|deadline| now < deadline);
            if in_time && waiter.grant.send(now - waiter.since).is_ok() {
                self.start(now);
            }
        }
    }

    fn leave(&mut self, arrival: u64) -> bool {
        let Some(waiter) = self.waiting.remove(&arrival) else { return false };
        self.bounded -= u32::from(waiter.deadline.is_some());
        true
    }
}

/// A place in a group's queue. Dropped, it is given up at once.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    /// Taken by [`Ticket::admitted`] when it is used up.
    place: Option<Place>,
    since: Instant,
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Place {
    groups: Groups,
    key: Arc<str>,
    arrival: u64,
    granted: oneshot::Receiver<Duration>,
}

impl Ticket {
    /// Waits for the slot. Dropping the future gives the place, or the slot that it was just
    /// granted, to the next.
    pub async fn admitted(mut self) -> Result<Slot, QueueTimeout> {
        let since = self.since;
        let out_of_time = || QueueTimeout { queue_wait: since.elapsed() };
        // The place stays in the ticket while we wait: a dropped future drops it properly.
        let Some(place) = self.place.as_mut() else { return Err(out_of_time()) };
        let granted = match self.deadline {
            Some(deadline) => time::timeout_at(deadline, &mut place.granted).await.ok(),
            None => Some((&mut place.granted).await),
        };
        let granted = match granted {
            Some(granted) => granted.ok(),
            // Time is over: out of the queue, unless a slot came at this very moment.
            None => place.leave(),
        };
        let slot = granted.and_then(|queue_wait| {
            let place = self.place.take()?;
            Some(place.groups.slot(place.key, queue_wait))
        });
        slot.ok_or_else(out_of_time)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        if place.leave().is_some() {
            place.groups.release(&place.key);
        }
    }
}

impl Place {
    /// Leaves the queue; answers a grant that was made before.
    fn leave(&mut self) -> Option<Duration> {
        let mut groups = self.groups.lock();
        if let Some(state) = groups.get_mut(&self.key)
            && state.leave(self.arrival)
        {
            self.groups.settle(&mut groups, &self.key, Instant::now());
            return None;
        }
        // Grants are made under the lock: there is one by now, or there will be none.
        self.granted.try_recv().ok()
    }
}

/// The right to run one call; given back when dropped.
#[derive(Debug)]
#[must_use]
pub struct Slot {
    groups: Groups,
    key: Arc<str>,
    queue_wait: Duration,
}

impl Slot {
    /// How long the call waited.
    #[must_use]
    pub fn queue_wait(&self) -> Duration {
        self.queue_wait
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.groups.release(&self.key);
    }
}
