//! Who is linked to whom, and by whom.

use domain::Role;
use reqwest::StatusCode;
use serde_json::json;

use super::{Scene, come_back, who};

#[tokio::test]
async fn an_admin_links_whoever_never_was_here_and_nobody_else() {
    let scene = Scene::new(json!({})).await;
    let ann = scene.person("ann@acme.test", "ann-at-acme").await;
    let path = |id: &dyn std::fmt::Display| format!("/api/users/{id}/company-account");
    let same = json!({ "subject": "ann-at-acme" });
    let (status, again) = scene.world.put(&scene.token, &path(&ann.id), same.clone()).await;
    assert_eq!(status, StatusCode::OK, "{again}");

    let bob = scene.world.user(&scene.tenant, "bob@acme.test", Role::Member).await;
    let (status, refused) = scene.world.put(&scene.token, &path(&bob.id), same).await;
    assert_eq!(status, StatusCode::CONFLICT, "linked to ann: {refused}");
    scene.world.token(&bob, "mcp:call").await;
    let own = json!({ "subject": "my-own-account" });
    let (status, refused) = scene.world.put(&scene.token, &path(&bob.id), own.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "bob has a token: {refused}");
    let (status, _) = scene.world.put(&scene.token, &path(&scene.root.id), own.clone()).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "nobody links themselves so");

    let admin = scene.world.user(&scene.tenant, "admin@acme.test", Role::Admin).await;
    let admin = scene.world.full_token(&admin).await;
    let chief = scene.world.user(&scene.tenant, "chief@acme.test", Role::Superadmin).await;
    let (status, _) = scene.world.put(&admin, &path(&chief.id), own).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "one above");

    let mut browser = scene.browser();
    scene.sign_in(&mut browser).await;
    let (status, left) = scene.world.delete(&admin, &path(&ann.id)).await;
    assert_eq!((status, left["items"].as_array().unwrap().len()), (StatusCode::OK, 0));
    assert_eq!(who(&mut browser).await, None, "her sessions ended");
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn whoever_is_signed_in_links_their_own_account() {
    let scene = Scene::new(json!({})).await;
    let bob = scene.world.user(&scene.tenant, "bob@acme.test", Role::Member).await;
    let password = "a password of bob's";
    app::users::set_password(&scene.world.ctx, "acme", &bob.email, password.into()).await.unwrap();
    let mut browser = scene.browser();
    browser.sign_in("acme", &bob.email, password).await;
    let page = browser.get("/me/password").await;
    assert!(page.text.contains("Link your company account"), "{page:?}");

    let leave = browser.submit("/me/company", &[]).await;
    let link = leave.text.split("href=\"http").nth(1).unwrap().split('"').next().unwrap();
    let link = format!("http{}", link.replace("&amp;", "&").replace("&#38;", "&"));
    let back = scene.issuer.walk(&link.parse().unwrap()).await;

    // Somebody else signed in at the same browser meanwhile: their account it is not.
    let mallory = scene.world.user(&scene.tenant, "mallory@acme.test", Role::Member).await;
    app::users::set_password(&scene.world.ctx, "acme", &mallory.email, password.into())
        .await
        .unwrap();
    let mut other = scene.browser();
    other.sign_in("acme", &mallory.email, password).await;
    other.attempts = browser.attempts.clone();
    assert_eq!(come_back(&mut other, &back).await.status, StatusCode::BAD_REQUEST);

    let leave = browser.submit("/me/company", &[]).await;
    let link = leave.text.split("href=\"http").nth(1).unwrap().split('"').next().unwrap();
    let link = format!("http{}", link.replace("&amp;", "&").replace("&#38;", "&"));
    let back = scene.issuer.walk(&link.parse().unwrap()).await;
    let came = come_back(&mut browser, &back).await;
    assert_eq!((came.status.as_u16(), came.header("location")), (303, "/me/password?linked"));
    let page = browser.get("/me/password?linked").await;
    assert!(page.text.contains("Your company account is linked."), "{page:?}");

    let mut fresh = scene.browser();
    scene.sign_in(&mut fresh).await;
    assert_eq!(who(&mut fresh).await.as_deref(), Some("bob@acme.test"));
    let gone = browser.submit("/me/company", &[("do", "unlink")]).await;
    assert_eq!(gone.header("location"), "/me/password?unlinked");
    assert_eq!(scene.sign_in(&mut scene.browser()).await.status, StatusCode::BAD_REQUEST);
}
