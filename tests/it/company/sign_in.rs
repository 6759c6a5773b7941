//! From the button to the browser session.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::company_issuer::{Knobs, Sign, WORDS};

use super::{Scene, come_back, who};

#[tokio::test]
async fn a_person_of_the_company_signs_in_and_goes_on_where_they_wanted() {
    let scene = Scene::new(json!({})).await;
    scene.person("ann@acme.test", "ann-at-acme").await;
    let mut browser = scene.browser();
    let page = browser.get("/t/acme/sign-in?next=%2Fquestions").await;
    let button = "href=\"/t/acme/oidc/start?next=%2Fquestions\"";
    assert!(page.text.contains(button) && page.text.contains("type=\"password\""), "{page:?}");
    let came = scene.sign_in(&mut browser).await;
    assert_eq!((came.status.as_u16(), came.header("location")), (303, "/questions"));
    assert_eq!(who(&mut browser).await.as_deref(), Some("ann@acme.test"));
    assert_eq!(browser.attempts, [""; 0], "the cookie of the sign-in is gone");

    // A second sign-in ends the first session.
    let before = browser.cookie.clone();
    scene.sign_in(&mut browser).await;
    let mut old = scene.browser();
    old.cookie = before;
    assert_eq!(who(&mut old).await, None);
    assert_eq!(who(&mut browser).await.as_deref(), Some("ann@acme.test"));
}

/// Every way in which an issuer, or who speaks in its name, can be wrong.
type Fault = (&'static str, fn(&mut Knobs), &'static str);

const FAULTS: &[Fault] = &[
    ("nonce", |knobs| claim(knobs, "nonce", json!("another")), "nonce"),
    ("no nonce", |knobs| claim(knobs, "nonce", Value::Null), "nonce"),
    ("audience", |knobs| claim(knobs, "aud", json!("another")), "another client"),
    ("more audiences", |knobs| claim(knobs, "aud", json!(["bailiwick", "x"])), "another client"),
    ("party", |knobs| claim(knobs, "azp", json!("another")), "another party"),
    ("issuer", |knobs| claim(knobs, "iss", json!("https://elsewhere.test")), "another issuer"),
    ("expired", |knobs| claim(knobs, "exp", json!(1_000_000)), "expired"),
    ("from the future", |knobs| claim(knobs, "iat", json!(9_000_000_000_u64)), "clocks"),
    ("no expiry", |knobs| claim(knobs, "exp", Value::Null), "no JWT"),
    ("no subject", |knobs| claim(knobs, "sub", json!("")), "names nobody"),
    ("token hash", |knobs| claim(knobs, "at_hash", json!("AAAA")), "access token is another"),
    ("alg none", |knobs| knobs.sign = Sign::Nothing, "algorithm"),
    ("a public key as a secret", |knobs| knobs.sign = Sign::PublicKeyAsSecret, "algorithm"),
    ("altered", |knobs| knobs.sign = Sign::Altered, "signature"),
    ("unknown key", |knobs| knobs.sign = Sign::NewEc, "no key of the issuer"),
    ("no ID token", |knobs| knobs.no_id_token = true, "there is none"),
    ("token endpoint down", |knobs| knobs.down = Some(500), ""),
    ("iss of the answer", |knobs| knobs.iss = Some("https://elsewhere.test".into()), ""),
    ("no iss though promised", |knobs| knobs.iss = Some(String::new()), ""),
];

fn claim(knobs: &mut Knobs, name: &str, value: Value) {
    knobs.claims.insert(name.to_owned(), value);
}

