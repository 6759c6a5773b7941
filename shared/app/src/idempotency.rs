//! Unsafe requests that a client may repeat without anything being done twice.
//!
//! A key is claimed before its request runs. The request's transaction does not commit when its use case
//! says so: it waits until the answer is known, which is written into it, and then commits with it
//! (docs/decisions/0010). So there is no moment at which the change is there and its answer is not,
//! whatever dies.
//!
//! **Invariant:** nothing waits across a network call. A use case that begins another transaction, or
//! goes on for [`limits::IDEMPOTENCY_HOLD_MS`], has its changes committed, marked as such; if its answer
//! is never kept, its key says that something was done, for ever.

use std::{pin::pin, sync::Arc, time::Duration};

use chrono::TimeDelta;
use domain::{
    Caller, Code, Error, Timestamp, Via, ids::TenantId, json::Sha256Digest, limits, limits::Limit,
};
use futures::future::{Either, select};
pub use store::idempotency::Answer;
use store::{
    Tx,
    idempotency::{Claim, Held, Keyed, State, Stored},
};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::Ctx;

tokio::task_local! {
    static SCOPE: Arc<Scope>;
}

/// A request with a key, as far as it tells a repetition from another request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// 1 to 128 printable ASCII characters.
    pub key: &'a str,
    pub method: &'a str,
    /// With its query.
    pub path: &'a str,
    pub body: &'a [u8],
}

/// What to do with a request.
#[derive(Debug)]
pub enum Begun {
    /// It is the first with its key: it runs.
    First(Claimed),
    /// It was answered: that again.
    Again(Answer),
}

/// The right to run the request of a key. Dropped unfinished, nothing that waited is committed and the key
/// is given up.
#[derive(Debug)]
pub struct Claimed {
    ctx: Ctx,
    scope: Arc<Scope>,
    finished: bool,
}

#[derive(Debug)]
struct Scope {
    tenant: TenantId,
    claim: Claim,
    held: Held,
    /// Locked while changes are committed, so that whatever comes next sees them.
    progress: Mutex<Progress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unchanged,
    /// Something is committed and the answer is not.
    Changed,
    /// A commit failed or was cut off: nobody knows which.
    Unknown,
}

/// Claims the key of a request, or finds what became of the request that had it before.
///
/// `IDEMPOTENCY_KEY_REUSED` when that one was another; `CONFLICT` when it still runs, or its answer is
/// not there to be given again.
pub async fn begin(ctx: &Ctx, caller: &Caller, request: Request<'_>) -> Result<Begun, Error> {
    let keyed = keyed(caller, request)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    // Twice more than needed: what stood in the way may be forgotten between two looks.
    for _ in 0..3 {
        let now = ctx.now();
        let until = now + delta(limits::IDEMPOTENCY_LEASE_MS.millis());
        let id = ctx.mint::<Uuid>();
        if store::idempotency::insert(&mut tx, id, &keyed, now, until).await? {
            tx.commit().await?;
            return Ok(Begun::First(Claimed::new(ctx, caller.tenant, Claim { id, epoch: 1 })));
        }
        let Some(stored) = store::idempotency::find(&mut tx, &keyed).await? else { continue };
        let forgotten_before = kept_since(now);
        if stored.created_at < forgotten_before {
            let ids = [stored.claim.id];
            store::idempotency::forget(&mut tx, &ids, forgotten_before).await?;
            continue;
        }
        if let Some(answer) = judge(&keyed, &stored, now)? {
            tx.commit().await?;
            return Ok(Begun::Again(answer));
        }
        let taken = store::idempotency::take_over(&mut tx, stored.claim, until).await?;
        if let Some(claim) = taken {
            tx.commit().await?;
            return Ok(Begun::First(Claimed::new(ctx, caller.tenant, claim)));
        }
    }
    Err(still_running())
}

/// Forgets what was asked longer ago than keys are kept.
pub async fn forget_old(ctx: &Ctx) -> Result<(), Error> {
    let before = kept_since(ctx.now());
    let batch = u32::try_from(limits::REAPER_BATCH.default).unwrap_or(u32::MAX);
    loop {
        let due = store::idempotency::due(&ctx.db, before, batch).await?;
        let full = due.len() >= limits::REAPER_BATCH.size();
        let mut by_tenant = std::collections::BTreeMap::<_, Vec<_>>::new();
        for (tenant, id) in due {
            by_tenant.entry(tenant).or_default().push(id);
        }
        let mut forgotten = 0;
        for (tenant, ids) in by_tenant {
            let mut tx = ctx.begin(tenant).await?;
            forgotten += store::idempotency::forget(&mut tx, &ids, before).await?;
            tx.commit().await?;
        }
        if !full || forgotten == 0 {
            return Ok(());
        }
    }
}

