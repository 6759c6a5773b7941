//! Who we are to an authorization server.

use outbound::oauth::{AuthMethod, Client, Denial, ExposedClient, OAuthFailure};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::{CALLBACK, Scene, callback, step};

fn members(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else { panic!("an object") };
    members
}

impl Scene {
    /// What we ask for where the metadata lists these methods.
    async fn registered_with(&self, methods: Value) -> (Value, Client) {
        self.provider.set(|knobs| {
            knobs.patch_metadata =
                members(json!({"token_endpoint_auth_methods_supported": methods}));
        });
        let found = self.discover().await.unwrap();
        let client = self.register(&found).await.unwrap();
        let asked = self.provider.asked("/register").pop().unwrap();
        (serde_json::from_str(&asked.body).unwrap(), client)
    }

    async fn answered_with(&self, patch: Value) -> Result<Client, OAuthFailure> {
        self.provider.set(|knobs| knobs.patch_registration = members(patch));
        let found = self.discover().await.unwrap();
        self.register(&found).await
    }
}

#[tokio::test]
async fn a_registration_asks_for_exactly_one_callback() {
    let scene = Scene::start().await;
    let (asked, client) = scene.registered_with(json!(["client_secret_basic"])).await;
    assert_eq!(
        asked,
        json!({
            "client_name": "Bailiwick",
            "application_type": "native",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_basic",
            "scope": "mcp:read",
        })
    );
    assert_eq!((client.auth_method, client.expires_at_epoch), (AuthMethod::Basic, None));
    let public = "https://console.example/api/mcp/oauth/callback/custom-1".parse().unwrap();
    let found = scene.discover().await.unwrap();
    scene.oauth.register(&found.server, &public, "Bailiwick", &[]).await.unwrap();
    let asked = scene.provider.asked("/register").pop().unwrap();
    let asked: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!((&asked["application_type"], asked.get("scope")), (&json!("web"), None));
}

#[tokio::test]
async fn a_secret_is_asked_for_where_one_is_taken() {
    let scene = Scene::start().await;
    for (listed, method) in [
        (json!(null), "client_secret_basic"),
        (json!(["private_key_jwt", "client_secret_post"]), "client_secret_post"),
        (json!(["none", "client_secret_basic"]), "client_secret_basic"),
        (json!(["none"]), "none"),
        (json!(["private_key_jwt"]), "none"),
    ] {
        let (asked, _) = scene.registered_with(listed.clone()).await;
        assert_eq!(asked["token_endpoint_auth_method"], method, "{listed}");
    }
}

#[tokio::test]
async fn what_the_registration_answers_counts() {
    let scene = Scene::start().await;
    for (answered, method) in [
        (json!({"token_endpoint_auth_method": "client_secret_post"}), AuthMethod::Post),
        (json!({"token_endpoint_auth_method": "none", "client_secret": null}), AuthMethod::None),
        (json!({"token_endpoint_auth_method": "none"}), AuthMethod::None),
        (json!({}), AuthMethod::Basic),
    ] {
        let client = scene.answered_with(answered.clone()).await.unwrap();
        assert_eq!(client.auth_method, method, "{answered}");
        assert_eq!(client.client_secret.is_some(), method != AuthMethod::None);
        let found = scene.discover().await.unwrap();
        scene.exchange(&found, &client, "alice").await.unwrap();
    }
    // A method that is not named: the first of the metadata that fits.
    scene.provider.set(|knobs| {
        let listed = json!(["none", "client_secret_post", "client_secret_basic"]);
        knobs.patch_metadata = members(json!({"token_endpoint_auth_methods_supported": listed}));
    });
    let client = scene.answered_with(json!({"token_endpoint_auth_method": null})).await.unwrap();
    assert_eq!(client.auth_method, AuthMethod::Post);
}

