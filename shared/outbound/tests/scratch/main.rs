mod peer; mod upstream; mod outbound_blobs; mod outbound_calls; mod outbound_discovery; mod outbound_lifecycle; mod outbound_rmcp;
