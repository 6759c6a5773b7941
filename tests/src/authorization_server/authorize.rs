//! The authorization endpoint: what it checks, consent, and the way back.

use std::collections::HashMap;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use url::{Url, form_urlencoded};

use super::{
    Code, Granted, State, WORDS, lock,
    serve::{page, respond},
    words,
};

pub(super) fn authorize(state: &State, query: &HashMap<String, String>) -> Response<Body> {
    let knobs = state.knobs();
    let given = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let client = lock(&state.kept).clients.get(given("client_id")).cloned();
    let redirect_uri = given("redirect_uri");
    let by_document = knobs.cimd && given("client_id").starts_with("https://");
    let known = match &client {
        Some(client) => client.redirect_uris.iter().any(|uri| uri == redirect_uri),
        None => by_document,
    };
    let Some(mut back) = redirect_uri.parse::<Url>().ok().filter(|_| known) else {
        // Nobody is sent to an address that the client did not register.
        return page(knobs.unknown_client_status, WORDS);
    };
    let mut refuse = |code: &str| {
        back.query_pairs_mut()
            .append_pair("error", code)
            .append_pair("error_description", WORDS)
            .append_pair("state", given("state"));
        if !knobs.omit_iss {
            let iss = knobs.wrong_iss.clone().unwrap_or_else(|| state.issuer());
            back.query_pairs_mut().append_pair("iss", &iss);
        }
        redirect(&back)
    };
    if given("response_type") != "code" || given("code_challenge_method") != "S256" {
        return refuse("invalid_request");
    }
    if given("code_challenge").len() != 43 || given("state").is_empty() {
        return refuse("invalid_request");
    }
    let resource = given("resource");
    let foreign =
        knobs.resources.as_ref().is_some_and(|known| !known.iter().any(|r| r == resource));
    if resource.is_empty() && knobs.require_resource || !resource.is_empty() && foreign {
        return refuse("invalid_target");
    }
    let asked = match given("scope") {
        "" => words(&knobs.default_scope),
        scope => words(scope),
    };
    let registered = client.and_then(|client| client.scope).filter(|_| knobs.keep_registered_scope);
    if registered.is_some_and(|all| asked.iter().any(|scope| !words(&all).contains(scope))) {
        return refuse("invalid_scope");
    }
    let button = given("go");
    if button == "deny" {
        return refuse("access_denied");
    }
    if !knobs.auto_consent && button != "allow" {
        return consent(query);
    }
    let scopes = match knobs.grant_scope {
        Some(granted) => asked.into_iter().filter(|scope| granted.contains(scope)).collect(),
        None => asked,
    };
    let subject = match given("login_hint") {
        "" => knobs.user.clone(),
        hint => hint.to_owned(),
    };
    let granted = Granted {
        subject,
        audience: resource.to_owned(),
        client: given("client_id").to_owned(),
        scopes,
    };
    let code = state.secret("code");
    let kept = Code {
        granted,
        redirect_uri: redirect_uri.to_owned(),
        challenge: given("code_challenge").to_owned(),
        family: state.number(),
        used: false,
    };
    lock(&state.kept).codes.insert(code.clone(), kept);
    back.query_pairs_mut().append_pair("code", &code).append_pair("state", given("state"));
    if !knobs.omit_iss {
        let iss = knobs.wrong_iss.clone().unwrap_or_else(|| state.issuer());
        back.query_pairs_mut().append_pair("iss", &iss);
    }
    redirect(&back)
}

fn consent(query: &HashMap<String, String>) -> Response<Body> {
    let link = |button: &str| {
        let mut again = form_urlencoded::Serializer::new(String::new());
        again.extend_pairs(query.iter().filter(|(name, _)| *name != "go"));
        let query = again.append_pair("go", button).finish().replace('&', "&amp;");
        format!(r#"<a id="{button}" href="?{query}">{button}</a>"#)
    };
    let (allow, deny) = (link("allow"), link("deny"));
    respond(200, "text/html", format!("<title>Consent</title><h1>Consent</h1>{allow} {deny}"))
}

fn redirect(to: &Url) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(to.as_str()).unwrap();
    response.headers_mut().insert(header::LOCATION, to);
    response
}
