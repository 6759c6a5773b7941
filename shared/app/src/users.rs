//! People of a tenant: their roles, and whether they may use the service.

mod new_password;
pub(crate) mod password;

use domain::{
    Caller, Code, Error, Reach, Role, Scope,
    ids::{TenantId, UserId},
    user::{self, UserChange, UserStatus},
};
use secrecy::SecretString;
use serde_json::json;
pub use store::users::User;
use store::{StoreError, Tx};

pub use new_password::{Change, PasswordSet, change_password, set_password};

use crate::{Ctx, audit, company, tenants};

/// A person to be added.
#[derive(Debug)]
pub struct NewUser {
    pub email: String,
    pub role: Role,
    /// `None`: no local sign-in.
    pub password: Option<SecretString>,
}

/// The caller with the address and the tenant that they are known by.
#[derive(Debug, Clone)]
pub struct Me {
    pub user: User,
    pub tenant: tenants::Tenant,
}

/// Who the caller is.
pub async fn me(ctx: &Ctx, caller: &Caller) -> Result<Me, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let user = store::users::get(&mut tx, caller.user).await?;
    let tenant = store::tenants::get(&mut tx).await?;
    tx.commit().await?;
    Ok(Me {
        user: user.ok_or_else(|| Error::not_found("person"))?,
        tenant: tenant.ok_or_else(|| Error::not_found("tenant"))?,
    })
}

/// The operator adds a person to the tenant of that name. Errors as of [`add`].
pub async fn create(ctx: &Ctx, tenant_slug: &str, new: NewUser) -> Result<User, Error> {
    let tenant = tenants::find(ctx, tenant_slug).await?;
    let (user, hash) = prepare(ctx, new).await?;
    let mut tx = ctx.begin(tenant.id).await?;
    insert(&mut tx, &user, hash.as_deref()).await?;
    let details = json!({ "role": user.role });
    audit::record_operator(ctx, &mut tx, "user.created", &user.id.to_string(), details).await?;
    tx.commit().await?;
    Ok(user)
}

/// The operator looks a person up.
pub async fn find(ctx: &Ctx, tenant: TenantId, email: &str) -> Result<User, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let user = store::users::find(&mut tx, email).await?;
    tx.commit().await?;
    user.ok_or_else(|| Error::not_found("person"))
}

/// An admin adds a person, with at most a role of their own.
///
/// `INVALID_INPUT` for an address or password that cannot be one, `CONFLICT` for an address that is
/// taken, `DENIED` for a role above the caller's.
pub async fn add(ctx: &Ctx, caller: &Caller, new: NewUser) -> Result<User, Error> {
    caller.require_role(Role::Admin)?;
    can_decide(caller)?;
    user::may_grant(caller, new.role)?;
    let (user, hash) = prepare(ctx, new).await?;
    let mut tx = ctx.begin(caller.tenant).await?;
    insert(&mut tx, &user, hash.as_deref()).await?;
    let details = json!({ "role": user.role });
    audit::record(ctx, &mut tx, caller, "user.created", &user.id.to_string(), details).await?;
    tx.commit().await?;
    Ok(user)
}

/// A person with a password signs in, and decides: whoever makes one, or raises one, can decide
/// themselves. So neither an agent's token, nor one that it minted, nor one with a limited reach.
pub(crate) fn can_decide(caller: &Caller) -> Result<(), Error> {
    caller.require_scope(Scope::Approve)?;
    if caller.reach != Reach::default() {
        return Err(Error::new(Code::Denied, "a token with a limited reach cannot manage people"));
    }
    Ok(())
}

/// People of the tenant, newest first.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    after: Option<UserId>,
    rows: i64,
) -> Result<Vec<User>, Error> {
    caller.require_role(Role::Admin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let users = store::users::list(&mut tx, after, rows).await?;
    tx.commit().await?;
    Ok(users)
}

/// Changes a person's role or status. Idempotent.
///
/// `NOT_FOUND` outside the tenant; `DENIED` for oneself, one above, or a role above the caller's;
/// `CONFLICT` where no active superadmin would be left.
pub async fn update(
    ctx: &Ctx,
    caller: &Caller,
    id: UserId,
    change: UserChange,
) -> Result<User, Error> {
    caller.require_role(Role::Admin)?;
    can_decide(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let superadmins = store::users::lock_superadmins(&mut tx).await?;
    let user = store::users::lock(&mut tx, id).await?;
    let mut user = user.ok_or_else(|| Error::not_found("person"))?;
    user::may_change(caller, id, user.role, change)?;
    if superadmins == [id] && change.ends_superadmin() {
        return Err(Error::new(Code::Conflict, "the last active superadmin stays"));
    }
    let before = user.clone();
    user.role = change.role.unwrap_or(user.role);
    user.status = change.status.unwrap_or(user.status);
    if user != before {
        store::users::save(&mut tx, &user).await?;
        if user.status == UserStatus::Disabled {
            // For good: whoever is enabled again signs in again.
            store::web_sessions::revoke_all(&mut tx, id, ctx.now()).await?;
        }
        if change.ends_superadmin() && before.role == Role::Superadmin {
            company::somebody_gets_in(&mut tx).await?;
        }
        let details = json!({ "role": user.role, "status": user.status });
        audit::record(ctx, &mut tx, caller, "user.updated", &id.to_string(), details).await?;
    }
    tx.commit().await?;
    Ok(user)
}

/// What does not need the database; hashing takes its time.
async fn prepare(ctx: &Ctx, new: NewUser) -> Result<(User, Option<String>), Error> {
    user::check_email(&new.email)?;
    let hash = match new.password {
        Some(password) => Some(password::hash(password).await?),
        None => None,
    };
    let user = User {
        id: ctx.mint(),
        email: new.email,
        role: new.role,
        status: UserStatus::Active,
        created_at: ctx.now(),
    };
    Ok((user, hash))
}

pub(crate) async fn insert(tx: &mut Tx, user: &User, hash: Option<&str>) -> Result<(), Error> {
    store::users::insert(tx, user, hash).await.map_err(taken)
}

fn taken(error: StoreError) -> Error {
    match error.constraint() {
        Some("users_email_key") => {
            Error::new(Code::Conflict, "there is a person with this e-mail address").because(error)
        }
        _ => error.into(),
    }
}
