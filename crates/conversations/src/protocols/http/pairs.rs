//! Which response is for which request.

use std::collections::VecDeque;

use flowgauge_record::Held;
use flowgauge_record::http::{HttpMessage, HttpRow};
use flowgauge_wire::Nanos;

use super::WAITING;

/// Finds the partners: a response is for the oldest request that has none, and never for one that is younger.
#[derive(Default)]
pub(super) struct Pairs {
    requests: VecDeque<Box<HttpMessage>>,
    responses: VecDeque<Box<HttpMessage>>,
    /// Requests that waited no more, whose responses are still to come; and the other way round.
    given: [Given; 2],
    /// The end of the last response.
    last_end: Nanos,
    /// Bytes that the messages keep.
    held: usize,
    /// Something was lost, and since then no request has waited for the response before.
    is_unsure: bool,
}

/// Messages that were given on alone, as too many waited.
#[derive(Clone, Copy, Default)]
struct Given {
    count: u64,
    /// When the youngest of them began.
    last: Nanos,
    /// The bound for which.
    limit: Option<&'static str>,
}

/// Index of what becomes of requests in [`Pairs::given`], and of responses.
const REQUESTS: usize = 0;
const RESPONSES: usize = 1;

impl Pairs {
    /// Takes a message, and gives transactions that are complete to `give`.
    pub(super) fn add(&mut self, message: Box<HttpMessage>, give: &mut impl Row) {
        // Interim responses belong to the final one that follows (RFC 9110, section 15.2).
        if !message.is_request && message.status / 100 == 1 && message.status != 101 {
            return give.give_back(message);
        }
        self.held += message.held();
        if message.is_request {
            self.requests.push_back(message);
        } else {
            self.responses.push_back(message);
        }
        self.settle(give);
        while self.requests.len() + self.responses.len() > WAITING {
            self.crowded(give, "requests");
        }
    }

    /// Bytes of memory that those keep that wait.
    #[inline]
    pub(super) fn held(&self) -> usize {
        let places = self.requests.capacity() + self.responses.capacity();
        self.held + places * size_of::<Box<HttpMessage>>()
    }

