//! By whose right a request leaves: asked before every HTTP request to a server, told when the server
//! refuses it.

use std::{fmt::Debug, sync::Arc};

use domain::{Error, ids::ToolId, json::Sha256Digest, limits};
use futures::future::BoxFuture;
use http::{HeaderName, Method};
use secrecy::SecretString;
use url::Url;

use crate::oauth::Challenge;

/// Decides over each HTTP request of a client right before it leaves, and supplies the credential that
/// it leaves with. Nothing of an answer is kept: the next request asks again.
pub trait Authority: Debug + Send + Sync {
    /// Whether the request may leave now, and with what. The error ends the request, unsent.
    fn authorize<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<Pass, Error>>;

    /// The server refused the credential (401, or 403 with `insufficient_scope`).
    /// [`Verdict::Again`] has the request authorized and sent once more, which happens once; the error
    /// takes the place of the server's refusal.
    fn refused<'a>(
        &'a self,
        pass: &'a Pass,
        refusal: Refusal<'a>,
    ) -> BoxFuture<'a, Result<Verdict, Error>>;
}

/// A request that is about to leave.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    pub method: &'a Method,
    pub url: &'a Url,
    pub body: &'a [u8],
    pub behalf: Behalf<'a>,
}

/// For whom a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behalf<'a> {
    /// Somebody's, who asked for it; of a tool as it was approved.
    Caller(Option<&'a PinnedTool>),
    /// The client's own: it begins or ends a session, keeps a stream, answers a server. A shared client
    /// does so for everybody.
    Client,
}

/// A tool with the definition that its call was resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTool {
    pub tool: ToolId,
    pub definition_hash: Sha256Digest,
}

/// The right to send one request.
#[derive(Debug, Default)]
pub struct Pass {
    /// Sent besides the client's headers, and in the place of those of the same name.
    pub headers: Vec<(HeaderName, SecretString)>,
    /// Which credential these are, for whoever gave them.
    pub mark: Mark,
}

/// Which state of which credential.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub generation: i64,
    pub version: i64,
}

/// Why a server refused a credential.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    pub kind: RefusalKind,
    /// Every challenge of the answer that a token would meet.
    pub challenges: &'a [Challenge],
    /// It refused after [`Verdict::Again`].
    pub again: bool,
}

impl Refusal<'_> {
    /// The scopes that are asked for, without repetitions, at most [`limits::OAUTH_SCOPES`].
    #[must_use]
    pub fn scopes(&self) -> Vec<String> {
        let asking = self.challenges.iter().filter(|one| one.asks_for_scope());
        let mut scopes: Vec<String> = Vec::new();
        for scope in asking.flat_map(|one| &one.scopes).take(limits::OAUTH_SCOPES.size()) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        scopes
    }
}

/// See [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// 401.
    Unauthorized,
    /// 403 with `insufficient_scope` (RFC 6750, section 3.1).
    InsufficientScope,
}

/// What becomes of a refused request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is another credential now.
    Again,
    /// It is the answer.
    Stands,
}

/// Shared by the requests of one caller, or of one client.
pub type SharedAuthority = Arc<dyn Authority>;
