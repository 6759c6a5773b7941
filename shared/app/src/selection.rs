//! Which servers a session or project may use, and who may say so.

use domain::{
    Caller, Code, Error, Scope,
    ids::{ProjectId, ServerId},
    session::{effective_selection, widens},
};
use store::{Tx, projects::Project};

use crate::tenants;

/// What a session's own choice stands on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inherited {
    tenant: Vec<ServerId>,
    project: Option<Vec<ServerId>>,
}

impl Inherited {
    pub(crate) async fn load(tx: &mut Tx, project: Option<&Project>) -> Result<Self, Error> {
        let tenant = store::tenants::get(tx).await?;
        Ok(Self {
            tenant: tenant.map(|tenant| tenant.enabled_source_ids).unwrap_or_default(),
            project: project.and_then(|project| project.enabled_source_ids.clone()),
        })
    }

    fn with<'a>(&'a self, own: Option<&'a [ServerId]>) -> &'a [ServerId] {
        effective_selection(&self.tenant, self.project.as_deref(), own)
    }
}

/// Refuses a choice that needs an approval which the caller may not give.
///
/// A choice needs one where it reaches beyond what would be inherited, or beyond what was in reach
/// before it: an agent may narrow, and can never take that back.
pub(crate) fn check(
    caller: &Caller,
    before: (&Inherited, Option<&[ServerId]>),
    after: (&Inherited, Option<&[ServerId]>),
    chosen_now: bool,
) -> Result<(), Error> {
    let was = before.0.with(before.1);
    let becomes = after.0.with(after.1);
    let beyond_inherited = chosen_now && after.1.is_some_and(|own| widens(own, after.0.with(None)));
    if !beyond_inherited && !widens(becomes, was) {
        return Ok(());
    }
    caller.require_scope(Scope::Approve)?;
    if becomes.iter().all(|id| was.contains(id) || caller.reach.covers_source(id)) {
        return Ok(());
    }
    Err(Error::new(Code::Denied, "this token does not reach all of these servers"))
}

/// The project that a session is put into: the caller's own and not archived.
pub(crate) async fn project(
    tx: &mut Tx,
    caller: &Caller,
    id: Option<ProjectId>,
) -> Result<Option<Project>, Error> {
    let Some(id) = id else { return Ok(None) };
    let project = store::projects::find(tx, id).await?;
    let project = project.filter(|project| project.owner == caller.user);
    let project = project.ok_or_else(|| Error::not_found("project"))?;
    if project.archived_at.is_some() {
        return Err(Error::new(Code::Conflict, "the project is archived"));
    }
    Ok(Some(project))
}

/// A choice as it is stored; see [`tenants::checked_selection`].
pub(crate) async fn checked(
    tx: &mut Tx,
    chosen: Option<Vec<ServerId>>,
) -> Result<Option<Vec<ServerId>>, Error> {
    match chosen {
        None => Ok(None),
        // The database takes no NUL; nothing with a control character names a server.
        Some(ids) if ids.iter().any(|id| id.as_str().chars().any(char::is_control)) => {
            Err(Error::new(Code::InvalidInput, "a server's id has no control characters"))
        }
        Some(ids) => tenants::checked_selection(tx, ids).await.map(Some),
    }
}
