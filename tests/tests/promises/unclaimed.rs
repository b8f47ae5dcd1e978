//! Requests without a record, and layers in the wrong place.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use end_to_end::{Act, Answer, Client, Server, TestDb, World, act, effects_app, on_every_database};
use http::Method;
use serde_json::json;
use tower_idempotency::{Owner, Tx};

/// Tells why it got no transaction.
async fn stray<D: TestDb>(tx: Tx<D>) -> Response {
    match tx.acquire().await {
        Ok(_) => StatusCode::CREATED.into_response(),
        Err(error) => {
            assert!(error.is_refused());
            (StatusCode::NOT_FOUND, error.to_string()).into_response()
        }
    }
}

async fn whoami(owner: Owner) -> String {
    owner.as_str().to_owned()
}

on_every_database! {
    /// R8: where no record is kept, the transaction is committed on 2xx and rolled back otherwise.
    async fn a_transaction_without_a_record<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer().optional().operation("acts");
        let app = Router::new().route("/", any(act::<D>).layer(layer));
        let server = Server::start(app).await;
        let client = Client::new(&server);
        let send = |method, note: &'static str, answer: Option<u16>| {
            let act = json!({"note": note, "answer": answer});
            Answer::of(client.request(method, "/").json(&act))
        };
        for (i, method) in [Method::POST, Method::PUT, Method::DELETE].into_iter().enumerate() {
            let made = i64::try_from(i).unwrap() + 1;
            assert_eq!(send(method.clone(), "x", None).await.status, StatusCode::CREATED);
            assert_eq!(world.effects("x").await, made, "{method}");
            assert_eq!(send(method.clone(), "x", Some(400)).await.status, StatusCode::BAD_REQUEST);
            assert_eq!(world.effects("x").await, made, "{method} is rolled back");
        }
        // An optional key that is there counts.
        assert_eq!(client.post("/", "k", &json!({"note": "y"})).await.status, StatusCode::CREATED);
        assert!(client.post("/", "k", &json!({"note": "y"})).await.is_replay());
        world.end().await;
    }

    /// R9: around a whole router, a request that no route matches runs without a record, and its
    /// transaction refuses and says why; routes are named by themselves or by the table.
    async fn a_layer_around_a_router<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer().operation_for(Method::POST, "/named", "publish");
        let app = Router::new()
            .route("/named", post(act::<D>))
            .route("/things/{id}", post(act::<D>))
            .fallback(stray::<D>)
            .layer(layer);
        let server = Server::start(app).await;
        let client = Client::new(&server);
        let stray = client.post("/nowhere", "k", &json!({"note": "x"})).await;
        assert_eq!(stray.status, StatusCode::NOT_FOUND);
        let said = String::from_utf8(stray.body.to_vec()).unwrap();
        assert!(said.contains(".operation(..)"), "says which line to add: {said}");
        for path in ["/named", "/things/7"] {
            assert_eq!(client.post(path, "k", &json!({"note": "x"})).await.status, StatusCode::CREATED);
        }
        assert_eq!(world.records("k", "completed").await, 2);
        let names =
            "SELECT count(*) FROM {records} WHERE operation IN ('publish', 'POST /things/{}') AND owner <> $1";
        assert_eq!(D::count(&world.pool, names, "nobody").await, 2);
        world.end().await;
    }

    /// R10: no owner is 500, and so are two layers, one inside of the other; neither runs.
    async fn misplaced_layers_fail_closed<D>() {
        let world = World::<D>::new().await;
        let layer = world.layer();
        let app = effects_app(&layer)
            .route("/whoami", post(whoami))
            .route("/nested", post(act::<D>).layer(layer.clone().operation("inner")))
            .route_layer(tower::layer::util::Identity::new());
        let nested = Router::new()
            .route("/twice", post(act::<D>).layer(layer.clone().operation("inner")))
            .layer(layer.clone().operation("outer"));
        let server = Server::start(app.merge(nested)).await;
        let client = Client::new(&server);

        let twice = client.post("/twice", "k", &json!({"note": "x"})).await;
        assert_eq!((twice.status.as_u16(), twice.problem()), (500, "layer-nested".into()));

        let nobody = reqwest::Client::builder().no_proxy().build().unwrap();
        let nobody = |path: &str| nobody.post(format!("http://{}{path}", server.address));
        let act = json!({"note": "x"});
        let answer = Answer::of(nobody("/effects").header("idempotency-key", "k").json(&act)).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (500, "owner-missing".into()));
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("extensions_mut().insert(Owner::new(id)?)"), "{detail}");
        assert_eq!(Answer::of(nobody("/whoami")).await.problem(), "owner-missing");
        assert_eq!(world.effects("x").await, 0);
        world.end().await;
    }

    /// A handler that wants a transaction where no layer is says which line to add.
    async fn a_missing_layer_says_so<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(Router::new().route("/", post(act::<D>))).await;
        let answer = Client::new(&server).post("/", "k", &json!({"note": "x"})).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (500, "layer-missing".into()));
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(".layer(IdempotencyLayer::new(pool))"), "{detail}");
        world.end().await;
    }

    /// R6: a record under an earlier name of the operation still counts.
    async fn an_earlier_name_still_counts<D>() {
        let world = World::<D>::new().await;
        let route = |layer| Router::new().route("/", post(act::<D>).layer(layer));
        let before = Server::start(route(world.layer().operation("old"))).await;
        let renamed = world.layer().operation("new").operation_alias("old");
        let after = Server::start(route(renamed)).await;
        let (before, after) = (Client::new(&before), Client::new(&after));
        let act = json!({"note": "x"});

        assert_eq!(before.post("/", "k", &act).await.status, StatusCode::CREATED);
        assert!(after.post("/", "k", &act).await.is_replay());
        assert_eq!(after.post("/", "k", &json!({"note": "y"})).await.problem(), "key-reused");
        assert_eq!(world.records("k", "claimed").await, 0, "the new name is free again");

        let slow = tokio::spawn({
            let before = before.clone();
            async move { before.post("/", "k2", &json!({"note": "x", "wait_ms": 400})).await }
        });
        while world.records("k2", "claimed").await == 0 {
            tokio::task::yield_now().await;
        }
        let act = json!({"note": "x", "wait_ms": 400});
        assert_eq!(after.post("/", "k2", &act).await.problem(), "in-progress");
        assert_eq!(slow.await.unwrap().status, StatusCode::CREATED);
        assert!(after.post("/", "k2", &act).await.is_replay());
        assert_eq!(world.effects("x").await, 2);
        world.end().await;
    }
}

/// An extractor that finds no owner is refused before the handler runs.
#[tokio::test]
async fn extractors_reject_with_problems() {
    let app: Router = Router::new().route(
        "/",
        post(|owner: Owner, Json(_): Json<Act>| async move { owner.as_str().to_owned() }),
    );
    let server = Server::start(app).await;
    let request = reqwest::Client::new().post(format!("http://{}/", server.address));
    assert_eq!(
        Answer::of(request.json(&json!({"note": "x"})))
            .await
            .problem(),
        "owner-missing"
    );
}
