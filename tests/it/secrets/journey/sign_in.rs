//! Passwords and cookies, at the right places and at wrong ones.

use http::Method;
use serde_json::{Value, json};
use tests::{
    browser::{Browser, Seen},
    world::eventually,
};
use tokio::io::AsyncWriteExt;

use super::{Journey, PASSWORD};
use crate::{
    gateway::{as_pairs, modern},
    kill::house::program,
};

const ADMIN: &str = "admin@localhost";
const PAT: &str = "pat@acme.test";

impl Journey {
    /// In by API and page, with questions decided on the page, attempts in vain, another password.
    pub(in crate::secrets) async fn sign_in(&mut self) {
        let mut browser = Browser::at(&self.up.url.parse().unwrap());
        let admin_password = self.house.file("admin-password");
        let login = json!({ "email": PAT, "password": PASSWORD });
        let seen = browser.fetch(Method::POST, "/api/t/default/login", Some(login)).await;
        self.cookies[0] = self.given(&browser, "signing in by the API", &seen, 200);
        let seen = browser.get("/servers").await;
        self.saw("servers of a member", seen);
        // The password that the first start made works.
        let seen = browser.sign_in("default", ADMIN, &admin_password).await;
        self.cookies[1] = self.given(&browser, "signing in by the page", &seen, 303);
        for page in ["/", "/servers", "/questions", "/sign-in", "/t/default/sign-in", "/api/me"] {
            let seen = browser.get(page).await;
            self.saw(page, seen);
        }
        for decision in ["allow_once", "deny", "nonsense", "deny"] {
            self.decide_on_the_page(&mut browser, decision).await;
        }
        self.misplaced(&mut browser.clone()).await;
        self.own_password(&mut browser, &admin_password).await;
        self.in_vain().await;
        self.another_password(&mut browser).await;
        let seen = browser.submit("/sign-out", &[]).await;
        self.saw("signing out", seen);
    }

