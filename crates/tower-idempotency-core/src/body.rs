//! The request's body, read within its limit; and the response's, kept or streamed on.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::LengthLimitError;
use pin_project_lite::pin_project;
use sha2::{Digest, Sha256};
use tokio::task::coop::consume_budget;

use crate::error::BoxError;
use crate::problem::{Problem, ProblemKind};

/// A request's body, whole, with its digest.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    pub(crate) sha256: [u8; 32],
}

/// Reads a body of at most `limit` bytes. Trailers are lost.
///
/// A body that says that it is larger is refused before it is polled, so that no `100 Continue` is
/// sent for it.
pub(crate) async fn read<B>(body: B, limit: u64) -> Result<ReadBody, Problem>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let too_large = || Err(ProblemKind::RequestTooLarge.into());
    if body.size_hint().lower() > limit {
        return too_large();
    }
    let mut body = pin!(body);
    let mut whole = Pieces::default();
    let mut hasher = Sha256::new();
    loop {
        consume_budget().await;
        let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else {
            break;
        };
        let frame = match frame.map_err(Into::into) {
            Ok(frame) => frame,
            Err(error) if is_length_limit(error.as_ref()) => return too_large(),
            Err(error) => {
                tracing::debug!(%error, "request body broke off");
                return Err(ProblemKind::RequestInvalid.into());
            }
        };
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        if (whole.length + data.remaining()) as u64 > limit {
            return too_large();
        }
        // Without a copy where it is `Bytes` already.
        let piece = data.copy_to_bytes(data.remaining());
        hasher.update(&piece);
        whole.push(piece);
    }
    Ok(ReadBody {
        bytes: whole.join(),
        sha256: hasher.finalize().into(),
    })
}

/// The pieces of a body: the first as it came, all further ones in a copy of their own.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    all: BytesMut,
    length: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if self.length == 0 {
            self.first = piece;
        } else {
            if self.all.is_empty() {
                self.all.extend_from_slice(&self.first);
            }
            self.all.extend_from_slice(&piece);
        }
        self.length = self.all.len().max(self.first.len());
    }

    fn join(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

/// Whether a limit outside of the layer cut the body, as tower-http's does.
fn is_length_limit(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}

pin_project! {
    /// The body of a response: what the handler made, what was kept, or a problem. `Debug` does
    /// not show it.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Whole { data: Option<Bytes>, trailers: Option<HeaderMap> },
        Inner { #[pin] body: B },
        Resumed { frames: VecDeque<Frame<Bytes>>, rest: Pin<Box<B>> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let data = Some(data).filter(|data| !data.is_empty());
        Self {
            kind: Kind::Whole { data, trailers },
        }
    }

    pub(crate) fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseBody(..)")
    }
}

impl<B> From<Bytes> for ResponseBody<B> {
    fn from(data: Bytes) -> Self {
        Self::whole(data, None)
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Whole { data, trailers } => {
                let frame = data.take().map(Frame::data);
                Poll::Ready(
                    frame
                        .or_else(|| trailers.take().map(Frame::trailers))
                        .map(Ok),
                )
            }
            KindProjection::Inner { body } => body.poll_frame(cx),
            KindProjection::Resumed { frames, rest } => match frames.pop_front() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => rest.as_mut().poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole { data, trailers } => data.is_none() && trailers.is_none(),
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Resumed { frames, rest } => frames.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole { data, .. } => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Kind::Inner { body } => body.size_hint(),
            Kind::Resumed { frames, rest } => {
                let read: u64 = frames
                    .iter()
                    .filter_map(Frame::data_ref)
                    .map(|data| data.len() as u64)
                    .sum();
                let rest = rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(read + rest.lower());
                if let Some(upper) = rest.upper() {
                    hint.set_upper(read + upper);
                }
                hint
            }
        }
    }
}

/// A response's body while it is being captured.
pub(crate) struct Capture<B> {
    frames: VecDeque<Frame<Bytes>>,
    length: usize,
    body: Pin<Box<B>>,
}

/// How many pieces a kept body may come in: each costs some memory of its own.
const MAX_FRAMES: usize = 16 * 1024;

/// How far capturing got.
pub(crate) enum Progress {
    Complete,
    TooLarge,
}

impl<B: Body<Data = Bytes>> Capture<B> {
    pub(crate) fn new(body: B) -> Self {
        Self {
            frames: VecDeque::new(),
            length: 0,
            body: Box::pin(body),
        }
    }

    /// Reads on to the end, unless there is more than `limit`. May be dropped and resumed.
    pub(crate) async fn read(&mut self, limit: usize) -> Result<Progress, B::Error> {
        if self.body.size_hint().lower() > limit as u64 {
            return Ok(Progress::TooLarge);
        }
        loop {
            // A body that is always ready must not keep the time-out from being looked at.
            consume_budget().await;
            let Some(frame) = poll_fn(|cx| self.body.as_mut().poll_frame(cx)).await else {
                return Ok(Progress::Complete);
            };
            let frame = frame?;
            if frame.data_ref().is_some_and(Bytes::is_empty) {
                continue;
            }
            self.length += frame.data_ref().map_or(0, Bytes::len);
            self.frames.push_back(frame);
            if self.length > limit || self.frames.len() > MAX_FRAMES {
                return Ok(Progress::TooLarge);
            }
        }
    }

    /// The whole body. Drops the handler's, and what it may hold of the transaction.
    pub(crate) fn into_whole(self) -> (Bytes, Option<HeaderMap>) {
        let mut frames = self.frames;
        let mut trailers = None;
        if let Some(frame) = frames.pop_back() {
            match frame.into_trailers() {
                Ok(last) => trailers = Some(last),
                Err(frame) => frames.push_back(frame),
            }
        }
        let mut chunks = frames
            .into_iter()
            .filter_map(|frame| frame.into_data().ok());
        let (first, second) = (chunks.next(), chunks.next());
        let data = match (first, second) {
            (None, _) => Bytes::new(),
            // The common case, without a copy.
            (Some(only), None) => only,
            (Some(first), Some(second)) => {
                let mut data = BytesMut::with_capacity(self.length);
                data.put(first);
                data.put(second);
                chunks.for_each(|chunk| data.put(chunk));
                data.freeze()
            }
        };
        (data, trailers)
    }

    /// What was read, and what comes after it.
    pub(crate) fn into_resumed(self) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Resumed {
                frames: self.frames,
                rest: self.body,
            },
        }
    }
}

#[cfg(test)]
mod tests;
