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
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    CallFailure, ClientKey, Discovery, Target, ToolAnswer, ToolCall, client::Client, discovery,
    exchange::Trail,
};
use crate::http::{GuardedHttp, Ran};

/// All MCP clients of a process. Cheap to clone.
///
/// A plain map under a lock and not a cache library: closing a session is something that a server
/// sees, so it must happen when an entry leaves, not some time later.
#[derive(Clone)]
pub struct McpClients(Arc<Pool>);

struct Pool {
    http: GuardedHttp,
    slots: Mutex<HashMap<ClientKey, Slot>>,
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
    pub fn new(http: GuardedHttp) -> Self {
        Self(Arc::new(Pool {
            http,
            slots: Mutex::default(),
            tasks: TaskTracker::new(),
            swept: AtomicBool::new(false),
        }))
    }

    /// Calls a tool and gives the result as it came. Connects first if need be, inside `deadline`.
    ///
    /// On `cancel` (`CANCELLED`) and at `deadline` (`TIMEOUT`) it returns at once; the server is told
    /// by `notifications/cancelled`, in the newer era by closing the stream. The same happens when
    /// the future is dropped.
    ///
    /// A JSON-RPC error is `TOOL_ERROR` with `rpc`. Transport: `UPSTREAM_UNAVAILABLE`,
    /// `UPSTREAM_FORMAT`, `UNAUTHORIZED`, `INSUFFICIENT_SCOPE`, `RATE_LIMITED`,
    /// `RESPONSE_TOO_LARGE`, `NOT_FOUND`, `SERVER_MISCONFIGURED` (egress).
    pub async fn call_tool(
        &self,
        target: &Target,
        call: ToolCall,
        deadline: Instant,
        cancel: CancellationToken,
    ) -> Result<ToolAnswer, CallFailure> {
        let trail = Trail::default();
        let ended = |code: Code, words: &str| {
            let ran = if trail.sent.load(Ordering::Relaxed) { Ran::Unknown } else { Ran::No };
            Err(CallFailure { error: Error::new(code, words), ran, rpc: None })
        };
        if cancel.is_cancelled() {
            return ended(Code::Cancelled, "the call was cancelled");
        }
        let work = async {
            let client = self.client(target, &trail).await.map_err(CallFailure::not_run)?;
            client.call(&call, &trail).await
        };
        tokio::select! {
            biased;
            outcome = work => outcome.map(|raw| ToolAnswer {
                raw,
                upstream_requests: trail.requests.load(Ordering::Relaxed),
            }),
            () = cancel.cancelled() => ended(Code::Cancelled, "the call was cancelled"),
            () = tokio::time::sleep_until(deadline) => {
                ended(Code::Timeout, "the server did not answer in time")
            }
        }
    }

    /// Lists the tools. `fresh` uses a client of its own and ends its session afterwards.
    ///
    /// `TIMEOUT` at `deadline`; `UPSTREAM_FORMAT` for a list that cannot be read or repeats a cursor;
    /// otherwise as [`call_tool`](Self::call_tool). A server that offers no tools has none.
    pub async fn discover(
        &self,
        target: &Target,
        fresh: bool,
        deadline: Instant,
    ) -> Result<Discovery, Error> {
        let trail = Trail::default();
        let work = async {
            let client = if fresh {
                let tasks = self.0.tasks.clone();
                Arc::new(Client::connect(&self.0.http, target, tasks, &trail).await?)
            } else {
                self.client(target, &trail).await?
            };
            discovery::discover(&client, &trail).await
        };
        tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Error::new(Code::Timeout, "the server did not list its tools in time"))
        })
    }

    /// Closes every client of a server, of any revision and identity. Calls in flight end by
    /// themselves; then their session is ended too.
    #[expect(clippy::unused_async, reason = "callers await it: closing may come to wait")]
    pub async fn forget(&self, tenant: TenantId, server: &ServerId) {
        let mut slots = self.slots();
        let gone = slots.extract_if(|key, _| key.tenant == tenant && key.server == *server);
        let gone: Vec<_> = gone.collect();
        drop(slots);
        drop(gone);
    }

    /// Closes every client and waits until the servers were told, or `deadline`.
    pub async fn close_all(&self, deadline: Instant) {
        let gone = std::mem::take(&mut *self.slots());
        drop(gone);
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
        outcome.map_err(|error| {
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
        let slot = Slot { connecting: connecting.clone(), used_at: now };
        let replaced = slots.insert(target.key.clone(), slot);
        let surplus = evict_least_used(&mut slots);
        drop(slots);
        drop((replaced, surplus));
        self.sweep_from_now_on();
        (connecting, Some(trail))
    }

    /// In a task of its own: a caller that gives up must not break it off for the others.
    fn connect(&self, target: Target, trail: Arc<Trail>) -> Connecting {
        let (http, tasks) = (self.0.http.clone(), self.0.tasks.clone());
        let attempt = tokio::spawn(async move {
            Client::connect(&http, &target, tasks, &trail).await.map(Arc::new).map_err(Arc::new)
        });
        attempt
            .map(|ended| ended.unwrap_or_else(|panic| Err(Arc::new(Error::internal(panic)))))
            .boxed()
            .shared()
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
                    slots.extract_if(|_, slot| slot.used_at.elapsed() >= idle).collect()
                };
                drop(gone);
            }
        });
    }
}

impl std::fmt::Debug for McpClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpClients").field("open", &self.open_clients()).finish_non_exhaustive()
    }
}

fn evict_least_used(slots: &mut HashMap<ClientKey, Slot>) -> Option<Slot> {
    if slots.len() <= limits::CLIENTS_POOLED.size() {
        return None;
    }
    let oldest = slots.iter().min_by_key(|(_, slot)| slot.used_at).map(|(key, _)| key.clone())?;
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