    /// When the oldest of those that wait began.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let begin = |it: Option<&Box<HttpMessage>>| it.map(|it| it.begin);
        let (request, response) = (begin(self.requests.front()), begin(self.responses.front()));
        match (request, response) {
            (Some(request), Some(response)) => Some(request.min(response)),
            (one, other) => one.or(other),
        }
    }

    /// The request that a response is for which began then.
    pub(super) fn asked(&self, begin: Nanos, is_after_loss: bool) -> Option<&HttpMessage> {
        if self.given[REQUESTS].count > 0 {
            return None;
        }
        let older = self.requests.iter().take_while(|it| it.begin <= begin);
        let place = if is_after_loss {
            older.count().checked_sub(1)?
        } else {
            0
        };
        let request = self.requests.get(place)?;
        (request.begin <= begin).then_some(request)
    }

    /// Gives what is complete. Requests wait then, or responses, not both.
    fn settle(&mut self, give: &mut impl Row) {
        loop {
            if let Some(request) = self.requests.front()
                && self.given[RESPONSES].count > 0
            {
                let given = &mut self.given[RESPONSES];
                if request.begin > given.last {
                    // They answered others, which were not captured.
                    given.count = 0;
                } else {
                    given.count -= 1;
                    let limit = given.limit;
                    self.give_request(give, limit);
                    continue;
                }
            }
            let Some(response) = self.responses.front() else {
                return;
            };
            let (begin, is_after_loss) = (response.begin, response.is_after_loss);
            if self.given[REQUESTS].count > 0 {
                if is_after_loss {
                    // How many of their responses were lost is not known: those of younger ones, too, maybe.
                    self.given[REQUESTS].count = 0;
                    self.is_unsure = true;
                    while self.requests.front().is_some_and(|it| it.begin <= begin) {
                        self.give_request(give, None);
                    }
                } else {
                    self.given[REQUESTS].count -= 1;
                }
                let limit = self.given[REQUESTS].limit;
                self.give_response(give, limit);
                continue;
            }
            let Some(request) = self.requests.front() else {
                return;
            };
            if begin < request.begin {
                // Its request was not captured.
                self.give_response(give, None);
                continue;
            }
            let next = self.requests.get(1).is_some_and(|next| next.begin <= begin);
            // Behind a loss the newest request that can be its own is, as a client mostly waits.
            if is_after_loss && next {
                self.is_unsure = true;
                self.give_request(give, None);
                continue;
            }
            if is_after_loss || request.is_after_loss {
                self.is_unsure = true;
            } else if !next && request.begin >= self.last_end {
                self.is_unsure = false;
            }
            self.give_pair(give);
        }
    }

    /// The oldest request, which waits no more.
    fn request(&mut self) -> Option<Box<HttpMessage>> {
        let request = self.requests.pop_front();
        self.held -= request.held();
        request
    }

    /// The oldest response, which waits no more.
    fn response(&mut self) -> Option<Box<HttpMessage>> {
        let response = self.responses.pop_front();
        self.held -= response.held();
        response
    }

    fn give_pair(&mut self, give: &mut impl Row) {
        let (request, mut response) = (self.request(), self.response());
        if let (Some(request), Some(response)) = (&request, &mut response) {
            self.last_end = response.end;
            if request.get(request.method) == Some(b"HEAD") && response.body_bytes == 0 {
                // Who read it did not know that no body comes.
                response.is_whole = true;
            }
            response.is_whole &= !self.is_unsure;
        }
        give.row(request, response);
    }

    /// The oldest request goes on alone.
    fn give_request(&mut self, give: &mut impl Row, limit: Option<&'static str>) {
        let mut request = self.request();
        if let Some(request) = &mut request {
            request.limit = limit.or(request.limit);
            request.is_whole &= !self.is_unsure;
        }
        give.row(request, None);
    }

    fn give_response(&mut self, give: &mut impl Row, limit: Option<&'static str>) {
        let mut response = self.response();
        if let Some(response) = &mut response {
            response.limit = limit.or(response.limit);
            self.last_end = response.end;
        }
        give.row(None, response);
    }

    /// Too many wait, or keep too much, of the sort that [`Pairs::settle`] has left: the oldest goes on alone. What it
    /// waits for is not another's partner then.
    pub(super) fn crowded(&mut self, give: &mut impl Row, limit: &'static str) {
        let (oldest, place) = match self.requests.front() {
            Some(request) => (Some(request), REQUESTS),
            None => (self.responses.front(), RESPONSES),
        };
        if let Some(oldest) = oldest {
            let given = &mut self.given[place];
            given.count += 1;
            given.last = given.last.max(oldest.begin);
            given.limit = Some(limit);
        }
        match place {
            REQUESTS => self.give_request(give, Some(limit)),
            _ => self.give_response(give, Some(limit)),
        }
    }

    /// Those of another connection, in the same memory. (None waits any more.)
    pub(super) fn renewed(self) -> Pairs {
        Pairs {
            requests: self.requests,
            responses: self.responses,
            ..Pairs::default()
        }
    }

    /// All go on alone.
    pub(super) fn close(&mut self, give: &mut impl Row, limit: Option<&'static str>) {
        while !self.requests.is_empty() {
            self.give_request(give, limit);
        }
        while !self.responses.is_empty() {
            self.give_response(give, limit);
        }
    }
}

