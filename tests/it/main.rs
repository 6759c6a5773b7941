mod outbound_calls;
mod outbound_discovery;
mod outbound_lifecycle;
mod outbound_rmcp;
mod private_postgres;
