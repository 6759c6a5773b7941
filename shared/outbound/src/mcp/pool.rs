//! Clients kept open, one per key, connected once however many callers wait.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use domain::{
    Code, Error,
    ids::{ServerId, TenantId},
    limits,
};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    About, Answer, Call, CallFailure, ClientKey, Discovery, ListChanges, Listening, Opened, Target,
    changes::{Changes, Hints},
    channel::{self, Means, Trail},
    client::Client,
    deadline::Deadline,
    discovery, wire,
};
use crate::{
    http::{GuardedHttp, Ran},
    stdio::Stdio,
};

/// All MCP clients of a process. Cheap to clone.
///
/// A plain map under a lock and not a cache library: closing a session is something that a server
/// sees, so it must happen when an entry leaves, not some time later.
#[derive(Clone)]
pub struct McpClients(Arc<Pool>);

struct Pool {
    http: GuardedHttp,
    stdio: Stdio,
    slots: Mutex<HashMap<ClientKey, Slot>>,
    /// Which of a server's clients reads the stream of its own messages, for all of them.
    standing: Mutex<HashMap<(TenantId, ServerId), Weak<Client>>>,
    changes: Arc<Changes>,
    tasks: TaskTracker,
    /// The task that closes idle clients runs.
    swept: AtomicBool,
}

struct Slot {
    connecting: Connecting,
    used_at: Instant,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Client>, Arc<Error>>>>;

impl McpClients {
    #[must_use]
    pub fn new(http: GuardedHttp, stdio: Stdio) -> Self {
        Self(Arc::new(Pool {
            http,
            stdio,
            slots: Mutex::default(),
            standing: Mutex::default(),
            changes: Arc::default(),
            tasks: TaskTracker::new(),
            swept: AtomicBool::new(false),
        }))
    }

    /// Sends one request and gives the result as it came. Connects first if need be, inside `deadline`,
    /// whose clock stands still while the call's relay has its caller asked something.
    ///
    /// On `cancel` (`CANCELLED`) and at `deadline` (`TIMEOUT`) it returns at once; the server is told
    /// by `notifications/cancelled` with the id that we gave, in the newer era over HTTP by closing the
    /// stream. The same happens when the future is dropped.
    ///
    /// A JSON-RPC error is `TOOL_ERROR` with `rpc`. Transport: `UPSTREAM_UNAVAILABLE`,
    /// `UPSTREAM_FORMAT`, `UNAUTHORIZED`, `INSUFFICIENT_SCOPE`, `RATE_LIMITED`,
    /// `RESPONSE_TOO_LARGE`, `NOT_FOUND`, `SERVER_MISCONFIGURED` (egress). `INVALID_INPUT` for params
    /// that are no object. An own session that is no more:
    /// [`is_session_lost`](super::is_session_lost).
    pub async fn call(
        &self,
        target: &Target,
        mut call: Call,
        deadline: impl Into<Deadline>,
        cancel: CancellationToken,
    ) -> Result<Answer, CallFailure> {
        let deadline = deadline.into();
        let trail = Trail { pinned: call.pinned.clone(), ..Trail::of(target) };
        let ended = |code: Code, words: &str| {
            let ran = if trail.sent.load(Ordering::Relaxed) { Ran::Unknown } else { Ran::No };
            Err(CallFailure { error: Error::new(code, words), ran, rpc: None })
        };
        if cancel.is_cancelled() {
            return ended(Code::Cancelled, "the call was cancelled");
        }
        let work = Box::pin(async {
            let client = self.client(target, &trail).await.map_err(CallFailure::not_run)?;
            let _under_way = client.clock(&mut call, &deadline);
            Box::pin(client.call(&call, &trail)).await
        });
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = cancel.cancelled() => ended(Code::Cancelled, "the call was cancelled"),
            () = deadline.passed() => {
                ended(Code::Timeout, "the server did not answer in time")
            }
        }
    }

