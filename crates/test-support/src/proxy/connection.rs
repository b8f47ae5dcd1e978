//! One connection through the proxy.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Direction;
use super::control::Control;
use super::frames::Frames;

/// Carries bytes both ways until both sides have closed, or one breaks or is told to.
pub(super) async fn run(mut client: TcpStream, control: Arc<Control>) {
    let mut resets = control.resets();
    let Ok(mut server) = TcpStream::connect(&*control.servers()).await else {
        client.set_zero_linger().ok();
        return;
    };
    // Best effort: it only makes small packets quicker.
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();

    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let both = async {
        tokio::try_join!(
            carry(from_client, to_server, &control, Direction::ToServer),
            carry(from_server, to_client, &control, Direction::ToClient),
        )
    };
    let closed = tokio::select! {
        outcome = both => outcome.is_ok(),
        _ = resets.changed() => false,
    };
    if !closed {
        // With this, the drop sends RST; on a socket that is dead already there is nothing to send.
        client.set_zero_linger().ok();
        server.set_zero_linger().ok();
    }
}

/// What one read had. Nothing in it: the sender has closed.
struct Chunk {
    read_at: Instant,
    bytes: io::Result<Bytes>,
}

/// How much is read at once.
const READ: usize = 16 * 1024;

/// How many chunks are on their way at once: one MiB at the most.
const ON_THE_WAY: usize = 64;

/// Carries bytes one way until the sender closes. An error means that the connection is to be reset.
async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    control: &Control,
    direction: Direction,
) -> io::Result<()> {
    let (sender, chunks) = mpsc::channel(ON_THE_WAY);
    // What is delayed does not keep what comes after it from setting out.
    let both = tokio::try_join!(
        async {
            take_in(from, sender).await;
            Ok(())
        },
        give_out(chunks, to, control, direction)
    );
    both.map(|_| ())
}

/// Reads until the sender closes, or nobody takes what was read.
async fn take_in(mut from: ReadHalf<'_>, chunks: mpsc::Sender<Chunk>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ);
        let read = from.read_buf(&mut buffer).await;
        let last = matches!(read, Ok(0) | Err(_));
        let chunk = Chunk {
            read_at: Instant::now(),
            bytes: read.map(|_| buffer.split().freeze()),
        };
        if chunks.send(chunk).await.is_err() || last {
            return;
        }
    }
}

/// Forwards what was read, when it may go on: up to a cut, or the close, which goes on too.
async fn give_out(
    mut chunks: mpsc::Receiver<Chunk>,
    mut to: WriteHalf<'_>,
    control: &Control,
    direction: Direction,
) -> io::Result<()> {
    let way = control.way(direction);
    let mut frames = Frames::default();
    let mut free_at = Instant::now();
    while let Some(Chunk { read_at, bytes }) = chunks.recv().await {
        let length = bytes.as_ref().map_or(0, Bytes::len);
        way.passable(read_at, length, &mut free_at).await;
        let bytes = bytes?;
        if bytes.is_empty() {
            return to.shutdown().await;
        }
        let granted = bytes.slice(..way.take(length));
        if direction == Direction::ToClient {
            // Before the client can know of it, and so before a test can ask.
            control.count_round_trips(frames.round_trips(&granted));
        }
        to.write_all(&granted).await?;
        if granted.len() < length {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
    Ok(())
}
