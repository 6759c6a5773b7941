mod peer; mod upstream; mod outbound_calls; mod outbound_discovery; mod outbound_lifecycle; mod outbound_rmcp;
#[tokio::test]
async fn probe_env() {
    let Ok(urls) = std::env::var("PROBE_URLS") else { return };
    for u in urls.split(',') {
        let (u, tool, args) = { let mut p = u.splitn(3, '#'); (p.next().unwrap(), p.next().unwrap_or("echo"), p.next().unwrap_or("{\"q\":1}")) };
        let url: url::Url = u.parse().unwrap();
        let clients = upstream::clients();
        let mut t = upstream::target(&url);
        t.key.revision = 7;
        let t0 = std::time::Instant::now();
        match clients.discover(&t, false, upstream::soon()).await {
            Ok(d) => println!("{u}: {} {:?} {:?} tools={} trunc={} in {:?}", d.protocol_version, d.server_name, d.server_version, d.tools.len(), d.truncated, t0.elapsed()),
            Err(e) => println!("{u}: discover {:?} {} untrusted={:?} in {:?}", e.code, e, e.untrusted, t0.elapsed()),
        }
        for _ in 0..2 {
        let t0 = std::time::Instant::now();
        match clients.call_tool(&t, upstream::tool_call(tool, args), tokio::time::Instant::now()+std::time::Duration::from_secs(8), Default::default()).await {
            Ok(a) => println!("   call ok {} requests {:?} {}", a.upstream_requests, t0.elapsed(), &upstream::text(&a).chars().take(150).collect::<String>()),
            Err(f) => println!("   call {:?} {:?} {} rpc={:?}", f.error.code, f.ran, f.error, f.rpc),
        }}
        clients.close_all(upstream::soon()).await;
    }
}
