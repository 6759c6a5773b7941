//! An installation with its history, ready to be measured.

use std::{path::Path, time::Duration};

use crate::{
    callers::Access, database::Database, echo::Echo, installation::Installation, machine,
    plan::Plan, setup,
};

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) access: Access,
    /// With a token of the caller's own.
    pub(crate) own: Access,
    /// Calls before the measured ones.
    pub(crate) history: u32,
    pub(crate) database: Database,
    pub(crate) installation: Installation,
    postgres_pid: u32,
}

/// CPU time so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) ours: Duration,
    pub(crate) postgres: Duration,
}

impl Gateway {
    pub(crate) async fn start(
        plan: &Plan,
        dir: &Path,
        name: &str,
        history: u32,
        echo: &Echo,
    ) -> anyhow::Result<Self> {
        let dir = dir.join(name);
        let installation = tokio::task::block_in_place(|| Installation::start(plan, &dir))?;
        let access = setup::prepare(&installation, echo).await?;
        let database = Database::connect(&installation.postgres_dir(), history).await?;
        // Afterwards: the history is made of the one call before.
        let own = setup::prepare_own(&installation, echo).await?;
        let postgres_pid = installation.postgres_pid()?;
        Ok(Self { access, own, history, database, installation, postgres_pid })
    }

    pub(crate) fn cpu(&self) -> Cpu {
        Cpu {
            ours: machine::cpu(self.installation.pid()),
            postgres: machine::cpu_of_family(self.postgres_pid),
        }
    }

    /// Resident memory of `up`, without its Postgres.
    pub(crate) fn resident_kb(&self) -> anyhow::Result<u32> {
        machine::resident_kb(self.installation.pid())
    }
}