    /// Tells a server in an own session something that it does not answer. Where it knows no sessions
    /// (2026-07-28), nothing is sent. `TIMEOUT` at `deadline`; otherwise as [`call`](Self::call).
    pub async fn notify(
        &self,
        target: &Target,
        method: &'static str,
        deadline: Instant,
    ) -> Result<(), Error> {
        let trail = Trail::of(target);
        let work = Box::pin(async {
            let client = self.client(target, &trail).await?;
            let session = client.session();
            if !session.link.has_sessions() {
                return Ok(());
            }
            let message = wire::message(None, method, None::<()>)?;
            let told = client.channel.notify(&session.link, &message, &trail).await;
            told.map_err(|failure| failure.error)
        });
        tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Error::new(Code::Timeout, "the server did not take a notification in time"))
        })
    }

    /// Lists the tools. `fresh` uses a client of its own and ends its session afterwards.
    ///
    /// `TIMEOUT` at `deadline`; `UPSTREAM_FORMAT` for a list that cannot be read or repeats a cursor;
    /// otherwise as [`call`](Self::call). A server that offers no tools has none.
    pub async fn discover(
        &self,
        target: &Target,
        fresh: bool,
        deadline: Instant,
    ) -> Result<Discovery, Error> {
        let trail = Trail::of(target);
        let work = Box::pin(async {
            let client = if fresh {
                // Whoever looks at the tools needs no hint that they changed.
                let means = Means { hints: Hints::default(), ..self.0.means(&target.key) };
                Arc::new(Box::pin(Client::connect(&means, target, &trail)).await?)
            } else {
                self.client(target, &trail).await?
            };
            Box::pin(discovery::discover(&client, &trail)).await
        });
        tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Error::new(Code::Timeout, "the server did not list its tools in time"))
        })
    }

    /// What a server says of itself; connects if need be. `TIMEOUT` at `deadline`. Of an own session it
    /// is known to the process that began it alone.
    pub async fn about(&self, target: &Target, deadline: Instant) -> Result<About, Error> {
        let trail = Trail::default();
        let work = async { self.client(target, &trail).await?.about() };
        tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Error::new(Code::Timeout, "the server did not say in time what it is"))
        })
    }

    /// Begins the own session that `target.key.session` names: `initialize` with these client
    /// capabilities (JSON of `ClientCapabilities`) and, first, this version. A server that speaks only
    /// 2026-07-28 has no sessions; then requests are sent to it one by one all the same, and what a
    /// client can do goes with each of them ([`Call::capabilities`]).
    ///
    /// One that is open under the same key is dropped, without an end. Errors as of
    /// [`call`](Self::call).
    pub async fn open(
        &self,
        target: &Target,
        capabilities: &RawValue,
        version: &str,
        deadline: Instant,
    ) -> Result<Opened, Error> {
        let (trail, means) = (Trail::default(), self.0.means(&target.key));
        let work = Box::pin(Client::open(&means, target, capabilities, version, &trail));
        let client = tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Error::new(Code::Timeout, "the server did not begin a session in time"))
        })?;
        let opened = Opened { about: client.about()?, resume: client.to_resume() };
        let client = Arc::new(client);
        let connecting: Connecting = std::future::ready(Ok(client)).boxed().shared();
        // A future that nobody polled has no outcome to look at.
        let _client = connecting.clone().await;
        self.put(target, connecting);
        Ok(opened)
    }

    /// Ends an own session for good (DELETE, or the end of the program), wherever it was begun. Waits
    /// until the server knows, or [`limits::FAREWELL_TIMEOUT_MS`].
    pub async fn close(&self, target: &Target) {
        let slot = self.slots().remove(&target.key);
        let held =
            slot.and_then(|slot| slot.connecting.peek().and_then(|ended| ended.clone().ok()));
        let client = match (held, &target.resume) {
            (Some(client), _) => client,
            (None, Some(resume)) => {
                let means = self.0.means(&target.key);
                let Ok(client) = Client::resume(&means, target, resume).await else { return };
                Arc::new(client)
            }
            (None, None) => return,
        };
        client.close().await;
    }

    /// Listens to what a server says outside of any request, until the answer is dropped. Sessions of
    /// the older eras: GET, resumed where it breaks off, everything comes. 2026-07-28:
    /// `subscriptions/listen` with `filter` (JSON of its `notifications`; `None`: the three lists).
    ///
    /// `deadline` bounds how long it takes until the server speaks. Where a server has no such stream:
    /// [`is_not_offered`](super::is_not_offered). Of a shared client only notifications come.
    pub async fn listen(
        &self,
        target: &Target,
        filter: Option<&RawValue>,
        deadline: Instant,
    ) -> Result<Listening, Error> {
        let every_list: &RawValue = serde_json::from_str(EVERY_LIST).map_err(Error::internal)?;
        let trail = Trail::default();
        let work = async {
            let client = self.client(target, &trail).await?;
            Listening::begin(client, filter.unwrap_or(every_list)).await
        };
        tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Error::new(Code::Timeout, "the server did not begin to speak in time"))
        })
    }

    /// Which servers said that their tools changed, in whatever stream. Several readers share them.
    #[must_use]
    pub fn list_changes(&self) -> ListChanges {
        ListChanges(Arc::clone(&self.0.changes))
    }

    /// Closes every client of a server, of any revision and identity, own sessions too. Calls in flight
    /// end by themselves; then their session is ended too.
    #[expect(clippy::unused_async, reason = "callers await it: closing may come to wait")]
    pub async fn forget(&self, tenant: TenantId, server: &ServerId) {
        let mut slots = self.slots();
        let gone = slots.extract_if(|key, _| key.tenant == tenant && key.server == *server);
        let gone: Vec<_> = gone.collect();
        drop(slots);
        for (_, slot) in gone {
            if let Some(Ok(client)) = slot.connecting.peek() {
                client.leave_for_good();
            }
        }
    }

    /// Closes every client, but for own sessions that another process can go on with, and waits until the servers were told, or `deadline`.
    pub async fn close_all(&self, deadline: Instant) {
        let gone = std::mem::take(&mut *self.slots());
        for slot in gone.into_values() {
            if let Some(Ok(client)) = slot.connecting.peek() {
                client.leave();
            }
        }
        self.0.tasks.close();
        // Late: the servers find out by their own time-outs.
        let _told = tokio::time::timeout_at(deadline, self.0.tasks.wait()).await;
    }

    /// Clients that are connected now.
    #[must_use]
    pub fn open_clients(&self) -> usize {
        self.slots().values().filter(|slot| matches!(slot.connecting.peek(), Some(Ok(_)))).count()
    }

    /// The client of a key. Whoever comes while it connects waits for the same attempt and shares
    /// its error; a failed attempt is not remembered.
    async fn client(&self, target: &Target, trail: &Trail) -> Result<Arc<Client>, Error> {
        let (connecting, counted) = self.slot(target);
        let outcome = connecting.clone().await;
        if let Some(counted) = counted {
            let requests = counted.requests.load(Ordering::Relaxed);
            trail.requests.fetch_add(requests, Ordering::Relaxed);
        }
        outcome.inspect(|client| self.stand(client, &target.key)).map_err(|error| {
            let mut slots = self.slots();
            if slots.get(&target.key).is_some_and(|slot| slot.connecting.ptr_eq(&connecting)) {
                slots.remove(&target.key);
            }
            shared(&error)
        })
    }

    /// The attempt to wait for; with its trail, where it was begun for this caller.
    fn slot(&self, target: &Target) -> (Connecting, Option<Arc<Trail>>) {
        let now = Instant::now();
        let mut slots = self.slots();
        if let Some(slot) = slots.get_mut(&target.key) {
            let usable = match slot.connecting.peek() {
                None => true,
                Some(Ok(client)) => !client.is_dead(),
                // Everybody who waited for it was gone before it failed.
                Some(Err(_)) => false,
            };
            if usable {
                slot.used_at = now;
                return (slot.connecting.clone(), None);
            }
        }
        let trail = Arc::new(Trail::default());
        let connecting = self.connect(target.clone(), Arc::clone(&trail));
        let replaced = place(&mut slots, target, connecting.clone());
        drop(slots);
        drop(replaced);
        self.sweep_from_now_on();
        (connecting, Some(trail))
    }

    fn put(&self, target: &Target, connecting: Connecting) {
        let mut slots = self.slots();
        let replaced = place(&mut slots, target, connecting);
        drop(slots);
        drop(replaced);
        self.sweep_from_now_on();
    }

    /// In a task of its own: a caller that gives up must not break it off for the others.
    fn connect(&self, target: Target, trail: Arc<Trail>) -> Connecting {
        let means = self.0.means(&target.key);
        let attempt = tokio::spawn(async move {
            let client = match (target.key.session, &target.resume) {
                (None, _) => Box::pin(Client::connect(&means, &target, &trail)).await,
                (Some(_), Some(resume)) => Client::resume(&means, &target, resume).await,
                (Some(_), None) => Err(channel::session_lost()),
            };
            client.map(Arc::new).map_err(Arc::new)
        });
        attempt
            .map(|ended| ended.unwrap_or_else(|panic| Err(Arc::new(Error::internal(panic)))))
            .boxed()
            .shared()
    }

    /// Sees to it that one of a server's shared clients hears when its tools change.
    fn stand(&self, client: &Arc<Client>, key: &ClientKey) {
        let session = client.session();
        let keeps_something = session.link.session.is_some() || !session.link.has_sessions();
        if client.is_own() || !session.tells_changes || !keeps_something {
            return;
        }
        let mut standing = self.0.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let of_server = standing.entry((key.tenant, key.server.clone())).or_default();
        match of_server.upgrade() {
            Some(other) if !other.is_dead() && other.standing.is_settled() => {}
            _ => {
                *of_server = Arc::downgrade(client);
                client.standing.begin(client.line(&session));
            }
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<ClientKey, Slot>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes idle clients until the pool is dropped.
    fn sweep_from_now_on(&self) {
        if self.0.swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let pool = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let idle = limits::CLIENT_IDLE_SECONDS.seconds();
            loop {
                tokio::time::sleep(idle / 10).await;
                let Some(pool) = Weak::upgrade(&pool) else { return };
                let pool = Self(pool);
                let gone: Vec<_> = {
                    let mut slots = pool.slots();
                    let is_idle = |slot: &Slot| slot.used_at.elapsed() >= idle && !slot.is_used();
                    slots.extract_if(|_, slot| is_idle(slot)).collect()
                };
                drop(gone);
                let mut standing = pool.0.standing.lock().unwrap_or_else(PoisonError::into_inner);
                standing.retain(|_, client| client.strong_count() > 0);
            }
        });
    }
}

