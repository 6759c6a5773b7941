//! What superadmins set up.

use domain::Role;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::company_issuer::CLIENT_SECRET;

use super::{SETTINGS, Scene};

#[tokio::test]
async fn the_settings_come_back_without_the_secret_which_null_keeps() {
    let scene = Scene::new(json!({})).await;
    let (_, shown) = scene.world.get(&scene.token, SETTINGS).await;
    let redirect = scene.world.url.join("/t/acme/oidc/callback").unwrap();
    assert_eq!(shown["redirectUri"], redirect.as_str());
    assert_eq!((&shown["clientSecret"], &shown["localSignIn"]), (&Value::Null, &json!(true)));
    assert!(shown.as_object().unwrap().contains_key("clientSecret"), "null says that there is one");
    assert!(!shown.to_string().contains(CLIENT_SECRET));

    let (status, saved) = scene.save(json!({ "clientSecret": null, "addsPeople": true })).await;
    assert_eq!(status, StatusCode::OK, "{saved}");
    let mut browser = scene.browser();
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);

    let elsewhere = json!({ "clientSecret": null, "issuer": "https://elsewhere.test" });
    let (status, refused) = scene.save(elsewhere).await;
    assert_eq!((status.as_u16(), &refused["code"]), (422, &json!("INVALID_INPUT")), "{refused}");
}

#[tokio::test]
async fn a_form_that_saw_other_settings_changes_nothing() {
    let scene = Scene::new(json!({})).await;
    for revision in [json!(0), Value::Null] {
        let (status, refused) = scene.save(json!({ "revision": revision, "name": "Other" })).await;
        assert_eq!((status.as_u16(), &refused["code"]), (409, &json!("REVISION_CONFLICT")));
        assert_eq!(refused["details"]["revision"], 1);
    }
    let (_, shown) = scene.world.get(&scene.token, SETTINGS).await;
    assert_eq!(shown["name"], "Acme");
}

#[tokio::test]
async fn a_test_says_where_the_issuer_fails() {
    let scene = Scene::new(json!({})).await;
    let path = format!("{SETTINGS}/test");
    let test = async || scene.world.post(&scene.token, &path, json!({})).await.1;
    assert_eq!(test().await, json!({ "ok": true }));
    for (metadata, step) in [
        (json!({ "issuer": "https://elsewhere.test" }), "issuer_mismatch"),
        (json!({ "jwks_uri": null }), "signing_keys"),
        (json!({ "token_endpoint": "http://elsewhere.test/token" }), "insecure_url"),
        (json!({ "token_endpoint": null }), "authorization_server_metadata"),
    ] {
        scene.issuer.set(|knobs| knobs.metadata = metadata.as_object().unwrap().clone());
        let said = test().await;
        assert_eq!(said["ok"], false);
        assert_eq!(said["error"]["details"]["step"], step, "{said}");
    }
    scene.issuer.set(|knobs| knobs.down = Some(503));
    let said = test().await;
    assert_eq!(said["error"]["code"], "UPSTREAM_UNAVAILABLE", "{said}");
    assert!(!said.to_string().contains(tests::company_issuer::WORDS));
}

#[tokio::test]
async fn only_a_superadmin_who_may_decide_sets_it_up() {
    let scene = Scene::new(json!({})).await;
    let admin = scene.world.user(&scene.tenant, "admin@acme.test", Role::Admin).await;
    let admin = scene.world.full_token(&admin).await;
    let agent = scene.world.token(&scene.root, "api:read,api:write,admin").await;
    for token in [&admin, &agent] {
        let form = json!({ "name": "x", "issuer": scene.issuer.issuer(), "clientId": "x",
                           "revision": 1 });
        let (status, _) = scene.world.put(token, SETTINGS, form).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert_eq!(scene.world.delete(token, SETTINGS).await.0, StatusCode::FORBIDDEN);
    }
    let (status, _) = scene.world.get(&admin, SETTINGS).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn two_tenants_of_one_issuer_are_told_apart_or_refused() {
    let scene = Scene::new(json!({ "gatewayTokens": true })).await;
    let other = scene.world.tenant("other").await;
    let boss = scene.world.user(&other, "boss@other.test", Role::Superadmin).await;
    let boss = scene.world.full_token(&boss).await;
    let form = |claim: Value| {
        json!({ "enabled": true, "name": "Other", "issuer": scene.issuer.issuer(),
                "clientId": "other", "gatewayTokens": true, "tenantClaim": claim })
    };
    let claim = |value: &str| json!({ "name": "tid", "value": value });
    for taken in [Value::Null, claim("other")] {
        let (status, refused) = scene.world.put(&boss, SETTINGS, form(taken)).await;
        assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    }
    let (status, saved) =
        scene.save(json!({ "gatewayTokens": true, "tenantClaim": claim("acme") })).await;
    assert_eq!(status, StatusCode::OK, "{saved}");
    let (status, refused) = scene.world.put(&boss, SETTINGS, form(claim("acme"))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let (status, saved) = scene.world.put(&boss, SETTINGS, form(claim("other"))).await;
    assert_eq!(status, StatusCode::OK, "{saved}");
}

#[tokio::test]
async fn passwords_can_be_off_and_nobody_is_locked_out() {
    let scene = Scene::new(json!({})).await;
    let off = json!({ "localSignIn": false });
    let (status, refused) = scene.save(off.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "no superadmin has an account there: {refused}");

    // A second superadmin, who never was here, is linked.
    let chief = scene.person("chief@acme.test", "ann-at-acme").await;
    let path = format!("/api/users/{}", chief.id);
    let promote = json!({ "role": "superadmin" });
    assert_eq!(scene.world.patch(&scene.token, &path, promote).await.0, StatusCode::OK);
    let (status, saved) = scene.save(off).await;
    assert_eq!(status, StatusCode::OK, "{saved}");

    let password = "a password of the root's";
    app::users::set_password(&scene.world.ctx, "acme", "root@acme.test", password.into())
        .await
        .unwrap();
    let page = scene.browser().get("/t/acme/sign-in").await;
    assert!(page.text.contains("Sign in with Acme") && !page.text.contains("type=\"password\""));
    let refused = scene.browser().sign_in("acme", "root@acme.test", password).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);

    // The operator set the password, and with it went the tokens that decide.
    let token = scene.world.full_token(&scene.root).await;
    for change in [json!({ "role": "member" }), json!({ "status": "disabled" })] {
        let (status, refused) = scene.world.patch(&token, &path, change).await;
        assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    }
    let account = format!("{path}/company-account");
    assert_eq!(scene.world.delete(&token, &account).await.0, StatusCode::CONFLICT);

    assert!(app::company::take_passwords(&scene.world.ctx, "acme").await.unwrap());
    assert!(!app::company::take_passwords(&scene.world.ctx, "acme").await.unwrap());
    let came = scene.browser().sign_in("acme", "root@acme.test", password).await;
    assert_eq!(came.status, StatusCode::SEE_OTHER);
}
