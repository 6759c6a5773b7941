//! The server as rmcp sees it.

#![expect(deprecated, reason = "logging and resource subscriptions of the older era are tried too")]

use std::{
    borrow::Cow,
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
        GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
        ResourceUpdatedNotificationParam, ServerConfig, SetLevelRequestParams,
        SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{
    catalogue::{self, WATCHED, complete, read, text},
    rounds::{self, Round, States},
    tools,
};

/// What can be told to whoever listens.
#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
    Watched,
}

/// One session of an older client, or all requests of clients of 2026-07-28.
#[derive(Debug)]
pub struct Peer {
    versions: &'static [ProtocolVersion],
    changes: broadcast::Sender<Change>,
    states: Arc<States>,
    /// What this session subscribed to.
    watched: Mutex<HashSet<String>>,
    /// What changes from the moment on that a client is told that it listens.
    heard: Mutex<Option<broadcast::Receiver<Change>>>,
}

impl Peer {
    pub(super) fn new(versions: &'static [ProtocolVersion]) -> Self {
        let (changes, _) = broadcast::channel(16);
        let (states, watched, heard) = Default::default();
        Self { versions, changes, states, watched, heard }
    }

    pub(super) fn in_a_session(&self) -> Self {
        let (changes, states) = (self.changes.clone(), Arc::clone(&self.states));
        Self { changes, states, ..Self::new(self.versions) }
    }

    /// Tells it: a client of 2026-07-28 on the streams that listen, an older one in its session.
    async fn tell(&self, change: Change, context: &RequestContext<RoleServer>) -> CallToolResponse {
        let newer = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if newer {
            // Nobody listens: nobody is told.
            let _ = self.changes.send(change);
        } else {
            let peer = &context.peer;
            let _ = match change {
                Change::Tools => peer.notify_tool_list_changed().await,
                Change::Prompts => peer.notify_prompt_list_changed().await,
                Change::Watched if !self.is_watched() => Ok(()),
                Change::Watched => {
                    let which = ResourceUpdatedNotificationParam::new(WATCHED);
                    peer.notify_resource_updated(which).await
                }
            };
        }
        CallToolResponse::Complete(complete(json!({ "content": [text("told")] })))
    }

    fn is_watched(&self) -> bool {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).contains(WATCHED)
    }
}

impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "logging": {},
            "completions": {},
        });
        ServerConfig::new(read(capabilities))
            .with_server_info(Implementation::new("conformance-peer", env!("CARGO_PKG_VERSION")))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.versions)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(catalogue::tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalogue::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            "test_trigger_tool_change" => return Ok(self.tell(Change::Tools, &context).await),
            "test_trigger_prompt_change" => return Ok(self.tell(Change::Prompts, &context).await),
            "test_trigger_resource_change" => {
                return Ok(self.tell(Change::Watched, &context).await);
            }
            _ => {}
        }
        let round = Round {
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
            capabilities: context.client_capabilities(),
        };
        if let Some(answer) = rounds::tool(&request.name, &round, &self.states) {
            return answer;
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        tools::call(&request.name, &arguments, &context).await.map(CallToolResponse::Complete)
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(catalogue::resources()))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(catalogue::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        catalogue::resource(&request.uri).map(ReadResourceResponse::Complete)
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(catalogue::prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            let round = Round {
                responses: request.input_responses.as_ref(),
                state: request.request_state.as_deref(),
                capabilities: context.client_capabilities(),
            };
            return Ok(rounds::prompt(&round));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        catalogue::prompt(&request.name, &arguments).map(GetPromptResponse::Complete)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let words: Vec<_> = ["paris", "park", "party"]
            .into_iter()
            .filter(|word| word.starts_with(&request.argument.value))
            .collect();
        let total = words.len();
        Ok(complete(json!({ "completion": { "values": words, "total": total, "hasMore": false } })))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // The tools log one line at most each time, at a level that all of them ask for.
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        // The acknowledgement goes out before `listen` begins.
        let heard = self.changes.subscribe();
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(heard);
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut changes = heard.unwrap_or_else(|| self.changes.subscribe());
        let (accepted, sink) = (context.accepted().clone(), context.sink());
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let Ok(change) = change else { continue };
            let watched = accepted.resource_subscriptions.as_deref().unwrap_or_default();
            let told = match change {
                Change::Tools if accepted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Change::Prompts if accepted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Change::Watched if watched.iter().any(|uri| uri == WATCHED) => {
                    sink.notify_resource_updated(WATCHED).await
                }
                _ => continue,
            };
            if told.is_err() {
                return Ok(());
            }
        }
    }
}
