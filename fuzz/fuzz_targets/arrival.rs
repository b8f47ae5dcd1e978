//! Arrivals, as clients make them: one key has one effect, which another request never sees.

#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::Arbitrary;
use bytes::Bytes;
use fuzz::{Answer, Line, block_on, headers, layer, request};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency_core::{IDEMPOTENCY_KEY, IdempotencyKey, KeyGrammar};

#[derive(Debug, Clone, Arbitrary)]
struct Arrival {
    target: String,
    key: Option<Vec<u8>>,
    headers: Vec<Line>,
    body: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
struct Input {
    strict: bool,
    bound: bool,
    first: Arrival,
    second: Option<Arrival>,
}

fuzz_target!(|input: Input| {
    let mut layer = layer().max_request_body(256);
    if input.strict {
        layer = layer.strict_keys();
    }
    if input.bound {
        layer = layer.bind_header("x-custom".parse().expect("a name"));
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let handler = service_fn(move |_: Request<Full<Bytes>>| {
        let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
        let mut response = Response::new(Full::new(Bytes::from(run.to_string())));
        *response.status_mut() = StatusCode::CREATED;
        std::future::ready(Ok(response))
    });
    let service = layer.layer(handler);
    let second = input.second.as_ref().unwrap_or(&input.first);
    let [Some(one), Some(two)] = [&input.first, second].map(Arrival::request) else {
        return;
    };
    let [first, other] = [one, two].map(|request| {
        let service = service.clone();
        block_on(async move { Answer::of(service.oneshot(request).await).await })
    });
    let grammar = if input.strict {
        KeyGrammar::Strict
    } else {
        KeyGrammar::Compatible
    };
    let [one, two] = [&input.first, second].map(|arrival| arrival.identity(grammar, input.bound));
    for (answer, identity) in [(&first, &one), (&other, &two)] {
        assert_eq!(
            identity.is_some(),
            answer.status != 400 && answer.status != 413,
            "{answer:?}"
        );
    }
    let expected = match (&one, &two) {
        (Some(_), None) | (None, Some(_)) => 1,
        (None, None) => 0,
        (Some(one), Some(two)) if one.0 != two.0 => 2,
        (Some(one), Some(two)) if one == two => {
            assert!(other.is_replay(), "{other:?}");
            assert_eq!(other.body, first.body);
            1
        }
        (Some(_), Some(_)) => {
            assert_eq!(other.status, StatusCode::CONFLICT);
            1
        }
    };
    assert_eq!(runs.load(Ordering::SeqCst), expected);
});

/// What counts of a request but for its key: target, content headers, bound headers, body.
type Content = (Option<String>, Vec<Option<Vec<u8>>>, Vec<Vec<u8>>, Vec<u8>);

impl Arrival {
    fn headers(&self) -> HeaderMap {
        let mut headers = headers(&self.headers);
        if let Some(Ok(key)) = self.key.as_deref().map(http::HeaderValue::from_bytes) {
            headers.append(IDEMPOTENCY_KEY, key);
        }
        headers
    }

    fn request(&self) -> Option<Request<Full<Bytes>>> {
        let mut request = request(Bytes::from(self.body.clone()));
        *request.uri_mut() = Uri::try_from(&self.target).ok()?;
        *request.headers_mut() = self.headers();
        Some(request)
    }

    /// The key and what counts of the request; `None` where it is to be refused.
    fn identity(&self, grammar: KeyGrammar, bound: bool) -> Option<(String, (String, Content))> {
        let headers = self.headers();
        let key = IdempotencyKey::from_headers(&headers, &IDEMPOTENCY_KEY, grammar).ok()?;
        let uri = Uri::try_from(&self.target).ok()?;
        let mut content = Vec::new();
        for name in [CONTENT_TYPE, CONTENT_ENCODING] {
            let lines: Vec<_> = headers.get_all(name).iter().collect();
            if lines.len() > 1 {
                return None;
            }
            content.push(
                lines
                    .first()
                    .map(|line| line.as_bytes().trim_ascii().to_vec()),
            );
        }
        let lines = headers
            .get_all("x-custom")
            .iter()
            .map(|line| line.as_bytes().to_vec());
        let lines = lines.filter(|_| bound).collect();
        if self.body.len() > 256 {
            return None;
        }
        let path = if uri.path().is_empty() {
            "/"
        } else {
            uri.path()
        };
        let query = uri.query().map(ToOwned::to_owned);
        Some((
            key.as_str().to_owned(),
            (path.to_owned(), (query, content, lines, self.body.clone())),
        ))
    }
}
