use std::convert::Infallible;
use std::time::Duration;

use tokio::time::timeout;

use super::*;

/// A body that is always ready, with the same piece for ever.
struct Endless(&'static [u8]);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.0)))))
    }
}

/// R43: a body that is always ready, with nothing in it, neither outlives the capture's time nor grows.
#[tokio::test]
async fn empty_pieces_end_with_the_time() {
    let mut capture = Capture::new(Endless(b""));
    let read = timeout(Duration::from_millis(50), capture.read(1 << 20)).await;
    assert!(read.is_err(), "the time is over");
    assert!(capture.frames.is_empty());
}

/// R43: a body in very many pieces is not kept, however small they are.
#[tokio::test]
async fn very_many_pieces_are_too_many() {
    let mut capture = Capture::new(Endless(b"x"));
    let read = capture.read(1 << 20).await;
    assert!(matches!(read, Ok(Progress::TooLarge)));
    assert_eq!(capture.frames.len(), MAX_FRAMES + 1);
}
