//! Asks a server for its tools. Done twice, the second run finds nothing new.

use apalis::prelude::{BoxDynError, Data};
use app::Ctx;
use domain::{ids::TenantId, jobs::DiscoverTools};

use super::{Tried, settle};

pub(super) async fn run(job: DiscoverTools, ctx: Data<Ctx>) -> Result<(), BoxDynError> {
    // Superseded or no longer wanted: whoever saw to that asked for another run where one is needed.
    let work = async {
        app::discovery::run(&ctx, job.tenant_id, &job.server_id, job.user_id).await.map(drop)
    };
    Ok(settle(&ctx, &job, work).await?)
}

impl Tried for DiscoverTools {
    fn tenant(&self) -> TenantId {
        self.tenant_id
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn again(&self) -> Self {
        Self { attempt: self.attempt + 1, ..self.clone() }
    }
}
