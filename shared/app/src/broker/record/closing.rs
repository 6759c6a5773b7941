//! The end of a call: its record closed once, whatever the database does meanwhile.

use backon::Retryable;
use domain::{
    Code, Error, Retry, Timestamp,
    audit::{self, InvocationRecord},
    ids::NodeId,
    invocation::Status,
    json::Sha256Digest,
    limits,
};
use serde_json::{Value, json};
use store::calls::Closing;

use super::{Opened, Record, backoff, millis};
use crate::{
    Ctx,
    broker::{CallResult, send::Answer},
    permissions,
    signals::Hint,
};

impl Record {
    /// Closes the call and gives its outcome back. The outcome is withheld until the record is
    /// durable; it is an outer error when that could not be had.
    pub(in crate::broker) async fn close(
        &mut self,
        ctx: &Ctx,
        mut outcome: Result<Answer, Error>,
    ) -> Result<Result<CallResult, Error>, Error> {
        let mut bare = false;
        loop {
            if self.opened == Opened::No {
                self.open_refused(ctx).await?;
            }
            let end = End::of(&outcome);
            let closing = self.closing(ctx, &outcome, &end);
            match self.closed(ctx, &closing, &end, &outcome).await {
                Ok(Closed::Now) => {
                    ctx.signals.hint(Hint::Events(self.session));
                    return Ok(outcome.map(|answer| CallResult {
                        raw: answer.raw,
                        normalised: answer.result.into(),
                        is_error: answer.is_error,
                    }));
                }
                // The reaper was faster: this node was thought dead.
                Ok(Closed::ByOthers) => {
                    return Ok(Err(Error::new(
                        Code::Interrupted,
                        "the call was closed while this node was out of touch with the database",
                    )));
                }
                Ok(Closed::NeverOpened) => self.opened = Opened::No,
                Err(error) if is_outage(&error) => {
                    self.close_in_background(ctx, closing, end, outcome);
                    // What ran is not to be repeated because we could not write it down.
                    return Err(if self.attempts.is_empty() {
                        error
                    } else {
                        Error::new(
                            Code::Interrupted,
                            "the call ended; its record is still to be written",
                        )
                        .because(error)
                    });
                }
                // Something in it cannot be stored: the call is closed without it.
                Err(error) if !bare => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a call could not be closed as it ended"
                    );
                    bare = true;
                    self.attempts.clear();
                    self.warnings.clear();
                    outcome = Err(Error::internal(error));
                }
                Err(error) => return Err(error),
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
    ) -> Result<Closed, Error> {
        let statement = closing.borrow(self, end, outcome);
        let close = || async {
            if self.close_once(ctx, &statement).await? {
                return Ok(Closed::Now);
            }
            self.closed_before(ctx, closing, end).await
        };
        close.retry(backoff()).when(is_outage).await
    }

    /// One try. With the call ends the question that it still waits for.
    async fn close_once(&self, ctx: &Ctx, closing: &Closing<'_>) -> Result<bool, Error> {
        let Some(question) = self.question else {
            return Ok(store::calls::close(&ctx.db, closing).await?);
        };
        let mut tx = ctx.begin(self.name.tenant).await?;
        let was_pending = permissions::end_with_call(ctx, &mut tx, question).await?;
        if !store::calls::close_within(&mut tx, closing).await? {
            return Ok(false);
        }
        tx.commit().await?;
        if was_pending {
            permissions::announce(ctx, self.session, [question]);
        }
        Ok(true)
    }

    /// Why there was nothing to close. A try of ours that was cut off may have closed it, and an
    /// opening that was cut off may have come to nothing.
    async fn closed_before(
        &self,
        ctx: &Ctx,
        closing: &OwnedClosing,
        end: &End,
    ) -> Result<Closed, Error> {
        let mut tx = ctx.begin(self.name.tenant).await?;
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
            node: ctx.node,
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
            waits: None,
            rpc: None,
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
                match background.close_once(&ctx, &borrowed).await {
                    Err(error) if is_outage(&error) => {}
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

/// The same may do later.
fn is_outage(error: &Error) -> bool {
    error.code == Code::Unavailable
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
    node: NodeId,
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
            node: self.node,
            parked: None,
        }
    }
}