#[tokio::test]
async fn whatever_the_issuer_gets_wrong_signs_nobody_in_and_leaves_a_reason() {
    let scene = Scene::new(json!({})).await;
    scene.person("ann@acme.test", "ann-at-acme").await;
    let mut sound = None;
    scene.issuer.set(|knobs| sound = Some(knobs.clone()));
    let sound = sound.unwrap();
    for (name, fault, reason) in FAULTS {
        let mut browser = scene.browser();
        let going = browser.get("/t/acme/oidc/start").await;
        scene.issuer.set(fault);
        let back = scene.issuer.walk(&going.header("location").parse().unwrap()).await;
        let came = come_back(&mut browser, &back).await;
        scene.issuer.set(|knobs| *knobs = sound.clone());
        assert_eq!(came.status, StatusCode::BAD_REQUEST, "{name}: {came:?}");
        assert_eq!(who(&mut browser).await, None, "{name}");
        assert!(!came.text.contains(WORDS) && !came.text.contains("ann-at-acme"), "{name}");
        // What anybody can bring about leaves nothing in the audit.
        if !reason.is_empty() {
            let said = scene.reason().await;
            assert!(said.contains(reason), "{name}: {said}");
        }
    }
    let mut browser = scene.browser();
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn an_answer_counts_once_from_the_browser_that_began() {
    let scene = Scene::new(json!({})).await;
    scene.person("ann@acme.test", "ann-at-acme").await;
    let mut browser = scene.browser();
    let back = scene.go(&mut browser).await;
    let mut other = scene.browser();
    let stolen = come_back(&mut other, &back).await;
    assert_eq!(stolen.status, StatusCode::BAD_REQUEST);
    assert_eq!(who(&mut other).await, None);
    let attempts = browser.attempts.clone();
    assert_eq!(come_back(&mut browser, &back).await.status, StatusCode::SEE_OTHER);
    let mut again = scene.browser();
    again.attempts = attempts;
    let replayed = come_back(&mut again, &back).await;
    assert_eq!(replayed.status, StatusCode::BAD_REQUEST);
    assert_eq!(stolen.text, replayed.text, "one page for all of it");
    assert_eq!(scene.issuer.asked("/token"), 1, "a claim is made before anything is asked");

    // Set up anew in between, the same as it was.
    let mut browser = scene.browser();
    let back = scene.go(&mut browser).await;
    scene.save(json!({})).await;
    assert_eq!(come_back(&mut browser, &back).await.text, stolen.text);
}

#[tokio::test]
async fn a_denial_is_told_as_one() {
    let scene = Scene::new(json!({})).await;
    scene.issuer.set(|knobs| knobs.auto_consent = false);
    let mut browser = scene.browser();
    let going = browser.get("/t/acme/oidc/start").await;
    let denied = format!("{}&go=deny", going.header("location"));
    let back = scene.issuer.walk(&denied.parse().unwrap()).await;
    let came = come_back(&mut browser, &back).await;
    assert_eq!(came.status, StatusCode::BAD_REQUEST);
    assert!(came.text.contains("it was not allowed"), "{came:?}");
}

#[tokio::test]
async fn whoever_is_new_is_added_only_where_that_is_wanted_and_no_address_joins_anybody() {
    let scene = Scene::new(json!({})).await;
    let mut browser = scene.browser();
    let stranger = scene.sign_in(&mut browser).await;
    assert_eq!(stranger.status, StatusCode::BAD_REQUEST);
    assert!(stranger.text.contains("<code>ann-at-acme</code>"), "an admin needs it: {stranger:?}");

    scene.save(json!({ "addsPeople": true })).await;
    scene.issuer.set(|knobs| claim(knobs, "email_verified", json!("false")));
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::BAD_REQUEST);
    scene.issuer.set(|knobs| claim(knobs, "email_verified", json!(true)));
    scene.issuer.set(|knobs| claim(knobs, "email", json!("root@acme.test")));
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(who(&mut browser).await, None, "the address is somebody's");

    scene.issuer.set(|knobs| claim(knobs, "email", json!("ann@acme.test")));
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);
    let me = browser.fetch(http::Method::GET, "/api/me", None).await.json();
    assert_eq!((&me["user"]["email"], &me["role"]), (&json!("ann@acme.test"), &json!("member")));
    // Another address later: the subject is the key.
    scene.issuer.set(|knobs| claim(knobs, "email", json!("ann.new@acme.test")));
    scene.sign_in(&mut browser).await;
    assert_eq!(who(&mut browser).await.as_deref(), Some("ann@acme.test"));
}

