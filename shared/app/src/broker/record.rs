//! The record of a call: opened once before anything is sent, closed once whatever happened.

mod closing;

use std::time::Duration;

use backon::ExponentialBuilder;
use domain::{
    Caller, Code, Error, Timestamp,
    audit::{self, AuthorizationRecord},
    ids::{
        AuthorizationId, ExecutionId, InvocationId, PermissionGrantId, PermissionRequestId,
        SessionId, TenantId, TokenId, UserId,
    },
    invocation::{CatalogEntry, Origin, ReadBack, Status},
    json::{self, Sha256Digest},
    limits,
    permission::{AuthorizationSource, TOOL_CALL},
};
use serde_json::Value;
use store::calls::{CallName, NewAuthorization, NewCall, Parked};
use tokio::time::Instant;

use super::{CallRequest, resolve::Resolved, resume::Waits};
use crate::Ctx;

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
    /// Opening was tried and cut off.
    tried: bool,
    /// The call was left for this, and its caller is back.
    waits: Option<Waits>,
    /// A question that nobody need answer once the call has ended.
    pub question: Option<PermissionRequestId>,
    pub authorization: Option<AuthorizationId>,
    pub queue_wait: Duration,
    /// What the server refused the last attempt with, in protocol.
    pub rpc: Option<outbound::mcp::Rpc>,
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
            asked_name: request.asked.name().to_owned(),
            entry: None,
            request_digest: Sha256Digest::of(&document),
            request: document,
            created_at: ctx.now(),
            began: Instant::now(),
            opened: Opened::No,
            tried: false,
            waits: None,
            question: None,
            authorization: None,
            queue_wait: Duration::ZERO,
            rpc: None,
            attempts: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The record of a call that was left, and that this node has now.
    pub(super) fn resumed(
        ctx: &Ctx,
        caller: &Caller,
        request: &CallRequest,
        name: CallName,
        parked: Parked,
        entry: CatalogEntry,
        waits: Waits,
    ) -> Self {
        let age = (ctx.now() - parked.created_at).to_std().unwrap_or_default();
        Self {
            name,
            invocation: parked.invocation,
            entry: Some(entry),
            request_digest: parked.request,
            request: Vec::new(),
            created_at: parked.created_at,
            began: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            opened: Opened::Yes,
            question: waits.question(),
            waits: Some(waits),
            authorization: parked.authorization,
            attempts: parked.attempts,
            ..Self::new(ctx, caller, request)
        }
    }

    /// `None`: it is the first request for the call.
    pub(super) fn waits(&self) -> Option<&Waits> {
        self.waits.as_ref()
    }

    pub(super) fn invocation(&self) -> InvocationId {
        self.invocation
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.name.tenant
    }

    pub(super) fn token(&self) -> Option<TokenId> {
        self.token
    }

    pub(super) fn execution(&self) -> ExecutionId {
        self.name.execution
    }

    pub(super) fn name(&self) -> &CallName {
        &self.name
    }

    pub(super) fn is_resolved(&self) -> bool {
        self.entry.is_some()
    }

    /// The call has a tool: its request is named by source and tool from here on.
    ///
    /// `TOOL_CHANGED` and `SERVER_CHANGED` where a call that was left leads to something else now.
    pub(super) fn resolved(&mut self, resolved: &Resolved) -> Result<(), Error> {
        let entry = &resolved.entry;
        let Some(left_with) = &self.entry else {
            self.request = json::request_document(&resolved.input, &entry.server, &entry.tool);
            self.request_digest = Sha256Digest::of(&self.request);
            self.entry = Some(entry.clone());
            return Ok(());
        };
        if left_with.definition_hash != entry.definition_hash {
            let words = "the tool's definition changed while the call waited";
            return Err(Error::new(Code::ToolChanged, words));
        }
        if left_with != entry {
            let words = "the server's configuration changed while the call waited";
            return Err(Error::new(Code::ServerChanged, words));
        }
        Ok(())
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
                // Nothing was sent; whether the row exists shows when it is closed. An earlier try of
                // ours that was cut off may have made it after all.
                let made_before = self.tried && error.constraint() == Some("tool_calls_pkey");
                self.tried = true;
                if error.is_outage() || made_before {
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
            definition_hash: resolved.entry.definition_hash,
            input_digest: Some(resolved.input_digest),
            created_at: at,
        }
    }
}

/// The request as it was asked, for a call that has no tool yet: `{"askedName":…,"input":…}`, with the
/// input as it came where it has no canonical form.
fn asked_document(request: &CallRequest) -> Vec<u8> {
    let raw = request.arguments.get();
    let input = json::canonical(raw).unwrap_or_else(|_| raw.as_bytes().to_vec());
    let mut document = b"{\"askedName\":".to_vec();
    document.extend(Value::from(request.asked.name()).to_string().into_bytes());
    document.extend(b",\"input\":");
    document.extend(input);
    document.push(b'}');
    document
}

/// How what must not be lost is tried while the database is away.
pub(super) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(limits::CLOSE_RETRY_MS.millis())
        .with_max_delay(limits::DATABASE_RETRY_MS.millis())
        .without_max_times()
        .with_total_delay(Some(limits::CLOSE_RETRY_SECONDS.seconds()))
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
