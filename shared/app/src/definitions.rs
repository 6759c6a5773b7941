//! Tool definitions as they are used: compiled, and as listed. Each is made once per process.

use std::sync::Arc;

use domain::{
    Code, Error,
    ids::{ServerId, TenantId, ToolId},
    json::Sha256Digest,
    limits,
    schema::Schema,
    tool::{Definition, ToolProblem, listed},
};

use serde_json::value::RawValue;

use crate::Ctx;

/// The schemas of one definition.
#[derive(Debug)]
pub struct Validators {
    pub input: Schema,
    /// `None`: the tool has none, or one that cannot be enforced.
    pub output: Option<Schema>,
    /// The tool is listed with an output schema: clients check structured content against it.
    pub promises_output: bool,
    /// The JSON of the input schema, for the upstream client.
    pub input_schema: Arc<RawValue>,
}

/// The cache of one process. Equal definitions share an entry over all tenants: it holds nothing but
/// what the hash covers.
#[derive(Debug, Clone)]
pub struct DefinitionCache {
    compiled: moka::future::Cache<Sha256Digest, Arc<Validators>>,
    /// By hash and agent name.
    listed: moka::sync::Cache<(Sha256Digest, String), Arc<RawValue>>,
}

impl Default for DefinitionCache {
    fn default() -> Self {
        Self {
            compiled: moka::future::Cache::new(limits::VALIDATOR_CACHE.default),
            listed: moka::sync::Cache::new(limits::VALIDATOR_CACHE.default),
        }
    }
}

impl DefinitionCache {
    /// The definition `text` with that hash under an agent's name; an error where it cannot be used.
    /// Blocks for as long as compiling its schemas takes, the first time.
    pub(crate) fn listed(
        &self,
        hash: Sha256Digest,
        agent_name: &str,
        text: &str,
    ) -> Result<Arc<RawValue>, ToolProblem> {
        let key = (hash, agent_name.to_owned());
        if let Some(found) = self.listed.get(&key) {
            return Ok(found);
        }
        let definition = Definition::parse(text).map_err(|unusable| unusable.problem)?;
        let listed: Arc<RawValue> = listed(&definition, agent_name).into();
        self.listed.insert(key, Arc::clone(&listed));
        Ok(listed)
    }

    /// The schemas of the tool as it was approved. `TOOL_CHANGED` where that is no longer the
    /// definition with this hash.
    pub(crate) async fn validators(
        &self,
        ctx: &Ctx,
        tenant: TenantId,
        server: &ServerId,
        tool: &ToolId,
        hash: Sha256Digest,
    ) -> Result<Arc<Validators>, Error> {
        if let Some(found) = self.compiled.get(&hash).await {
            return Ok(found);
        }
        let changed = || Error::new(Code::ToolChanged, "the tool's definition changed just now");
        let mut tx = ctx.begin(tenant).await?;
        let stored = store::calls::definition(&mut tx, server, tool).await?;
        tx.commit().await?;
        let (stored_hash, text) = stored.ok_or_else(changed)?;
        if stored_hash != hash {
            return Err(changed());
        }
        // Compiling may take a while for a large schema: off the async threads.
        let compiled = tokio::task::spawn_blocking(move || compile(&text))
            .await
            .map_err(Error::internal)??;
        let compiled = Arc::new(compiled);
        self.compiled.insert(hash, Arc::clone(&compiled)).await;
        Ok(compiled)
    }
}

fn compile(text: &str) -> Result<Validators, Error> {
    let unusable = |words: String| {
        Error::new(Code::ServerMisconfigured, "the tool's schema cannot be used").because(words)
    };
    let definition = Definition::parse(text)
        .map_err(|unusable_tool| unusable(unusable_tool.problem.to_string()))?;
    let (input, _) = Schema::compile(&definition.input_schema)
        .map_err(|problem| unusable(problem.to_string()))?;
    let promises_output = definition.output_schema.is_some();
    let output = definition
        .output_schema
        .as_deref()
        .and_then(|schema| Schema::compile(schema).ok())
        .map(|(schema, _)| schema);
    let input_schema = RawValue::from_string(definition.input_schema)
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Validators { input, output, promises_output, input_schema: input_schema.into() })
}
