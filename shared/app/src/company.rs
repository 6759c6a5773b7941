//! Company sign-in: the people of a tenant sign in at its own issuer (OpenID Connect), and the gateway takes
//! that issuer's access tokens (docs/decisions/0020).

pub(crate) mod access;
mod accounts;
mod sign_in;

use domain::{
    Caller, Code, Error, Role,
    company::{CompanyIssuer, CompanyIssuerForm},
    ids::TenantId,
    server::SecretEdit,
};
use outbound::oauth::{Client, OAuthFailure, Provider};
use secrecy::SecretString;
use serde_json::json;
use store::{
    Tx,
    vault::{Purpose, RowName},
};

pub use access::gateway_issuer;
pub use accounts::{accounts_of, link, unlink, unlink_own};
pub use sign_in::{Back, Begun, Came, Refusal, callback, cookie_suffix, forget_old, start};
pub use store::company::{Account, Settings};

use crate::{Ctx, audit, tenants, users};

/// What a visitor of the sign-in page may know.
#[derive(Debug, Clone)]
pub struct Offered {
    /// On the button; `None`: no company sign-in.
    pub company: Option<String>,
    pub passwords: bool,
}

/// How people sign in to the tenant of that slug; as without company sign-in where there is no such tenant.
pub async fn offered(ctx: &Ctx, tenant: &str) -> Result<Offered, Error> {
    let nothing = Offered { company: None, passwords: true };
    let Some(tenant) = found(ctx, tenant).await? else { return Ok(nothing) };
    let mut tx = ctx.begin(tenant).await?;
    let settings = store::company::settings(&mut tx).await?;
    tx.commit().await?;
    Ok(settings.map_or(nothing, |settings| Offered {
        company: Some(settings.issuer.name).filter(|_| settings.issuer.enabled),
        passwords: settings.issuer.local_sign_in,
    }))
}

/// The settings of the caller's tenant. For superadmins.
pub async fn settings(ctx: &Ctx, caller: &Caller) -> Result<Option<Settings>, Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let settings = store::company::settings(&mut tx).await?;
    tx.commit().await?;
    Ok(settings)
}

