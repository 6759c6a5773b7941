//! Variables, imports and exports: more places where a secret passes.

use http::Method;
use serde_json::{Value, json};

use super::{HEADER, Journey, VARIABLE};

impl Journey {
    /// Set, refused, used, imported, exported.
    pub(super) async fn variables(&mut self) {
        let path = "/api/tenant/variables/PLANTED";
        for hosts in [json!([]), json!(VARIABLE), json!([VARIABLE]), json!(["127.0.0.1"])] {
            let body = json!({ "value": VARIABLE, "hosts": hosts });
            self.api(Method::PUT, path, body).await;
        }
        let entries = |name: &str, value: &str| {
            json!({ "mcpServers": { name: {
                "url": self.peer.url(), "headers": { "X-Key": value, "X-Variable": "$PLANTED" } } } })
        };
        for (name, body) in [
            ("bad", json!({ "mcpServers": { "bad": { "url": HEADER, "headers": HEADER } } })),
            (
                "bad",
                json!({ "mcpServers": { "bad": { "env": { "A": VARIABLE }, "headers": [HEADER] } } }),
            ),
            ("imported", entries("imported", HEADER)),
        ] {
            let preview = "/api/mcp/servers/import?preview=true";
            self.api(Method::POST, preview, body.clone()).await;
            let (status, answer) = self.api(Method::POST, "/api/mcp/servers/import", body).await;
            if name == "imported" {
                assert_eq!(status, 201, "{answer}");
                let test =
                    format!("/api/mcp/servers/{}/test", answer["items"][0]["id"].as_str().unwrap());
                let (_, asked) = self.api(Method::POST, &test, Value::Null).await;
                let shown = &asked["details"]["confirm"]["configRevision"];
                let confirm = json!({ "confirm": true, "configRevision": shown });
                let (_, tested) = self.api(Method::POST, &test, confirm).await;
                assert_eq!(tested["status"], "ready", "{tested}");
            }
        }
        let sent = self.peer.received("tools/list");
        assert_eq!(sent[0].header("x-variable"), VARIABLE);
        for path in ["/api/mcp/servers/export", "/api/tenant/variables", "/api/mcp/stdio-programs"]
        {
            self.api(Method::GET, path, Value::Null).await;
        }
    }
}
