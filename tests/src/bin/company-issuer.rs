//! `company-issuer`: an OpenID provider that asks people who they are, for `make browser`. It prints
//! `ready http://127.0.0.1:PORT` and serves until it is ended.

use tests::company_issuer::CompanyIssuer;

#[tokio::main]
async fn main() {
    let issuer = CompanyIssuer::start().await;
    issuer.set(|knobs| knobs.auto_consent = false);
    println!("ready {}", issuer.issuer());
    std::future::pending::<()>().await;
}
