//! Signing in with address and password.
//!
//! Every failure costs the same work and has the same words: unknown tenant, unknown address, no
//! password, wrong password, disabled person. Attempts are counted before the password is tried, by
//! account and by network; too many wait, and nobody is ever locked out (docs/decisions/0009).

use domain::{
    Caller, Code, Error,
    json::Sha256Digest,
    user::{self, UserStatus},
    web_session::Network,
};
use secrecy::SecretString;
use serde_json::json;
use store::{
    sign_in::{Account, Subjects},
    web_sessions::SignedIn,
};

use crate::{
    Ctx, audit, identity,
    users::{self, Me, password::Place},
    web_sessions,
};

/// What somebody typed, and where from.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// Slug of the tenant.
    pub tenant: &'a str,
    pub email: &'a str,
    pub password: SecretString,
    pub network: Network,
    /// Who the same browser was signed in as until now: that session ends.
    pub replaces: Option<Caller>,
}

/// A session that began.
#[derive(Debug)]
pub struct Begun {
    pub caller: Caller,
    pub me: Me,
    /// What the browser is to send from now on.
    pub cookie: SecretString,
}

/// Begins a browser session.
///
/// `UNAUTHENTICATED` for whatever does not fit; `LIMITED` after too many attempts in vain, with the time
/// to wait, whether or not this one would have fitted, and while too many others sign in.
pub async fn with_password(ctx: &Ctx, attempt: Attempt<'_>) -> Result<Begun, Error> {
    let Attempt { tenant, email, network, .. } = attempt;
    let tried = Tried { tenant, email, network };
    // First, so that whoever finds none has tried nothing, and is not counted.
    let place = Place::take()?;
    let Some(account) = tried.account(ctx, &place, attempt.password).await? else {
        return Err(refused());
    };
    let begun = begin(ctx, &account).await?;
    tried.settle(ctx).await?;
    if let Some(earlier) = attempt.replaces {
        web_sessions::end(ctx, &earlier).await?;
    }
    Ok(begun)
}

/// Whose password is tried, and where from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried<'a> {
    /// Slug of the tenant.
    pub(crate) tenant: &'a str,
    pub(crate) email: &'a str,
    pub(crate) network: Network,
}

impl Tried<'_> {
    /// The active account of that password. Counted as in vain until [`Tried::settle`].
    ///
    /// `LIMITED` after too many attempts in vain, with the time to wait.
    pub(crate) async fn account(
        &self,
        ctx: &Ctx,
        place: &Place,
        password: SecretString,
    ) -> Result<Option<Account>, Error> {
        let network = self.network;
        if let Some(free_at) =
            store::sign_in::take_turn(&ctx.db, &self.subjects(), ctx.now()).await?
        {
            tracing::info!(%network, "too many attempts with a password");
            return Err(too_many(ctx, free_at));
        }
        let account = self.find(ctx).await?;
        let hash = account.as_ref().and_then(|account| account.password_hash.clone());
        let fits = place.verify(password, hash).await?;
        let account = account.filter(|account| fits && account.status == UserStatus::Active);
        if account.is_none() {
            tracing::info!(%network, "an attempt with a password failed");
        }
        Ok(account)
    }

    /// It was not in vain.
    pub(crate) async fn settle(&self, ctx: &Ctx) -> Result<(), Error> {
        Ok(store::sign_in::settle(&ctx.db, &self.subjects(), ctx.now()).await?)
    }

    async fn find(&self, ctx: &Ctx) -> Result<Option<Account>, Error> {
        // The database takes no NUL; nobody has one in their address or slug either.
        if user::check_email(self.email).is_err() || self.tenant.contains('\0') {
            return Ok(None);
        }
        Ok(store::sign_in::account(&ctx.db, self.tenant, &self.folded()).await?)
    }

    /// As attempts are counted. Folded here: the database folds some letters otherwise.
    fn folded(&self) -> String {
        self.email.trim().to_lowercase()
    }

    fn subjects(&self) -> Subjects {
        let account = format!("{}\0{}", self.tenant, self.folded());
        let network = self.network;
        let digest = |text: String| Sha256Digest::of(text.as_bytes());
        Subjects {
            known: digest(format!("known\0{network}\0{account}")),
            account: digest(format!("account\0{account}")),
            network: digest(format!("network\0{network}")),
        }
    }
}

async fn begin(ctx: &Ctx, account: &Account) -> Result<Begun, Error> {
    let mut tx = ctx.begin(account.tenant).await?;
    // The password may have been replaced, or the person disabled, while it was tried: every session
    // ended then, and this one must not outlive them.
    let present = store::sign_in::lock_password(&mut tx, account.user).await?;
    if present.is_none() || present != account.password_hash {
        return Err(refused());
    }
    if !store::company::takes_passwords(&mut tx).await? {
        tracing::info!(user = %account.user, "a password was right, and the tenant takes none");
        return Err(refused());
    }
    let (new, cookie) = web_sessions::begin(ctx, &mut tx, account.user).await?;
    let user = store::users::get(&mut tx, account.user).await?.ok_or_else(refused)?;
    let caller = identity::signed_in(SignedIn {
        tenant: account.tenant,
        session: new.id,
        user: user.id,
        role: user.role,
    });
    let subject = new.id.to_string();
    audit::record(ctx, &mut tx, &caller, "web_session.created", &subject, json!({})).await?;
    tx.commit().await?;
    let me = users::me(ctx, &caller).await?;
    Ok(Begun { caller, me, cookie })
}

fn refused() -> Error {
    Error::new(Code::Unauthenticated, "email or password is not right")
}

fn too_many(ctx: &Ctx, free_at: domain::Timestamp) -> Error {
    let wait = (free_at - ctx.now()).to_std().unwrap_or_default();
    // Whole seconds, rounded up: who comes back then must not be early.
    let seconds = wait.as_millis().div_ceil(1_000).max(1);
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    Error::new(Code::Limited, format!("too many attempts: try again in {seconds} s"))
        .retry_after(std::time::Duration::from_secs(seconds))
}
