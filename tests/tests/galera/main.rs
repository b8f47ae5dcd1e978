//! Three MariaDB servers that are one cluster by Galera, and take writes at each.
//!
//! Ignored by default, as each test starts a cluster of its own. Run with
//!
//! ```text
//! cargo xtask cluster galera
//! cargo test -p end-to-end --test galera -- --ignored --test-threads=1
//! ```

mod cluster;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use end_to_end::Answer;
use http::StatusCode;
use tokio::join;

use self::cluster::{Cluster, Site};

/// How many keys are sent to two nodes at least, and at most where none of them met.
const KEYS: [usize; 2] = [20, 500];

/// R31, R33, R65: the same key at two nodes at once has one effect. Where both claim it, the COMMIT of
/// one fails with 1213; it waits for the other's result, and answers with that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts three servers: cargo xtask cluster galera"]
async fn the_same_key_at_two_nodes_has_one_effect() {
    let cluster = Cluster::start().await;
    let [one, other, _] = &cluster.sites;
    let mut keys = 0;
    while keys < KEYS[0] || cluster.conflicts().await == 0 {
        assert!(keys < KEYS[1], "no two claims met");
        let key = format!("key-{keys}");
        let (first, second) = join!(one.post(&key, &key), other.post(&key, &key));
        for answer in [&first, &second] {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
        assert_ne!(first.is_replay(), second.is_replay(), "one of them ran it");
        assert_eq!(first.body, second.body);
        assert_eq!(cluster.effects(&key).await, 1);
        keys += 1;
    }
    println!("{keys} keys, {} conflicts", cluster.conflicts().await);
    cluster.stop().await;
}

/// R33, R60: a claim that is stale at one node is taken over at another. Its owner's transaction is ended by
/// the conflict, with 1213, and is answered with the other's result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts three servers: cargo xtask cluster galera"]
async fn a_slow_owner_at_another_node_changes_nothing() {
    let cluster = Cluster::start().await;
    let [one, other, _] = &cluster.sites;
    let (slow, quick) = meanwhile(one, "key", async || {
        // Told to wait while the claim lives.
        tokio::time::sleep(cluster::STALE_AFTER).await;
        other.post("key", "key").await
    })
    .await;
    assert_eq!(quick.status, StatusCode::CREATED, "{quick:?}");
    assert!(!quick.is_replay());
    assert_eq!(slow.status, StatusCode::CREATED, "{slow:?}");
    assert!(slow.is_replay());
    assert_eq!(slow.body, quick.body);
    assert_ne!(cluster.conflicts().await, 0);
    assert_eq!(cluster.effects("key").await, 1);
    cluster.stop().await;
}

/// R61: two keys whose handlers change the same row at two nodes have one winner. Nothing of the other is there, and a
/// retry of it is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts three servers: cargo xtask cluster galera"]
async fn a_conflict_between_nodes_is_rolled_back() {
    let cluster = Cluster::start().await;
    let [one, other, _] = &cluster.sites;
    let (loser, winner) =
        meanwhile(one, "loser", async || other.post("winner", "winner").await).await;
    assert_eq!(winner.status, StatusCode::CREATED, "{winner:?}");
    assert_unavailable(&loser, "conflict-retry");
    assert_eq!(cluster.effects("loser").await, 0);
    let retry = one.post("loser", "loser").await;
    assert_eq!(retry.status, StatusCode::CREATED, "{retry:?}");
    assert!(!retry.is_replay());
    assert_eq!(cluster.effects("loser").await, 1);
    cluster.stop().await;
}

/// R57: a node that is cut off from the two others runs no handler, for a new key or a known one. The two
/// go on, and once it is back it answers with what they did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts three servers: cargo xtask cluster galera"]
async fn a_minority_runs_no_handler() {
    let cluster = Cluster::start().await;
    let [majority, _, minority] = &cluster.sites;
    assert_eq!(
        minority.post("known", "known").await.status,
        StatusCode::CREATED
    );
    let runs = minority.runs.load(Ordering::SeqCst);

    cluster.nodes[2].cut_off().await.expect("it sees it");
    for key in ["known", "new"] {
        assert_unavailable(&minority.post(key, key).await, "store-unavailable");
    }
    let new = majority.post("new", "new").await;
    assert_eq!(new.status, StatusCode::CREATED, "{new:?}");
    assert!(majority.post("known", "known").await.is_replay());
    assert_unavailable(&minority.post("new", "new").await, "store-unavailable");

    cluster.nodes[2].rejoin().await.expect("it comes back");
    for key in ["known", "new"] {
        let answer = minority.post(key, key).await;
        assert!(answer.is_replay(), "{answer:?}");
        assert_eq!(cluster.effects(key).await, 1);
    }
    assert_eq!(minority.runs.load(Ordering::SeqCst), runs);
    cluster.stop().await;
}

/// Sends a key to a site, whose handler stands still once it has written, and does something else
/// meanwhile.
async fn meanwhile(
    site: &Arc<Site>,
    key: &'static str,
    other: impl AsyncFnOnce() -> Answer,
) -> (Answer, Answer) {
    site.pauses.store(true, Ordering::SeqCst);
    let slow = tokio::spawn({
        let site = Arc::clone(site);
        async move { site.post(key, key).await }
    });
    site.stage.reached().await;
    let other = other().await;
    site.stage.go_on();
    let slow = tokio::time::timeout(Duration::from_secs(60), slow);
    (slow.await.expect("it ends").expect("an answer"), other)
}

fn assert_unavailable(answer: &Answer, problem: &str) {
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert_eq!(answer.problem(), problem);
    assert!(answer.headers.contains_key("retry-after"));
}
