//! What a request costs the pool, and the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use end_to_end::{
    Client, Server, Stage, TestDb, World, effects_app, on_every_database, on_every_server,
};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{MySql, Postgres, Sqlite};
use test_support::{Direction, Proxy, Traffic};
use tokio::task::JoinSet;
use tower_idempotency::{IdempotencyLayer, SqlxStore, Tx};

on_every_database! {
    /// R13: a handler that waits before its first `acquire` holds no connection: a hundred of them
    /// on a pool of two are done in five seconds.
    async fn waiting_handlers_hold_no_connection<D>() {
        let world = World::<D>::with_connections(2).await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let started = Instant::now();
        let mut arrivals = JoinSet::new();
        for key in 0..100 {
            let client = client.clone();
            let act = json!({"note": "x", "wait_ms": 2_000});
            arrivals.spawn(async move { client.post("/effects", &key.to_string(), &act).await });
        }
        for answer in arrivals.join_all().await {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
        assert_eq!(world.effects("x").await, 100);
        world.end().await;
    }

    /// R13: a pool of one never hangs, whatever a request comes to.
    async fn a_pool_of_one_is_enough<D>() {
        let world = World::<D>::with_connections(1).await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let mut arrivals = JoinSet::new();
        for i in 0..40 {
            let client = client.clone();
            // New, again, with another body, failing, panicking.
            let key = (i % 8).to_string();
            let act = match i % 5 {
                0 | 1 => json!({"note": "x"}),
                2 => json!({"note": "x", "wait_ms": 5}),
                3 => json!({"note": "x", "answer": 500}),
                _ => json!({"note": "x", "panic": true}),
            };
            let request = client.request(http::Method::POST, "/effects");
            let request = request.header("idempotency-key", key).json(&act);
            arrivals.spawn(end_to_end::Answer::try_of(request));
        }
        let all = tokio::time::timeout(Duration::from_secs(20), arrivals.join_all()).await;
        for answer in all.expect("nothing hangs").into_iter().flatten() {
            assert_ne!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
        }
        let after = client.post("/effects", "after", &json!({"note": "after"})).await;
        assert_eq!(after.status, StatusCode::CREATED);
        world.end().await;
    }
}

/// R32: neither the claim's impatience with locks nor its token outlive their statement and their
/// transaction: whoever has the connection next waits as it pleases, and completes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_leaves_its_connection_as_it_was() {
    let world = World::<Postgres>::with_connections(1).await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    // One alone, and so many at once that some are claimed by one statement.
    for (arrivals, act) in [
        (1, json!({"note": "x"})),
        (1, json!({"note": "x", "answer": 400})),
        (16, json!({"note": "x"})),
    ] {
        let mut arriving = JoinSet::new();
        for number in 0..arrivals {
            let (client, act) = (client.clone(), act.clone());
            let key = format!("{}-{number}", act.to_string().len() + arrivals);
            arriving.spawn(async move { client.post("/effects", &key, &act).await });
        }
        arriving.join_all().await;
        let settings = "SELECT current_setting('lock_timeout'), \
                        coalesce(current_setting('tower_idempotency.claim', true), '')";
        let left: (String, String) = sqlx::query_as(settings)
            .fetch_one(&world.pool)
            .await
            .expect("the settings");
        assert_eq!(
            left,
            ("0".to_owned(), String::new()),
            "after {arrivals} of {act}"
        );
    }
    world.end().await;
}

/// What a relaxed claim does not wait for, its completion does: the setting ends with the claim's
/// statement, alone or for many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relaxed_claim_relaxes_nothing_else() {
    let world = World::<Postgres>::new().await;
    let options: PgConnectOptions = world.database.url().parse().unwrap();
    let options = options.options([("synchronous_commit", "on")]);
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect_with(options).await.unwrap();
    let store = SqlxStore::new(pool.clone()).relaxed_claims();
    let layer = IdempotencyLayer::with_store(store);
    let server = Server::start(effects_app(&layer)).await;
    let client = Client::new(&server);
    for arrivals in [1, 16] {
        let mut arriving = JoinSet::new();
        for number in 0..arrivals {
            let (client, key) = (client.clone(), format!("{arrivals}-{number}"));
            arriving
                .spawn(async move { client.post("/effects", &key, &json!({"note": "x"})).await });
        }
        arriving.join_all().await;
        let setting = "SELECT current_setting('synchronous_commit')";
        let left: String = sqlx::query_scalar(setting).fetch_one(&pool).await.unwrap();
        assert_eq!(left, "on", "after {arrivals}");
    }
    pool.close().await;
    world.end().await;
}

