//! Signing in at the company's issuer, from the click to the browser session.

use std::collections::BTreeMap;

use domain::{
    Caller, Code, Error, Role, Timestamp, Via,
    company::CompanyIssuer,
    ids::{CompanySignInId, TenantId, UserId},
    limits,
    user::{UserStatus, check_email},
    web_session::Network,
};
use outbound::oauth::{Identity, SignInFailure};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{
    Tx,
    company::NewSignIn,
    users::User,
    vault::{Purpose, RowName},
    web_sessions::SignedIn,
};
use url::Url;

use super::{Settings, accounts, client, enabled, fault, found, still_the_same};
pub use crate::connections::oauth::cookie_suffix;
use crate::{
    Ctx, audit,
    connections::oauth::{digest_of, secret},
    identity, users, web_sessions,
};

/// Where the browser goes now.
#[derive(Debug)]
pub struct Begun {
    pub url: Url,
    /// Of the cookie's name.
    pub cookie_suffix: String,
    /// The cookie's value: the answer counts from this browser alone.
    pub browser: SecretString,
}

/// What the browser brought back.
#[derive(Debug, Default)]
pub struct Back {
    pub state: String,
    pub code: Option<SecretString>,
    pub error: Option<String>,
    pub iss: Option<String>,
    /// The value of the sign-in's cookie.
    pub browser: Option<SecretString>,
    /// Who the browser is signed in as.
    pub caller: Option<Caller>,
}

/// What became of it.
#[derive(Debug)]
pub enum Came {
    SignedIn { cookie: SecretString, next: Option<String> },
    Linked { next: Option<String> },
    Refused(Refusal),
}

/// Why nobody was signed in, as far as the visitor may know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another browser, replayed, late, or set up anew meanwhile. One answer for all of it.
    Unknown,
    /// The issuer says that it was not allowed.
    Denied,
    /// The issuer did not say who it is, or not in a way that counts.
    Failed,
    /// Nobody of the tenant has this account; by its subject an admin can link it.
    NotAPerson { subject: String },
    /// The account is of another company of the same issuer.
    OtherCompany,
    /// The person may not use the service.
    Disabled,
    /// Subject or person is linked to another.
    LinkedElsewhere,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    verifier: String,
    nonce: String,
    next: Option<String>,
}

/// Sends a browser to the issuer of the tenant; with `links` to link the account of whoever is signed in.
///
/// `NOT_FOUND` without such a tenant or company sign-in; `LIMITED` while too many are under way;
/// `OAUTH_DISCOVERY_FAILED` with `details.step`; `UPSTREAM_UNAVAILABLE`.
pub async fn start(
    ctx: &Ctx,
    tenant: &str,
    next: Option<String>,
    links: Option<&Caller>,
    (redirect, network): (&Url, Network),
) -> Result<Begun, Error> {
    let missing = || Error::not_found("company sign-in");
    let tenant = found(ctx, tenant).await?.ok_or_else(missing)?;
    if let Some(caller) = links
        && (caller.tenant != tenant || !matches!(caller.via, Via::Console(_)))
    {
        let words = "a company account is linked by whoever is signed in";
        return Err(Error::new(Code::Denied, words));
    }
    let mut tx = ctx.begin(tenant).await?;
    let settings = enabled(&mut tx).await?.ok_or_else(missing)?;
    tx.commit().await?;
    let provider = ctx.oauth.provider(&settings.issuer.issuer).await;
    let provider = provider.map_err(|failure| fault(&failure))?;
    let us = client(ctx, tenant, &settings, &provider)?;
    let going = ctx.oauth.sign_in_url(&provider, &us, redirect, &settings.issuer.scopes);
    let id: CompanySignInId = ctx.mint();
    let (browser, browser_digest) = secret()?;
    let state = going.state.expose_secret();
    let kept = Kept {
        verifier: going.verifier.expose_secret().to_owned(),
        nonce: going.nonce.expose_secret().to_owned(),
        next,
    };
    let kept = SecretString::from(serde_json::to_string(&kept).map_err(Error::internal)?);
    let name = id.to_string();
    let row = RowName { tenant, server: "", name: &name };
    let sealed = ctx.vault.seal(Purpose::CompanySignIn, row, &kept)?;
    let now = ctx.now();
    let new = NewSignIn {
        id,
        state: digest_of(state),
        browser: browser_digest,
        network: digest_of(&network.to_string()),
        revision: settings.revision,
        links: links.map(|caller| caller.user),
        sealed: &sealed,
        created_at: now,
        expires_at: now + limits::COMPANY_SIGN_IN_SECONDS.seconds(),
    };
    let mut tx = ctx.begin(tenant).await?;
    let most = (limits::COMPANY_SIGN_INS.default, limits::COMPANY_SIGN_INS_NETWORK.default);
    if !store::company::begin(&mut tx, &new, most).await? {
        return Err(Error::new(Code::Limited, "too many people sign in at this moment"));
    }
    tx.commit().await?;
    Ok(Begun { cookie_suffix: cookie_suffix(state), url: going.url, browser })
}

