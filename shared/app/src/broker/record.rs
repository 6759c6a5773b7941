//! The record of a call: opened once before anything is sent, closed once whatever happened.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use domain::{
    Caller, Code, Error, Retry, Timestamp,
    audit::{self, AuthorizationRecord, InvocationRecord},
    ids::{
        AuthorizationId, ExecutionId, InvocationId, PermissionGrantId, SessionId, TenantId,
        TokenId, UserId,
    },
    invocation::{CatalogEntry, Origin, ReadBack, Status},
    json::{self, Sha256Digest},
    limits,
    permission::{AuthorizationSource, TOOL_CALL},
};
use serde_json::{Value, json};
use store::{
    StoreError,
    calls::{CallName, Closing, NewAuthorization, NewCall},
};
use tokio::time::Instant;

use super::{CallRequest, resolve::Resolved, send::Answer};
use crate::{Ctx, signals::Hint};

/// What is known of a call so far.
#[derive(Debug)]
pub(super) struct Record {
    name: CallName,
    invocation: InvocationId,
    session: SessionId,
    user: UserId,
    token: Option<TokenId>,
    origin: Origin,
    asked_name: String,
    entry: Option<CatalogEntry>,
    request: Vec<u8>,
    request_digest: Sha256Digest,
    created_at: Timestamp,
    began: Instant,
    opened: Opened,
    pub authorization: Option<AuthorizationId>,
    pub queue_wait: Duration,
    pub attempts: Vec<Value>,
    pub warnings: Vec<Value>,
}

/// Whether the row of a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opened {
    No,
    /// An outage cut the statement off.
    Unsure,
    Yes,
}

/// Why a call may happen, or may not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub source: AuthorizationSource,
    pub grant: Option<PermissionGrantId>,
}

