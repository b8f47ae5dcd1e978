//! A panic in every function that an application can give to a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use end_to_end::{Answer, Server, TestDb, World, act, on_every_database};
use serde_json::json;
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;
use tower_idempotency::{
    BoxError, Codec, IdempotencyLayer, Operation, RecordId, SqlxStore, StoredContent, Work,
};

use crate::support::{clients, keyed, kind};

type Layer<D> = IdempotencyLayer<SqlxStore<D>>;

/// Whether a hook panics.
#[derive(Clone, Default)]
struct Armed(Arc<AtomicBool>);

impl Armed {
    fn set(&self, armed: bool) {
        self.0.store(armed, Ordering::SeqCst);
    }

    fn pass(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "a hook that panics");
    }
}

/// Panics in one direction, or cannot encode while it is armed.
struct Brittle {
    encode: Armed,
    decode: Armed,
    refuse: Armed,
}

impl Codec for Brittle {
    fn encode(&self, _: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError> {
        self.encode.pass();
        if self.refuse.0.load(Ordering::SeqCst) {
            return Err("it was told to".into());
        }
        Ok(content)
    }

    fn decode(&self, _: &RecordId, content: StoredContent) -> Result<StoredContent, BoxError> {
        self.decode.pass();
        Ok(content)
    }
}

fn brittle() -> Brittle {
    Brittle {
        encode: Armed::default(),
        decode: Armed::default(),
        refuse: Armed::default(),
    }
}

/// When a hook is called.
#[derive(Clone, Copy, PartialEq)]
enum When {
    /// For each new key.
    First,
    /// For each replay.
    Replay,
    /// For each conflict.
    Conflict,
}

/// Sends what calls the hook: it breaks the connection off, or is answered by a layer outside that
/// catches panics, and leaves nothing. Once the hook is mended, the same request is answered.
async fn panics<D: TestDb>(dress: fn(Layer<D>, Armed) -> Layer<D>, when: When) {
    let world = World::<D>::new().await;
    let armed = Armed::default();
    let layer = dress(world.layer(), armed.clone());
    let app = || Router::new().route("/", post(act::<D>).layer(layer.clone()));
    let (bare, caught) = (
        Server::start(app()).await,
        Server::start(app().layer(CatchPanicLayer::new())).await,
    );
    for (server, catches) in [(&bare, false), (&caught, true)] {
        for (protocol, client) in clients(server) {
            let key = format!("{protocol}-{catches}");
            let send =
                |note: &str| Answer::try_of(keyed(&client, "/", &key).json(&json!({"note": note})));
            if when != When::First {
                assert_eq!(kind(&send(&key).await.expect("an answer")), "fresh");
            }
            armed.set(true);
            let broken = send(if when == When::Conflict {
                "another"
            } else {
                &key
            })
            .await;
            armed.set(false);
            match broken {
                Ok(answer) if catches => {
                    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR)
                }
                Err(_) if !catches => {}
                other => panic!("unexpected: {other:?}"),
            }
            assert_eq!(world.records(&key, "claimed").await, 0);
            let done = i64::from(when != When::First);
            assert_eq!(world.effects(&key).await, done);
            assert_eq!(world.records(&key, "completed").await, done);

            let again = send(&key).await.expect("an answer");
            assert_eq!(
                kind(&again),
                if when == When::First {
                    "fresh"
                } else {
                    "replay"
                }
            );
            assert_eq!(world.effects(&key).await, 1);
        }
    }
    assert_eq!(
        layer.drain(std::time::Duration::ZERO).await,
        0,
        "nothing still runs"
    );
    world.end().await;
}