#[tokio::test]
async fn the_end_of_a_secret_is_known() {
    let scene = Scene::start().await;
    for (answered, end) in [
        (json!(1_900_000_000), Some(1_900_000_000)),
        (json!("1900000000"), Some(1_900_000_000)),
        (json!(0), None),
        (json!(null), None),
        (json!("soon"), None),
    ] {
        let client =
            scene.answered_with(json!({"client_secret_expires_at": answered})).await.unwrap();
        assert_eq!(client.expires_at_epoch, end, "{answered}");
    }
}

#[tokio::test]
async fn a_registration_that_cannot_be_used_is_refused() {
    let scene = Scene::start().await;
    for answered in [
        json!({"client_id": null}),
        json!({"client_id": ""}),
        json!({"token_endpoint_auth_method": "private_key_jwt"}),
        json!({"client_secret": null}),
        json!({"client_secret": ""}),
        json!({"redirect_uris": ["https://evil.test/callback"]}),
    ] {
        let failure = scene.answered_with(answered.clone()).await.unwrap_err();
        assert!(matches!(failure, OAuthFailure::Malformed(_)), "{answered}: {failure:?}");
    }
}

#[tokio::test]
async fn a_server_that_registers_nobody_says_so() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    scene.provider.set(|knobs| knobs.dcr = false);
    let refused = scene.register(&found).await.unwrap_err();
    assert!(matches!(refused, OAuthFailure::Refused(Denial::AccessDenied)), "{refused:?}");
    let found = scene.discover().await.unwrap();
    assert_eq!(step(scene.register(&found).await), "registration_not_offered");
}

#[tokio::test]
async fn a_configured_client_signs_in_as_the_server_wants() {
    let scene = Scene::start().await;
    // Everything that form encoding and Basic could confuse.
    let (id, secret) = ("pre:registered", "s:e+c%r é/t&=");
    for (method, listed) in [
        ("client_secret_basic", json!(["client_secret_basic"])),
        ("client_secret_basic", json!(null)),
        ("client_secret_post", json!(["client_secret_post"])),
        ("client_secret_post", json!(["none", "client_secret_post", "client_secret_basic"])),
    ] {
        scene.provider.preregister(id, Some(secret), method, CALLBACK);
        scene.provider.set(|knobs| {
            knobs.patch_metadata =
                members(json!({"token_endpoint_auth_methods_supported": listed}));
        });
        let found = scene.discover().await.unwrap();
        let client = Client::preregistered(&found.server, id, Some(secret.to_owned().into()));
        scene.exchange(&found, &client, "alice").await.unwrap();
        let sent = scene.provider.asked("/token").pop().unwrap();
        assert_eq!(sent.header("authorization").starts_with("Basic "), method.ends_with("basic"));
        assert_eq!(sent.form.contains_key("client_secret"), method.ends_with("post"));
    }
    scene.provider.preregister("public", None, "none", CALLBACK);
    let found = scene.discover().await.unwrap();
    let client = Client::preregistered(&found.server, "public", None);
    scene.exchange(&found, &client, "alice").await.unwrap();
    let sent = scene.provider.asked("/token").pop().unwrap();
    assert_eq!((sent.field("client_id"), sent.header("authorization")), ("public", ""));
}

#[tokio::test]
async fn a_client_may_be_known_by_its_document() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    let document = "https://console.example/.well-known/bailiwick-client.json".parse().unwrap();
    let client = Client::metadata_document(&document);
    scene.exchange(&found, &client, "alice").await.unwrap();
    let sent = scene.provider.asked("/token").pop().unwrap();
    assert_eq!(sent.field("client_id"), document.as_str());
    assert_eq!(sent.header("authorization"), "");
}

#[tokio::test]
async fn a_client_is_printed_without_its_secret_and_stored_with_it() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    let client = scene.register(&found).await.unwrap();
    let secret = client.client_secret.as_ref().unwrap().expose_secret().to_owned();
    assert!(!format!("{client:?}").contains(&secret));
    let stored = serde_json::to_string(&client.expose()).unwrap();
    assert!(stored.contains(&secret));
    let read: ExposedClient = serde_json::from_str(&stored).unwrap();
    scene.exchange(&found, &Client::from(read), "alice").await.unwrap();
    assert_eq!(callback().as_str(), CALLBACK);
}