impl std::fmt::Debug for McpClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpClients").field("open", &self.open_clients()).finish_non_exhaustive()
    }
}

impl Pool {
    fn means(&self, key: &ClientKey) -> Means {
        Means {
            http: self.http.clone(),
            stdio: self.stdio.clone(),
            tasks: self.tasks.clone(),
            hints: Hints::of(&self.changes, key.tenant, &key.server),
        }
    }
}

impl Slot {
    /// Somebody calls or listens, however long ago that began.
    fn is_used(&self) -> bool {
        matches!(self.connecting.peek(), Some(Ok(client)) if Arc::strong_count(client) > 1)
    }
}

/// What a server of 2026-07-28 is asked to tell where nobody chose.
const EVERY_LIST: &str =
    r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}"#;

/// Puts a client into its slot and gives what has to leave, to be dropped without the lock.
fn place(
    slots: &mut HashMap<ClientKey, Slot>,
    target: &Target,
    connecting: Connecting,
) -> (Option<Slot>, Option<Slot>) {
    let slot = Slot { connecting, used_at: Instant::now() };
    let replaced = slots.insert(target.key.clone(), slot);
    (replaced, evict_least_used(slots))
}

fn evict_least_used(slots: &mut HashMap<ClientKey, Slot>) -> Option<Slot> {
    if slots.len() <= limits::CLIENTS_POOLED.size() {
        return None;
    }
    let oldest = slots.iter().min_by_key(|(_, slot)| (slot.is_used(), slot.used_at));
    let oldest = oldest.map(|(key, _)| key.clone())?;
    slots.remove(&oldest)
}

/// The same error for each of several callers.
fn shared(error: &Arc<Error>) -> Error {
    Error {
        code: error.code,
        retry: error.retry,
        public: error.public.clone(),
        details: error.details.clone(),
        untrusted: error.untrusted.clone(),
        source: Some(Box::new(Arc::clone(error))),
    }
}
