//! Where profiles are sent to: the engine and its address, in one URL.

use std::fmt;
use std::str::FromStr;

use ureq::http::Uri;

/// The program that receives profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Grafana Pyroscope, or Grafana Alloy's `pyroscope.receive_http`: pprof by the Connect API
    /// `push.v1.PusherService/Push`.
    Pyroscope,
    /// Parca: pprof by `parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw`, as gRPC-Web.
    Parca,
    /// An OpenTelemetry Collector, or whatever receives OTLP over HTTP: profiles of version `v1development`.
    Otlp,
}

impl Engine {
    const ALL: [Self; 3] = [Self::Pyroscope, Self::Parca, Self::Otlp];

    /// Its word in a URL.
    const fn word(self) -> &'static str {
        match self {
            Self::Pyroscope => "pyroscope",
            Self::Parca => "parca",
            Self::Otlp => "otlp",
        }
    }

    /// The path of its API.
    const fn path(self) -> &'static str {
        match self {
            Self::Pyroscope => "/push.v1.PusherService/Push",
            Self::Parca => "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
            Self::Otlp => "/v1development/profiles",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pyroscope => "Pyroscope",
            Self::Parca => "Parca",
            Self::Otlp => "the OpenTelemetry Collector",
        })
    }
}

/// An engine and its address: `pyroscope+http://localhost:4040`, `parca+http://localhost:7070`,
/// `otlp+http://localhost:4318`.
///
/// A path is the prefix under which a proxy has the engine; the path of its API is added.
///
/// ```
/// use corprof_export::push::{Destination, Engine};
///
/// let destination: Destination = "pyroscope+http://profiles.example:4040".parse()?;
/// assert_eq!(destination.engine(), Engine::Pyroscope);
/// # Ok::<(), corprof_export::push::DestinationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    engine: Engine,
    /// As it was given, without a slash at the end.
    text: String,
    /// The address of the API.
    url: String,
}

/// Why a URL is no [`Destination`], and what to write instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// It does not begin with the name of an engine.
    #[error(
        "it does not say which engine this is: write pyroscope+http://HOST:4040, parca+http://HOST:7070 or \
         otlp+http://HOST:4318"
    )]
    NoEngine,

    /// It wants a connection with TLS.
    #[error(
        "a profiler brings no TLS library into the application, so https is not possible: write http:// and the address of \
         an agent beside the application (Grafana Alloy, an OpenTelemetry Collector), which sends it on by https"
    )]
    Tls,

    /// It has a user or a password.
    #[error("a URL is not a place for a password, as messages show it: give the header Authorization instead")]
    Password,

    /// It has a query or a fragment.
    #[error("leave out what follows `?` or `#`: the address of the engine is enough")]
    Query,

    /// There is no host, or no valid address.
    #[error("this is not an address: write, for example, pyroscope+http://localhost:4040")]
    NoAddress,
}

impl Destination {
    /// The engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The address of its API.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim().trim_end_matches('/');
        let (word, rest) = text.split_once('+').ok_or(DestinationError::NoEngine)?;
        let engine = Engine::ALL.into_iter().find(|engine| word.eq_ignore_ascii_case(engine.word()));
        let engine = engine.ok_or(DestinationError::NoEngine)?;
        let lower = rest.to_ascii_lowercase();
        if lower.starts_with("https://") {
            return Err(DestinationError::Tls);
        }
        let after = rest.get("http://".len()..).filter(|_| lower.starts_with("http://"));
        let after = after.ok_or(DestinationError::NoAddress)?;
        if after.contains(['?', '#']) {
            return Err(DestinationError::Query);
        }
        if after.split('/').next().is_some_and(|authority| authority.contains('@')) {
            return Err(DestinationError::Password);
        }
        let address = format!("http://{after}");
        let uri: Uri = address.parse().map_err(|_| DestinationError::NoAddress)?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or(DestinationError::NoAddress)?;
        // A port that is not a number is not an error of the parser.
        let port = authority.as_str().get(authority.host().len()..).unwrap_or_default();
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(DestinationError::NoAddress);
        }
        Ok(Self { engine, text: format!("{}+{address}", engine.word()), url: address + engine.path() })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_in_the_url() {
        for (text, engine, url) in [
            ("pyroscope+http://a:4040", Engine::Pyroscope, "http://a:4040/push.v1.PusherService/Push"),
            ("pyroscope+http://a/x/y/", Engine::Pyroscope, "http://a/x/y/push.v1.PusherService/Push"),
            (
                "PARCA+HTTP://[::1]:7070",
                Engine::Parca,
                "http://[::1]:7070/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
            ),
            (" otlp+http://127.0.0.1:4318/ ", Engine::Otlp, "http://127.0.0.1:4318/v1development/profiles"),
        ] {
            let destination: Destination = text.parse().unwrap();
            assert_eq!((destination.engine(), destination.url()), (engine, url));
            assert_eq!(destination.to_string().parse(), Ok(destination));
        }
    }

    #[test]
    fn errors_have_names_and_cures() {
        use DestinationError::{NoAddress, NoEngine, Password, Query, Tls};
        for (text, error, cure) in [
            ("", NoEngine, "pyroscope+http://HOST:4040"),
            ("http://a:4040", NoEngine, "parca+http://HOST:7070"),
            ("influx+http://a:4040", NoEngine, "otlp+http://HOST:4318"),
            ("pyroscope+https://a", Tls, "an agent beside the application"),
            ("pyroscope+ftp://a", NoAddress, "pyroscope+http://localhost:4040"),
            ("pyroscope+http://", NoAddress, ""),
            ("pyroscope+http://:4040", NoAddress, ""),
            ("pyroscope+http://a:port", NoAddress, ""),
            ("pyroscope+http://a:70000", NoAddress, ""),
            ("pyroscope+http://a:", NoAddress, ""),
            ("pyroscope+http://a b", NoAddress, ""),
            ("pyroscope+http://a/\r\nX: y", NoAddress, ""),
            ("pyroscope+http://ä", NoAddress, ""),
            ("pyroscope+http://me:secret@a", Password, "Authorization"),
            ("pyroscope+http://a?x=1", Query, "leave out"),
        ] {
            let found = text.parse::<Destination>().unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(found.to_string().contains(cure) && !found.to_string().contains("secret"), "{found}");
        }
    }
}
