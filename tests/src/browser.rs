//! A browser as far as our pages see one: its cookies, and what it says of where a form came from.

use http::Method;
use reqwest::{RequestBuilder, StatusCode, header::HeaderMap, redirect::Policy};
use serde_json::Value;
use url::Url;

/// Neither follows redirects nor runs anything.
#[derive(Debug, Clone)]
pub struct Browser {
    pub client: reqwest::Client,
    pub url: Url,
    /// `name=value` as it is sent.
    pub cookie: Option<String>,
    /// The same of sign-ins at providers that were begun.
    pub attempts: Vec<String>,
    /// Its address, as the proxy before us says.
    pub address: &'static str,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Seen {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Seen {
    /// The text of a header; empty where it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Browser {
    #[must_use]
    pub fn at(url: &Url) -> Self {
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none());
        let client = client.build().unwrap();
        Self { client, url: url.clone(), cookie: None, attempts: Vec::new(), address: "192.0.2.1" }
    }

    pub async fn get(&mut self, path: &str) -> Seen {
        let request = self.request(Method::GET, path).header("sec-fetch-site", "none");
        self.send(request).await
    }

    /// Sends a form of a page of ours.
    pub async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Seen {
        let body: String =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self
            .with_our_origin(self.request(Method::POST, path))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        self.send(request).await
    }

    /// Signs in by the page of the tenant.
    pub async fn sign_in(&mut self, tenant: &str, email: &str, password: &str) -> Seen {
        let fields = [("email", email), ("password", password)];
        self.submit(&format!("/t/{tenant}/sign-in"), &fields).await
    }

    /// A request of a page's own code.
    pub async fn fetch(&mut self, method: Method, path: &str, body: Option<Value>) -> Seen {
        let mut request = self.with_our_origin(self.request(method, path));
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.send(request).await
    }

    /// With cookie and address; nothing is said of where it comes from.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.url.join(path).unwrap());
        let request = request.header("x-forwarded-for", self.address);
        let request = request.header("accept", "text/html,application/json;q=0.9,*/*;q=0.8");
        let cookies: Vec<&str> =
            self.cookie.iter().chain(&self.attempts).map(String::as_str).collect();
        if cookies.is_empty() { request } else { request.header("cookie", cookies.join("; ")) }
    }

    fn with_our_origin(&self, request: RequestBuilder) -> RequestBuilder {
        let origin = self.url.origin().ascii_serialization();
        request.header("origin", origin).header("sec-fetch-site", "same-origin")
    }

    /// Keeps or drops cookies as the answer says.
    pub async fn send(&mut self, request: RequestBuilder) -> Seen {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        for set in headers.get_all("set-cookie") {
            let set = set.to_str().unwrap();
            let pair = set.split(';').next().unwrap();
            let kept = (!set.contains("Max-Age=0")).then(|| pair.to_owned());
            if pair.starts_with("blw-oauth-") {
                let name = pair.split('=').next().unwrap().to_owned() + "=";
                self.attempts.retain(|attempt| !attempt.starts_with(&name));
                self.attempts.extend(kept);
            } else {
                self.cookie = kept;
            }
        }
        Seen { status, headers, text }
    }
}
