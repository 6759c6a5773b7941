//! Company sign-in and people's company accounts.

use api::paths;
use domain::Role;
use http::Method;
use serde_json::{Value, json};

use super::{Case, Fate, Sent, Stage};

const SETTINGS: &str = "/api/tenant/company-sign-in";

pub(super) fn cases() -> Vec<Case> {
    vec![
        superadmins(Case::new(Method::GET, paths::COMPANY_SIGN_IN, |stage| {
            Box::pin(async move {
                settings(stage).await;
                Sent::to(SETTINGS)
            })
        }))
        .needs("api:read,admin"),
        superadmins(Case::new(Method::PUT, paths::COMPANY_SIGN_IN, |stage| {
            Box::pin(async move { Sent::to(SETTINGS).with(settings(stage).await) })
        }))
        .foreign(Fate::Refused(409)),
        superadmins(Case::new(Method::DELETE, paths::COMPANY_SIGN_IN, |stage| {
            Box::pin(async move {
                settings(stage).await;
                Sent::to(SETTINGS)
            })
        }))
        .foreign(Fate::Own),
        superadmins(Case::new(Method::POST, paths::COMPANY_SIGN_IN_TEST, |stage| {
            Box::pin(async move {
                settings(stage).await;
                Sent::to(format!("{SETTINGS}/test"))
            })
        })),
        admins(Case::new(Method::GET, paths::USER_COMPANY_ACCOUNT, |stage| {
            Box::pin(async move { Sent::to(account(stage).await) })
        }))
        .needs("api:read,admin"),
        admins(Case::new(Method::PUT, paths::USER_COMPANY_ACCOUNT, |stage| {
            Box::pin(async move {
                settings(stage).await;
                let subject = stage.unused("subject");
                Sent::to(account(stage).await).with(json!({ "subject": subject }))
            })
        })),
        admins(Case::new(Method::DELETE, paths::USER_COMPANY_ACCOUNT, |stage| {
            Box::pin(async move { Sent::to(account(stage).await) })
        })),
    ]
}

fn superadmins(case: Case) -> Case {
    case.needs("api:write,admin,approve").role(Role::Superadmin).colleague(Fate::Same)
}

fn admins(case: Case) -> Case {
    case.needs("api:write,admin,approve").role(Role::Admin).colleague(Fate::Same)
}

/// What would replace acme's settings, which are there.
async fn settings(stage: &Stage) -> Value {
    let mut form = json!({
        "enabled": true, "name": "Acme", "issuer": "http://127.0.0.1:9", "clientId": "bailiwick",
    });
    let (status, known) = stage.world.get(&stage.ann_token, SETTINGS).await;
    let known = if status.is_success() {
        known
    } else {
        stage.world.put(&stage.ann_token, SETTINGS, form.clone()).await.1
    };
    form["revision"] = known["revision"].clone();
    assert!(form["revision"].is_i64(), "{known}");
    form
}

/// Of a member of acme who never was here.
async fn account(stage: &Stage) -> String {
    let email = format!("{}@acme.test", stage.unused("person"));
    let person = stage.make("/api/users", json!({ "email": email, "role": "member" })).await;
    format!("/api/users/{person}/company-account")
}