    async fn decide_on_the_page(&mut self, browser: &mut Browser, decision: &str) {
        let (headers, body) = modern("tools/call", r#"{"name":"mcp__kept__asked"}"#);
        let path = format!("/mcp/{}", self.asking);
        let call = self.request(Method::POST, &self.agent, &path, &as_pairs(&headers), body);
        let call = tokio::spawn(async move { call.send().await.unwrap().text().await.unwrap() });
        let page = eventually("a question", async || {
            let list = browser.get("/questions").await.text;
            let (_, rest) = list.split_once("href=\"/questions/")?;
            Some(format!("/questions/{}", rest.split('"').next().unwrap()))
        })
        .await;
        let mut decisions = vec![decision];
        if decision == "nonsense" {
            // The same call waits until somebody decides.
            decisions.push("deny");
        }
        for decision in decisions {
            let seen = browser.get(&page).await;
            self.saw("a question", seen);
            let seen = browser.submit(&page, &[("decision", decision)]).await;
            self.saw(decision, seen);
        }
        let seen = browser.submit(&page, &[("decision", "allow_once")]).await;
        assert_eq!(seen.status, 409, "{seen:?}");
        self.saw("a late answer", seen);
        self.answers.push(("a call that was decided on the page".to_owned(), call.await.unwrap()));
    }

    /// Secrets where they do not belong.
    async fn misplaced(&mut self, browser: &mut Browser) {
        let cookie = self.cookies[1].clone();
        for secret in [PASSWORD.to_owned(), cookie.clone()] {
            let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
            let path = encoded.replace('+', "%20");
            for place in [
                format!("/t/{path}/sign-in"),
                format!("/t/default/sign-in?next={encoded}&password={encoded}"),
                format!("/questions/{path}"),
                format!("/questions?after={encoded}"),
                format!("/{path}"),
            ] {
                let seen = browser.get(&place).await;
                self.saw("a secret in a path", seen);
            }
            let mut stranger = Browser { cookie: None, ..browser.clone() };
            let seen = stranger.sign_in(&path, &secret, &secret).await;
            self.saw("a secret in every field", seen);
            let form = json!({ "email": secret, "password": [secret] });
            let seen = stranger.fetch(Method::POST, "/api/t/default/login", Some(form)).await;
            self.saw("a secret in a list", seen);
            let fields = [("decision", secret.as_str())];
            let seen =
                browser.submit("/questions/00000000-0000-7000-8000-000000000001", &fields).await;
            self.saw("a secret as a decision", seen);
        }
        // As a token, in another cookie, twice.
        let name = browser.cookie.clone().unwrap();
        for sent in [format!("other={cookie}"), format!("{name}; {name}"), format!("{name}x")] {
            let mut odd = Browser { cookie: Some(sent), ..browser.clone() };
            let seen = odd.get("/api/me").await;
            assert_eq!(seen.status, 401, "{seen:?}");
            self.saw("an odd cookie", seen);
        }
        let request = browser.request(Method::GET, "/api/me").bearer_auth(&cookie);
        let seen = browser.send(request).await;
        assert_eq!(seen.status, 401);
        self.saw("a cookie as a token", seen);
        let foreign =
            browser.request(Method::POST, "/api/sessions").header("origin", "https://evil.test");
        let seen = browser.send(foreign.json(&json!({}))).await;
        assert_eq!(seen.status, 403);
        self.saw("another site's request", seen);
    }

    /// Until it has to wait.
    async fn in_vain(&mut self) {
        let mut stranger = Browser::at(&self.up.url.parse().unwrap());
        let mut statuses = Vec::new();
        for number in 0..8 {
            let seen = stranger.sign_in("default", ADMIN, &format!("{PASSWORD}{number}")).await;
            statuses.push(seen.status.as_u16());
            self.saw("a wrong password", seen);
        }
        assert!(statuses.contains(&401), "{statuses:?}");
    }

    /// By the API and the page, in vain and not.
    async fn own_password(&mut self, browser: &mut Browser, present: &str) {
        let mine = format!("{PASSWORD} of mine");
        for (current, new, status) in [
            (PASSWORD, mine.as_str(), 422),
            (present, "short", 422),
            (present, mine.as_str(), 204),
            (mine.as_str(), present, 204),
        ] {
            let form = json!({ "current": current, "new": new });
            let seen = browser.fetch(Method::PUT, "/api/me/password", Some(form)).await;
            assert_eq!(seen.status, status, "{seen:?}");
            self.saw("another password of one's own", seen);
        }
        for (again, status) in [("something else", 422), (mine.as_str(), 303)] {
            let fields = [("current", present), ("new", &mine), ("again", again)];
            let seen = browser.submit("/me/password", &fields).await;
            assert_eq!(seen.status, status, "{seen:?}");
            self.saw("another password by the page", seen);
        }
    }

    /// The operator sets it; sessions, and tokens that can permit or configure, end with the old one.
    async fn another_password(&mut self, browser: &mut Browser) {
        let new = format!("{PASSWORD} and more");
        let arguments = ["user", "password", ADMIN, "--password-stdin", "--json", "--data-dir"];
        let mut command = program(&arguments);
        command.arg(self.house.data()).stdin(std::process::Stdio::piped());
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("{new}\n").as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&said["email"], &said["tenant"]), (&json!(ADMIN), &json!("default")));
        self.answers.push(("the command".to_owned(), said.to_string()));
        let seen = browser.get("/api/me").await;
        assert_eq!(seen.status, 401, "{seen:?}");
        self.saw("a session of the old password", seen);
        let (status, _) = self.send(Method::GET, &self.admin, "/api/me", "").await;
        assert_eq!(status, 401);
        let scopes = "api:read,api:write,approve,admin";
        let mut command = program(&["token", "create", "--user", ADMIN, "--scopes", scopes]);
        let output = command.arg("--data-dir").arg(self.house.data()).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        said.trim().clone_into(&mut self.admin);
    }

    /// The value of the cookie, which this answer alone may hold.
    fn given(&mut self, browser: &Browser, what: &str, seen: &Seen, status: u16) -> String {
        assert_eq!(seen.status.as_u16(), status, "{seen:?}");
        let mut rest = seen.clone();
        rest.headers.remove("set-cookie");
        self.saw(what, rest);
        let cookie = browser.cookie.clone().unwrap();
        cookie.split_once('=').unwrap().1.to_owned()
    }

    fn saw(&mut self, what: &str, seen: Seen) {
        let Seen { status, headers, text } = seen;
        let what = format!("{what} ({status})");
        self.answers.push((what, format!("{headers:?}\n{text}")));
    }
}
