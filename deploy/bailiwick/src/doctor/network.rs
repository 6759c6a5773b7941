//! Whether a node answers where it should, for the Host that clients send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use app::doctor::{Examined, Finding};
use domain::limits;
use reqwest::{Certificate, Client, StatusCode, redirect};
use runtime::config::Settings;
use serde_json::Value;
use url::{Host, Position, Url};

use crate::{failure::Failure, installation::Installation};

const LISTENER: &str = "listener";
const PUBLIC_URL: &str = "public URL";

/// Looks at the node of this machine, and at the way to it that others take.
pub(super) async fn look(
    settings: &Settings,
    installation: Option<&Installation>,
    examined: &Examined,
    findings: &mut Vec<Finding>,
) {
    let Some((here, public)) = addresses(settings, installation) else { return };
    let Ok(client) = client(settings) else {
        let mend = "look at extra_ca: it must hold PEM certificates";
        findings.push(Finding::fail(LISTENER, "no HTTP client can be made", mend));
        return;
    };
    let host = &public[Position::BeforeHost..Position::AfterPort];
    let here = format!("http://{here}");
    let answers = ask(&client, &format!("{here}/healthz"), Some(host)).await;
    findings.push(match answers {
        Answer::Nothing(_) if examined.serving => {
            let found = format!("a node lives, and none answers at {here}");
            let mend = "run this with the listen address of the node, or on its machine";
            Finding::warn(LISTENER, found, mend)
        }
        Answer::Nothing(_) => {
            let found = format!("nothing answers at {here}");
            Finding::warn(
                LISTENER,
                found,
                "start `bailiwick up` or `bailiwick api`, or name its --listen",
            )
        }
        Answer::Ours(StatusCode::MISDIRECTED_REQUEST, _) => {
            let found = format!("it does not answer for the host {host} of the public URL");
            let mend = "start the node with the same BAILIWICK_PUBLIC_URL, or list the host in \
                        BAILIWICK_ALLOWED_HOSTS";
            Finding::fail(LISTENER, found, mend)
        }
        Answer::Ours(..) => readiness(&client, &here, host).await,
        Answer::Others(status) => {
            let found = format!("another program answers at {here} ({status})");
            Finding::fail(LISTENER, found, "end it, or choose another address for --listen")
        }
    });
    if public.as_str().trim_end_matches('/') != here {
        findings.push(way_in(&client, &public).await);
    }
}

/// Where a node of this machine listens, and how others reach it.
fn addresses(
    settings: &Settings,
    installation: Option<&Installation>,
) -> Option<(SocketAddr, Url)> {
    let noted = installation.and_then(|place| place.url().ok().flatten());
    let noted = noted.and_then(|url| Url::parse(&url).ok());
    let default = Settings::default().listen;
    let mut here = settings.listen;
    if let (Some(url), true) = (&noted, here == default)
        && let Some(address) = literal(url)
    {
        // The running `up` was told another address than this command.
        here = address;
    }
    if here.ip().is_unspecified() {
        here.set_ip(match here {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let public = settings.public_url.clone().or(noted);
    let public = public.or_else(|| Url::parse(&format!("http://{here}")).ok())?;
    Some((here, public))
}

fn literal(url: &Url) -> Option<SocketAddr> {
    let address: IpAddr = match url.host()? {
        Host::Ipv4(address) => address.into(),
        Host::Ipv6(address) => address.into(),
        Host::Domain(_) => return None,
    };
    Some(SocketAddr::new(address, url.port_or_known_default()?))
}

async fn readiness(client: &Client, here: &str, host: &str) -> Finding {
    let mend = "mend what it names; the log of the node says more";
    match ask(client, &format!("{here}/readyz"), Some(host)).await {
        Answer::Ours(StatusCode::OK, _) => Finding::ok(LISTENER, format!("ready at {here}")),
        Answer::Ours(status, body) => {
            let missing = body["missing"].as_array().cloned().unwrap_or_default();
            let missing: Vec<&str> = missing.iter().filter_map(Value::as_str).collect();
            let found = format!("not ready at {here} ({status}): {}", missing.join("; "));
            Finding::fail(LISTENER, found, mend)
        }
        Answer::Others(status) => {
            Finding::fail(LISTENER, format!("/readyz answers {status}"), mend)
        }
        Answer::Nothing(why) => {
            Finding::fail(LISTENER, format!("/readyz does not answer: {why}"), mend)
        }
    }
}

/// The public URL, as a client would take it.
async fn way_in(client: &Client, public: &Url) -> Finding {
    let shown = public.as_str().trim_end_matches('/');
    match ask(client, &format!("{shown}/healthz"), None).await {
        Answer::Ours(StatusCode::OK, _) => Finding::ok(PUBLIC_URL, format!("{shown} leads here")),
        Answer::Ours(StatusCode::MISDIRECTED_REQUEST, _) => Finding::fail(
            PUBLIC_URL,
            format!("{shown} leads to a node that does not answer for its host"),
            "let the reverse proxy pass Host on as it came (nginx: proxy_set_header Host $http_host)",
        ),
        Answer::Ours(status, _) | Answer::Others(status) => Finding::fail(
            PUBLIC_URL,
            format!("{shown}/healthz is answered by something else ({status})"),
            "let the reverse proxy pass every path on to the listener of a node",
        ),
        // The way back in may be closed to this machine alone.
        Answer::Nothing(why) => Finding::warn(
            PUBLIC_URL,
            format!("{shown} cannot be reached from here: {why}"),
            "look at its DNS name, the reverse proxy and its certificate (extra_ca trusts further ones)",
        ),
    }
}

enum Answer {
    /// In the form of our own answers.
    Ours(StatusCode, Value),
    Others(StatusCode),
    Nothing(String),
}

async fn ask(client: &Client, url: &str, host: Option<&str>) -> Answer {
    let mut request = client.get(url);
    if let Some(host) = host {
        request = request.header("host", host);
    }
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) => return Answer::Nothing(cause(&error)),
    };
    let status = answer.status();
    let stamped = answer.headers().contains_key("x-request-id");
    match answer.json::<Value>().await {
        Ok(body) if stamped && (body.get("ok").is_some() || body.get("code").is_some()) => {
            Answer::Ours(status, body)
        }
        _ => Answer::Others(status),
    }
}

/// The innermost cause: the outer ones repeat the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() { "no answer in time".to_owned() } else { cause.to_string() }
}

fn client(settings: &Settings) -> Result<Client, Failure> {
    let failed = |error| Failure::because("no client", error);
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .timeout(limits::DOCTOR_LOOK_MS.millis());
    if let Some(path) = &settings.extra_ca {
        let pem = std::fs::read(path).unwrap_or_default();
        for certificate in Certificate::from_pem_bundle(&pem).map_err(failed)? {
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder.build().map_err(failed)
}