/// Where transactions go.
pub(super) trait Row {
    fn give(&mut self, time: Nanos, row: &HttpRow<'_>);

    fn give_back(&mut self, message: Box<HttpMessage>);

    fn row(&mut self, request: Option<Box<HttpMessage>>, response: Option<Box<HttpMessage>>) {
        let row = HttpRow {
            request: request.as_deref(),
            response: response.as_deref(),
        };
        let last = row.response.or(row.request);
        self.give(last.map_or(Nanos(0), |it| it.end), &row);
        for message in request.into_iter().chain(response) {
            self.give_back(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Talk, WAITING};
    use crate::protocols::testing::Tester;

    fn tester() -> Tester<Talk> {
        Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80)
    }

    fn request(number: u64) -> Vec<u8> {
        format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
    }

    fn response(number: u64) -> Vec<u8> {
        format!("HTTP/1.1 200 R{number}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    }

    const FIELDS: [&str; 5] = ["uri", "reason", "state", "whole", "limit"];

    #[test]
    fn responses_of_more_requests_than_wait_are_not_others_responses() {
        for extra in [1, 2, 50, 300] {
            let count = WAITING as u64 + extra;
            let mut tester = tester();
            (0..count).for_each(|number| tester.say(true, 1, &request(number)));
            (0..count).for_each(|number| tester.say(false, 2, &response(number)));
            tester.say(true, 3, &request(count));
            tester.say(false, 4, &response(count));
            tester.close();
            let rows = tester.rows(&FIELDS);
            let alone = rows.iter().filter(|row| row.contains("no_reply")).count();
            assert_eq!(alone as u64, extra, "{rows:?}");
            assert!(rows.contains(&r#""/0" null "no_reply" "yes" "requests""#.to_owned()));
            assert!(rows.contains(&r#"null "R0" "no_request" "yes" "requests""#.to_owned()));
            for number in extra..=count {
                let row = format!(r#""/{number}" "R{number}" "matched" "yes" null"#);
                assert!(rows.contains(&row), "{row} of {extra}");
            }
        }
    }

    #[test]
    fn requests_of_more_responses_than_wait_are_not_others_requests() {
        // The requests wait behind a hole that is given up late.
        let count = WAITING as u64 + 9;
        let mut tester = tester();
        tester.say(true, 1, &request(0));
        tester.say(false, 2, &response(0));
        for number in 1..count {
            tester.say(false, 2 * number + 2, &response(number));
        }
        tester.miss(true, 3, 10);
        for number in 2..count {
            tester.say(true, 2 * number + 1, &request(number));
        }
        tester.close();
        for row in tester.rows(&FIELDS) {
            let fields: Vec<&str> = row.split(' ').collect();
            let (uri, reason) = (fields[0], fields[1]);
            let is_pair = uri.replace('/', "") == reason.replace('R', "");
            assert!(uri == "null" || reason == "null" || is_pair, "{row}");
        }
    }

    /// Responses behind a hole have the times at which they were captured, and come when it is given up.
    #[test]
    fn a_response_behind_a_hole_is_not_a_younger_request_s() {
        let mut tester = tester();
        for number in 0..3 {
            tester.say(true, 2 * number, &request(number));
            tester.say(false, 2 * number + 1, &response(number));
        }
        (3..18).for_each(|number| tester.say(true, 2 * number, &request(number)));
        tester.miss(false, 9, response(3).len() as u64);
        (4..18).for_each(|number| tester.say(false, 2 * number + 1, &response(number)));
        tester.close();
        let rows = tester.rows(&["uri", "reason", "state", "whole", "latency"]);
        for number in (0..18).filter(|&number| number != 3) {
            let whole = if number == 4 { "no" } else { "yes" };
            let row = format!(r#""/{number}" "R{number}" "matched" "{whole}" 1.0"#);
            assert!(rows.contains(&row), "{row}: {rows:#?}");
        }
        assert!(rows.contains(&r#""/3" null "no_reply" "no" null"#.to_owned()));
        assert_eq!(rows.len(), 18);
    }

    /// Of pipelined ones it stays open which is whose, until the client waits.
    #[test]
    fn pairs_behind_a_loss_are_not_said_to_be_sure() {
        let mut tester = tester();
        (0..4).for_each(|number| tester.say(true, 0, &request(number)));
        tester.say(false, 1, &response(0));
        tester.miss(false, 1, response(1).len() as u64);
        tester.say(false, 1, &response(2));
        tester.say(false, 1, &response(3));
        tester.say(true, 2, &request(4));
        tester.say(false, 3, &response(4));
        tester.close();
        for row in tester.rows(&FIELDS) {
            let is_sure = row.contains("yes") && row.contains("matched");
            let is_right = row.starts_with(r#""/0" "R0""#) || row.starts_with(r#""/4" "R4""#);
            assert_eq!(is_sure, is_right, "{row}");
        }
    }
}
