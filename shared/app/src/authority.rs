//! By whose right a request to a server leaves: everything that was decided is read back, in one
//! query, before each HTTP request, and the credential of that moment goes with it.

mod refresh;

use std::sync::{Arc, Weak};

use domain::{
    Caller, Code, Error,
    connection::{self, ConnectionState, ReconnectReason},
    delegation::Subject,
    ids::{ServerId, SessionId, TenantId, TokenId, UserId},
    limits,
    server::AuthMode,
};
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderName, header};
use outbound::mcp::{Authority, Behalf, Mark, Outgoing, Pass, Refusal, RefusalKind, Verdict};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::connections::{Asked, CredentialName, Now, Own};

use crate::{
    Ctx, Parts,
    connections::credential::Credential,
    delegation::{self, Delegation},
};

/// On whose behalf a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who {
    pub user: UserId,
    /// That the caller came with.
    pub token: Option<TokenId>,
    pub session: Option<SessionId>,
}

impl Who {
    pub(crate) fn of(caller: &Caller, session: Option<SessionId>) -> Self {
        Self { user: caller.user, token: caller.token(), session }
    }
}

/// The right to send requests to one server as it was configured, on somebody's behalf.
#[derive(Debug, Clone)]
pub(crate) struct Right {
    /// A client outlives the requests that it is made for; it must not keep all else alive.
    pub parts: Weak<Parts>,
    pub tenant: TenantId,
    pub server: ServerId,
    pub revision: i64,
    pub mode: AuthMode,
    /// `None`: nobody's. Never with a personal mode.
    pub who: Option<Who>,
    pub personal: Option<Personal>,
    /// For a server of ours.
    pub delegation: Option<Arc<Delegation>>,
    /// The switch does not count: the server is being tried out.
    pub even_disabled: bool,
}

/// How a person's own credential goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Personal {
    /// The connection that requests were aimed with.
    pub generation: i64,
    /// Where the credential is an API key.
    pub header: Option<HeaderName>,
}

impl Authority for Right {
    fn authorize<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<Pass, Error>> {
        async move {
            let ctx = self.ctx()?;
            let mut refreshed = false;
            loop {
                let now = self.read_back(&ctx, request.behalf).await?;
                self.permits(&now, request.behalf)?;
                if let Some(delegation) = &self.delegation {
                    return self.delegate(delegation, request);
                }
                let Some(personal) = &self.personal else { return Ok(Pass::default()) };
                let own = self.own(personal, now.own)?;
                let due = own.refresh_at.is_some_and(|due| due <= ctx.now());
                // Once: a life that is shorter than we are fast is never refreshed enough.
                if due && !refreshed && refresh::in_time(&ctx, self, &own).await? {
                    // Whatever the refresh took, much may have changed meanwhile.
                    refreshed = true;
                    continue;
                }
                return self.lend(&ctx, personal, &own);
            }
        }
        .boxed()
    }

    fn refused<'a>(
        &'a self,
        pass: &'a Pass,
        refusal: Refusal<'a>,
    ) -> BoxFuture<'a, Result<Verdict, Error>> {
        async move {
            if self.personal.is_none() {
                return Ok(Verdict::Stands);
            }
            let ctx = self.ctx()?;
            match refusal.kind {
                RefusalKind::Unauthorized => self.unauthorized(&ctx, pass, refusal).await,
                RefusalKind::InsufficientScope => self.too_few_scopes(&ctx, pass, refusal).await,
            }
        }
        .boxed()
    }
}

impl Right {
    fn ctx(&self) -> Result<Ctx, Error> {
        let parts = self.parts.upgrade();
        parts.map(Ctx).ok_or_else(|| Error::new(Code::Unavailable, "this node is shutting down"))
    }

    /// A token for this one request.
    fn delegate(&self, delegation: &Delegation, request: Outgoing<'_>) -> Result<Pass, Error> {
        let who = self.who.ok_or_else(delegation::nobody)?;
        let subject = Subject { tenant: self.tenant, user: who.user, session: who.session };
        Ok(Pass { headers: delegation.headers_for(request, subject)?, ..Pass::default() })
    }

    async fn read_back(&self, ctx: &Ctx, behalf: Behalf<'_>) -> Result<Now, Error> {
        let tool = match behalf {
            Behalf::Caller(pinned) => pinned.map(|pinned| &pinned.tool),
            Behalf::Client => None,
        };
        let token = match behalf {
            Behalf::Caller(_) => self.who.and_then(|who| who.token),
            // The token's time may be over; the session of its person goes on.
            Behalf::Client => None,
        };
        let asked = Asked {
            tenant: self.tenant,
            user: self.who.map(|who| who.user),
            token,
            server: &self.server,
            tool,
            at: ctx.now(),
        };
        Ok(store::connections::read_back(&ctx.db, &asked).await?)
    }

