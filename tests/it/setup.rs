//! `migrate`: from nothing, again, and by several at once.

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use store::{
    Db, StoreError,
    setup::{self, Setup},
};
use tests::world::{World, server};
use url::Url;

/// A database that is dropped in the end.
struct Fresh {
    admin: PgConnection,
    server: String,
    name: String,
}

impl Fresh {
    async fn new() -> Self {
        let server = server().await;
        let options: PgConnectOptions = server.parse().unwrap();
        let admin = options.connect().await;
        let name = format!("setup_{}", uuid::Uuid::new_v4().simple());
        Self { admin: admin.unwrap(), server, name }
    }

    fn url(&self, role: &str) -> String {
        let mut url = Url::parse(&self.server).unwrap();
        url.set_username(role).unwrap();
        url.set_path(&self.name);
        url.into()
    }

    async fn migrate(&self, as_admin: bool) -> Result<(), StoreError> {
        let setup = Setup {
            admin_url: as_admin.then_some(self.server.as_str()),
            owner_url: &self.url(setup::OWNER_ROLE),
            owner_password: None,
            app_password: None,
        };
        setup::migrate(&setup).await
    }

    async fn drop(mut self) {
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut self.admin).await.unwrap();
        self.admin.close().await.unwrap();
    }
}

#[tokio::test]
async fn several_at_once_make_one_installation_and_doing_it_again_changes_nothing() {
    let fresh = Fresh::new().await;
    let (one, other, third) =
        tokio::join!(fresh.migrate(true), fresh.migrate(true), fresh.migrate(true));
    for done in [one, other, third] {
        done.unwrap();
    }
    let db = Db::connect_lazy(&fresh.url(setup::APP_ROLE), 1).unwrap();
    setup::check(&db).await.unwrap();
    fresh.migrate(false).await.unwrap();
    setup::check(&db).await.unwrap();
    db.close().await;
    fresh.drop().await;
}

#[tokio::test]
async fn a_database_that_was_made_by_others_is_taken_over() {
    let mut fresh = Fresh::new().await;
    let statement = format!("CREATE DATABASE {}", fresh.name);
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut fresh.admin).await.unwrap();
    fresh.migrate(true).await.unwrap();
    fresh.drop().await;
}

#[tokio::test]
async fn a_schema_that_lacks_a_migration_is_not_served() {
    let world = World::new().await;
    setup::check(&world.ctx.db).await.unwrap();
    let owner = world.owner().await;
    sqlx::query(
        "DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)",
    )
    .execute(&owner)
    .await
    .unwrap();
    let refused = setup::check(&world.ctx.db).await.unwrap_err();
    assert_eq!(refused.to_string(), "the schema is not at this version: run `bailiwick migrate`");
    let (status, health) = world.get("", "/readyz").await;
    assert_eq!((status.as_u16(), &health["missing"][0]), (503, &refused.to_string().into()));
}

#[tokio::test]
async fn an_empty_database_is_not_served_either() {
    let mut fresh = Fresh::new().await;
    let statement = format!("CREATE DATABASE {}", fresh.name);
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut fresh.admin).await.unwrap();
    let db = Db::connect_lazy(&fresh.url(setup::APP_ROLE), 1).unwrap();
    assert!(matches!(setup::check(&db).await, Err(StoreError::Outdated)));
    db.close().await;
    fresh.drop().await;
}