impl Record {
    /// Its input is digested at entry, before anybody judges it.
    pub(super) fn new(ctx: &Ctx, caller: &Caller, request: &CallRequest) -> Self {
        let document = asked_document(request);
        Self {
            name: CallName {
                tenant: caller.tenant,
                execution: request.execution,
                call_id: request.call_id.clone(),
            },
            invocation: ctx.mint(),
            session: request.session,
            user: caller.user,
            token: caller.token(),
            origin: request.origin,
            asked_name: request.agent_name.clone(),
            entry: None,
            request_digest: Sha256Digest::of(&document),
            request: document,
            created_at: ctx.now(),
            began: Instant::now(),
            opened: Opened::No,
            authorization: None,
            queue_wait: Duration::ZERO,
            attempts: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(super) fn invocation(&self) -> InvocationId {
        self.invocation
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.name.tenant
    }

    pub(super) fn execution(&self) -> ExecutionId {
        self.name.execution
    }

    pub(super) fn name(&self) -> &CallName {
        &self.name
    }

    /// The call has a tool: its request is named by source and tool from here on.
    pub(super) fn resolved(&mut self, resolved: &Resolved) {
        let entry = &resolved.entry;
        self.request = json::request_document(&resolved.input, &entry.server, &entry.tool);
        self.request_digest = Sha256Digest::of(&self.request);
        self.entry = Some(entry.clone());
    }

    /// Makes the call durable. `settled` is an authorization that needed no question; `sent` says
    /// that the request leaves as soon as this returns.
    pub(super) async fn open(
        &mut self,
        ctx: &Ctx,
        state: Status,
        settled: Option<(Settled, &Resolved)>,
        sent: bool,
    ) -> Result<ReadBack, Error> {
        let at = ctx.now();
        let authorization = settled.map(|(settled, resolved)| {
            self.authorization_record(ctx.mint(), at, settled, resolved)
        });
        self.authorization = authorization.as_ref().map(|record| record.authorization);
        let authorization = authorization
            .as_ref()
            .map(|record| NewAuthorization { record, leaf: audit::authorization_leaf(record) });
        // A large request is stored before its row names it.
        let inline = self.request.len() <= limits::CAS_INLINE_BYTES.size();
        if !inline {
            crate::cas::put(ctx, self.name.tenant, &self.request).await?;
        }
        let call = NewCall {
            name: &self.name,
            invocation: self.invocation,
            session: self.session,
            user: self.user,
            token: self.token,
            origin: self.origin,
            asked_name: &self.asked_name,
            entry: self.entry.as_ref(),
            request: self.request_digest,
            request_body: inline.then_some(&self.request),
            node: ctx.node,
            state,
            sent,
            at,
            authorization,
        };
        match store::calls::open(&ctx.db, &call).await {
            Ok(read_back) => {
                self.opened = Opened::Yes;
                Ok(read_back)
            }
            Err(error) => {
                // Nothing was sent; whether the row exists shows when it is closed.
                if error.is_outage() {
                    self.opened = Opened::Unsure;
                }
                Err(error.into())
            }
        }
    }

    /// A call that ended before it could be resolved or admitted still leaves its record.
    async fn open_refused(&mut self, ctx: &Ctx) -> Result<(), Error> {
        match self.open(ctx, Status::Running, None, false).await {
            // The close finds out, as soon as the database is back.
            Err(_) if self.opened == Opened::Unsure => Ok(()),
            opened => opened.map(|_| ()),
        }
    }

    fn authorization_record(
        &self,
        id: AuthorizationId,
        at: Timestamp,
        settled: Settled,
        resolved: &Resolved,
    ) -> AuthorizationRecord {
        AuthorizationRecord {
            tenant: self.name.tenant,
            authorization: id,
            session: self.session,
            user: self.user,
            action: TOOL_CALL.to_owned(),
            resource: resolved.resource(),
            mode: resolved.mode,
            outcome: settled.source.into(),
            source: settled.source,
            epoch: resolved.epoch,
            grant: settled.grant,
            request: None,
            execution: Some(self.name.execution),
            tool_call_id: Some(self.name.call_id.clone()),
            definition_hash: Some(resolved.entry.definition_hash),
            input_digest: Some(resolved.input_digest),
            created_at: at,
        }
    }

    /// Closes the call and gives its outcome back. The outcome is withheld until the record is
    /// durable; it is an outer error when that could not be had.
    pub(super) async fn close(
        &mut self,
        ctx: &Ctx,
        outcome: Result<Answer, Error>,
    ) -> Result<Result<Bytes, Error>, Error> {
        loop {
            if self.opened == Opened::No {
                self.open_refused(ctx).await?;
            }
            let end = End::of(&outcome);
            let closing = self.closing(ctx, &outcome, &end);
            match self.closed(ctx, &closing, &end, &outcome).await {
                Ok(Closed::Now) => {
                    ctx.signals.hint(Hint::Events(self.session));
                    return Ok(outcome.map(|answer| answer.raw));
                }
                // The reaper was faster: this node was thought dead.
                Ok(Closed::ByOthers) => {
                    return Ok(Err(Error::new(
                        Code::Interrupted,
                        "the call was closed while this node was out of touch with the database",
                    )));
                }
                Ok(Closed::NeverOpened) => self.opened = Opened::No,
                Err(error) => {
                    self.close_in_background(ctx, closing, end, outcome);
                    return Err(error.into());
                }
            }
        }
    }

    /// Closing is one statement that may be repeated: it changes nothing the second time.
    async fn closed(
        &self,
        ctx: &Ctx,
        closing: &OwnedClosing,
        end: &End,
        outcome: &Result<Answer, Error>,
    ) -> Result<Closed, StoreError> {
        let statement = closing.borrow(self, end, outcome);
        let close = || async {
            if store::calls::close(&ctx.db, &statement).await? {
                return Ok(Closed::Now);
            }
            self.closed_before(ctx, closing, end).await
        };
        let backoff = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(limits::DATABASE_RETRY_MS.millis())
            .without_max_times()
            .with_total_delay(Some(limits::CLOSE_RETRY_SECONDS.seconds()));
        close.retry(backoff).when(StoreError::is_outage).await
    }

    /// Why there was nothing to close. A try of ours that was cut off may have closed it, and an
    /// opening that was cut off may have come to nothing.
    async fn closed_before(
        &self,
        ctx: &Ctx,
        closing: &OwnedClosing,
        end: &End,
    ) -> Result<Closed, StoreError> {
        let mut tx = ctx.db.begin(self.name.tenant).await?;
        let found = store::invocations::find(&mut tx, self.session, self.invocation).await?;
        Ok(match found {
            None if self.opened == Opened::Unsure => Closed::NeverOpened,
            Some(row) if row.status == end.status && row.finished_at == Some(closing.at) => {
                Closed::Now
            }
            Some(_) | None => Closed::ByOthers,
        })
    }

    fn closing(&self, ctx: &Ctx, outcome: &Result<Answer, Error>, end: &End) -> OwnedClosing {
        let at = ctx.now();
        let answer = outcome.as_ref().ok();
        let leaf = audit::invocation_leaf(&InvocationRecord {
            tenant: self.name.tenant,
            invocation: self.invocation,
            session: self.session,
            user: self.user,
            execution: self.name.execution,
            token: self.token,
            origin: self.origin,
            source_id: self.entry.as_ref().map(|entry| entry.server.clone()),
            tool_id: self.entry.as_ref().map(|entry| entry.tool.clone()),
            request_sha256: self.request_digest,
            created_at: self.created_at,
            status: end.status,
            error_code: end.code,
            authorization_id: self.authorization,
            raw_sha256: answer.map(|answer| answer.raw_digest),
            result_sha256: answer.map(|answer| answer.result_digest),
            finished_at: at,
        });
        let duration = self.began.elapsed();
        OwnedClosing {
            at,
            leaf,
            duration_ms: millis(duration),
            attempts: Value::Array(self.attempts.clone()),
            warnings: Value::Array(self.warnings.clone()),
            event: json!({
                "invocationId": self.invocation,
                "sourceId": self.entry.as_ref().map(|entry| &entry.server),
                "toolId": self.entry.as_ref().map(|entry| &entry.tool),
                "status": end.status,
                "errorCode": end.code,
                "durationMs": millis(duration),
            }),
        }
    }

    /// The database stays away: the record is closed as soon as it is back, or by the reaper once
    /// this process is gone.
    fn close_in_background(
        &self,
        ctx: &Ctx,
        closing: OwnedClosing,
        end: End,
        outcome: Result<Answer, Error>,
    ) {
        let background = Self {
            name: self.name.clone(),
            asked_name: self.asked_name.clone(),
            entry: None,
            request: Vec::new(),
            attempts: Vec::new(),
            warnings: Vec::new(),
            ..*self
        };
        let ctx = ctx.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = ctx.stopping.cancelled() => return,
                    () = tokio::time::sleep(limits::DATABASE_RETRY_MS.millis()) => {}
                }
                let borrowed = closing.borrow(&background, &end, &outcome);
                match store::calls::close(&ctx.db, &borrowed).await {
                    Err(error) if error.is_outage() => {}
                    Err(error) => {
                        tracing::error!(
                            invocation = %background.invocation,
                            error = &error as &dyn std::error::Error,
                            "a call could not be closed"
                        );
                        return;
                    }
                    Ok(_) => return,
                }
            }
        });
    }
}

