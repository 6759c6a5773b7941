//! People: what an e-mail address is, and who may change whom.

use serde::{Deserialize, Serialize};

use crate::{Caller, Code, Error, Role, caller::names, ids::UserId, limits};

/// Whether a person may use the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserStatus {
    Active,
    /// Every token of theirs is dead as long as this lasts.
    Disabled,
}

names!(UserStatus, "status", Active => "active", Disabled => "disabled");

/// What is to change of a person; `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserChange {
    pub role: Option<Role>,
    pub status: Option<UserStatus>,
}

impl UserChange {
    /// Whether an active superadmin is none afterwards.
    #[must_use]
    pub fn ends_superadmin(&self) -> bool {
        self.role.is_some_and(|role| role != Role::Superadmin)
            || self.status == Some(UserStatus::Disabled)
    }
}

/// Nobody changes themselves, one who stands above them, or anybody to above themselves.
///
/// [`Code::Denied`]; the role that is needed for the route at all was checked before.
pub fn may_change(
    caller: &Caller,
    user: UserId,
    present: Role,
    change: UserChange,
) -> Result<(), Error> {
    if caller.user == user {
        return Err(Error::new(Code::Denied, "nobody changes their own role or status"));
    }
    if present > caller.role {
        return Err(Error::new(Code::Denied, "this person's role is above yours"));
    }
    may_grant(caller, change.role.unwrap_or(present))
}

/// Nobody grants a role above their own ([`Code::Denied`]).
pub fn may_grant(caller: &Caller, role: Role) -> Result<(), Error> {
    if role > caller.role {
        return Err(Error::new(Code::Denied, "nobody grants a role above their own"));
    }
    Ok(())
}

/// A modest check (`INVALID_INPUT`): something, one `@`, something; no spaces or control characters;
/// not longer than RFC 5321 has it. Whether mail arrives there, only mail can tell.
pub fn check_email(email: &str) -> Result<(), Error> {
    let most = limits::EMAIL_CHARS.size();
    let fits = email.chars().count() <= most
        && !email.chars().any(|one| one.is_whitespace() || one.is_control())
        && email.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty() && !domain.is_empty() && !domain.contains('@')
        });
    if fits {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidInput,
        format!("email must look like name@example.org and have at most {most} characters"),
    ))
}

/// `INVALID_INPUT` outside of the lengths in docs/limits.md; every character may stand in a password
/// (NIST SP 800-63B, 3.1.1.2).
pub fn check_password(password: &str) -> Result<(), Error> {
    let (least, most) = (limits::PASSWORD_CHARS_MIN.size(), limits::PASSWORD_CHARS.size());
    if (least..=most).contains(&password.chars().count()) {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidInput,
        format!("a password must have from {least} to {most} characters"),
    ))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{Reach, Scope, Scopes, Via, ids::TenantId};

    fn caller(role: Role) -> Caller {
        Caller {
            tenant: TenantId(Uuid::from_u128(1)),
            user: UserId(Uuid::from_u128(2)),
            role,
            scopes: Scopes::new([Scope::Admin]).unwrap(),
            reach: Reach::default(),
            via: Via::Operator,
        }
    }

    fn change(role: Role) -> UserChange {
        UserChange { role: Some(role), status: None }
    }

    #[test]
    fn nobody_grants_more_than_they_are() {
        let admin = caller(Role::Admin);
        assert!(may_grant(&admin, Role::Admin).is_ok());
        assert_eq!(may_grant(&admin, Role::Superadmin).unwrap_err().code, Code::Denied);
    }

    #[test]
    fn nobody_changes_themselves_or_one_above() {
        let admin = caller(Role::Admin);
        let other = UserId(Uuid::from_u128(3));
        assert!(may_change(&admin, other, Role::Member, change(Role::Admin)).is_ok());
        assert!(may_change(&admin, admin.user, Role::Admin, change(Role::Member)).is_err());
        assert!(may_change(&admin, other, Role::Superadmin, change(Role::Member)).is_err());
    }

    #[test]
    fn a_demotion_and_a_disabling_end_a_superadmin() {
        assert!(change(Role::Admin).ends_superadmin());
        let disabled = UserChange { role: None, status: Some(UserStatus::Disabled) };
        assert!(disabled.ends_superadmin());
        assert!(!change(Role::Superadmin).ends_superadmin());
    }

    #[test]
    fn an_email_address_has_two_sides() {
        for good in ["admin@localhost", "a.b+c@example.org"] {
            assert!(check_email(good).is_ok(), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b\n", "a\0@b"] {
            assert_eq!(check_email(bad).unwrap_err().code, Code::InvalidInput, "{bad:?}");
        }
    }
}