/// R50, R51: on PostgreSQL a new key costs one round trip before its handler, a replay one in all,
/// and so does a conflict; completion and COMMIT are two more than the handler's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips_are_few() {
    let world = World::<Postgres>::new().await;
    let proxy = Arc::new(Proxy::start(world.database.address()).await);
    // Without sqlx's ping, which is a round trip too.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false);
    let pool = pool
        .connect(&world.database.url_via(proxy.address()))
        .await
        .unwrap();

    let seen = Arc::clone(&proxy);
    let handler = move |tx: Tx<Postgres>| {
        let seen = Arc::clone(&seen);
        async move {
            let claimed = seen.round_trips();
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            Postgres::insert(&mut conn, "x")
                .await
                .map_err(|_| StatusCode::CONFLICT.into_response())?;
            Ok::<_, Response>(claimed.to_string())
        }
    };
    let layer = IdempotencyLayer::new(pool.clone());
    let server = Server::start(Router::new().route("/", post(handler).layer(layer))).await;
    let client = Client::new(&server);
    // Prepares the statements.
    for key in ["warm", "warm", "warm-2"] {
        client.post("/", key, &json!({})).await;
    }
    let quiet = || async {
        // A connection pings itself when it goes back to the pool, after the answer.
        loop {
            let before = proxy.round_trips();
            tokio::time::sleep(Duration::from_millis(100)).await;
            if proxy.round_trips() == before {
                break before;
            }
        }
    };

    let before = quiet().await;
    let answer = client.post("/", "k", &json!({})).await;
    let claimed: u64 = String::from_utf8(answer.body.to_vec())
        .unwrap()
        .parse()
        .unwrap();
    // The claim's connection may have pinged itself by the time the handler looks.
    assert!(
        (1..=2).contains(&(claimed - before)),
        "claim: {}",
        claimed - before
    );
    // Claim, BEGIN, INSERT, completion, COMMIT, and a ping for each time of two that a connection
    // goes back, one of them together with the end of the empty transaction behind the COMMIT.
    assert_eq!(quiet().await - before, 8, "a new key in all");

    let before = quiet().await;
    assert!(client.post("/", "k", &json!({})).await.is_replay());
    assert_eq!(quiet().await - before, 2, "a replay, and the ping after it");

    let before = quiet().await;
    let conflict = client.post("/", "k", &json!({"other": true})).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    assert_eq!(
        quiet().await - before,
        2,
        "a conflict, and the ping after it"
    );
    pool.close().await;
    world.end().await;
}

on_every_server! {
    /// R53: an arrival does not wait for somebody else's uncommitted work: 200 ms at the most, on
    /// MariaDB a second.
    async fn uncommitted_work_is_not_waited_for<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let act = json!({"note": "x"});
        let first = client.post("/effects", "k", &act).await;
        assert_eq!(first.status, StatusCode::CREATED);
        // The lock's time-out, and what a loaded machine adds.
        let patience = Duration::from_millis(if D::NAME == "MySQL" { 1_500 } else { 600 });

        let mut half_open = world.pool.begin().await.unwrap();
        let insert = "INSERT INTO {records} SELECT owner, operation, 'new', state, claim_token, \
             claimed_at, stale_at, fingerprint, status, kept, headers, body, resource_ref, \
             completed_at, expires_at FROM {records} AS r WHERE r.key = 'k'";
        for (sql, key, status) in [
            (insert, "new", 503),
            ("UPDATE {records} AS r SET completed_at = NULL, kept = NULL, status = NULL, headers = NULL, \
                 body = NULL, state = 'claimed' WHERE r.key = 'k'", "k", 201),
            ("DELETE FROM {records} WHERE fingerprint IS NOT NULL", "k", 201),
        ] {
            D::run(&mut half_open, sql).await.unwrap();
            let started = Instant::now();
            let answer = client.post("/effects", key, &act).await;
            assert_eq!(answer.status.as_u16(), status, "{answer:?}");
            assert!(started.elapsed() < patience, "took {:?}", started.elapsed());
        }
        half_open.rollback().await.unwrap();
        let answer = client.post("/effects", "new", &act).await;
        assert_eq!(answer.status, StatusCode::CREATED, "as if nothing had been");
        world.end().await;
    }
}

