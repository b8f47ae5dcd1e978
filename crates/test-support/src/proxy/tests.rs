use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{Direction, Proxy, Traffic};

const SOON: Duration = Duration::from_secs(5);
const NEVER: Duration = Duration::from_millis(100);

/// A server that sends back what it gets, and closes when its client has.
struct Echo(SocketAddr, JoinHandle<()>);

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await.ok();
                });
            }
        });
        Self(address, task)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn echoed(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn set_up() -> (Echo, Proxy, TcpStream) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(echo.0).await;
    let mut stream = TcpStream::connect(proxy.address()).await.expect("accepted");
    assert_eq!(
        echoed(&mut stream, "hello").await.expect("an echo"),
        "hello"
    );
    (echo, proxy, stream)
}

async fn is_reset(stream: &mut TcpStream) -> bool {
    let read = timeout(SOON, stream.read_u8()).await.expect("an end");
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// A closed direction is closed on the other side too, and the answer still comes.
#[tokio::test]
async fn a_close_goes_through() {
    let (_echo, _proxy, mut stream) = set_up().await;
    stream.write_all(b"last").await.expect("written");
    stream.shutdown().await.expect("closed");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("the rest");
    assert_eq!(rest, "last");
}

/// A delay holds each way of a round trip up.
#[tokio::test]
async fn a_delay_is_kept() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.set_both(Traffic::Delay(Duration::from_millis(40)));
    let begun = Instant::now();
    echoed(&mut stream, "slow").await.expect("an echo");
    assert!(begun.elapsed() >= Duration::from_millis(80));
}

/// Sends 320 KiB there and back, and returns how long that takes.
async fn a_long_echo(stream: &mut TcpStream) -> Duration {
    let sent = vec![7; 20 * 16 * 1024];
    let mut echoed = vec![0; sent.len()];
    let begun = Instant::now();
    let (mut read, mut write) = stream.split();
    let (written, read) = tokio::join!(write.write_all(&sent), read.read_exact(&mut echoed));
    written.expect("written");
    read.expect("an echo");
    assert_eq!(sent, echoed);
    begun.elapsed()
}

/// A delay may be finer than a timer's millisecond.
#[tokio::test]
async fn a_short_delay_is_short() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.set_both(Traffic::Delay(Duration::from_micros(500)));
    let mut best = Duration::MAX;
    for _ in 0..200 {
        let begun = Instant::now();
        echoed(&mut stream, "quick").await.expect("an echo");
        best = best.min(begun.elapsed());
    }
    assert!(best >= Duration::from_millis(1), "{best:?}");
    // With the timer it would be two at the least.
    assert!(best < Duration::from_micros(1_900), "{best:?}");
}

/// A long message is delayed once each way, and not again for each of its parts.
#[tokio::test]
async fn a_delay_is_the_same_for_a_long_message() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.set_both(Traffic::Delay(Duration::from_millis(150)));
    let took = a_long_echo(&mut stream).await;
    assert!(took >= Duration::from_millis(300), "{took:?}");
    // One after the other, its parts would take about three seconds.
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Through a narrow way a long message comes at its rate, and a short one almost at once.
#[tokio::test]
async fn a_throttle_is_a_rate() {
    let (_echo, proxy, mut stream) = set_up().await;
    let bytes_per_second = 640 * 1024;
    proxy.set(Direction::ToClient, Traffic::Throttle { bytes_per_second });
    let took = a_long_echo(&mut stream).await;
    assert!(took >= Duration::from_millis(490), "{took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let begun = Instant::now();
    echoed(&mut stream, "short").await.expect("an echo");
    assert!(begun.elapsed() < Duration::from_millis(200));
}

/// What is held does not arrive, and arrives whole once it passes again.
#[tokio::test]
async fn what_is_held_arrives_later() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.set(Direction::ToClient, Traffic::Hold);
    stream.write_all(b"later").await.expect("written");
    let mut answer = [0; 5];
    let held = timeout(NEVER, stream.read_exact(&mut answer)).await;
    assert!(held.is_err());

    proxy.set(Direction::ToClient, Traffic::Pass);
    timeout(SOON, stream.read_exact(&mut answer))
        .await
        .expect("it passes")
        .expect("an echo");
    assert_eq!(&answer, b"later");
}