    fn permits(&self, now: &Now, behalf: Behalf<'_>) -> Result<(), Error> {
        let server = now.read_back.server_holds(self.revision, self.mode.as_str())?;
        if !self.even_disabled {
            server.is_on()?;
        }
        // What a shared client does for itself does not depend on who happened to begin it.
        let own = self.personal.is_some() || self.delegation.is_some();
        let for_a_person = own || matches!(behalf, Behalf::Caller(_));
        if self.who.is_some() && for_a_person {
            now.read_back.person_holds()?;
        }
        match behalf {
            Behalf::Caller(Some(pinned)) => server.tool_holds(pinned.definition_hash),
            Behalf::Caller(None) | Behalf::Client => Ok(()),
        }
    }

    /// The connection, if it is the one that requests were aimed with.
    fn own(&self, personal: &Personal, own: Option<Own>) -> Result<Own, Error> {
        let own = own.ok_or_else(|| self.not_connected(ConnectionState::Disconnected, None))?;
        if own.state != ConnectionState::Connected {
            return Err(self.not_connected(own.state, own.reason));
        }
        if own.generation != personal.generation {
            let words = "your connection to the server was replaced since this call was resolved";
            return Err(Error::new(Code::ServerChanged, words));
        }
        Ok(own)
    }

    fn lend(&self, ctx: &Ctx, personal: &Personal, own: &Own) -> Result<Pass, Error> {
        let mark = Mark { generation: own.generation, version: own.version };
        let name = self.credential(mark)?;
        let sealed = own.sealed.as_ref().ok_or_else(|| Error::internal("nothing is sealed"))?;
        let secret = Credential::open(&ctx.vault, &name, self.mode, sealed)
            .map_err(|error| self.explain(error))?
            .into_secret();
        let headers = if let Some(header) = &personal.header {
            vec![(header.clone(), secret)]
        } else {
            let bearer = format!("Bearer {}", secret.expose_secret());
            vec![(header::AUTHORIZATION, SecretString::from(bearer))]
        };
        touch(ctx, name, own);
        Ok(Pass { headers, mark })
    }

    /// 401: one refresh and one more try; after that the credential is of no use, unless it was
    /// replaced meanwhile.
    async fn unauthorized(
        &self,
        ctx: &Ctx,
        pass: &Pass,
        refusal: Refusal<'_>,
    ) -> Result<Verdict, Error> {
        let name = self.credential(pass.mark)?;
        if self.mode == AuthMode::Oauth && !refusal.again {
            refresh::after_refusal(ctx, self, &name).await?;
            return Ok(Verdict::Again);
        }
        let reason = ReconnectReason::Refused;
        let mut tx = ctx.begin(self.tenant).await?;
        let cleared = store::connections::clear_exactly(&mut tx, &name, reason, ctx.now()).await?;
        tx.commit().await?;
        if cleared {
            tracing::info!(server = %self.server, "a credential was refused and cleared");
            return Err(self.not_connected(ConnectionState::ReconnectRequired, Some(reason)));
        }
        if refusal.again {
            // Another one is there by now, which this request did not go with.
            let words = "your connection to the server was replaced during this call";
            return Err(Error::new(Code::ServerChanged, words));
        }
        Ok(Verdict::Again)
    }

    async fn too_few_scopes(
        &self,
        ctx: &Ctx,
        pass: &Pass,
        refusal: Refusal<'_>,
    ) -> Result<Verdict, Error> {
        let scopes = refusal.scopes();
        let mut tx = ctx.begin(self.tenant).await?;
        let name = self.credential(pass.mark)?;
        store::connections::need_scopes(&mut tx, &name, &scopes, ctx.now()).await?;
        tx.commit().await?;
        let words = "your connection has too few rights on the server for this: connect it again";
        Err(Error::new(Code::InsufficientScope, words)
            .with_details(json!({ "serverId": self.server, "needsScopes": scopes })))
    }

    fn credential(&self, mark: Mark) -> Result<CredentialName, Error> {
        let who = self.who.ok_or_else(|| Error::internal("a personal credential of nobody"))?;
        Ok(CredentialName {
            tenant: self.tenant,
            server: self.server.clone(),
            user: who.user,
            generation: mark.generation,
            version: mark.version,
        })
    }

    fn not_connected(&self, state: ConnectionState, reason: Option<ReconnectReason>) -> Error {
        self.explain(connection::not_connected(state, reason))
    }

    fn explain(&self, error: Error) -> Error {
        error.with_details(json!({ "serverId": self.server }))
    }
}

/// Notes the use now and then; nobody waits for it.
fn touch(ctx: &Ctx, name: CredentialName, own: &Own) {
    let (now, every) = (ctx.now(), limits::CREDENTIAL_TOUCH_MS.millis());
    let fresh =
        own.last_used_at.is_some_and(|last| (now - last).to_std().is_ok_and(|since| since < every));
    if fresh {
        return;
    }
    let ctx = ctx.clone();
    ctx.tasks.clone().spawn(async move {
        let touched = async {
            let mut tx = ctx.db.begin(name.tenant).await?;
            store::connections::touch(&mut tx, &name, now).await?;
            tx.commit().await
        };
        if let Err(error) = touched.await {
            let error: &dyn std::error::Error = &error;
            tracing::debug!(error, "the use of a credential was not noted");
        }
    });
}
