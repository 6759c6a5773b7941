//! Passwords as argon2id hashes (PHC strings).

use argon2::{Argon2, PasswordHasher, password_hash::phc::PasswordHash};
use domain::{Error, limits, user};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

/// A hash takes 19 MiB and a core for a moment: a crowd of them must not take the node's.
static HASHING: Semaphore = Semaphore::const_new(limits::PASSWORD_HASHES.size());

/// The PHC string of a password, with the library's parameters (19 MiB, 2 passes, 1 lane: OWASP
/// Password Storage Cheat Sheet) and a salt of its own.
///
/// `INVALID_INPUT` for one that is too short or too long.
pub(super) async fn hash(password: SecretString) -> Result<String, Error> {
    user::check_password(password.expose_secret())?;
    let _slot = HASHING.acquire().await.map_err(Error::internal)?;
    let hashed =
        tokio::task::spawn_blocking(move || -> Result<String, argon2::password_hash::Error> {
            let hash: PasswordHash =
                Argon2::default().hash_password(password.expose_secret().as_bytes())?;
            Ok(hash.to_string())
        });
    hashed.await.map_err(Error::internal)?.map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use argon2::PasswordVerifier;

    use super::*;

    #[tokio::test]
    async fn a_hash_is_argon2id_and_knows_its_password() {
        let text = hash("correct horse".to_owned().into()).await.unwrap();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let parsed = PasswordHash::new(&text).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse", &parsed).is_ok());
        assert!(Argon2::default().verify_password(b"correct house", &parsed).is_err());
    }
}