on_every_server! {
    /// R33, R53: nor does an arrival at a stale claim wait, where its owner is in the middle of completing it.
    async fn a_slow_completion_keeps_no_heir_waiting<D>() {
        let world = World::<D>::new().await;
        let server = Server::start(effects_app(&world.layer())).await;
        let client = Client::new(&server);
        let act = json!({"note": "x", "wait_ms": 2_000});
        let owner = tokio::spawn({
            let (client, act) = (client.clone(), act.clone());
            async move { client.post("/effects", "k", &act).await }
        });
        while world.records("k", "claimed").await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.age(Duration::from_secs(600)).await;
        let mut completing = world.pool.begin().await.unwrap();
        let lock = "UPDATE {records} AS r SET claimed_at = claimed_at WHERE r.key = 'k'";
        D::run(&mut completing, lock).await.unwrap();
        let started = Instant::now();
        let heir = client.post("/effects", "k", &act).await;
        assert_eq!(heir.problem(), "in-progress");
        assert!(started.elapsed() < Duration::from_millis(1_500), "took {:?}", started.elapsed());
        completing.rollback().await.unwrap();
        assert_eq!(owner.await.unwrap().status, StatusCode::CREATED);
        assert_eq!(world.effects("x").await, 1);
        world.end().await;
    }
}

/// R53: on MySQL and MariaDB claims lock no gaps: neighbouring keys that are claimed, completed and freed
/// at once never wait for each other's transactions, and none of them is a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbouring_keys_do_not_meet() {
    let world = World::<MySql>::with_connections(40).await;
    let together = Arc::new(tokio::sync::Barrier::new(32));
    let handler = move |Path(status): Path<u16>, tx: Tx<MySql>| {
        let together = Arc::clone(&together);
        async move {
            let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
            MySql::insert(&mut conn, "x").await.expect("an insert");
            // All transactions are open at once.
            together.wait().await;
            Ok::<_, Response>(StatusCode::from_u16(status).expect("a status"))
        }
    };
    let app = Router::new().route("/{status}", post(handler).layer(world.layer()));
    let server = Server::start(app).await;
    let client = Client::new(&server);
    for round in 0..5 {
        let mut arrivals = JoinSet::new();
        for number in 0..32 {
            let client = client.clone();
            let status = if number % 3 == 0 { 422 } else { 201 };
            arrivals.spawn(async move {
                let (path, key) = (format!("/{status}"), format!("k{round}-{number:02}"));
                let answer = client.post(&path, &key, &json!({})).await;
                assert_eq!(answer.status.as_u16(), status, "{answer:?}");
            });
        }
        let all = tokio::time::timeout(Duration::from_secs(20), arrivals.join_all()).await;
        all.expect("nothing waits");
    }
    world.end().await;
}

/// R57: where a pool does not ping, a connection that has died in it costs no claim: it is tried once
/// more on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_costs_no_claim() {
    let world = World::<Postgres>::new().await;
    let proxy = Proxy::start(world.database.address()).await;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false);
    let url = world.database.url_via(proxy.address());
    let pool = pool.connect(&url).await.unwrap();
    let layer = IdempotencyLayer::new(pool.clone());
    let server = Server::start(effects_app(&layer)).await;
    let client = Client::new(&server);
    for key in 0..5 {
        let answer = client
            .post("/effects", &key.to_string(), &json!({"note": "x"}))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        // Back in the pool, where it dies.
        while pool.num_idle() == 0 {
            tokio::task::yield_now().await;
        }
        proxy.reset_all();
    }
    assert_eq!(world.effects("x").await, 5);
    pool.close().await;
    world.end().await;
}