/// To be called before something is done that no transaction undoes: from here on the key of the request
/// says that something was done, and it is never done again. Does nothing outside such a request.
pub(crate) async fn before_an_effect(ctx: &Ctx) -> Result<(), Error> {
    match SCOPE.try_with(Arc::clone) {
        Ok(scope) => scope.mark(ctx).await,
        Err(_) => Ok(()),
    }
}

/// A transaction that waits for the answer when it commits, in a request with a key.
pub(crate) async fn begin_in_scope(ctx: &Ctx, tenant: TenantId) -> Result<Tx, Error> {
    let Ok(scope) = SCOPE.try_with(Arc::clone) else { return Ok(ctx.db.begin(tenant).await?) };
    scope.settle().await?;
    let tx = ctx.db.begin(tenant).await?;
    Ok(if tenant == scope.tenant { tx.held_by(&scope.held) } else { tx })
}

impl Claimed {
    fn new(ctx: &Ctx, tenant: TenantId, claim: Claim) -> Self {
        let (held, progress) = (Held::default(), Mutex::new(Progress::Unchanged));
        let scope = Arc::new(Scope { tenant, claim, held, progress });
        Self { ctx: ctx.clone(), scope, finished: false }
    }

    /// Runs the request, and keeps the claim meanwhile.
    pub async fn run<T>(&self, request: impl Future<Output = T>) -> T {
        let request = pin!(SCOPE.scope(Arc::clone(&self.scope), request));
        let keep = pin!(self.keep());
        match select(request, keep).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn keep(&self) -> std::convert::Infallible {
        let lease = limits::IDEMPOTENCY_LEASE_MS.millis();
        let mut renewed = tokio::time::Instant::now();
        let mut waiting = false;
        loop {
            tokio::time::sleep(limits::IDEMPOTENCY_HOLD_MS.millis() / 2).await;
            if waiting && self.scope.held.is_some() {
                let scope = Arc::clone(&self.scope);
                // On its own: a commit must not be cut off by the end of the request.
                self.ctx.tasks.spawn(async move {
                    if let Err(error) = scope.settle().await {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "a change was not saved"
                        );
                    }
                });
            }
            waiting = self.scope.held.is_some();
            if renewed.elapsed() > lease / 3 {
                renewed = tokio::time::Instant::now();
                if let Err(error) = self.renew(lease).await {
                    // Should somebody take the claim, our commit fails.
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "a claim was not renewed"
                    );
                }
            }
        }
    }

    async fn renew(&self, lease: Duration) -> Result<(), Error> {
        let mut tx = self.ctx.db.begin(self.scope.tenant).await?;
        let until = self.ctx.now() + delta(lease);
        store::idempotency::renew(&mut tx, self.scope.claim, until).await?;
        Ok(tx.commit().await?)
    }

    /// Commits what waits, with the answer of the request; `None`: it is not kept, and a repetition learns
    /// that the request was done. A request that `failed` and changed nothing gives the key up: nothing
    /// stands against trying it once more.
    ///
    /// On an error nothing that waited is saved, or, if the database went away over the commit, nobody
    /// knows; the key does.
    pub async fn finish(mut self, failed: bool, answer: Option<Answer>) -> Result<(), Error> {
        let scope = Arc::clone(&self.scope);
        let progress = *scope.progress.lock().await;
        if progress == Progress::Unknown {
            return Err(not_saved());
        }
        let held = scope.held.take();
        if failed && held.is_none() && progress == Progress::Unchanged {
            // Before the answer, so that a mended request finds the key free; else a moment later.
            self.finished = release(&self.ctx, &scope).await.is_ok();
            return Ok(());
        }
        let mut tx = match held {
            Some(tx) => tx,
            None => self.ctx.db.begin(scope.tenant).await?,
        };
        if !store::idempotency::complete(&mut tx, scope.claim, answer.as_ref()).await? {
            return Err(taken_over());
        }
        tx.commit().await?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // Rolls it back.
        drop(self.scope.held.take());
        if self.finished {
            return;
        }
        let (ctx, scope) = (self.ctx.clone(), Arc::clone(&self.scope));
        self.ctx.tasks.spawn(async move {
            // After a commit that is under way.
            let _ = scope.progress.lock().await;
            drop(scope.held.take());
            if let Err(error) = release(&ctx, &scope).await {
                // The claim runs out by itself.
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a claim was not given up"
                );
            }
        });
    }
}

