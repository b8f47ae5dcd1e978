//! Compression, by a layer outside or by the handler itself, and bodies that are no text.

use std::io::{Read as _, Write as _};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::post;
use end_to_end::{Answer, Client, Server};
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tower_http::compression::CompressionLayer;

use crate::support::{clients, keyed, layer};

const TEXT: &str =
    "a text that is long enough to be worth the while of compressing, compressing, compressing";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(bytes)
        .read_to_string(&mut text)
        .expect("gzip");
    text
}

async fn send(client: &Client, key: &str, gzip: bool) -> Answer {
    let request = keyed(client, "/", key);
    Answer::of(if gzip {
        request.header("accept-encoding", "gzip")
    } else {
        request
    })
    .await
}

/// R51: what a layer outside compresses is kept as the handler made it: each client gets it
/// compressed or plain as it asked for.
#[tokio::test]
async fn gzip_by_a_layer_outside() {
    let app = Router::new()
        .route(
            "/",
            post(|| async { (StatusCode::CREATED, TEXT) }).layer(layer()),
        )
        .layer(CompressionLayer::new());
    let server = Server::start(app).await;
    for (protocol, client) in clients(&server) {
        for first_gzip in [true, false] {
            let key = format!("{protocol}-{first_gzip}");
            for (arrival, gzip) in [first_gzip, !first_gzip, first_gzip]
                .into_iter()
                .enumerate()
            {
                let answer = send(&client, &key, gzip).await;
                assert_eq!(answer.status, StatusCode::CREATED);
                assert_eq!(answer.is_replay(), arrival > 0);
                assert_eq!(
                    answer.headers.contains_key("content-encoding"),
                    gzip,
                    "{key}, {arrival}"
                );
                let text = if gzip {
                    gunzip(&answer.body)
                } else {
                    String::from_utf8_lossy(&answer.body).into_owned()
                };
                assert_eq!(text, TEXT);
            }
        }
    }
}

/// R40, R51: what the handler compressed itself comes back as it is, with its Content-Encoding,
/// also through a layer outside and to a client that did not ask for it.
#[tokio::test]
async fn gzip_by_the_handler() {
    let handler = || async {
        let headers = [
            (header::CONTENT_ENCODING, "gzip"),
            (header::VARY, "accept-encoding"),
            (header::CONTENT_TYPE, "text/plain"),
        ];
        (headers, gzip(TEXT))
    };
    let app = Router::new()
        .route("/", post(handler).layer(layer()))
        .layer(CompressionLayer::new());
    let server = Server::start(app).await;
    for (key, client) in clients(&server) {
        let first = send(&client, key, true).await;
        for gzip in [true, false] {
            let later = send(&client, key, gzip).await;
            assert!(later.is_replay());
            assert_eq!(later.headers["content-encoding"], "gzip");
            assert_eq!(later.headers["vary"], "accept-encoding");
            assert_eq!(later.body, first.body);
            assert_eq!(gunzip(&later.body), TEXT);
        }
    }
}

/// R51: a picture comes back bit by bit.
#[tokio::test]
async fn a_picture() {
    const SIDE: u32 = 64;
    let pixels: Vec<u8> = (0..=255_u8)
        .map(|n| n.wrapping_mul(97))
        .cycle()
        .take(SIDE as usize * SIDE as usize * 3)
        .collect();
    let mut picture = Vec::new();
    let mut encoder = png::Encoder::new(&mut picture, SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("memory takes it");
    writer.write_image_data(&pixels).expect("memory takes it");
    writer.finish().expect("memory takes it");

    let sent = picture.clone();
    let handler = || async {
        (
            StatusCode::CREATED,
            [(header::CONTENT_TYPE, "image/png")],
            sent,
        )
    };
    let app = Router::new()
        .route("/", post(handler).layer(layer()))
        .layer(CompressionLayer::new());
    let server = Server::start(app).await;
    for (key, client) in clients(&server) {
        for replayed in [false, true] {
            let answer = send(&client, key, true).await;
            assert_eq!(answer.is_replay(), replayed);
            assert_eq!(answer.headers["content-type"], "image/png");
            assert_eq!(answer.body, picture);
            let mut reader = png::Decoder::new(std::io::Cursor::new(&answer.body))
                .read_info()
                .expect("a picture");
            let mut read = vec![0; reader.output_buffer_size().expect("a size")];
            reader.next_frame(&mut read).expect("a frame");
            assert_eq!(read, pixels);
        }
    }
}
