//! Projects: folders of one person's sessions.

use domain::{
    Caller, Code, Error,
    ids::{ProjectId, ServerId},
};
use serde_json::json;
use store::Tx;
pub use store::projects::Project;

use crate::{
    Ctx, audit,
    selection::{self, Inherited},
    sessions::{check_title, unlimited},
};

/// What changes; an outer `None` stays, an inner one inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectChange {
    pub title: Option<String>,
    pub enabled_source_ids: Option<Option<Vec<ServerId>>>,
}

/// Makes a project of the caller's.
///
/// `INVALID_INPUT` for a title that is none and for unknown servers; `DENIED` for servers beyond the
/// tenant's selection without the scope `approve`, and for a token of single sessions.
pub async fn create(
    ctx: &Ctx,
    caller: &Caller,
    title: &str,
    enabled_source_ids: Option<Vec<ServerId>>,
) -> Result<Project, Error> {
    unlimited(caller)?;
    check_title(title)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let chosen = selection::checked(&mut tx, enabled_source_ids).await?;
    let inherited = Inherited::load(&mut tx, None).await?;
    selection::check(caller, (&inherited, None), (&inherited, chosen.as_deref()), true)?;
    let project = Project {
        id: ctx.mint(),
        owner: caller.user,
        title: title.to_owned(),
        enabled_source_ids: chosen,
        created_at: ctx.now(),
        archived_at: None,
    };
    store::projects::insert(&mut tx, &project).await?;
    record(ctx, &mut tx, caller, "project.created", &project).await?;
    tx.commit().await?;
    Ok(project)
}

/// The caller's projects, newest first, archived ones too.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    after: Option<ProjectId>,
    rows: i64,
) -> Result<Vec<Project>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let page = store::projects::list(&mut tx, caller.user, after, rows).await?;
    tx.commit().await?;
    Ok(page)
}

pub async fn get(ctx: &Ctx, caller: &Caller, id: ProjectId) -> Result<Project, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let project = own(caller, store::projects::find(&mut tx, id).await?)?;
    tx.commit().await?;
    Ok(project)
}

/// Changes a project of the caller's; refused as [`create`] is, and with `CONFLICT` when archived.
pub async fn update(
    ctx: &Ctx,
    caller: &Caller,
    id: ProjectId,
    change: ProjectChange,
) -> Result<Project, Error> {
    unlimited(caller)?;
    if let Some(title) = &change.title {
        check_title(title)?;
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    // Whose it is comes before everything that the body could be refused for; servers are locked
    // before projects.
    own(caller, store::projects::find(&mut tx, id).await?)?;
    let chosen = match change.enabled_source_ids {
        Some(chosen) => Some(selection::checked(&mut tx, chosen).await?),
        None => None,
    };
    let before = own(caller, store::projects::lock(&mut tx, id).await?)?;
    if before.archived_at.is_some() {
        return Err(Error::new(Code::Conflict, "the project is archived"));
    }
    let mut project = before.clone();
    if let Some(title) = change.title {
        project.title = title;
    }
    if let Some(chosen) = chosen {
        let inherited = Inherited::load(&mut tx, None).await?;
        let was = before.enabled_source_ids.as_deref();
        selection::check(caller, (&inherited, was), (&inherited, chosen.as_deref()), true)?;
        project.enabled_source_ids = chosen;
    }
    if project != before {
        store::projects::save(&mut tx, &project).await?;
        record(ctx, &mut tx, caller, "project.updated", &project).await?;
    }
    tx.commit().await?;
    Ok(project)
}

/// Archives a project of the caller's, once; its sessions stay as they are.
pub async fn archive(ctx: &Ctx, caller: &Caller, id: ProjectId) -> Result<Project, Error> {
    unlimited(caller)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut project = own(caller, store::projects::lock(&mut tx, id).await?)?;
    if project.archived_at.is_none() {
        project.archived_at = Some(ctx.now());
        store::projects::save(&mut tx, &project).await?;
        record(ctx, &mut tx, caller, "project.archived", &project).await?;
    }
    tx.commit().await?;
    Ok(project)
}

fn own(caller: &Caller, found: Option<Project>) -> Result<Project, Error> {
    found.filter(|project| project.owner == caller.user).ok_or_else(|| Error::not_found("project"))
}

async fn record(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    action: &str,
    project: &Project,
) -> Result<(), Error> {
    let details = json!({ "enabledSourceIds": project.enabled_source_ids });
    audit::record(ctx, tx, caller, action, &project.id.to_string(), details).await
}