/// Takes an answer up, once, before anything is asked of the issuer.
pub async fn callback(ctx: &Ctx, tenant: &str, back: Back, redirect: &Url) -> Result<Came, Error> {
    let unknown = Ok(Came::Refused(Refusal::Unknown));
    let Some(tenant) = found(ctx, tenant).await? else { return unknown };
    let Some(browser) = &back.browser else { return unknown };
    let (state, browser) = (digest_of(&back.state), digest_of(browser.expose_secret()));
    let mut tx = ctx.begin(tenant).await?;
    let taken = store::company::take(&mut tx, state, browser, ctx.now()).await?;
    let settings = enabled(&mut tx).await?;
    tx.commit().await?;
    let Some((taken, settings)) = taken.zip(settings) else { return unknown };
    if taken.revision != settings.revision {
        return unknown;
    }
    let name = taken.id.to_string();
    let row = RowName { tenant, server: "", name: &name };
    let kept = ctx.vault.open(Purpose::CompanySignIn, row, &taken.sealed)?;
    // What serde says of it could repeat a piece.
    let kept: Kept = serde_json::from_str(kept.expose_secret())
        .map_err(|_| Error::internal("a sealed sign-in cannot be read"))?;

    let said = match ask(ctx, tenant, &settings, &back, &kept, redirect).await? {
        Ok(identity) => identity,
        Err(refusal) => return Ok(Came::Refused(refusal)),
    };
    if settings.issuer.tenant_claim.as_ref().is_some_and(|claim| !claim.fits(&said.claims)) {
        refuse(ctx, tenant, "the account is of another company").await?;
        return Ok(Came::Refused(Refusal::OtherCompany));
    }
    match taken.links {
        Some(person) => linked(ctx, tenant, &settings, &said, (person, &back), kept.next).await,
        None => signed_in(ctx, tenant, &settings, &said, back.caller, kept.next).await,
    }
}

/// Who the issuer says that it is.
async fn ask(
    ctx: &Ctx,
    tenant: TenantId,
    settings: &Settings,
    back: &Back,
    kept: &Kept,
    redirect: &Url,
) -> Result<Result<Identity, Refusal>, Error> {
    let issuer = &settings.issuer.issuer;
    // Anybody can bring such an answer, as often as they like: it stands in the log alone.
    let failed = |why: &str| {
        tracing::info!(%tenant, why, "a company sign-in failed");
        Ok(Err(Refusal::Failed))
    };
    let provider = match ctx.oauth.provider(issuer).await {
        Ok(provider) => provider,
        Err(failure) => return failed(&failure.to_string()),
    };
    // RFC 9207, section 2.4: also of an error.
    let promised = provider.server.authorization_response_iss_parameter_supported;
    let right_issuer = match &back.iss {
        Some(iss) => iss == issuer,
        None => !promised,
    };
    if !right_issuer {
        return failed("the answer came from another issuer");
    }
    let code = match (&back.code, &back.error) {
        (Some(code), None) => code,
        (_, Some(error)) if error == "access_denied" => return Ok(Err(Refusal::Denied)),
        _ => return failed("the issuer answered with an error"),
    };
    let us = client(ctx, tenant, settings, &provider)?;
    let (verifier, nonce) =
        (SecretString::from(kept.verifier.as_str()), SecretString::from(kept.nonce.as_str()));
    let asked =
        ctx.oauth.sign_in(issuer, &us, redirect, code, (&verifier, &nonce), ctx.now()).await;
    match asked {
        Ok(identity) => Ok(Ok(identity)),
        Err(SignInFailure::Provider(failure)) => failed(&failure.to_string()),
        Err(SignInFailure::IdToken(why)) => {
            refuse(ctx, tenant, &format!("its ID token is refused: {why}")).await?;
            Ok(Err(Refusal::Failed))
        }
    }
}