#[tokio::test]
async fn a_claim_gives_roles_at_each_sign_in_and_the_last_superadmin_stays() {
    let roles = json!({ "name": "groups", "roles": { "it": "superadmin", "leads": "admin" } });
    let scene = Scene::new(json!({ "addsPeople": true, "roleClaim": roles })).await;
    let role = async |groups: Value| {
        scene.issuer.set(|knobs| claim(knobs, "groups", groups));
        let mut browser = scene.browser();
        assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);
        let me = browser.fetch(http::Method::GET, "/api/me", None).await.json();
        me["role"].as_str().unwrap().to_owned()
    };
    assert_eq!(role(json!(["leads", "x"])).await, "admin");
    assert_eq!(role(json!("it")).await, "superadmin");
    assert_eq!(role(Value::Null).await, "member");
    assert_eq!(role(json!(["it"])).await, "superadmin");
    // The other superadmin goes: now she is the last.
    let owner = scene.world.owner().await;
    sqlx::query("UPDATE users SET role = 'member' WHERE email = 'root@acme.test'")
        .execute(&owner)
        .await
        .unwrap();
    assert_eq!(role(json!(["leads"])).await, "superadmin");
}

#[tokio::test]
async fn a_disabled_person_and_one_of_another_company_stay_outside() {
    let scene = Scene::new(json!({})).await;
    let ann = scene.person("ann@acme.test", "ann-at-acme").await;
    let mut browser = scene.browser();
    let claim_of = json!({ "tenantClaim": { "name": "tid", "value": "acme" } });
    scene.save(claim_of).await;
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(scene.reason().await, "the account is of another company");
    scene.issuer.set(|knobs| claim(knobs, "tid", json!("acme")));
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);

    let path = format!("/api/users/{}", ann.id);
    scene.world.patch(&scene.token, &path, json!({ "status": "disabled" })).await;
    assert_eq!(who(&mut browser).await, None);
    let refused = scene.sign_in(&mut browser).await;
    assert!(refused.text.contains("switched off"), "{refused:?}");
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_found_and_made_up_ones_do_not_make_us_ask() {
    let scene = Scene::new(json!({})).await;
    scene.person("ann@acme.test", "ann-at-acme").await;
    let mut browser = scene.browser();
    scene.sign_in(&mut browser).await;
    assert_eq!(scene.issuer.asked("/keys"), 1);
    scene.issuer.rotate();
    scene.issuer.set(|knobs| knobs.sign = Sign::NewEc);
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scene.issuer.asked("/keys"), 2);
    scene.issuer.set(|knobs| {
        knobs.header.insert("kid".to_owned(), json!("made-up"));
    });
    for _ in 0..3 {
        assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(scene.issuer.asked("/keys"), 2, "at most once a minute");
    scene.issuer.set(|knobs| {
        knobs.header.clear();
        knobs.sign = Sign::Rsa;
    });
    assert_eq!(scene.sign_in(&mut browser).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn without_an_issuer_that_answers_the_page_says_so_and_others_are_not_kept_out() {
    let scene = Scene::new(json!({})).await;
    scene.issuer.set(|knobs| knobs.down = Some(503));
    let page = scene.browser().get("/t/acme/oidc/start").await;
    assert_eq!(page.status, StatusCode::BAD_GATEWAY);
    assert!(page.text.contains("cannot be reached now"), "{page:?}");
    for nowhere in ["/t/nobody/oidc/start", "/t/nobody/oidc/callback?state=x&code=y"] {
        let page = scene.browser().get(nowhere).await;
        assert!(page.status.is_client_error(), "{page:?}");
    }
    scene.issuer.set(|knobs| knobs.down = None);
    let most = usize::try_from(domain::limits::COMPANY_SIGN_INS_NETWORK.default).unwrap();
    for _ in 0..most {
        assert_eq!(scene.browser().get("/t/acme/oidc/start").await.status, StatusCode::SEE_OTHER);
    }
    let full = scene.browser().get("/t/acme/oidc/start").await;
    assert_eq!(full.status, StatusCode::TOO_MANY_REQUESTS);
    let mut elsewhere = scene.browser();
    elsewhere.address = "198.51.100.7";
    assert_eq!(elsewhere.get("/t/acme/oidc/start").await.status, StatusCode::SEE_OTHER);
}