on_every_database! {
    /// R67: what names operations panics.
    async fn naming<D>() {
        panics::<D>(named_by_a_function, When::First).await;
    }

    /// R67: what makes the canonical form of a body panics.
    async fn canonical_body<D>() {
        let dress: fn(Layer<D>, Armed) -> Layer<D> = |layer, armed| {
            layer.fingerprint_body_with(move |_, body| {
                armed.pass();
                body.clone()
            })
        };
        panics::<D>(dress, When::First).await;
    }

    /// R46, R67: a codec panics while it encodes: the handler's writes are rolled back.
    async fn codec_encodes<D>() {
        panics::<D>(|layer, encode| layer.codec(Brittle { encode, ..brittle() }), When::First).await;
    }

    /// R46, R67: a codec panics while it decodes.
    async fn codec_decodes<D>() {
        panics::<D>(|layer, decode| layer.codec(Brittle { decode, ..brittle() }), When::Replay).await;
    }

    /// R66, R67: what is asked before a replay panics.
    async fn rights<D>() {
        let dress: fn(Layer<D>, Armed) -> Layer<D> = |layer, armed| {
            layer.authorize_replay_with(move |_, _| {
                armed.pass();
                None
            })
        };
        panics::<D>(dress, When::Replay).await;
    }

    /// R44, R67: what renders problems panics, for a conflict.
    async fn rendering_a_conflict<D>() {
        panics::<D>(|layer, armed| layer.problem_with(render(armed)), When::Conflict).await;
    }

    /// R44, R67: what renders problems panics, for a result that cannot be encoded.
    async fn rendering_a_failure<D>() {
        let dress: fn(Layer<D>, Armed) -> Layer<D> = |layer, armed| {
            let refuse = armed.clone();
            layer.codec(Brittle { refuse, ..brittle() }).problem_with(render(armed))
        };
        panics::<D>(dress, When::First).await;
    }

    /// R67: the hook of the scope panics.
    async fn scope_hook<D>() {
        let dress: fn(Layer<D>, Armed) -> Layer<D> = |layer, armed| {
            layer.scope_with(move || {
                armed.pass();
                Box::new(|work| work)
            })
        };
        panics::<D>(dress, When::First).await;
    }

    /// R67: the scope that it returns panics.
    async fn scope<D>() {
        let dress: fn(Layer<D>, Armed) -> Layer<D> = |layer, armed| {
            layer.scope_with(move || {
                let armed = armed.clone();
                Box::new(move |work| {
                    armed.pass();
                    work
                })
            })
        };
        panics::<D>(dress, When::First).await;
    }

    /// R67: the future that wraps the work panics before the handler.
    async fn scoped_future<D>() {
        let dress: fn(Layer<D>, Armed) -> Layer<D> = |layer, armed| {
            layer.scope_with(move || {
                let armed = armed.clone();
                Box::new(move |work| -> Work {
                    Box::pin(async move {
                        armed.pass();
                        work.await;
                    })
                })
            })
        };
        panics::<D>(dress, When::First).await;
    }

    /// R67: the future that wraps the work panics while the handler runs, which is dropped with it.
    async fn scoped_future_in_the_middle<D>() {
        let world = World::<D>::new().await;
        let entered = Arc::new(Notify::new());
        let armed = Armed::default();
        armed.set(true);
        let (inside, watched, arming) = (Arc::clone(&entered), Arc::clone(&entered), armed.clone());
        let layer = world.layer().scope_with(move || {
            let (entered, armed) = (Arc::clone(&watched), arming.clone());
            Box::new(move |work| -> Work {
                Box::pin(async move {
                    tokio::select! {
                        () = work => {}
                        () = entered.notified() => armed.pass(),
                    }
                })
            })
        });
        let waiting = armed.clone();
        let handler = move || {
            let (entered, armed) = (Arc::clone(&inside), waiting.clone());
            async move {
                if armed.0.load(Ordering::SeqCst) {
                    entered.notify_one();
                    std::future::pending::<()>().await;
                }
                StatusCode::CREATED
            }
        };
        let app = Router::new().route("/", post(handler).layer(layer.clone())).layer(CatchPanicLayer::new());
        let server = Server::start(app).await;
        let (_, client) = clients(&server).into_iter().next().expect("a client");
        let broken = Answer::of(keyed(&client, "/", "k")).await;
        assert!(broken.status.is_server_error());
        armed.set(false);
        let _ = layer.drain(std::time::Duration::from_secs(5)).await;
        assert_eq!(world.records("k", "claimed").await, 0);
        world.end().await;
    }
}

/// A layer whose operations are named by a function.
fn named_by_a_function<D: TestDb>(layer: Layer<D>, armed: Armed) -> Layer<D> {
    layer.operation_with(move |_| {
        armed.pass();
        Some(Operation::from_static("effects"))
    })
}

fn render(
    armed: Armed,
) -> impl Fn(&tower_idempotency::Problem) -> Response<Bytes> + Send + Sync + 'static {
    move |problem| {
        armed.pass();
        problem.to_response()
    }
}
