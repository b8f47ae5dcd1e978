//! Arrivals that wait for a running key instead of being told to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{Answer, Client, Server, TestDb, World, act, on_every_database};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx};

use crate::support::{keyed, kind};

/// A handler that says when it runs, and goes on when it is told to.
#[derive(Clone)]
struct Gated {
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
    /// What the next one answers.
    status: Arc<AtomicU16>,
}

impl Gated {
    fn new() -> Self {
        Self {
            entered: Arc::new(Semaphore::new(0)),
            leave: Arc::new(Semaphore::new(0)),
            status: Arc::new(AtomicU16::new(201)),
        }
    }

    /// Writes an effect once it may.
    async fn run<D: TestDb>(self, tx: Tx<D>) -> Result<StatusCode, Response> {
        let status = self.status.swap(201, Ordering::SeqCst);
        self.entered.add_permits(1);
        self.leave.acquire().await.expect("open").forget();
        let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
        D::insert(&mut conn, "x")
            .await
            .map_err(|_| StatusCode::CONFLICT.into_response())?;
        Ok(StatusCode::from_u16(status).expect("a status"))
    }

    async fn has_entered(&self) {
        self.entered.acquire().await.expect("open").forget();
    }

    fn let_go(&self) {
        self.leave.add_permits(1);
    }

    /// `/` is gated, `/effects` is not.
    async fn serve<D: TestDb>(&self, layer: IdempotencyLayer<SqlxStore<D>>) -> Server {
        let gated = self.clone();
        let gated = move |tx: Tx<D>| gated.clone().run(tx);
        let app = Router::new()
            .route("/", post(gated).layer(layer.clone().operation("gated")))
            .route("/effects", post(act::<D>).layer(layer.operation("effects")));
        Server::start(app).await
    }
}

/// The requests of one key, as many as are wanted.
fn arrivals(client: &Client, count: usize) -> JoinSet<(Answer, Instant)> {
    let mut arrivals = JoinSet::new();
    for _ in 0..count {
        let request = keyed(client, "/", "k");
        arrivals.spawn(async move { (Answer::of(request).await, Instant::now()) });
    }
    arrivals
}

const PATIENCE: Duration = Duration::from_secs(20);

