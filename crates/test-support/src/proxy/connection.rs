//! One connection through the proxy.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

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

/// Carries bytes one way until the sender closes. An error means that the connection is to be reset.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    control: &Control,
    direction: Direction,
) -> io::Result<()> {
    let way = control.way(direction);
    let mut frames = Frames::default();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        way.passable().await;
        let read = read?;
        if read == 0 {
            return to.shutdown().await;
        }
        let granted = way.take(read);
        let bytes = &buffer[..granted];
        if direction == Direction::ToClient {
            // Before the client can know of it, and so before a test can ask.
            control.count_round_trips(frames.round_trips(bytes));
        }
        to.write_all(bytes).await?;
        if granted < read {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}