/// R13: on SQLite, who waits for the one that writes holds no connection: readers have the rest of
/// the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_writers_starve_no_reader() {
    let world = World::<Sqlite>::with_connections(2).await;
    let stage = Stage::new();
    let handler = {
        let stage = Arc::clone(&stage);
        move |tx: Tx<Sqlite>| {
            let stage = Arc::clone(&stage);
            async move {
                let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
                Sqlite::insert(&mut conn, "x").await.expect("an insert");
                stage.pause().await;
                Ok::<_, Response>(StatusCode::CREATED)
            }
        }
    };
    let server = Server::start(Router::new().route("/", post(handler).layer(world.layer()))).await;
    let client = Client::new(&server);
    let mut arrivals = JoinSet::new();
    for key in 0..6 {
        let client = client.clone();
        arrivals.spawn(async move { client.post("/", &key.to_string(), &json!({})).await });
    }
    stage.reached().await;
    // For the others to get as far as they can.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let reading = Sqlite::count(
        &world.pool,
        "SELECT count(*) FROM effect WHERE note = $1",
        "x",
    );
    let read = tokio::time::timeout(Duration::from_secs(2), reading).await;
    assert_eq!(read.expect("a connection is free"), 0);
    for _ in 0..6 {
        stage.go_on();
    }
    for answer in arrivals.join_all().await {
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
    assert_eq!(world.effects("x").await, 6);
    world.end().await;
}

/// R53: claims that are made by one statement do not fail together: one key that is locked keeps the
/// others for 200 ms at the most, and alone is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_key_refuses_no_other() {
    let world = World::<Postgres>::new().await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    let other = Postgres::connect(&world.database, 1).await;
    let mut half_open = other.begin().await.unwrap();
    let claim = "INSERT INTO tower_idempotency.record \
         (owner, operation, key, state, claim_token, claimed_at, stale_at, fingerprint) \
         VALUES ('ann', 'effects', 'locked', 'claimed', decode(repeat('00', 16), 'hex'), now(), now(), 'hs1:')";
    sqlx::query(claim).execute(&mut *half_open).await.unwrap();

    let mut arrivals = JoinSet::new();
    for number in 0..60 {
        let client = client.clone();
        let key = match number % 20 {
            7 => "locked".to_owned(),
            _ => format!("free-{number}"),
        };
        arrivals.spawn(async move {
            let answer = client.post("/effects", &key, &json!({"note": "x"})).await;
            (key, answer)
        });
    }
    for (key, answer) in arrivals.join_all().await {
        let expected = if key == "locked" { 503 } else { 201 };
        assert_eq!(answer.status.as_u16(), expected, "{key}: {answer:?}");
    }
    assert_eq!(world.effects("x").await, 57);
    half_open.rollback().await.unwrap();
    other.close().await;
    world.end().await;
}

/// Lets the claims of some keys sleep for that many seconds in the database.
macro_rules! sleeping {
    ($seconds:literal, $keys:literal) => {
        concat!(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN PERFORM pg_sleep(",
            $seconds,
            "); RETURN NEW; END'; \
             CREATE TRIGGER slow BEFORE INSERT ON tower_idempotency.record \
                 FOR EACH ROW WHEN (NEW.key LIKE '",
            $keys,
            "') EXECUTE FUNCTION slow()"
        )
    };
}

async fn set_up(world: &World<Postgres>, sql: &'static str) {
    let mut conn = world.pool.acquire().await.unwrap();
    Postgres::run(&mut conn, sql).await.unwrap();
}

/// How many claims sleep.
async fn asleep(world: &World<Postgres>) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event = $1";
    Postgres::count(&world.pool, sql, "PgSleep").await
}

/// R53, R57: claims that take long keep no others waiting, though claims that meet share a statement: who
/// is in line behind them goes alone after a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_claims_keep_nobody_waiting() {
    let world = World::<Postgres>::with_connections(20).await;
    set_up(&world, sleeping!("5", "slow-%")).await;
    let server = Server::start(effects_app(&world.layer())).await;
    let client = Client::new(&server);
    let post = |key: String, note: &'static str| {
        let client = client.clone();
        async move {
            let answer = client.post("/effects", &key, &json!({"note": note})).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{key}");
        }
    };
    let mut slow = JoinSet::new();
    for number in 0..4 {
        slow.spawn(post(format!("slow-{number}"), "slow"));
    }
    while asleep(&world).await < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let started = Instant::now();
    let mut quick = JoinSet::new();
    for number in 0..20 {
        quick.spawn(post(format!("quick-{number}"), "quick"));
    }
    quick.join_all().await;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    slow.join_all().await;
    assert_eq!(world.effects("quick").await, 20);
    assert_eq!(world.effects("slow").await, 4);
    world.end().await;
}

