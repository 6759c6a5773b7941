//! The operator's commands. They work on the database itself, beside whatever serves.

use std::io::BufRead;

use app::{
    Ctx,
    setup::Setup,
    users::{NewUser, PasswordSet},
};
use domain::limits;
use runtime::{
    config::{self, Settings},
    lifecycle::Lifecycle,
    postgres::{self, Address},
    terminal,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::{
    assemble::{self, Needs},
    cli::{Migrate, Output, Tenant, Token, User},
    failure::Failure,
    installation::{self, Installation},
};

pub(crate) async fn migrate(settings: &Settings, args: &Migrate) -> Result<(), Failure> {
    let from_environment = || {
        let mut variables = config::environment();
        let (_, url) = variables.find(|(name, _)| name == "BAILIWICK_ADMIN_DATABASE_URL")?;
        Some(SecretString::from(url))
    };
    let admin_url = args.admin_url.clone().or_else(from_environment);
    if let Some(owner_url) = &settings.owner_database_url {
        let owner_password = password_of(owner_url);
        let app_password = settings.database_url.as_ref().and_then(password_of);
        let setup = Setup {
            admin_url: admin_url.as_ref().map(ExposeSecret::expose_secret),
            owner_url: owner_url.expose_secret(),
            owner_password: owner_password.as_ref(),
            app_password: app_password.as_ref(),
        };
        app::setup::migrate(&setup).await?;
    } else if admin_url.is_some() {
        return Err(Failure::usage(
            "owner_database_url must be set beside the admin's: it names the database to make",
        ));
    } else {
        let address = running_postgres(settings).await?;
        let setup = Setup {
            admin_url: Some(&address.admin_url()),
            owner_url: &address.owner_url(),
            owner_password: None,
            app_password: None,
        };
        app::setup::migrate(&setup).await?;
    }
    report(&args.output, &json!({ "migrated": true }), "the schema is up to date");
    Ok(())
}

pub(crate) async fn tenant(settings: &Settings, command: Tenant) -> Result<(), Failure> {
    let ctx = open(settings, None).await?;
    let (name, output) = match command {
        Tenant::Create { name, output } => (name, output),
        Tenant::TakePasswords { name, output } => {
            let changed = app::company::take_passwords(&ctx, &name).await?;
            let words = if changed { "takes passwords again" } else { "took passwords already" };
            let words = format!("the tenant {name} {words}");
            report(&output, &json!({ "tenant": name, "changed": changed }), &words);
            return Ok(());
        }
    };
    let tenant = app::tenants::create(&ctx, &name).await?;
    let words = format!("made the tenant {} ({})", tenant.slug, tenant.id);
    report(&output, &json!({ "id": tenant.id, "slug": tenant.slug }), &words);
    Ok(())
}

pub(crate) async fn user(settings: &Settings, command: User) -> Result<(), Failure> {
    let (email, role, tenant, password_stdin, output) = match command {
        User::Create { email, role, tenant, password_stdin, output } => {
            (email, role, tenant, password_stdin, output)
        }
        User::Password { email, tenant, password_stdin: _, output } => {
            return password(settings, &email, &tenant, &output).await;
        }
    };
    let password = if password_stdin { Some(first_line_of_stdin()?) } else { None };
    let ctx = open(settings, None).await?;
    let user = app::users::create(&ctx, &tenant, NewUser { email, role, password }).await?;
    let words = format!("made the {} {} ({})", user.role.as_str(), user.email, user.id);
    let value = json!({
        "id": user.id, "email": user.email, "role": user.role.as_str(), "tenant": tenant,
    });
    report(&output, &value, &words);
    Ok(())
}

async fn password(
    settings: &Settings,
    email: &str,
    tenant: &str,
    output: &Output,
) -> Result<(), Failure> {
    let password = first_line_of_stdin()?;
    let ctx = open(settings, None).await?;
    let PasswordSet { user, web_sessions, tokens } =
        app::users::set_password(&ctx, tenant, email, password).await?;
    let words = format!(
        "set the password of {}; ended browser sessions: {web_sessions}, revoked tokens with approve or \
         admin: {tokens}",
        user.email,
    );
    let value = json!({
        "id": user.id, "email": user.email, "tenant": tenant, "webSessionsEnded": web_sessions,
        "tokensRevoked": tokens,
    });
    report(output, &value, &words);
    Ok(())
}

/// The token stands alone on the last line, so that a script can take it.
pub(crate) async fn token(settings: &Settings, command: Token) -> Result<(), Failure> {
    let Token::Create { user, tenant, scopes, expires, output } = command;
    let ctx = open(settings, None).await?;
    let expires_at = expires
        .map(|life| {
            let life = chrono::TimeDelta::from_std(life).ok();
            life.and_then(|life| ctx.now().checked_add_signed(life))
                .ok_or_else(|| Failure::usage("the token would live too long"))
        })
        .transpose()?;
    let minted = app::tokens::create_for(&ctx, &tenant, &user, scopes, expires_at).await?;
    let value = json!({
        "id": minted.token.id,
        "scopes": minted.token.scopes,
        "expiresAt": minted.token.expires_at,
        "token": minted.secret.expose_secret(),
    });
    report(&output, &value, minted.secret.expose_secret());
    Ok(())
}

fn report(output: &Output, value: &Value, words: &str) {
    if output.json {
        println!("{}", terminal::escape(&value.to_string()));
    } else {
        println!("{}", terminal::escape(words));
    }
}

/// The database of the data directory or of the settings.
pub(crate) async fn open(
    settings: &Settings,
    encryption_keys: Option<&SecretString>,
) -> Result<Ctx, Failure> {
    let database_url = match (&settings.data_dir, &settings.database_url) {
        (None, Some(url)) => url.clone(),
        _ => running_postgres(settings).await?.app_url().into(),
    };
    // These commands store no bodies.
    let object_store = installation::directory_url(&std::env::temp_dir())?;
    let needs = Needs {
        database_url: &database_url,
        encryption_keys,
        object_store: &object_store,
        public: None,
        built_in: None,
    };
    let ctx = assemble::ctx(settings, &Lifecycle::new(), needs)?;
    app::setup::check(&ctx).await?;
    Ok(ctx)
}

async fn running_postgres(settings: &Settings) -> Result<Address, Failure> {
    let installation = Installation::of(settings)?;
    let nothing_runs = || {
        Failure::new(format!(
            "nothing runs on {}: start `bailiwick up` there, or set database_url",
            installation.dir().display()
        ))
    };
    match postgres::locate(&installation.postgres_dir()) {
        Ok(address) if address.answers().await => Ok(address),
        Ok(_) | Err(postgres::Error::NeverStarted { .. }) => Err(nothing_runs()),
        Err(error) => Err(error.into()),
    }
}

fn first_line_of_stdin() -> Result<SecretString, Failure> {
    let mut line = String::new();
    let most = limits::PASSWORD_CHARS.default * 4 + 2;
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), most);
    stdin
        .read_line(&mut line)
        .map_err(|error| Failure::because("stdin holds no password", error))?;
    Ok(line.trim_end_matches(['\n', '\r']).into())
}

/// The password in a database URL, so that a role is made with the one it will be asked for.
fn password_of(url: &SecretString) -> Option<SecretString> {
    let url = Url::parse(url.expose_secret()).ok()?;
    let bytes = url.password()?.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            decoded.push(high << 4 | low);
            rest = &after[2..];
        } else {
            decoded.push(*first);
            rest = after;
        }
    }
    String::from_utf8(decoded).ok().map(SecretString::from)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::password_of;

    #[test]
    fn a_password_is_read_from_a_database_url() {
        let of = |url: &str| password_of(&url.into()).map(|text| text.expose_secret().to_owned());
        assert_eq!(of("postgres://role:a%40b%2Fc%25@host/db").as_deref(), Some("a@b/c%"));
        assert_eq!(of("postgres://role:100%@host/db").as_deref(), Some("100%"));
        assert_eq!(of("postgres://role@host/db"), None);
    }
}