/// What became of a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// By this very close, or by an earlier try of it.
    Now,
    ByOthers,
    /// There is no such call: its opening was cut off.
    NeverOpened,
}

/// How a call ended, in the words of its record.
#[derive(Debug)]
struct End {
    status: Status,
    code: Option<Code>,
    message: Option<String>,
    retryable: Option<bool>,
}

impl End {
    fn of(outcome: &Result<Answer, Error>) -> Self {
        match outcome {
            Ok(answer) if answer.is_error => Self {
                status: Status::Failed,
                code: Some(Code::ToolError),
                message: Some("the tool answered with an error".to_owned()),
                retryable: Some(false),
            },
            Ok(_) => Self { status: Status::Succeeded, code: None, message: None, retryable: None },
            Err(error) => Self {
                status: if error.code == Code::Cancelled {
                    Status::Cancelled
                } else {
                    Status::Failed
                },
                code: Some(error.code),
                message: Some(
                    error.public.chars().take(limits::ERROR_MESSAGE_CHARS.size()).collect(),
                ),
                retryable: Some(error.retry != Retry::Never),
            },
        }
    }
}

/// What a close needs beyond the record; kept while it is tried again.
#[derive(Debug)]
struct OwnedClosing {
    at: Timestamp,
    leaf: Sha256Digest,
    duration_ms: i64,
    attempts: Value,
    warnings: Value,
    event: Value,
}

impl OwnedClosing {
    fn borrow<'a>(
        &'a self,
        record: &'a Record,
        end: &'a End,
        outcome: &'a Result<Answer, Error>,
    ) -> Closing<'a> {
        let answer = outcome.as_ref().ok();
        Closing {
            name: &record.name,
            invocation: record.invocation,
            session: record.session,
            status: end.status,
            error_code: end.code.map(Code::as_str),
            error_message: end.message.as_deref(),
            retryable: end.retryable,
            queue_wait_ms: millis(record.queue_wait),
            duration_ms: self.duration_ms,
            cache_hit: false,
            attempts: &self.attempts,
            warnings: &self.warnings,
            authorization: record.authorization,
            raw: answer.map(|answer| answer.raw_digest),
            raw_body: answer.filter(|answer| !answer.stored).map(|answer| &answer.raw[..]),
            result: answer.map(|answer| answer.result_digest),
            result_body: answer.filter(|answer| !answer.stored).map(|answer| &answer.result[..]),
            at: self.at,
            leaf: self.leaf,
            event: &self.event,
        }
    }
}

/// The request as it was asked, for a call that has no tool yet: `{"askedName":…,"input":…}`, with the
/// input as it came where it has no canonical form.
fn asked_document(request: &CallRequest) -> Vec<u8> {
    let raw = request.arguments.get();
    let input = json::canonical(raw).unwrap_or_else(|_| raw.as_bytes().to_vec());
    let mut document = b"{\"askedName\":".to_vec();
    document.extend(Value::from(request.agent_name.as_str()).to_string().into_bytes());
    document.extend(b",\"input\":");
    document.extend(input);
    document.push(b'}');
    document
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
