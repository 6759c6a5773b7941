//! Who may run how many programs of this process, and who gives way.
//!
//! A program is of a tenant, shared by all of it, or one person's: it stands for an upstream session of
//! an older client, or for what somebody listens to. Whoever has less than their share of a place that
//! all want gets one of those who have more: the program that was used least, once nothing is at work in
//! it. Nothing that runs is broken off for that.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::{
    Code, Error,
    ids::{TenantId, UserId},
    limits,
};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::ours;

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) tenant: TenantId,
    /// `None`: all of the tenant share it.
    pub(crate) person: Option<UserId>,
}

/// All places of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    taken: Mutex<Taken>,
    /// Programs that are really there: one that has to go keeps its own until it is gone.
    processes: Arc<Semaphore>,
    /// Something ended, or is not at work any more.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    places: BTreeMap<u64, Taker>,
}

#[derive(Debug)]
struct Taker {
    holder: Holder,
    /// Requests under way; starting is one.
    at_work: usize,
    used_at: Instant,
    /// Somebody waits for its place: no more begins in it.
    leaving: bool,
    end: CancellationToken,
}

/// The place of one program. Dropped, it is free.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    pool: Arc<Pool>,
    /// Cancelled when the program has to go.
    pub(super) end: CancellationToken,
    process: Option<OwnedSemaphorePermit>,
}

/// What notes the uses of a program. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Uses {
    id: u64,
    pool: Arc<Pool>,
}

/// Something is at work in a program, until this is dropped.
#[derive(Debug)]
pub(crate) struct Work(Uses);

/// A program was asked to go for somebody who waits. Dropped, nobody waits for its place any more, and it may
/// stay where it is still there.
#[derive(Debug)]
struct SentAway {
    id: u64,
    pool: Arc<Pool>,
}

impl Drop for SentAway {
    fn drop(&mut self) {
        if let Some(taker) = self.pool.taken().places.get_mut(&self.id) {
            taker.leaving = false;
        }
    }
}

/// What there is for one more program.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// This one gives way.
    Instead(u64),
    /// This one has to give way, and is at work.
    Later(u64),
    Nothing,
}

impl Places {
    pub(super) fn new() -> Self {
        Self(Arc::new(Pool {
            taken: Mutex::default(),
            processes: Arc::new(Semaphore::new(limits::STDIO_CHILDREN.size())),
            freed: Notify::new(),
        }))
    }

    /// A place, with something at work in it. Whoever has less than their share waits for one up to
    /// [`limits::STDIO_PLACE_MS`].
    ///
    /// `RATE_LIMIT_QUEUE_FULL` where one person has all that one may have at work,
    /// `UPSTREAM_UNAVAILABLE` where there is none.
    pub(super) async fn take(&self, holder: Holder) -> Result<(Place, Work), Error> {
        let waiting = self.wait_for(holder);
        let waited = tokio::time::timeout(limits::STDIO_PLACE_MS.millis(), waiting).await;
        let (mut place, work) = waited.unwrap_or_else(|_| Err(full(holder)))?;
        let process = Arc::clone(&self.0.processes).acquire_owned().await;
        place.process = Some(process.map_err(Error::internal)?);
        Ok((place, work))
    }

    async fn wait_for(&self, holder: Holder) -> Result<(Place, Work), Error> {
        // Outside of the lock: it is taken when this is dropped.
        let mut sent_away: Option<SentAway> = None;
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // From here on nothing is missed.
            freed.as_mut().enable();
            {
                let mut taken = self.0.taken();
                match taken.room(holder) {
                    Room::Free => return Ok(self.put(&mut taken, holder)),
                    Room::Instead(id) => {
                        taken.end(id);
                        // There may be more that is in the way.
                        continue;
                    }
                    Room::Later(id) if sent_away.is_none() => {
                        if let Some(taker) = taken.places.get_mut(&id) {
                            taker.leaving = true;
                        }
                        sent_away = Some(SentAway { id, pool: Arc::clone(&self.0) });
                    }
                    Room::Later(_) => {}
                    Room::Nothing if sent_away.is_some() => {}
                    Room::Nothing => return Err(full(holder)),
                }
            }
            freed.await;
        }
    }

    fn put(&self, all: &mut Taken, holder: Holder) -> (Place, Work) {
        let (id, end) = (all.next, CancellationToken::new());
        all.next += 1;
        let taker =
            Taker { holder, at_work: 1, used_at: Instant::now(), leaving: false, end: end.clone() };
        all.places.insert(id, taker);
        let place = Place { id, pool: Arc::clone(&self.0), end, process: None };
        let work = Work(place.uses());
        (place, work)
    }
}

impl Pool {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn uses(&self) -> Uses {
        Uses { id: self.id, pool: Arc::clone(&self.pool) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.taken().places.remove(&self.id);
        drop(self.process.take());
        self.pool.freed.notify_waiters();
    }
}

impl Uses {
    /// Whether nothing more begins in the program: it has to go, or is gone.
    pub(super) fn must_go(&self) -> bool {
        self.pool.taken().places.get(&self.id).is_none_or(|taker| taker.leaving)
    }

