//! Signing in, browser sessions, and the pages.

mod forgery;
mod login;
mod new_password;
mod pages;
mod questions;
mod sessions;
mod throttle;

use chrono::{DateTime, Utc};
use domain::Role;
use tests::{
    browser::Browser,
    world::{Person, Tenant, World},
};

const PASSWORD: &str = "correct horse battery";

fn noon() -> DateTime<Utc> {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// A person who can sign in with [`PASSWORD`].
pub(crate) async fn person(world: &World, tenant: &Tenant, email: &str, role: Role) -> Person {
    let password = Some(PASSWORD.to_owned().into());
    let new = app::users::NewUser { email: email.to_owned(), role, password };
    let user = app::users::create(&world.ctx, &tenant.slug, new).await.unwrap();
    Person { tenant: tenant.clone(), id: user.id, email: user.email }
}

/// acme and its superadmin, signed in.
async fn signed_in(world: &World) -> (Person, Browser) {
    let acme = world.tenant("acme").await;
    let ann = person(world, &acme, "ann@acme.test", Role::Superadmin).await;
    let browser = browser_of(world, &ann).await;
    (ann, browser)
}

pub(crate) async fn browser_of(world: &World, person: &Person) -> Browser {
    let mut browser = Browser::at(&world.url);
    let seen = browser.sign_in(&person.tenant.slug, &person.email, PASSWORD).await;
    assert_eq!((seen.status.as_u16(), seen.header("location")), (303, "/servers"), "{seen:?}");
    browser
}
