//! Requests to peers, and to where results are pushed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// The longest answer.
const MOST_ANSWER: usize = 8 << 20;
/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// Where something is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) is_secure: bool,
    /// Host and port.
    pub(crate) address: String,
    /// The name that is to be in the certificate; the host.
    pub(crate) name: String,
    pub(crate) path: String,
}

impl Url {
    /// Reads `https://host:port/path`.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        let wrong = || format!("\"{text}\" is not an address of HTTP");
        let uri: axum::http::Uri = text.parse().map_err(|_| wrong())?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(format!("\"{text}\" has a user's name"));
        }
        let usual = if is_secure { 443 } else { 80 };
        let host = authority.host();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == host => usual,
            None => return Err(wrong()),
        };
        Ok(Url {
            is_secure,
            address: format!("{host}:{port}"),
            name: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }
}

/// Asks, and takes the answer: its status and body. With TLS the other end has a certificate of the authority for the name.
///
/// # Errors
/// Why there is no answer, within the time.
pub(crate) async fn ask(
    tls: Option<Arc<ClientConfig>>,
    url: &Url,
    request: (Method, Vec<(&'static str, String)>, Vec<u8>),
    patience: Duration,
) -> Result<(StatusCode, Bytes), String> {
    let asked = async {
        let address = &url.address;
        let connected = timeout(CONNECT, TcpStream::connect(address)).await;
        let tcp = connected.map_err(|_| "it cannot be reached (timeout)".to_owned())?;
        let tcp = tcp.map_err(|error| error.to_string())?;
        if !url.is_secure {
            return exchange(tcp, url, request).await;
        }
        let tls = tls.ok_or("there are no keys for TLS")?;
        let name = ServerName::try_from(url.name.clone()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(tls);
        let secured = timeout(CONNECT, connector.connect(name, tcp)).await;
        let secured = secured.map_err(|_| "it does not answer with TLS".to_owned())?;
        exchange(secured.map_err(|error| error.to_string())?, url, request).await
    };
    let asked = timeout(patience, asked).await;
    let asked = asked.unwrap_or_else(|_| Err("it does not answer (timeout)".to_owned()));
    asked.map_err(|error| format!("{}: {error}", url.address))
}

async fn exchange<S>(
    stream: S,
    url: &Url,
    (method, headers, body): (Method, Vec<(&'static str, String)>, Vec<u8>),
) -> Result<(StatusCode, Bytes), String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let said = |error: hyper::Error| error.to_string();
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(said)?;
    // It ends with the sender, or with its end of the connection.
    let driving = tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(&url.path)
        .header(HOST, &url.address);
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(said)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_ANSWER)
            .collect()
            .await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, body))
    };
    let answer = answer.await;
    driving.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let url = Url::parse("https://[2001:db8::1]:8443/a?b=c").unwrap();
        assert_eq!(
            (url.address.as_str(), url.name.as_str()),
            ("[2001:db8::1]:8443", "2001:db8::1")
        );
        assert_eq!((url.path.as_str(), url.is_secure), ("/a?b=c", true));
        assert_eq!(Url::parse("http://host").unwrap().address, "host:80");
        for wrong in [
            "",
            "host:80/x",
            "ftp://host/",
            "http:///x",
            "http://a@host/",
            "http://host:x/",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }
}
