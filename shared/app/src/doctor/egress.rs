//! Whether what the operator lets through is what was meant.

use std::net::IpAddr;

use ipnet::IpNet;
use outbound::egress::AllowRule;

use super::{Finding, named};

const WHAT: &str = "egress";

/// Judges the list of `egress_allow`. `public`: others than this machine reach the service.
#[must_use]
pub fn egress(rules: &[AllowRule], public: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let listed = |is: &dyn Fn(&AllowRule) -> bool| -> Vec<String> {
        rules.iter().filter(|rule| is(rule)).map(shown).collect()
    };
    let wide = listed(&is_wide);
    if !wide.is_empty() {
        let found = format!("{} lets every private network through", named(&wide));
        let mend = "list the networks and hosts of your servers in egress_allow, nothing wider";
        findings.push(Finding::warn(WHAT, found, mend));
    }
    let useless = listed(&|rule| !is_wide(rule) && is_refused_anyway(rule));
    if !useless.is_empty() {
        let found = format!("{} is never reached, listed or not", named(&useless));
        let mend = "take it out of egress_allow: metadata, link-local and multicast addresses stay refused";
        findings.push(Finding::warn(WHAT, found, mend));
    }
    let loopback = listed(&|rule| !is_wide(rule) && is_loopback(rule));
    if public && !loopback.is_empty() {
        let found = format!("{} lets servers of a tenant be this machine itself", named(&loopback));
        let mend = "unless MCP servers run on this machine, take it out of egress_allow";
        findings.push(Finding::warn(WHAT, found, mend));
    }
    if findings.is_empty() {
        let found = match rules {
            [] => "public addresses only".to_owned(),
            rules => format!(
                "beyond public addresses: {}",
                named(&rules.iter().map(shown).collect::<Vec<_>>())
            ),
        };
        findings.push(Finding::ok(WHAT, found));
    }
    findings
}

fn shown(rule: &AllowRule) -> String {
    match rule {
        AllowRule::Network(network) => network.to_string(),
        AllowRule::Host(name) => name.clone(),
    }
}

/// Wider than any private network of RFC 1918 or RFC 4193.
fn is_wide(rule: &AllowRule) -> bool {
    match rule {
        AllowRule::Network(IpNet::V4(network)) => network.prefix_len() < 8,
        AllowRule::Network(IpNet::V6(network)) => network.prefix_len() < 7,
        AllowRule::Host(_) => false,
    }
}

fn is_refused_anyway(rule: &AllowRule) -> bool {
    match rule {
        AllowRule::Network(network) => {
            outbound::egress::is_never_reached(network.network())
                && outbound::egress::is_never_reached(network.broadcast())
        }
        // The names that clouds give to theirs.
        AllowRule::Host(name) => {
            matches!(
                name.as_str(),
                "metadata.google.internal" | "metadata.azure.internal" | "instance-data"
            )
        }
    }
}

fn is_loopback(rule: &AllowRule) -> bool {
    match rule {
        AllowRule::Network(network) => match network.network() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        },
        AllowRule::Host(name) => name == "localhost" || name.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use outbound::egress::AllowRule;

    use super::{super::Verdict, egress};

    fn judged(rules: &[&str], public: bool) -> Vec<(Verdict, String)> {
        let rule = |text: &&str| match text.parse() {
            Ok(network) => AllowRule::Network(network),
            Err(_) => AllowRule::Host((*text).to_owned()),
        };
        let rules: Vec<AllowRule> = rules.iter().map(rule).collect();
        egress(&rules, public).into_iter().map(|one| (one.verdict, one.found)).collect()
    }

    #[test]
    fn a_narrow_list_is_fine() {
        let found = judged(&["10.2.0.0/16", "tickets.intern"], true);
        let words = "beyond public addresses: 10.2.0.0/16, tickets.intern";
        assert_eq!(found, [(Verdict::Ok, words.to_owned())]);
        assert_eq!(judged(&[], true), [(Verdict::Ok, "public addresses only".to_owned())]);
    }

    #[test]
    fn everything_the_metadata_service_and_this_machine_are_warned_of() {
        for (rules, words) in [
            (["0.0.0.0/0"], "lets every private network through"),
            (["::/0"], "lets every private network through"),
            (["169.254.169.254/32"], "is never reached"),
            (["fe80::/64"], "is never reached"),
            (["metadata.google.internal"], "is never reached"),
            (["127.0.0.0/8"], "this machine itself"),
            (["localhost"], "this machine itself"),
        ] {
            let found = judged(&rules, true);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].0 == Verdict::Warn && found[0].1.contains(words), "{found:?}");
        }
        assert_eq!(judged(&["127.0.0.1/32"], false)[0].0, Verdict::Ok, "on loopback it is usual");
    }
}
