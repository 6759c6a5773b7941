//! Servers that are part of the service. Every tenant has them, switched off at first; code supplies all
//! of their configuration, and only their switches and policies are anybody's to set.

use crate::{
    ids::ServerId,
    limits,
    server::{AuthMode, ServerReach, Transport},
};

/// A server of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Also its slug, and the source id of its tools.
    pub id: &'static str,
    pub name: &'static str,
    pub description: &'static str,
    /// MCP tool definitions, each a JSON object: what the server lists, and what is pinned without
    /// asking it.
    pub tools: &'static [&'static str],
}

/// All of this version.
pub const ALL: &[BuiltIn] = &[WHOAMI];

/// Tells whom it is called for.
pub const WHOAMI: BuiltIn = BuiltIn {
    id: "whoami",
    name: "Who am I",
    description: "Tells the person, role, tenant and session that a call is made for.",
    tools: &[r#"{
  "name": "whoami",
  "title": "Who am I",
  "description": "Tells the person, role, tenant and session that this call is made for.",
  "inputSchema": {"type": "object", "properties": {}, "additionalProperties": false},
  "outputSchema": {
    "type": "object",
    "properties": {
      "user": {
        "type": "object",
        "properties": {
          "id": {"type": "string"},
          "email": {"type": "string"},
          "role": {"type": "string", "enum": ["member", "admin", "superadmin"]}
        },
        "required": ["id", "email", "role"]
      },
      "tenant": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "slug": {"type": "string"}},
        "required": ["id", "slug"]
      },
      "session": {"type": ["string", "null"]}
    },
    "required": ["user", "tenant", "session"]
  },
  "annotations": {"readOnlyHint": true, "openWorldHint": false}
}"#],
};

/// The built-in server of this id.
#[must_use]
pub fn find(id: &ServerId) -> Option<&'static BuiltIn> {
    ALL.iter().find(|built_in| built_in.id == id.as_str())
}

impl BuiltIn {
    #[must_use]
    pub fn server_id(&self) -> ServerId {
        ServerId::from(self.id)
    }

    /// Stands where other servers have an address: each process has its own listener for it. Also the
    /// audience of its tokens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("builtin:{}", self.id)
    }

    /// How it is reached, and as whom.
    #[must_use]
    pub fn reach(&self) -> ServerReach {
        ServerReach {
            transport: Transport::Http,
            url: self.url(),
            command: String::new(),
            args: Vec::new(),
            cwd: String::new(),
            auth_mode: AuthMode::Delegation,
            api_key_header: None,
            oauth: None,
        }
    }

    /// Of one tool call.
    #[must_use]
    pub fn timeout(&self) -> std::time::Duration {
        limits::TOOL_TIMEOUT_SECONDS.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::{server::RESERVED_SLUGS, tool::Definition};

    #[test]
    fn no_custom_server_can_have_the_slug_of_a_built_in_one() {
        for built_in in ALL {
            assert!(RESERVED_SLUGS.contains(&built_in.id), "{}", built_in.id);
        }
    }

    #[test]
    fn every_tool_of_ours_is_usable_as_it_is_written() {
        for text in ALL.iter().flat_map(|built_in| built_in.tools) {
            let definition = Definition::parse(text).unwrap();
            assert_eq!(definition.warnings, []);
        }
    }
}