async fn signed_in(
    ctx: &Ctx,
    tenant: TenantId,
    settings: &Settings,
    said: &Identity,
    replaces: Option<Caller>,
    next: Option<String>,
) -> Result<Came, Error> {
    let issuer = &settings.issuer;
    let mut tx = ctx.begin(tenant).await?;
    let superadmins = store::users::lock_superadmins(&mut tx).await?;
    let known = store::company::person(&mut tx, &issuer.issuer, &said.subject).await?;
    if !still_the_same(&mut tx, settings).await? {
        return Ok(Came::Refused(Refusal::Unknown));
    }
    let user = if let Some(person) = known {
        let user = store::users::lock(&mut tx, person).await?;
        user.ok_or_else(|| Error::not_found("person"))?
    } else if let Some(user) = add(ctx, &mut tx, issuer, said).await? {
        user
    } else {
        drop(tx);
        refuse(ctx, tenant, "nobody has this account").await?;
        return Ok(Came::Refused(Refusal::NotAPerson { subject: said.subject.clone() }));
    };
    if user.status != UserStatus::Active {
        drop(tx);
        refuse(ctx, tenant, "the person is disabled").await?;
        return Ok(Came::Refused(Refusal::Disabled));
    }
    let user = give_role(ctx, &mut tx, issuer, said, user, &superadmins).await?;
    store::company::note_sign_in(&mut tx, &issuer.issuer, user.id, ctx.now()).await?;
    let (new, cookie) = web_sessions::begin(ctx, &mut tx, user.id).await?;
    let (session, role) = (new.id, user.role);
    let caller = identity::signed_in(SignedIn { tenant, session, user: user.id, role });
    let details = json!({ "by": "company" });
    let subject = session.to_string();
    audit::record(ctx, &mut tx, &caller, "web_session.created", &subject, details).await?;
    tx.commit().await?;
    if let Some(earlier) = replaces {
        web_sessions::end(ctx, &earlier).await?;
    }
    Ok(Came::SignedIn { cookie, next })
}

/// A person of the tenant from now on, where it adds people: by the address that the issuer says. `None`
/// where it does not, or the address is none, not verified or somebody's already.
async fn add(
    ctx: &Ctx,
    tx: &mut Tx,
    issuer: &CompanyIssuer,
    said: &Identity,
) -> Result<Option<User>, Error> {
    let email = said.claims.get("email").and_then(Value::as_str).unwrap_or_default();
    // Absent is no "no": many companies' issuers do not say it. The address is a name here, and joins nobody.
    let verified = said.claims.get("email_verified");
    let unverified =
        verified.is_some_and(|verified| *verified != json!(true) && *verified != json!("true"));
    if !issuer.adds_people || unverified || check_email(email).is_err() {
        return Ok(None);
    }
    if store::users::find(tx, email).await?.is_some() {
        return Ok(None);
    }
    let now = ctx.now();
    let user = User {
        id: ctx.mint(),
        email: email.to_owned(),
        role: Role::Member,
        status: UserStatus::Active,
        created_at: now,
    };
    users::insert(tx, &user, None).await?;
    let account = (issuer.issuer.as_str(), said.subject.as_str());
    accounts::insert(tx, account, user.id, now, Some(now)).await?;
    let details = json!({ "role": user.role, "by": "company" });
    let id = user.id.to_string();
    audit::record_service(ctx, tx, "user.created", &id, details).await?;
    Ok(Some(user))
}