/// All open connections are reset, and new ones work.
#[tokio::test]
async fn a_reset_spares_new_connections() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.reset_all();
    assert!(is_reset(&mut stream).await);

    let mut next = TcpStream::connect(proxy.address()).await.expect("accepted");
    assert_eq!(echoed(&mut next, "again").await.expect("an echo"), "again");
}

/// A held connection can be reset.
#[tokio::test]
async fn a_reset_reaches_what_is_held() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.set_both(Traffic::Hold);
    stream.write_all(b"held").await.expect("written");
    proxy.reset_all();
    assert!(is_reset(&mut stream).await);
}

/// A cut lets exactly so many bytes through, once.
#[tokio::test]
async fn a_cut_lets_the_bytes_before_it_through() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.cut_after(Direction::ToServer, 6);
    assert_eq!(echoed(&mut stream, "four").await.expect("an echo"), "four");
    stream.write_all(b"more").await.expect("written");
    assert!(is_reset_or_partial(&mut stream).await);
    timeout(SOON, proxy.cut_done(Direction::ToServer))
        .await
        .expect("the cut has happened");

    let mut next = TcpStream::connect(proxy.address()).await.expect("accepted");
    let long = "longer than what was left";
    assert_eq!(echoed(&mut next, long).await.expect("an echo"), long);
}

/// The two bytes before the cut may be echoed before the reset overtakes them.
async fn is_reset_or_partial(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut bytes))
        .await
        .expect("an end");
    read.is_err() && bytes.len() <= 2
}

/// Refused clients cannot connect, open connections live on, and later clients are let in again.
#[tokio::test]
async fn refusing_spares_open_connections() {
    let (_echo, proxy, mut stream) = set_up().await;
    proxy.refuse().await;
    let refused = TcpStream::connect(proxy.address()).await;
    assert!(refused.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
    assert_eq!(echoed(&mut stream, "open").await.expect("an echo"), "open");

    proxy.accept().await;
    let mut next = TcpStream::connect(proxy.address()).await.expect("accepted");
    assert_eq!(echoed(&mut next, "again").await.expect("an echo"), "again");
}

/// A proxy takes its connections with it.
#[tokio::test]
async fn connections_end_with_the_proxy() {
    let (_echo, proxy, mut stream) = set_up().await;
    drop(proxy);
    let read = timeout(SOON, stream.read_u8()).await.expect("an end");
    assert!(read.is_err());
}

/// New connections lead to where the proxy was redirected to, and open ones stay where they are.
#[tokio::test]
async fn new_connections_are_redirected() {
    let (_echo, proxy, mut old) = set_up().await;
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    proxy.redirect(other.local_addr().expect("an address"));
    let _new = TcpStream::connect(proxy.address()).await.expect("accepted");
    timeout(SOON, other.accept())
        .await
        .expect("at the other one")
        .expect("accepted");
    assert_eq!(echoed(&mut old, "again").await.expect("an echo"), "again");
}

/// Servers take turns, and one that refuses is passed over.
#[tokio::test]
async fn servers_take_turns() {
    let one = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addresses = [&one, &other].map(|server| server.local_addr().expect("an address"));
    let proxy = Proxy::balance(&addresses).await;
    for server in [&one, &other, &one] {
        let _client = TcpStream::connect(proxy.address()).await.expect("accepted");
        timeout(SOON, server.accept())
            .await
            .expect("it is its turn")
            .expect("accepted");
    }
    drop(other);
    let _client = TcpStream::connect(proxy.address()).await.expect("accepted");
    timeout(SOON, one.accept())
        .await
        .expect("the other refuses")
        .expect("accepted");
}
