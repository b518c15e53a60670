//! Who says what when on a TCP connection.

use super::payload::{self, Filler, Message};
use super::random::Random;
use super::truth::HttpTotals;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// A conversation; sides are 0 for the client and 1 for the server.
#[derive(Clone, Debug)]
pub(super) enum Application {
    /// HTTP/1.1 with `left` transactions to come and `size` response bytes for each.
    Http {
        left: u64,
        size: u64,
        host: String,
        response: Option<Message>,
    },
    /// TLS 1.3, then `left` exchanges with `size` response bytes.
    Tls {
        stage: u8,
        left: u64,
        size: u64,
        host: String,
    },
    /// One request, then `size` bytes in one direction.
    Bulk { stage: u8, upload: bool, size: u64 },
    /// A dialogue of `left` messages of a few bytes.
    Chat { left: u64, sender: usize },
}

impl Application {
    /// Who sends the next message, and it; `None` when all is said.
    pub(super) fn next(
        &mut self,
        random: &mut Random,
        totals: &mut HttpTotals,
    ) -> Option<(usize, Message)> {
        match self {
            Application::Http {
                left,
                size,
                host,
                response,
            } => {
                if let Some(response) = response.take() {
                    return Some((1, response));
                }
                *left = left.checked_sub(1)?;
                let bytes = *size / 2 + random.below(*size + 1);
                let exchange = payload::http(random, host, bytes, *left == 0);
                totals.transactions += 1;
                *totals
                    .methods
                    .entry(exchange.method.to_owned())
                    .or_default() += 1;
                *totals.statuses.entry(exchange.status).or_default() += 1;
                totals.chunked += u64::from(exchange.chunked);
                totals.request_body_bytes += exchange.request_body;
                totals.response_body_bytes += exchange.response_body;
                *response = Some(exchange.response);
                Some((0, exchange.request))
            }
            Application::Tls {
                stage,
                left,
                size,
                host,
            } => {
                *stage += 1;
                match *stage {
                    1 => Some((0, payload::client_hello(random, host))),
                    2 => {
                        let certificates = random.between(2_000, 5_000);
                        Some((1, payload::server_hello(random, certificates)))
                    }
                    3 => Some((0, payload::client_finished(random))),
                    4 => {
                        *left = left.checked_sub(1)?;
                        let request = random.between(100, 900);
                        Some((0, payload::tls_data(random, request)))
                    }
                    _ => {
                        *stage = 3;
                        let bytes = (*size / 2 + random.below(*size + 1)).max(32);
                        Some((1, payload::tls_data(random, bytes)))
                    }
                }
            }
            Application::Bulk {
                stage,
                upload,
                size,
            } => {
                *stage += 1;
                let request = random.between(40, 400);
                match (*stage, *upload) {
                    (1, false) => Some((0, Message::plain(random, Filler::Text, request))),
                    (2, false) => Some((1, Message::plain(random, Filler::Binary, *size))),
                    (1, true) => Some((0, Message::plain(random, Filler::Binary, *size))),
                    (2, true) => Some((1, Message::plain(random, Filler::Text, request))),
                    _ => None,
                }
            }
            Application::Chat { left, sender } => {
                *left = left.checked_sub(1)?;
                let who = *sender;
                *sender = 1 - who;
                let size = random.between(4, 60);
                Some((who, Message::plain(random, Filler::Text, size)))
            }
        }
    }

    /// How long `side` thinks before the next message.
    pub(super) fn pause(&self, random: &mut Random, side: usize) -> u64 {
        match (self, side) {
            // Shorter than an acknowledgement may be held back, so that it rides on the answer.
            (Application::Chat { .. }, _) => random.between(100 * MICROSECOND, 3 * MILLISECOND),
            (_, 1) if random.chance(0.8) => random.between(200 * MICROSECOND, 4 * MILLISECOND),
            (_, 1) => random.between(4 * MILLISECOND, 150 * MILLISECOND),
            (Application::Tls { stage: 0..=3, .. }, _) => {
                random.between(100 * MICROSECOND, 2 * MILLISECOND)
            }
            (_, _) if random.chance(0.7) => random.between(MILLISECOND, 30 * MILLISECOND),
            _ => random.between(30 * MILLISECOND, 800 * MILLISECOND),
        }
    }
}