impl Scope {
    /// Commits what waits, if something does.
    async fn settle(&self) -> Result<(), Error> {
        let mut progress = self.progress.lock().await;
        match self.held.take() {
            Some(tx) => self.commit(tx, &mut progress).await,
            None if *progress == Progress::Unknown => Err(not_saved()),
            None => Ok(()),
        }
    }

    /// Commits what waits, and that something is done.
    async fn mark(&self, ctx: &Ctx) -> Result<(), Error> {
        let mut progress = self.progress.lock().await;
        let tx = match self.held.take() {
            Some(tx) => tx,
            None => ctx.db.begin(self.tenant).await?,
        };
        self.commit(tx, &mut progress).await
    }

    async fn commit(&self, mut tx: Tx, progress: &mut Progress) -> Result<(), Error> {
        if *progress == Progress::Unknown {
            return Err(not_saved());
        }
        *progress = Progress::Unknown;
        if !store::idempotency::mark_changed(&mut tx, self.claim).await? {
            return Err(taken_over());
        }
        tx.commit().await?;
        *progress = Progress::Changed;
        Ok(())
    }
}

async fn release(ctx: &Ctx, scope: &Scope) -> Result<(), Error> {
    let mut tx = ctx.db.begin(scope.tenant).await?;
    store::idempotency::release(&mut tx, scope.claim).await?;
    Ok(tx.commit().await?)
}

/// The answer of the request that had the key; `None`: it ended without a change, and the key is free.
fn judge(request: &Keyed, stored: &Stored, now: Timestamp) -> Result<Option<Answer>, Error> {
    if !request.is(stored) {
        let words = "this idempotency key was used for another request";
        return Err(Error::new(Code::IdempotencyKeyReused, words));
    }
    let runs = stored.claimed_until.is_some_and(|until| until > now);
    match &stored.state {
        State::Done(Some(answer)) => Ok(Some(answer.clone())),
        State::Done(None) => Err(Error::new(
            Code::Conflict,
            "the request with this idempotency key was done, and its answer is not kept",
        )),
        State::Running | State::Changed if runs => Err(still_running()),
        State::Running => Ok(None),
        State::Changed => Err(Error::new(
            Code::Conflict,
            "the request with this idempotency key was cut off after it had changed something: \
             look at what stands now",
        )),
    }
}

fn keyed(caller: &Caller, request: Request<'_>) -> Result<Keyed, Error> {
    check_key(request.key)?;
    let credential = match caller.via {
        Via::Token(id) | Via::Gateway(id) => id.0,
        Via::Console(id) => id.0,
        Via::Operator | Via::Company(_) => {
            return Err(Error::internal("only requests to the REST API have an idempotency key"));
        }
    };
    // With the key, so that the digest says nothing of the body to whoever does not know the key.
    let body = [request.key.as_bytes(), b"\n", request.body].concat();
    Ok(Keyed {
        caller: credential,
        user: caller.user,
        key: Sha256Digest::of(request.key.as_bytes()),
        method: request.method.to_owned(),
        path: request.path.to_owned(),
        body: Sha256Digest::of(&body),
    })
}

fn check_key(key: &str) -> Result<(), Error> {
    let most = limits::IDEMPOTENCY_KEY_CHARS.size();
    let printable = key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if (1..=most).contains(&key.len()) && printable {
        return Ok(());
    }
    let words = format!("an idempotency key has 1 to {most} printable ASCII characters");
    Err(Error::new(Code::InvalidInput, words))
}

fn kept_since(now: Timestamp) -> Timestamp {
    let Limit { default: hours, .. } = limits::IDEMPOTENCY_KEEP_HOURS;
    now - TimeDelta::hours(i64::try_from(hours).unwrap_or(i64::MAX))
}

fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

fn still_running() -> Error {
    let words = "the request with this idempotency key still runs";
    Error::new(Code::Conflict, words).retry_after(limits::IDEMPOTENCY_RETRY_MS.millis())
}

fn taken_over() -> Error {
    let words = "this request took so long that another one took its idempotency key";
    Error::new(Code::Conflict, words)
}

fn not_saved() -> Error {
    let words = "the database went away: send the request again with the same idempotency key";
    Error::new(Code::Unavailable, words).retry_after(limits::DATABASE_RETRY_MS.millis())
}
