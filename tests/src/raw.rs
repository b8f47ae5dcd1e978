//! HTTP/1.1 written by hand, for what no client sends.

use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Server;

/// A connection on which a test writes bytes.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

const PATIENCE: Duration = Duration::from_secs(30);

impl Raw {
    /// Connects.
    ///
    /// # Panics
    ///
    /// Nobody listens.
    pub async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address)
            .await
            .expect("a connection");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    ///
    /// The connection is closed.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]> + Send) {
        self.stream
            .write_all(bytes.as_ref())
            .await
            .expect("the server reads");
    }

    /// Ends what is sent, while the answer can still be read.
    ///
    /// # Panics
    ///
    /// The connection is closed.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.expect("an open connection");
    }

    /// Reads the next head, up to its empty line. Its status, and the text.
    ///
    /// # Panics
    ///
    /// There is none within 30 seconds.
    pub async fn head(&mut self) -> (StatusCode, String) {
        loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..end + 4).collect();
                let head = String::from_utf8_lossy(&head).into_owned();
                let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
                return (status.expect("a status line"), head);
            }
            assert!(self.more().await > 0, "the connection ended before a head");
        }
    }

    /// Reads to the end of the connection.
    ///
    /// # Panics
    ///
    /// There is none within 30 seconds.
    pub async fn rest(&mut self) -> String {
        while self.more().await > 0 {}
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Reads until the bytes are there.
    ///
    /// # Panics
    ///
    /// The connection ends before.
    pub async fn until(&mut self, wanted: &str) {
        while find(&self.read, wanted.as_bytes()).is_none() {
            assert!(
                self.more().await > 0,
                "the connection ended before {wanted}"
            );
        }
    }

    async fn more(&mut self) -> usize {
        timeout(PATIENCE, self.stream.read_buf(&mut self.read))
            .await
            .expect("the server goes on")
            .unwrap_or_default()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