/// The role that the issuer's claim gives, where one is set up. The last superadmin stays.
async fn give_role(
    ctx: &Ctx,
    tx: &mut Tx,
    issuer: &CompanyIssuer,
    said: &Identity,
    mut user: User,
    superadmins: &[UserId],
) -> Result<User, Error> {
    let Some(roles) = &issuer.roles else { return Ok(user) };
    let role = roles.role_of(&said.claims);
    if role == user.role {
        return Ok(user);
    }
    let linked = store::company::superadmins(tx, &issuer.issuer, Some(user.id)).await?;
    let last = superadmins == [user.id] || !issuer.local_sign_in && linked == 0;
    if user.role == Role::Superadmin && last {
        tracing::warn!(user = %user.id, "the issuer's claim would end the last superadmin");
        return Ok(user);
    }
    user.role = role;
    store::users::save(tx, &user).await?;
    let details = json!({ "role": role, "status": user.status, "by": "company" });
    audit::record_service(ctx, tx, "user.updated", &user.id.to_string(), details).await?;
    Ok(user)
}

/// Links the account to the person who asked for it, who must be the one who is signed in.
async fn linked(
    ctx: &Ctx,
    tenant: TenantId,
    settings: &Settings,
    said: &Identity,
    (person, back): (UserId, &Back),
    next: Option<String>,
) -> Result<Came, Error> {
    let caller = back.caller.as_ref();
    let Some(caller) = caller.filter(|caller| caller.tenant == tenant && caller.user == person)
    else {
        return Ok(Came::Refused(Refusal::Unknown));
    };
    let issuer = settings.issuer.issuer.as_str();
    let mut tx = ctx.begin(tenant).await?;
    if !still_the_same(&mut tx, settings).await? {
        return Ok(Came::Refused(Refusal::Unknown));
    }
    if store::company::person(&mut tx, issuer, &said.subject).await? == Some(person) {
        return Ok(Came::Linked { next });
    }
    let now = ctx.now();
    match accounts::insert(&mut tx, (issuer, &said.subject), person, now, Some(now)).await {
        Ok(_) => {}
        Err(error) if error.code == Code::Conflict => {
            return Ok(Came::Refused(Refusal::LinkedElsewhere));
        }
        Err(error) => return Err(error),
    }
    let details = json!({ "issuer": issuer });
    let id = person.to_string();
    audit::record(ctx, &mut tx, caller, "company_account.linked", &id, details).await?;
    tx.commit().await?;
    Ok(Came::Linked { next })
}

/// Leaves the reason where superadmins and operators find it; the visitor is told less.
async fn refuse(ctx: &Ctx, tenant: TenantId, why: &str) -> Result<(), Error> {
    tracing::info!(%tenant, why, "a company sign-in was refused");
    let mut tx = ctx.begin(tenant).await?;
    let details = json!({ "reason": why });
    let subject = tenant.to_string();
    audit::record_service(ctx, &mut tx, "company_sign_in.refused", &subject, details).await?;
    Ok(tx.commit().await?)
}

/// Forgets sign-ins that nobody came back from.
pub async fn forget_old(ctx: &Ctx) -> Result<(), Error> {
    let batch = u32::try_from(limits::REAPER_BATCH.default).unwrap_or(u32::MAX);
    let now: Timestamp = ctx.now();
    loop {
        let due = store::company::due(&ctx.db, now, batch).await?;
        let full = due.len() >= limits::REAPER_BATCH.size();
        let mut by_tenant: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (tenant, sign_in) in due {
            by_tenant.entry(tenant).or_default().push(sign_in);
        }
        for (tenant, sign_ins) in by_tenant {
            let mut tx = ctx.begin(tenant).await?;
            store::company::forget(&mut tx, &sign_ins).await?;
            tx.commit().await?;
        }
        if !full {
            return Ok(());
        }
    }
}