/// Replaces the settings. For superadmins who may decide: whoever says who the issuer is says who anybody is.
///
/// `INVALID_INPUT` with every mistake; `REVISION_CONFLICT`; `CONFLICT` where passwords would be off and no
/// active superadmin has an account of that issuer.
pub async fn put(ctx: &Ctx, caller: &Caller, form: CompanyIssuerForm) -> Result<Settings, Error> {
    caller.require_role(Role::Superadmin)?;
    users::can_decide(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    // Superadmins before settings, as everybody takes them; and the tenant: there may be no settings to lock
    // yet.
    store::users::lock_superadmins(&mut tx).await?;
    store::tenants::lock(&mut tx).await?.ok_or_else(|| Error::not_found("tenant"))?;
    let known = store::company::lock_settings(&mut tx).await?;
    let revision = known.as_ref().map(|known| known.revision);
    if form.revision != revision {
        return Err(Error::new(Code::RevisionConflict, "company sign-in was changed meanwhile")
            .with_details(json!({ "revision": revision })));
    }
    let before = known.as_ref().map(|known| (&known.issuer, known.secret.is_some()));
    let (issuer, edit) = form.validate(&ctx.url_rules, before)?;
    if !issuer.local_sign_in
        && store::company::superadmins(&mut tx, &issuer.issuer, None).await? == 0
    {
        let words = "nobody could get in: link the company account of a superadmin before passwords \
                     are switched off";
        return Err(Error::new(Code::Conflict, words));
    }
    if issuer.enabled
        && issuer.gateway_tokens
        && !store::company::is_distinct(&mut tx, &issuer).await?
    {
        let words = "another tenant's gateway takes tokens of this issuer: tell the two apart by the same \
                     tenantClaim, each with its own value";
        return Err(Error::new(Code::Conflict, words));
    }
    let secret = match edit {
        SecretEdit::Absent | SecretEdit::Delete => None,
        SecretEdit::Keep => known.and_then(|known| known.secret),
        SecretEdit::Set(secret) => {
            let text = SecretString::from(secret.expose());
            Some(ctx.vault.seal(Purpose::CompanySecret, secret_row(caller.tenant), &text)?)
        }
    };
    let settings =
        Settings { issuer, secret, revision: revision.unwrap_or(0) + 1, updated_at: ctx.now() };
    store::company::save_settings(&mut tx, &settings).await?;
    let details = json!({
        "issuer": settings.issuer.issuer,
        "enabled": settings.issuer.enabled,
        "localSignIn": settings.issuer.local_sign_in,
        "addsPeople": settings.issuer.adds_people,
        "gatewayTokens": settings.issuer.gateway_tokens,
    });
    let subject = caller.tenant.to_string();
    audit::record(ctx, &mut tx, caller, "company_sign_in.updated", &subject, details).await?;
    tx.commit().await?;
    Ok(settings)
}

/// Takes company sign-in out: passwords are taken again, and accounts stay linked for another time.
/// Idempotent. For superadmins who may decide.
pub async fn delete(ctx: &Ctx, caller: &Caller) -> Result<(), Error> {
    caller.require_role(Role::Superadmin)?;
    users::can_decide(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    if store::company::delete_settings(&mut tx).await? {
        let subject = caller.tenant.to_string();
        audit::record(ctx, &mut tx, caller, "company_sign_in.deleted", &subject, json!({})).await?;
    }
    Ok(tx.commit().await?)
}

/// The operator has passwords taken again, whatever the tenant set. False: they were.
pub async fn take_passwords(ctx: &Ctx, tenant: &str) -> Result<bool, Error> {
    let tenant = tenants::find(ctx, tenant).await?;
    let mut tx = ctx.begin(tenant.id).await?;
    let Some(mut settings) = store::company::lock_settings(&mut tx).await? else {
        return Ok(false);
    };
    if settings.issuer.local_sign_in {
        return Ok(false);
    }
    settings.issuer.local_sign_in = true;
    settings.revision += 1;
    settings.updated_at = ctx.now();
    store::company::save_settings(&mut tx, &settings).await?;
    let (action, subject) = ("company_sign_in.passwords_taken", tenant.id.to_string());
    audit::record_operator(ctx, &mut tx, action, &subject, json!({})).await?;
    tx.commit().await?;
    Ok(true)
}

/// Asks the issuer now. `Err` inside: what is wrong with it, in words for the superadmin.
pub async fn test(ctx: &Ctx, caller: &Caller) -> Result<Result<(), Error>, Error> {
    users::can_decide(caller)?;
    let settings = settings(ctx, caller).await?;
    let settings = settings.ok_or_else(|| Error::not_found("company sign-in"))?;
    let asked = ctx.oauth.examined_provider(&settings.issuer.issuer).await;
    Ok(asked.map(|_| ()).map_err(|failure| fault(&failure)))
}

/// Refuses (`CONFLICT`) what would leave no superadmin who gets in: passwords are off, and no active one has
/// a company account. In the transaction of the change, after it, and after superadmins were locked.
pub(crate) async fn somebody_gets_in(tx: &mut Tx) -> Result<(), Error> {
    let Some(settings) = store::company::lock_settings(tx).await? else { return Ok(()) };
    let issuer = &settings.issuer;
    if issuer.local_sign_in || store::company::superadmins(tx, &issuer.issuer, None).await? > 0 {
        return Ok(());
    }
    let words = "passwords are off, and no other superadmin has a company account";
    Err(Error::new(Code::Conflict, words))
}

async fn found(ctx: &Ctx, slug: &str) -> Result<Option<TenantId>, Error> {
    // The database takes no NUL, and no tenant has one in its name.
    if slug.contains('\0') {
        return Ok(None);
    }
    Ok(store::tenants::find(&ctx.db, slug).await?.map(|tenant| tenant.id))
}

/// Whether the settings are still those that a sign-in began under; until commit they stay so.
async fn still_the_same(tx: &mut Tx, settings: &Settings) -> Result<bool, Error> {
    let present = store::company::lock_settings(tx).await?;
    Ok(present.is_some_and(|present| present.revision == settings.revision))
}

/// The settings that are switched on.
async fn enabled(tx: &mut Tx) -> Result<Option<Settings>, Error> {
    let settings = store::company::settings(tx).await?;
    Ok(settings.filter(|settings| settings.issuer.enabled))
}

fn secret_row(tenant: TenantId) -> RowName<'static> {
    RowName { tenant, server: "", name: "" }
}

/// Us, as the issuer knows us.
fn client(
    ctx: &Ctx,
    tenant: TenantId,
    settings: &Settings,
    provider: &Provider,
) -> Result<Client, Error> {
    let secret = settings.secret.as_ref();
    let secret = secret
        .map(|sealed| ctx.vault.open(Purpose::CompanySecret, secret_row(tenant), sealed))
        .transpose()?;
    let CompanyIssuer { client_id, .. } = &settings.issuer;
    Ok(Client::preregistered(&provider.server, client_id, secret))
}

/// What is told of an issuer that cannot be used; nothing of what it said.
fn fault(failure: &OAuthFailure) -> Error {
    let at = |step: &str| {
        let words = format!("the company's issuer cannot be used: {step}");
        Error::new(Code::OauthDiscoveryFailed, words).with_details(json!({ "step": step }))
    };
    match failure {
        OAuthFailure::Discovery { step } => at(step),
        OAuthFailure::Refused(denial) => at(&format!("refused ({denial})")),
        OAuthFailure::Malformed(_) => at("malformed_answer"),
        OAuthFailure::Egress(error) => at("egress").because(Error::internal(error.public.clone())),
        OAuthFailure::Unavailable { error, .. } => {
            Error::new(Code::UpstreamUnavailable, "the company's issuer cannot be reached now")
                .with_details(json!({ "step": "unavailable" }))
                .because(Error::internal(error.public.clone()))
        }
    }
}
