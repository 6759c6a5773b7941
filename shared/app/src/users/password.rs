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
/// `INVALID_INPUT` for one that is too short or too long; `LIMITED` as [`Place::take`].
pub(crate) async fn hash(password: SecretString) -> Result<String, Error> {
    user::check_password(password.expose_secret())?;
    Place::take()?.hash(password).await
}

/// A place among those that hash or wait for it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "held")] SemaphorePermit<'static>);

impl Place {
    /// At once or not at all: `LIMITED` when too many wait already.
    pub(crate) fn take() -> Result<Self, Error> {
        PRESENT.try_acquire().map(Self).map_err(|_| {
            Error::new(Code::Limited, "too many people sign in at this moment")
                .retry_after(limits::SIGN_IN_FIRST_WAIT_MS.millis())
        })
    }

    /// As the function [`hash`], of a password that was checked.
    pub(crate) async fn hash(&self, password: SecretString) -> Result<String, Error> {
        self.at_work(move || {
            let hashed: Result<PasswordHash, _> =
                Argon2::default().hash_password(password.expose_secret().as_bytes());
            hashed.map(|hash| hash.to_string()).map_err(Error::internal)
        })
        .await
    }

    /// Whether this is the password of that PHC string. Never for `None`, which takes as long.
    pub(crate) async fn verify(
        &self,
        password: SecretString,
        hash: Option<String>,
    ) -> Result<bool, Error> {
        self.at_work(move || {
            let parsed = PasswordHash::new(hash.as_deref().unwrap_or(NOBODYS));
            let parsed = parsed.map_err(|error| Error::internal(error.to_string()))?;
            let password = password.expose_secret().as_bytes();
            let tried = Argon2::default().verify_password(password, &parsed);
            Ok(hash.is_some() && tried.is_ok())
        })
        .await
    }

    /// Off the async threads, when it is our turn. A client that hangs up ends the wait, not the work: so
    /// the work itself holds the turn.
    async fn at_work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = HASHING.acquire().await.map_err(Error::internal)?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(Error::internal)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_has_nobodys_password() {
        let known = hash("correct horse".to_owned().into()).await.unwrap();
        let place = Place::take().unwrap();
        let fits = async |text: &str, hash: Option<&String>| {
            place.verify(text.to_owned().into(), hash.cloned()).await.unwrap()
        };
        assert!(fits("correct horse", Some(&known)).await);
        assert!(!fits("correct house", Some(&known)).await);
        assert!(!fits("nobody's password", None).await);
        let parsed = PasswordHash::new(NOBODYS).unwrap();
        let of_known = PasswordHash::new(&known).unwrap();
        assert_eq!(parsed.params.to_string(), of_known.params.to_string(), "the same work");
    }

    #[tokio::test]
    async fn whoever_hangs_up_leaves_the_work_to_its_turn() {
        let place = Place::take().unwrap();
        let work = place.verify("correct horse".to_owned().into(), None);
        let soon = std::time::Duration::from_millis(1);
        tokio::time::timeout(soon, work).await.expect_err("a hash takes longer");
        assert_eq!(HASHING.available_permits(), limits::PASSWORD_HASHES.size() - 1);
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
