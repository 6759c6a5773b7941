//! Tokens for a server of ours, which nobody but it may see.

use http::Method;
use serde_json::{Value, json};

use super::Journey;
use crate::gateway::{as_pairs, modern};

impl Journey {
    /// Called as two sessions, tried, tested, refused.
    pub(super) async fn delegation(&mut self) {
        let whoami = "/api/mcp/servers/whoami";
        self.api(Method::PUT, &format!("{whoami}/status"), json!({ "enabled": true })).await;
        self.api(Method::POST, &format!("{whoami}/test"), Value::Null).await;
        self.api(Method::POST, &format!("{whoami}/tools/refresh"), Value::Null).await;
        let form =
            json!({ "title": "w", "enabledSourceIds": ["whoami"], "approvalMode": "always_allow" });
        let (_, session) = self.api(Method::POST, "/api/sessions", form).await;
        let session = session["id"].as_str().unwrap();
        let trial = json!({ "sessionId": session, "toolName": "whoami", "input": {} });
        self.api(Method::POST, &format!("{whoami}/inspect"), trial).await;
        for arguments in ["{}", r#"{"no":"such argument"}"#] {
            let params = format!(r#"{{"name":"mcp__whoami__whoami","arguments":{arguments}}}"#);
            let (headers, body) = modern("tools/call", &params);
            let path = format!("/mcp/{session}");
            let call = self.request(Method::POST, &self.agent, &path, &as_pairs(&headers), body);
            let (_, all, _) = super::whole(call).await;
            assert!(arguments != "{}" || all.contains("admin@localhost"), "{all}");
            self.answers.push((format!("whoami with {arguments}"), all));
        }
        for path in ["events", "mcp/invocations", "permission-authorizations"] {
            self.api(Method::GET, &format!("/api/sessions/{session}/{path}"), Value::Null).await;
        }
    }
}