on_every_database! {
    /// R65: who waits gets the result as soon as it is there: woken, long before the next look.
    async fn woken_with_the_result<D>() {
        let world = World::<D>::new().await;
        let gated = Gated::new();
        let server = gated.serve(world.layer().wait_for_in_progress(PATIENCE)).await;
        for client in [Client::new(&server), Client::http2(&server)] {
            let first = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
            gated.has_entered().await;
            let waiting = arrivals(&client, 5);
            // They look again after 50, 150, 350, 750 and 1,550 ms, and then at 2,550 ms.
            sleep(Duration::from_millis(1_700)).await;
            let done = Instant::now();
            gated.let_go();
            assert_eq!(kind(&first.await.expect("no panic")), "fresh");
            for (answer, at) in waiting.join_all().await {
                assert_eq!(kind(&answer), "replay");
                assert!(at - done < Duration::from_millis(600), "took {:?}", at - done);
            }
            let owner = tower_idempotency::Owner::new("ann").expect("an owner");
            let layer = world.layer();
            tower_idempotency::Store::erase_owner(layer.store(), &owner).await.expect("no error");
        }
        assert_eq!(world.effects("x").await, 2);
        world.end().await;
    }

    /// R65: across two processes, who waits looks again at least every second.
    async fn polled_across_processes<D>() {
        let world = World::<D>::new().await;
        let gated = Gated::new();
        let here = gated.serve(world.layer().wait_for_in_progress(PATIENCE)).await;
        let other = IdempotencyLayer::new(D::connect(&world.database, 3).await);
        let there = gated.serve(other.wait_for_in_progress(PATIENCE)).await;
        let first = tokio::spawn(Answer::of(keyed(&Client::new(&here), "/", "k")));
        gated.has_entered().await;
        let waiting = arrivals(&Client::new(&there), 5);
        sleep(Duration::from_millis(300)).await;
        let done = Instant::now();
        gated.let_go();
        assert_eq!(kind(&first.await.expect("no panic")), "fresh");
        for (answer, at) in waiting.join_all().await {
            assert_eq!(kind(&answer), "replay");
            assert!(at - done < Duration::from_millis(1_800), "took {:?}", at - done);
        }
        world.end().await;
    }

    /// R53, R65: once its patience is over, who waited is answered as if it had not; another
    /// request of the key is refused at once.
    async fn patience_ends<D>() {
        let world = World::<D>::new().await;
        let gated = Gated::new();
        let patience = Duration::from_millis(400);
        let server = gated.serve(world.layer().wait_for_in_progress(patience)).await;
        let client = Client::new(&server);
        let first = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
        gated.has_entered().await;

        let started = Instant::now();
        let other = Answer::of(keyed(&client, "/", "k").body("another")).await;
        assert_eq!(other.problem(), "key-reused");
        assert!(started.elapsed() < patience, "took {:?}", started.elapsed());

        let started = Instant::now();
        for (answer, at) in arrivals(&client, 3).join_all().await {
            assert_eq!(answer.problem(), "in-progress");
            assert_eq!(answer.headers["retry-after"], "1");
            assert!(at - started >= patience, "only {:?}", at - started);
            assert!(at - started < Duration::from_secs(2), "took {:?}", at - started);
        }
        gated.let_go();
        assert_eq!(kind(&first.await.expect("no panic")), "fresh");
        world.end().await;
    }

    /// R65: where the first fails, one of those who wait runs, and the others get its result.
    async fn one_runs_when_the_first_fails<D>() {
        let world = World::<D>::new().await;
        let gated = Gated::new();
        let server = gated.serve(world.layer().wait_for_in_progress(PATIENCE)).await;
        let client = Client::new(&server);
        gated.status.store(500, Ordering::SeqCst);
        let first = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
        gated.has_entered().await;
        let waiting = arrivals(&client, 5);
        gated.let_go();
        assert_eq!(first.await.expect("no panic").status, StatusCode::INTERNAL_SERVER_ERROR);
        gated.has_entered().await;
        gated.let_go();
        let mut kinds: Vec<_> = waiting.join_all().await.iter().map(|(answer, _)| kind(answer)).collect();
        kinds.sort();
        assert_eq!(kinds, ["fresh", "replay", "replay", "replay", "replay"]);
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }

    /// R13, R65: who waits holds no connection: on a pool of one, another key passes meanwhile.
    async fn waiting_holds_no_connection<D>() {
        let world = World::<D>::with_connections(1).await;
        let gated = Gated::new();
        let server = gated.serve(world.layer().wait_for_in_progress(PATIENCE)).await;
        let client = Client::new(&server);
        let first = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
        gated.has_entered().await;
        let waiting = arrivals(&client, 20);
        for other in 0..20 {
            let (key, act) = (format!("other-{other}"), json!({"note": "y"}));
            let answer = client.post("/effects", &key, &act);
            let answer = timeout(Duration::from_secs(5), answer).await.expect("it passes");
            assert_eq!(answer.status, StatusCode::CREATED);
        }
        gated.let_go();
        assert_eq!(kind(&first.await.expect("no panic")), "fresh");
        let waiting = timeout(Duration::from_secs(10), waiting.join_all()).await.expect("they end");
        assert!(waiting.iter().all(|(answer, _)| kind(answer) == "replay"));
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }

    /// R65: no more may wait than may run: with two permits two wait, and others are told at once.
    async fn no_more_wait_than_run<D>() {
        let world = World::<D>::new().await;
        let gated = Gated::new();
        let layer = world.layer().wait_for_in_progress(PATIENCE).max_in_flight(2);
        let server = gated.serve(layer).await;
        let client = Client::new(&server);
        let first = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
        gated.has_entered().await;
        let mut waiting = Vec::new();
        let mut told = 0;
        // One after the other: each needs the second permit for its look at the record.
        while told < 4 {
            let mut arrival = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
            match timeout(Duration::from_millis(500), &mut arrival).await {
                Err(_) => waiting.push(arrival),
                Ok(answer) => match &answer.expect("no panic").problem()[..] {
                    "in-progress" => told += 1,
                    // Somebody who waits was looking.
                    other => assert_eq!(other, "busy"),
                },
            }
            assert!(waiting.len() <= 2, "no more than two wait");
        }
        assert_eq!(waiting.len(), 2);
        gated.let_go();
        assert_eq!(kind(&first.await.expect("no panic")), "fresh");
        for arrival in waiting {
            assert_eq!(kind(&arrival.await.expect("no panic")), "replay");
        }
        world.end().await;
    }

    /// R58, R65: who waits holds no permit, and needs none to go on waiting: while all are in use,
    /// it is not sent away.
    async fn waiting_goes_on_without_permits<D>() {
        let world = World::<D>::new().await;
        let gated = Gated::new();
        let layer = world.layer().wait_for_in_progress(PATIENCE).max_in_flight(2);
        let server = gated.serve(layer).await;
        let client = Client::new(&server);
        let first = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
        gated.has_entered().await;
        let mut waiting = tokio::spawn(Answer::of(keyed(&client, "/", "k")));
        assert!(timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "it waits");

        // Takes the other permit, unless who waits is looking right now.
        let request = || tokio::spawn(Answer::of(keyed(&client, "/", "other")));
        let mut other = request();
        loop {
            tokio::select! {
                () = gated.has_entered() => break,
                refused = &mut other => {
                    assert_eq!(refused.expect("no panic").problem(), "busy");
                    other = request();
                }
            }
        }
        // Longer than its longest pause.
        let early = timeout(Duration::from_millis(1_500), &mut waiting).await;
        gated.let_go();
        gated.let_go();
        assert!(early.is_err(), "sent away: {early:?}");
        assert_eq!(kind(&waiting.await.expect("no panic")), "replay");
        assert_eq!(kind(&first.await.expect("no panic")), "fresh");
        assert_eq!(kind(&other.await.expect("no panic")), "fresh");
        world.end().await;
    }
}
