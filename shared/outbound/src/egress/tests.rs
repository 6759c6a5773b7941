use super::*;

fn rules(allow: &[&str]) -> EgressRules {
    let allow = allow.iter().map(|rule| match rule.parse() {
        Ok(net) => AllowRule::Network(net),
        Err(_) => AllowRule::Host((*rule).to_owned()),
    });
    EgressRules { allow: allow.collect(), own: vec!["127.0.0.1:7000".parse().unwrap()] }
}

fn judged(allow: &[&str], ip: &str) -> Result<(), Refused> {
    let address = SocketAddr::new(ip.parse().unwrap(), 443);
    rules(allow).check_address(address, "host.example", &Destination::Configured)
}

#[test]
fn public_addresses_are_reached() {
    for ip in ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
    {
        assert_eq!(judged(&[], ip), Ok(()), "{ip}");
    }
}

#[test]
fn special_addresses_are_reached_only_when_listed() {
    for (ip, list) in [
        ("127.0.0.1", "127.0.0.0/8"),
        ("::1", "::1/128"),
        ("10.1.2.3", "10.0.0.0/8"),
        ("172.31.0.1", "172.16.0.0/12"),
        ("192.168.1.1", "192.168.1.0/24"),
        ("100.64.0.1", "100.64.0.0/10"),
        ("198.18.0.1", "198.18.0.0/15"),
        ("192.0.2.1", "192.0.2.0/24"),
        ("fd12::1", "fd12::/16"),
        ("2001:db8::1", "2001:db8::/32"),
        ("2002:101:101::1", "2002::/16"),
        // Teredo of 1.1.1.1: inverted.
        ("2001:0:1::fefe:fefe", "2001::/32"),
        ("::ffff:10.0.0.1", "10.0.0.0/8"),
        ("64:ff9b::a00:1", "10.0.0.0/8"),
        ("64:ff9b:1::a00:1", "64:ff9b:1::/48"),
        ("fec0::1", "fec0::/10"),
    ] {
        assert_eq!(judged(&[], ip), Err(Refused::NotListed), "{ip}");
        assert_eq!(judged(&[list], ip), Ok(()), "{ip} with {list}");
        assert_eq!(judged(&["host.example"], ip), Ok(()), "{ip} by host");
        assert_eq!(judged(&["other.example"], ip), Err(Refused::NotListed), "{ip} by another host");
    }
}

#[test]
fn forbidden_addresses_are_never_reached() {
    let everything = ["0.0.0.0/0", "::/0", "host.example"];
    for ip in [
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "::",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        // Teredo of 169.254.169.254: inverted.
        "2001:0:0:0:0:0:5601:5601",
    ] {
        assert_eq!(judged(&everything, ip), Err(Refused::Forbidden), "{ip}");
    }
}

#[test]
fn our_own_listeners_are_reached_by_own_destinations_alone() {
    let rules = rules(&["127.0.0.0/8"]);
    let own = "127.0.0.1:7000".parse().unwrap();
    let other = "127.0.0.1:7001".parse().unwrap();
    let check = |address, destination| rules.check_address(address, "localhost", &destination);
    assert_eq!(check(own, Destination::Configured), Err(Refused::Ours));
    assert_eq!(check(other, Destination::Configured), Ok(()));
    assert_eq!(check(own, Destination::Own), Ok(()));
    assert_eq!(check(other, Destination::Own), Err(Refused::NotListed));
    let mapped = "[::ffff:127.0.0.1]:7000".parse().unwrap();
    assert_eq!(check(mapped, Destination::Configured), Err(Refused::Ours));
}

#[test]
fn a_listener_on_every_address_is_ours_at_each_of_them() {
    let rules = EgressRules {
        allow: vec![AllowRule::Network("127.0.0.0/8".parse().unwrap())],
        own: vec!["0.0.0.0:7000".parse().unwrap()],
    };
    let check = |address: &str| {
        rules.check_address(address.parse().unwrap(), "localhost", &Destination::Configured)
    };
    assert_eq!(check("127.0.0.9:7000"), Err(Refused::Ours));
    assert_eq!(check("127.0.0.9:7001"), Ok(()));
    assert_eq!(check("1.1.1.1:7000"), Ok(()));
}

#[test]
fn the_list_counts_for_a_learned_url_on_the_configured_host_alone() {
    let rules = rules(&["10.0.0.0/8"]);
    let check = |host: &str| {
        let learned = Destination::Learned { configured_host: "mcp.example".to_owned() };
        rules.check_address("10.0.0.1:443".parse().unwrap(), host, &learned)
    };
    assert_eq!(check("mcp.example"), Ok(()));
    assert_eq!(check("elsewhere.example"), Err(Refused::NotListed));
}

#[test]
fn urls_are_judged_before_any_name_is_resolved() {
    let check =
        |url: &str| rules(&[]).check_url(&Url::parse(url).unwrap(), &Destination::Configured);
    assert_eq!(check("https://host.example/mcp"), Ok(()));
    assert_eq!(check("ftp://host.example/"), Err(Refused::Scheme));
    assert_eq!(check("https://user@host.example/"), Err(Refused::Form));
    assert_eq!(check("http://169.254.169.254/latest/"), Err(Refused::Forbidden));
    // Other spellings of 127.0.0.1.
    for host in ["2130706433", "0x7f.1", "127.1", "[::ffff:7f00:1]"] {
        assert_eq!(check(&format!("http://{host}/")), Err(Refused::NotListed), "{host}");
    }
}
