//! Passwords as argon2id hashes (PHC strings).

use argon2::{Argon2, PasswordHasher, PasswordVerifier, password_hash::phc::PasswordHash};
use domain::{Code, Error, limits, user};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A hash takes 19 MiB and a core for a moment: a crowd of them must not take the node's.
static HASHING: Semaphore = Semaphore::const_new(limits::PASSWORD_HASHES.size());

/// Those that hash and those that wait for it: a longer queue would only make everybody wait.
static PRESENT: Semaphore =
    Semaphore::const_new(limits::PASSWORD_HASHES.size() + limits::PASSWORD_HASHES_WAITING.size());

/// Of a password that nobody has, with the parameters of [`hash`]: what is tried where there is no
/// account, so that it costs the same. Salt and digest are random bytes.
const NOBODYS: &str = "$argon2id$v=19$m=19456,t=2,p=1$q/99NoJcJxY1AItUi3WR7g$2YX9pGyL50Xz9lxZzL9qjlf8lRNeemD199MxQh9OW5g";

/// The PHC string of a password, with the library's parameters (19 MiB, 2 passes, 1 lane: OWASP
/// Password Storage Cheat Sheet) and a salt of its own.
///
/// `INVALID_INPUT` for one that is too short or too long.
pub(crate) async fn hash(password: SecretString) -> Result<String, Error> {
    user::check_password(password.expose_secret())?;
    let _turn = turn().await?;
    let hashed =
        tokio::task::spawn_blocking(move || -> Result<String, argon2::password_hash::Error> {
            let hash: PasswordHash =
                Argon2::default().hash_password(password.expose_secret().as_bytes())?;
            Ok(hash.to_string())
        });
    hashed.await.map_err(Error::internal)?.map_err(Error::internal)
}

/// Whether this is the password of that PHC string. Never for `None`, which takes as long.
///
/// `LIMITED` when too many wait for the same.
pub(crate) async fn verify(password: SecretString, hash: Option<String>) -> Result<bool, Error> {
    let _turn = turn().await?;
    let tried = tokio::task::spawn_blocking(move || {
        let known = hash.is_some();
        let parsed = PasswordHash::new(hash.as_deref().unwrap_or(NOBODYS));
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return Err(Error::internal(error.to_string())),
        };
        let tried = Argon2::default().verify_password(password.expose_secret().as_bytes(), &parsed);
        Ok(known && tried.is_ok())
    });
    tried.await.map_err(Error::internal)?
}

/// Both are given back together.
async fn turn() -> Result<(SemaphorePermit<'static>, SemaphorePermit<'static>), Error> {
    let present = PRESENT.try_acquire().map_err(|_| {
        Error::new(Code::Limited, "too many people sign in at this moment")
            .retry_after(limits::SIGN_IN_FIRST_WAIT_MS.millis())
    })?;
    Ok((HASHING.acquire().await.map_err(Error::internal)?, present))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_has_nobodys_password() {
        let known = hash("correct horse".to_owned().into()).await.unwrap();
        let fits = async |text: &str, hash: Option<&String>| {
            verify(text.to_owned().into(), hash.cloned()).await.unwrap()
        };
        assert!(fits("correct horse", Some(&known)).await);
        assert!(!fits("correct house", Some(&known)).await);
        assert!(!fits("nobody's password", None).await);
        let parsed = PasswordHash::new(NOBODYS).unwrap();
        let of_known = PasswordHash::new(&known).unwrap();
        assert_eq!(parsed.params.to_string(), of_known.params.to_string(), "the same work");
    }

    #[tokio::test]
    async fn a_hash_is_argon2id_and_knows_its_password() {
        let text = hash("correct horse".to_owned().into()).await.unwrap();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let parsed = PasswordHash::new(&text).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse", &parsed).is_ok());
        assert!(Argon2::default().verify_password(b"correct house", &parsed).is_err());
    }
}
