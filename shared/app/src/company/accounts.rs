//! Who people are at the company's issuer: linked by an admin, or by the person while signed in. An address
//! never joins two accounts.

use domain::{
    Caller, Code, Error, Role, Timestamp, Via,
    ids::UserId,
    limits,
    user::{UserChange, may_change},
};
use serde_json::json;
use store::{StoreError, Tx, company::Account};

use super::{enabled, somebody_gets_in};
use crate::{Ctx, audit, users::can_decide};

/// The company accounts of a person, for an admin or the person.
pub async fn accounts_of(
    ctx: &Ctx,
    caller: &Caller,
    person: UserId,
) -> Result<Vec<Account>, Error> {
    if person != caller.user {
        caller.require_role(Role::Admin)?;
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let there = store::users::get(&mut tx, person).await?;
    there.ok_or_else(|| Error::not_found("person"))?;
    let accounts = store::company::accounts(&mut tx, person).await?;
    tx.commit().await?;
    Ok(accounts)
}

/// An admin links a person who never signed in to the subject that the issuer knows them by. Whoever did
/// links their own account: an admin could else take over what is theirs. Idempotent.
///
/// `DENIED` for oneself and for one above; `CONFLICT` without company sign-in, for a person who signed in
/// before or can, and where the subject is linked to another.
pub async fn link(
    ctx: &Ctx,
    caller: &Caller,
    person: UserId,
    subject: &str,
) -> Result<Account, Error> {
    caller.require_role(Role::Admin)?;
    can_decide(caller)?;
    check_subject(subject)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let user = store::users::lock(&mut tx, person).await?;
    let user = user.ok_or_else(|| Error::not_found("person"))?;
    may_change(caller, person, user.role, UserChange::default())?;
    let settings = enabled(&mut tx).await?;
    let settings =
        settings.ok_or_else(|| Error::new(Code::Conflict, "company sign-in is not set up"))?;
    let issuer = settings.issuer.issuer;
    let known = store::company::accounts(&mut tx, person).await?;
    let same = |account: &&Account| account.issuer == issuer && account.subject == subject;
    if let Some(account) = known.iter().find(same) {
        return Ok(account.clone());
    }
    if !store::company::is_untouched(&mut tx, person).await? {
        let words = "this person has been here: they link their company account themselves, signed in \
                     with their password";
        return Err(Error::new(Code::Conflict, words));
    }
    let account = insert(&mut tx, (&issuer, subject), person, ctx.now(), None).await?;
    let details = json!({ "issuer": issuer });
    let id = person.to_string();
    audit::record(ctx, &mut tx, caller, "company_account.linked", &id, details).await?;
    tx.commit().await?;
    Ok(account)
}

/// An admin takes the link out. Idempotent; browser sessions of the person end.
///
/// `CONFLICT` where passwords are off and no superadmin could get in any more.
pub async fn unlink(ctx: &Ctx, caller: &Caller, person: UserId) -> Result<(), Error> {
    caller.require_role(Role::Admin)?;
    can_decide(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let user = store::users::lock(&mut tx, person).await?;
    let user = user.ok_or_else(|| Error::not_found("person"))?;
    may_change(caller, person, user.role, UserChange::default())?;
    if take_out(ctx, &mut tx, caller, person).await? {
        store::web_sessions::revoke_all(&mut tx, person, ctx.now()).await?;
    }
    Ok(tx.commit().await?)
}

/// The caller's own, from a browser session.
pub async fn unlink_own(ctx: &Ctx, caller: &Caller) -> Result<(), Error> {
    let Via::Console(_) = caller.via else {
        let words = "a company account is unlinked by whoever is signed in, not by a token";
        return Err(Error::new(Code::Denied, words));
    };
    let mut tx = ctx.begin(caller.tenant).await?;
    take_out(ctx, &mut tx, caller, caller.user).await?;
    Ok(tx.commit().await?)
}

async fn take_out(ctx: &Ctx, tx: &mut Tx, caller: &Caller, person: UserId) -> Result<bool, Error> {
    let Some(settings) = store::company::lock_settings(tx).await? else { return Ok(false) };
    let issuer = &settings.issuer;
    if !store::company::unlink(tx, &issuer.issuer, person).await? {
        return Ok(false);
    }
    somebody_gets_in(tx).await?;
    let details = json!({ "issuer": issuer.issuer });
    let id = person.to_string();
    audit::record(ctx, tx, caller, "company_account.unlinked", &id, details).await?;
    Ok(true)
}

/// Writes a link; `CONFLICT` where subject or person has another.
pub(super) async fn insert(
    tx: &mut Tx,
    (issuer, subject): (&str, &str),
    user: UserId,
    now: Timestamp,
    signed_in_at: Option<Timestamp>,
) -> Result<Account, Error> {
    let account = Account {
        issuer: issuer.to_owned(),
        subject: subject.to_owned(),
        user,
        created_at: now,
        signed_in_at,
    };
    store::company::link(tx, &account).await.map_err(taken)?;
    Ok(account)
}

fn taken(error: StoreError) -> Error {
    let words = match error.constraint() {
        Some("company_accounts_pkey") => "this company account is linked to another person",
        Some("company_accounts_user_key") => "this person has another company account",
        _ => return error.into(),
    };
    Error::new(Code::Conflict, words).because(error)
}

fn check_subject(subject: &str) -> Result<(), Error> {
    let most = limits::SUBJECT_CHARS.size();
    if (1..=most).contains(&subject.chars().count()) && !subject.chars().any(char::is_control) {
        return Ok(());
    }
    let words = format!("must be 1 to {most} characters, as the issuer writes it");
    let errors = json!([{ "path": "/subject", "message": words }]);
    Err(Error::new(Code::InvalidInput, format!("subject {words}"))
        .with_details(json!({ "errors": errors })))
}
