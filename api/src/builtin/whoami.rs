//! Tells for whom a call is made, and so that delegation works.

use app::delegation::Delegate;
use domain::builtin::WHOAMI;
use http::request::Parts;
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::json;

#[derive(Debug, Clone, Copy)]
pub(super) struct WhoAmI;

impl ServerHandler for WhoAmI {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(WHOAMI.id, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != WHOAMI.id {
            return Err(ErrorData::invalid_params("there is no such tool", None));
        }
        let parts = context.extensions.get::<Parts>();
        let delegate = parts.and_then(|parts| parts.extensions.get::<Delegate>());
        // The door lets nobody in without one.
        let delegate =
            delegate.ok_or_else(|| ErrorData::internal_error("nobody is known to ask", None))?;
        let subject = delegate.subject;
        let answer = json!({
            "user": { "id": subject.user, "email": delegate.email, "role": delegate.role },
            "tenant": { "id": subject.tenant, "slug": delegate.tenant_slug },
            "session": subject.session,
        });
        Ok(CallToolResponse::Complete(CallToolResult::structured(answer)))
    }
}

/// As they are pinned.
fn tools() -> Vec<Tool> {
    let read = |text: &&str| serde_json::from_str(text).expect("a test reads each of them");
    WHOAMI.tools.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use domain::tool::Definition;

    use super::*;

    #[test]
    fn what_is_listed_is_what_is_pinned() {
        for (tool, text) in tools().into_iter().zip(WHOAMI.tools) {
            let listed = serde_json::to_string(&tool).unwrap();
            assert_eq!(
                Definition::parse(&listed).unwrap().hash,
                Definition::parse(text).unwrap().hash
            );
        }
    }
}