/// R53: results as long as they may be keep no claim waiting on a narrow way to the database: they are not
/// in a statement that claims share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_keep_nobody_waiting() {
    // All on one connection would take eight seconds, and each on its own a quarter of one.
    results_keep_nobody_waiting(32, 1024 * 1024, 4 * 1024 * 1024).await;
}

/// R53: nor do results that are many and not so large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_results_keep_nobody_waiting() {
    // All on one connection would take four seconds.
    results_keep_nobody_waiting(64, 30 * 1024, 512 * 1024).await;
}

async fn results_keep_nobody_waiting(count: usize, large: usize, bytes_per_second: u32) {
    let world = World::<Postgres>::new().await;
    set_up(&world, sleeping!("0.06", "slow-%")).await;
    let proxy = Proxy::start(world.database.address()).await;
    let pool = PgPoolOptions::new().max_connections(40);
    let url = world.database.url_via(proxy.address());
    let pool = pool.connect(&url).await.unwrap();
    let handler = async |Path(bytes): Path<usize>, tx: Tx<Postgres>| {
        let mut conn = tx.acquire().await.map_err(IntoResponse::into_response)?;
        Postgres::insert(&mut conn, "x").await.expect("an insert");
        Ok::<_, Response>((StatusCode::CREATED, "x".repeat(bytes)))
    };
    let layer = IdempotencyLayer::new(pool.clone()).operation("effects");
    let app = Router::new().route("/{bytes}", post(handler).layer(layer));
    let server = Server::start(app).await;
    let client = Client::new(&server);
    let post = |key: String, bytes: usize| {
        let client = client.clone();
        async move {
            let answer = client.post(&format!("/{bytes}"), &key, &json!({})).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{key}");
            assert_eq!(answer.body.len(), bytes, "{key}");
            answer.is_replay()
        }
    };
    let all_large = || JoinSet::from_iter((0..count).map(|n| post(format!("large-{n}"), large)));
    let replays = all_large().join_all().await;
    assert!(replays.iter().all(|replay| !replay));

    proxy.set(Direction::ToClient, Traffic::Throttle { bytes_per_second });
    // While a slow claim is under way the others get into line, and then go together.
    let mut slow = Vec::new();
    while asleep(&world).await == 0 {
        if slow.last().is_none_or(tokio::task::JoinHandle::is_finished) {
            slow.push(tokio::spawn(post(format!("slow-{}", slow.len()), 1)));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    let mut arrivals = all_large();
    for number in 0..8 {
        arrivals.spawn(post(format!("new-{number}"), 1));
    }
    let replays = arrivals.join_all().await.into_iter();
    assert_eq!(replays.filter(|replay| *replay).count(), count);
    let took = started.elapsed();
    // A statement of many is cut after two seconds.
    assert!(took < Duration::from_secs(2), "took {took:?}");
    let mut new = i64::try_from(count).unwrap() + 8;
    for slow in slow {
        assert!(!slow.await.unwrap());
        new += 1;
    }
    assert_eq!(world.effects("x").await, new);
    pool.close().await;
    world.end().await;
}

/// R31: a claim that was made for somebody who does not wait any more is freed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_nobody_waits_for_is_freed() {
    let world = World::<Postgres>::new().await;
    set_up(&world, sleeping!("0.4", "given-up-%")).await;
    let server = Server::start(effects_app(
        &world.layer().store_timeout(Duration::from_millis(150)),
    ))
    .await;
    let client = Client::new(&server);
    let mut arrivals = JoinSet::new();
    for number in 0..12 {
        let client = client.clone();
        arrivals.spawn(async move {
            let key = format!("given-up-{number}");
            client.post("/effects", &key, &json!({"note": "x"})).await
        });
    }
    for answer in arrivals.join_all().await {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    }
    for number in 0..12 {
        let key = format!("given-up-{number}");
        let freed = async {
            while world.records(&key, "claimed").await != 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let freed = tokio::time::timeout(Duration::from_secs(10), freed).await;
        assert!(freed.is_ok(), "{key} is stuck");
    }
    assert_eq!(world.effects("x").await, 0);
    world.end().await;
}
