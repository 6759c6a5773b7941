//! What can be wrong with an authorization server.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Map, Value};

use super::DEFAULT_ACCESS_TTL;

/// How the server behaves; may be changed while it runs.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each a fault")]
pub struct Knobs {
    pub access_ttl: Duration,
    pub refresh_ttl: Duration,
    /// A refresh gives a new refresh token; the old one used again voids the family.
    pub rotate: bool,
    /// Whether refresh tokens are given at all.
    pub gives_refresh_tokens: bool,
    /// Off: a page with `a#allow` and `a#deny`.
    pub auto_consent: bool,
    /// Who consents where no `login_hint` says otherwise.
    pub user: String,
    pub dcr: bool,
    pub cimd: bool,
    /// One for each of the next requests to the token endpoint whose grant fits.
    pub token_faults: VecDeque<TokenFault>,
    pub token_delay: Duration,
    pub revoke_delay: Duration,
    pub hide_oauth_metadata: bool,
    pub hide_oidc_metadata: bool,
    /// Of every metadata document.
    pub metadata_status: Option<u16>,
    /// Members that the metadata has besides, or instead; `null` takes one away.
    pub patch_metadata: Map<String, Value>,
    /// The same for answers of the registration.
    pub patch_registration: Map<String, Value>,
    /// Stands as `iss` in callbacks.
    pub wrong_iss: Option<String>,
    /// Callbacks have no `iss`.
    pub omit_iss: bool,
    /// `invalid_target` without a `resource`.
    pub require_resource: bool,
    /// The resources that it knows, compared byte for byte; `None`: any.
    pub resources: Option<Vec<String>>,
    /// What the person grants, whatever is asked.
    pub grant_scope: Option<Vec<String>>,
    /// A client may ask for nothing beyond the scope it registered with.
    pub keep_registered_scope: bool,
    /// Scope of a request without one.
    pub default_scope: String,
    /// Whether token answers name the scope.
    pub names_scope: bool,
    /// Of the page that a person sees when the client is unknown.
    pub unknown_client_status: u16,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            access_ttl: DEFAULT_ACCESS_TTL,
            refresh_ttl: Duration::from_hours(1),
            rotate: true,
            gives_refresh_tokens: true,
            auto_consent: true,
            user: "alice".to_owned(),
            dcr: true,
            cimd: true,
            token_faults: VecDeque::new(),
            token_delay: Duration::ZERO,
            revoke_delay: Duration::ZERO,
            hide_oauth_metadata: false,
            hide_oidc_metadata: false,
            metadata_status: None,
            patch_metadata: Map::new(),
            patch_registration: Map::new(),
            wrong_iss: None,
            omit_iss: false,
            require_resource: false,
            resources: None,
            grant_scope: None,
            keep_registered_scope: false,
            default_scope: "mcp:read mcp:write".to_owned(),
            names_scope: true,
            unknown_client_status: 422,
        }
    }
}

impl Knobs {
    /// The next request to the token endpoint fails so.
    pub fn fail_token(&mut self, fault: Fault) {
        self.token_faults.push_back(TokenFault { grant: None, fault });
    }

    /// The next request with this `grant_type` fails so.
    pub fn fail_grant(&mut self, grant: &'static str, fault: Fault) {
        self.token_faults.push_back(TokenFault { grant: Some(grant), fault });
    }

    /// The fault of a request, taken from the list.
    pub(super) fn take_fault(&mut self, grant_type: &str) -> Option<Fault> {
        let fits = |one: &TokenFault| one.grant.is_none_or(|grant| grant == grant_type);
        let at = self.token_faults.iter().position(fits)?;
        self.token_faults.remove(at).map(|one| one.fault)
    }
}

#[derive(Debug, Clone)]
pub struct TokenFault {
    /// `None`: any.
    pub grant: Option<&'static str>,
    pub fault: Fault,
}

/// What happens to one request to the token endpoint.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is not looked at.
    Answer { status: u16, kind: &'static str, body: String },
    /// The connection ends before it is looked at.
    CutBefore,
    /// It is done, and the answer is lost.
    CutAfter,
    /// It is done after this long.
    Late(Duration),
    /// It is done, but the answer's members are changed; `null` takes one away.
    Patch(Map<String, Value>),
}

impl Fault {
    /// JSON with a status.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "reads better with `json!`")]
    pub fn json(status: u16, body: Value) -> Self {
        Self::Answer { status, kind: "application/json", body: body.to_string() }
    }

    /// An error of OAuth with status 400.
    #[must_use]
    pub fn error(code: &str) -> Self {
        Self::json(400, serde_json::json!({"error": code, "error_description": super::WORDS}))
    }

    /// Changes members of the answer. Panics where `members` is no object.
    #[must_use]
    pub fn patch(members: Value) -> Self {
        let Value::Object(members) = members else { panic!("members of an object: {members}") };
        Self::Patch(members)
    }
}

pub(super) fn patch(document: &mut Value, patch: &Map<String, Value>) {
    for (name, value) in patch {
        let Value::Object(members) = &mut *document else { return };
        if value.is_null() {
            members.remove(name);
        } else {
            members.insert(name.clone(), value.clone());
        }
    }
}
