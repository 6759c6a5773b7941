//! From the name of an origin to the addresses that may be connected to.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::egress::{Destination, EgressRules, Refused};

/// Who answers for names. Asked once for each new connection: what it answers is judged, and connected to.
pub trait Names: fmt::Debug + Send + Sync {
    fn addresses<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of this machine.
#[derive(Debug)]
pub struct System;

impl Names for System {
    fn addresses<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Resolves the one name of an origin and lets judged addresses through.
pub(super) struct Judge {
    pub(super) rules: Arc<EgressRules>,
    pub(super) names: Arc<dyn Names>,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) destination: Destination,
}

impl Resolve for Judge {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { rules, names, host, port, destination } = self;
        let (rules, names) = (Arc::clone(rules), Arc::clone(names));
        let (host, port, destination) = (host.clone(), *port, destination.clone());
        Box::pin(async move {
            if !name.as_str().eq_ignore_ascii_case(&host) {
                return Err(Refused::Form.into());
            }
            let found = names.addresses(name.as_str(), port).await?;
            let mut refused = Refused::NoAddress;
            let mut reachable: Vec<SocketAddr> = Vec::new();
            for address in found {
                match rules.check_address(address, &host, &destination) {
                    Ok(()) => reachable.push(address),
                    // A name that leads to us, or to what nobody may reach, is no honest name: none
                    // of its addresses is used.
                    Err(why @ (Refused::Ours | Refused::Forbidden)) => return Err(why.into()),
                    Err(why) => refused = why,
                }
            }
            if reachable.is_empty() {
                return Err(refused.into());
            }
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
}