    /// Notes that something begins. `None`: the program has to go, or is gone.
    pub(super) fn begin(&self) -> Option<Work> {
        let mut all = self.pool.taken();
        let taker = all.places.get_mut(&self.id).filter(|taker| !taker.leaving)?;
        taker.at_work += 1;
        taker.used_at = Instant::now();
        Some(Work(self.clone()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Uses { id, pool } = &self.0;
        let mut all = pool.taken();
        let Some(taker) = all.places.get_mut(id) else { return };
        taker.at_work -= 1;
        taker.used_at = Instant::now();
        let is_idle = taker.at_work == 0;
        if is_idle && taker.leaving {
            all.end(*id);
        }
        drop(all);
        if is_idle {
            pool.freed.notify_waiters();
        }
    }
}

impl Taken {
    /// Its place is another's from now on.
    fn end(&mut self, id: u64) {
        if let Some(taker) = self.places.remove(&id) {
            tracing::debug!(tenant = %taker.holder.tenant, "a stdio server gives way to another");
            taker.end.cancel();
        }
    }

    /// Looks at each bound, the nearest first.
    fn room(&self, holder: Holder) -> Room {
        let most = |limit: limits::Limit| limit.size();
        let shared_alone = most(limits::STDIO_CHILDREN) - most(limits::STDIO_SHARED);
        let mine = |taker: &Taker| taker.holder == holder;
        let ours = |taker: &Taker| taker.holder.tenant == holder.tenant;
        let own = |taker: &Taker| taker.holder.person.is_some();
        let is_own = holder.person.is_some();
        let tenants = |holder: &Holder| holder.tenant;
        let people = |holder: &Holder| holder.person;
        let of_us = |taker: &Taker| ours(taker) && own(taker);

        if is_own && self.count(mine) >= most(limits::STDIO_OWN_PERSON) {
            return self.idle(mine);
        }
        if is_own && self.count(of_us) >= most(limits::STDIO_OWN_TENANT) {
            return self.idle(mine).or(|| self.over_share(of_us, people, holder));
        }
        if self.count(ours) >= most(limits::STDIO_TENANT) {
            return self
                .idle(mine)
                .or(|| self.idle(|taker| ours(taker) && !own(taker)))
                .or(|| if is_own { Room::Nothing } else { self.idle(ours) });
        }
        if is_own && self.count(own) >= shared_alone {
            return self
                .idle(mine)
                .or(|| self.over_share(own, tenants, holder))
                .or(|| self.over_share(of_us, people, holder));
        }
        if self.places.len() >= most(limits::STDIO_CHILDREN) {
            let of_others = || self.over_share(|_| true, tenants, holder);
            let first = if is_own { self.idle(mine).or(of_others) } else { of_others() };
            return first.or(|| self.idle(|taker| ours(taker) && !own(taker)));
        }
        Room::Free
    }

    fn count(&self, within: impl Fn(&Taker) -> bool) -> usize {
        self.places.values().filter(|taker| within(taker)).count()
    }

    /// The one that was used least of those in which nothing is at work.
    fn idle(&self, within: impl Fn(&Taker) -> bool) -> Room {
        let idle = self.places.iter().filter(|(_, taker)| taker.at_work == 0 && within(taker));
        let first = idle.min_by_key(|(_, taker)| taker.used_at);
        first.map_or(Room::Nothing, |(id, _)| Room::Instead(*id))
    }

    /// One of those who have more than they would if all had the same, the one that asks included.
    fn over_share<K: Eq + Hash>(
        &self,
        within: impl Fn(&Taker) -> bool,
        party: impl Fn(&Holder) -> K,
        asks: Holder,
    ) -> Room {
        let mut counts = HashMap::from([(party(&asks), 0)]);
        let mut all = 0;
        for taker in self.places.values().filter(|taker| within(taker)) {
            all += 1;
            *counts.entry(party(&taker.holder)).or_insert(0) += 1;
        }
        let share = all / counts.len();
        let over = |taker: &Taker| within(taker) && counts[&party(&taker.holder)] > share;
        self.idle(over).or(|| {
            let busy = self.places.iter().filter(|(_, taker)| !taker.leaving && over(taker));
            let first = busy.min_by_key(|(_, taker)| taker.used_at);
            // Nobody waits for what is one's own.
            let first = first.filter(|(_, taker)| party(&taker.holder) != party(&asks));
            first.map_or(Room::Nothing, |(id, _)| Room::Later(*id))
        })
    }
}

impl Room {
    /// The other, where there is none now.
    fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Free | Self::Instead(_) => self,
            Self::Nothing => other(),
            Self::Later(_) => match other() {
                now @ Self::Instead(_) => now,
                _ => self,
            },
        }
    }
}

fn full(holder: Holder) -> Error {
    ours(match holder.person {
        Some(_) => Error::new(
            Code::RateLimitQueueFull,
            "as many programs as there may be for sessions of one person or tenant are at work",
        ),
        None => Error::new(
            Code::UpstreamUnavailable,
            "as many stdio servers as may run in this process are at work",
        ),
    })
}

#[cfg(test)]
mod tests;
