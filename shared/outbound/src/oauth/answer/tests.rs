use http::{HeaderMap, HeaderValue};

use super::*;

fn read(status: u16, kind: &str, body: &str) -> Result<(u16, String), OAuthFailure> {
    let answered = Answered {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::from_iter([(
            header::CONTENT_TYPE,
            HeaderValue::from_str(kind).unwrap(),
        )]),
        body: body.to_owned().into(),
    };
    let response = canonical(&answered)?;
    let status = response.status().as_u16();
    Ok((status, String::from_utf8(response.into_body()).unwrap()))
}

fn json(body: &str) -> String {
    read(200, "application/json", body).unwrap().1
}

#[test]
fn a_life_is_read_from_numbers_and_numeric_strings_and_is_else_unknown() {
    let with = |life: &str| json(&format!(r#"{{"access_token":"a","expires_in":{life}}}"#));
    let read = |seconds: u64| {
        format!(r#"{{"token_type":"bearer","access_token":"a","expires_in":{seconds}}}"#)
    };
    for (life, seconds) in [
        ("60", 60),
        (r#""5250""#, 5250),
        (r#"" 60 ""#, 60),
        ("3600.0", 3600),
        ("3599.7", 3599),
        ("315360001", 315_360_000),
        ("1e300", 315_360_000),
        ("18446744073709551616", 315_360_000),
        (r#""99999999999999999999""#, 315_360_000),
    ] {
        assert_eq!(with(life), read(seconds), "{life}");
    }
    for unknown in
        ["0", "-1", r#""""#, r#""soon""#, r#""inf""#, r#""NaN""#, "null", "[60]", r#""-60""#]
    {
        assert_eq!(with(unknown), r#"{"token_type":"bearer","access_token":"a"}"#, "{unknown}");
    }
}

#[test]
fn scopes_are_separated_by_spaces_commas_or_stand_in_a_list() {
    for scopes in [r#""a b""#, r#""a,b""#, r#""a, b ""#, r#"["a","b"]"#] {
        let body = json(&format!(r#"{{"access_token":"t","scope":{scopes}}}"#));
        assert!(body.ends_with(r#""scope":"a b"}"#), "{scopes}: {body}");
    }
    for none in [r#""""#, r#""  ""#, "null", "[]", "7"] {
        let body = json(&format!(r#"{{"access_token":"t","scope":{none}}}"#));
        assert!(!body.contains("scope"), "{none}: {body}");
    }
}

#[test]
fn an_error_is_one_whatever_the_status_and_its_words_are_left_out() {
    for (body, code) in [
        (r#"{"error":"invalid_grant","error_description":"s3cret"}"#, "invalid_grant"),
        (r#"{"ok":false,"error":"invalid_code"}"#, "invalid_code"),
        (r#"{"ok":false}"#, "other"),
        (r#"{"error":{"code":"invalid_client","message":"s3cret"}}"#, "invalid_client"),
        (r#"{"error":{"message":"s3cret"},"access_token":"a"}"#, "other"),
    ] {
        for status in [200, 400, 401] {
            let (status, read) = read(status, "application/json", body).unwrap();
            assert_eq!((status, read), (400, format!(r#"{{"error":"{code}"}}"#)), "{body}");
        }
    }
    let form = read(200, "application/x-www-form-urlencoded", "error=bad_verification_code&x=1");
    assert_eq!(form.unwrap(), (400, r#"{"error":"bad_verification_code"}"#.to_owned()));
    assert!(json(r#"{"error":null,"access_token":"a"}"#).contains("access_token"));
    assert!(json(r#"{"error":"","access_token":"a"}"#).contains("access_token"));
}

#[test]
fn a_form_is_read_like_json() {
    let expected =
        r#"{"token_type":"bearer","access_token":"gho_1","expires_in":60,"scope":"repo user"}"#;
    let form = "access_token=gho_1&expires_in=60&scope=repo%2Cuser&token_type=bearer";
    for kind in ["application/x-www-form-urlencoded; charset=utf-8", "text/plain", ""] {
        assert_eq!(read(200, kind, form).unwrap().1, expected, "{kind}");
    }
    assert!(matches!(read(200, "text/html", form), Err(OAuthFailure::Malformed(_))));
}

#[test]
fn a_type_that_needs_a_proof_is_refused_and_other_words_mean_bearer() {
    for kind in [r#""Bearer""#, r#""BEARER""#, r#""user""#, r#""bot""#, r#""""#, "null", "7"] {
        let body = json(&format!(r#"{{"access_token":"t","token_type":{kind}}}"#));
        assert_eq!(body, r#"{"token_type":"bearer","access_token":"t"}"#, "{kind}");
    }
    for kind in ["DPoP", "dpop", "mac", "PoP", "N_A"] {
        let body = format!(r#"{{"access_token":"t","token_type":"{kind}"}}"#);
        let read = read(200, "application/json", &body);
        assert!(matches!(read, Err(OAuthFailure::Malformed(_))), "{kind}");
    }
}

#[test]
fn a_token_one_level_deeper_is_found_and_none_is_no_success() {
    let slack = r#"{"ok":true,"app_id":"A1","authed_user":{"id":"U1","scope":"chat:write,users:read","access_token":"xoxp-1","token_type":"user","refresh_token":"xoxe-1","expires_in":43200}}"#;
    assert_eq!(
        json(slack),
        r#"{"token_type":"bearer","access_token":"xoxp-1","refresh_token":"xoxe-1","expires_in":43200,"scope":"chat:write users:read"}"#
    );
    for none in ["{}", r#"{"access_token":7}"#, r#"{"authed_user":{}}"#, "[]", "", "<html>"] {
        let read = read(200, "application/json", none);
        assert!(matches!(read, Err(OAuthFailure::Malformed(_))), "{none}");
    }
}

#[test]
fn a_status_without_a_code_says_nothing_about_the_grant() {
    for status in [302, 400, 401, 403, 404, 422] {
        let read = read(status, "text/html", "<h1>no</h1>");
        assert!(matches!(read, Err(OAuthFailure::Refused(Denial::Other))), "{status}");
    }
    for (status, body) in [
        (500, r#"{"error":"invalid_grant"}"#),
        (503, ""),
        (429, r#"{"error":"slow_down"}"#),
        (400, r#"{"error":"temporarily_unavailable"}"#),
        (200, r#"{"error":"server_error"}"#),
    ] {
        let read = read(status, "application/json", body);
        assert!(matches!(read, Err(OAuthFailure::Unavailable { .. })), "{status} {body}");
    }
}
