//! Random lives of records: a real store against the simple one in memory, step by step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use end_to_end::{TestDb, World};
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tower_idempotency::{
    Claim, ClaimOutcome, Completion, Fingerprint, IdempotencyKey, Lease, MemoryClock, MemoryStore,
    Operation, Owner, RecordId, RecordState, Resolution, ResourceRef, SqlxStore, Store,
    StoredResponse, TombstoneResource,
};

const MAKE: Operation = Operation::from_static("make");
const TTL: Duration = Duration::from_secs(600);

/// What is done next. Claims are named by the order in which they were acquired.
#[derive(Debug, Clone)]
enum Step {
    Arrive {
        key: u8,
        body: u8,
        mortal: bool,
    },
    Complete {
        claim: u8,
        writes: bool,
        kept: bool,
        makes: Option<u8>,
    },
    Fail {
        claim: u8,
        writes: bool,
    },
    Renew {
        claim: u8,
    },
    MarkUnknown {
        claim: u8,
    },
    Resolve {
        claim: u8,
    },
    Release {
        key: u8,
    },
    Bury {
        made: u8,
        commits: bool,
    },
    Age {
        by: u64,
    },
    Purge,
    Erase,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..3_u8;
    let claim = any::<u8>();
    prop_oneof![
        6 => (key.clone(), 0..2_u8, any::<bool>())
            .prop_map(|(key, body, mortal)| Step::Arrive { key, body, mortal }),
        5 => (claim, any::<bool>(), any::<bool>(), proptest::option::of(0..2_u8))
            .prop_map(|(claim, writes, kept, makes)| Step::Complete { claim, writes, kept, makes }),
        2 => (claim, any::<bool>()).prop_map(|(claim, writes)| Step::Fail { claim, writes }),
        1 => claim.prop_map(|claim| Step::Renew { claim }),
        1 => claim.prop_map(|claim| Step::MarkUnknown { claim }),
        1 => claim.prop_map(|claim| Step::Resolve { claim }),
        1 => key.prop_map(|key| Step::Release { key }),
        1 => (0..2_u8, any::<bool>()).prop_map(|(made, commits)| Step::Bury { made, commits }),
        // Half of `stale_after`, all of it, the ttl, and what is stale for a month.
        3 => prop_oneof![Just(150), Just(300), Just(600), Just(31 * 24 * 3600)]
            .prop_map(|by| Step::Age { by }),
        1 => Just(Step::Purge),
        1 => Just(Step::Erase),
    ]
}

/// Both stores, and what the reference has of effects.
struct Pair<D: TestDb> {
    world: World<D>,
    real: SqlxStore<D>,
    simple: MemoryStore,
    clock: MemoryClock,
    effects: Arc<Mutex<HashMap<String, i64>>>,
    owner: Owner,
    claims: Vec<Claim>,
    ids: Vec<RecordId>,
}

/// What a step came to, in words that do not depend on the store.
fn told(completion: &Completion) -> &'static str {
    match completion {
        Completion::Committed => "committed",
        Completion::RolledBack(_) => "rolled back",
        Completion::Lost => "lost",
        Completion::NotOurs => "not ours",
        Completion::Leaked => "leaked",
        Completion::Unknown(_) => "unknown",
    }
}

impl<D: TestDb> Pair<D> {
    fn new(world: World<D>, owner: Owner) -> Self {
        let clock = MemoryClock::standing();
        let id = |key: &str| RecordId {
            owner: owner.clone(),
            operation: MAKE,
            key: IdempotencyKey::from_text(key).expect("a key"),
        };
        let ids = ["a", "b", "c"].map(id).to_vec();
        let (real, simple) = (
            SqlxStore::new(world.pool.clone()),
            MemoryStore::with_clock(clock.clone()),
        );
        Self {
            world,
            real,
            simple,
            clock,
            effects: Arc::default(),
            owner,
            claims: Vec::new(),
            ids,
        }
    }

    /// The claim that a step names, if there is any.
    fn claim(&self, index: u8) -> Option<Claim> {
        let count = self.claims.len();
        (count > 0).then(|| self.claims[usize::from(index) % count].clone())
    }

    /// Writes an effect through both transactions.
    async fn write(&self, real: &<SqlxStore<D> as Store>::Tx, simple: &<MemoryStore as Store>::Tx) {
        let note = self.owner.as_str().to_owned();
        let mut conn = real.acquire().await.expect("a transaction");
        D::insert(&mut conn, &note).await.expect("an insert");
        let effects = Arc::clone(&self.effects);
        let mut writes = simple.acquire(&self.simple).await.expect("a transaction");
        writes.on_commit(move || *effects.lock().unwrap().entry(note).or_default() += 1);
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { key, body, mortal } => {
                let fingerprint = Fingerprint::from_stored(&format!("hs1:{body:064}"));
                let mut claim = Claim::new(self.ids[usize::from(key)].clone(), fingerprint);
                claim.ttl = mortal.then_some(TTL);
                let real = self.real.claim(&claim).await.expect("a decision");
                let simple = self.simple.claim(&claim).await.expect("a decision");
                assert_eq!(real, simple);
                if matches!(real, ClaimOutcome::Acquired { .. }) {
                    self.claims.push(claim);
                }
            }
            Step::Complete {
                claim,
                writes,
                kept,
                makes,
            } => {
                let Some(claim) = self.claim(claim) else {
                    return;
                };
                let (real, simple) = self.lend(&claim);
                if writes {
                    self.write(&real, &simple).await;
                }
                let response = if kept {
                    StoredResponse::kept(StatusCode::CREATED, "location: /\n", vec![0, 255])
                } else {
                    StoredResponse::not_kept(StatusCode::OK)
                };
                let response = response.with_resource_ref(makes.map(ResourceRef::new));
                let real = self.real.complete(&real, &claim, &response).await;
                let simple = self.simple.complete(&simple, &claim, &response).await;
                assert_eq!(told(&real), told(&simple), "{real:?}");
            }
            Step::Fail { claim, writes } => {
                let Some(claim) = self.claim(claim) else {
                    return;
                };
                let (real, simple) = self.lend(&claim);
                if writes {
                    self.write(&real, &simple).await;
                }
                assert_eq!(
                    self.real.rollback(&real).await,
                    self.simple.rollback(&simple).await
                );
                assert_eq!(
                    self.real.free(&claim).await.unwrap(),
                    self.simple.free(&claim).await.unwrap()
                );
            }
            Step::Renew { claim } => {
                let Some(claim) = self.claim(claim) else {
                    return;
                };
                assert_eq!(
                    self.real.renew(&claim).await.unwrap(),
                    self.simple.renew(&claim).await.unwrap()
                );
            }
            Step::MarkUnknown { claim } => {
                let Some(claim) = self.claim(claim) else {
                    return;
                };
                let real = self.real.mark_unknown(&claim).await.unwrap();
                assert_eq!(real, self.simple.mark_unknown(&claim).await.unwrap());
            }
            Step::Resolve { claim } => {
                let Some(claim) = self.claim(claim) else {
                    return;
                };
                let words = |resolution| match resolution {
                    Resolution::Committed(response) => format!("committed {response:?}"),
                    Resolution::Freed => "freed".to_owned(),
                    Resolution::Other(record) => format!("other {:?}", record.state),
                    Resolution::Absent => "absent".to_owned(),
                };
                let real = words(self.real.resolve(&claim).await.unwrap());
                assert_eq!(real, words(self.simple.resolve(&claim).await.unwrap()));
            }
            Step::Release { key } => {
                let id = &self.ids[usize::from(key)];
                let Some(record) = self.real.lookup(id).await.unwrap() else {
                    return;
                };
                let Some(token) = record.token() else { return };
                let real = self.real.release(id, &token).await.unwrap();
                assert_eq!(real, self.simple.release(id, &token).await.unwrap());
            }
            Step::Bury { made, commits } => {
                let resource = TombstoneResource {
                    owner: self.owner.clone(),
                    operation: MAKE,
                    resource_ref: ResourceRef::new(made),
                };
                let lease = Lease::unclaimed;
                let (real, simple) = (self.real.lend(lease()), self.simple.lend(lease()));
                let buried = self
                    .real
                    .tombstone_resource(&real, &resource)
                    .await
                    .unwrap();
                assert_eq!(
                    buried,
                    self.simple
                        .tombstone_resource(&simple, &resource)
                        .await
                        .unwrap()
                );
                if commits {
                    let real = self.real.commit(&real).await;
                    assert_eq!(told(&real), told(&self.simple.commit(&simple).await));
                } else {
                    assert_eq!(
                        self.real.rollback(&real).await,
                        self.simple.rollback(&simple).await
                    );
                }
            }
            Step::Age { by } => {
                let by = Duration::from_secs(by);
                self.world.age(by).await;
                self.clock.advance(by);
            }
            Step::Purge => {
                let real = self.real.purge(100).await.unwrap();
                assert_eq!(real, self.simple.purge(100).await.unwrap());
            }
            Step::Erase => {
                let real = self.real.erase_owner(&self.owner).await.unwrap();
                assert_eq!(real, self.simple.erase_owner(&self.owner).await.unwrap());
            }
        }
    }

    fn lend(&self, claim: &Claim) -> (<SqlxStore<D> as Store>::Tx, <MemoryStore as Store>::Tx) {
        let lease = || Lease::claimed(claim.clone());
        (self.real.lend(lease()), self.simple.lend(lease()))
    }

    /// Both stores have the same records, and as many effects.
    async fn compare(&self) {
        for id in &self.ids {
            let words = |state: &RecordState| format!("{state:?}");
            let real = self.real.lookup(id).await.unwrap();
            let simple = self.simple.lookup(id).await.unwrap();
            assert_eq!(
                real.as_ref()
                    .map(|record| (words(&record.state), &record.resource_ref)),
                simple
                    .as_ref()
                    .map(|record| (words(&record.state), &record.resource_ref)),
            );
            assert_eq!(
                real.and_then(|record| record.token()),
                simple.and_then(|record| record.token()),
            );
        }
        let simple = self
            .effects
            .lock()
            .unwrap()
            .get(self.owner.as_str())
            .copied();
        assert_eq!(
            self.world.effects(self.owner.as_str()).await,
            simple.unwrap_or(0)
        );
    }
}

/// Runs as many random lives as there are cases, each with an owner of its own.
fn random_lives<D: TestDb>() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut world = Some(runtime.block_on(World::<D>::new()));
    let mut case = 0;
    let mut runner = TestRunner::new(Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    });
    let cell = std::cell::RefCell::new((&mut world, &mut case));
    let steps = proptest::collection::vec(step(), 1..40);
    let run = runner.run(&steps, |steps| {
        let (world, case) = &mut *cell.borrow_mut();
        **case += 1;
        let owner = Owner::new(format!("owner-{case}")).expect("an owner");
        let mut pair = Pair::new(world.take().expect("a world"), owner);
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                for step in &steps {
                    pair.step(step).await;
                    pair.compare().await;
                }
                pair.real.erase_owner(&pair.owner).await.unwrap();
            });
        }));
        **world = Some(pair.world);
        lived.map_err(|_| TestCaseError::fail("the stores differ"))
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let world = world.take().expect("a world");
    runtime.block_on(world.end());
}

/// R30, R31, R32, R33, R35, R36, R37: any sequence of steps has the same outcomes on SQLite as in memory.
#[test]
fn random_lives_on_sqlite() {
    random_lives::<sqlx::Sqlite>();
}

/// R30, R31, R32, R33, R35, R36, R37: any sequence of steps has the same outcomes on MariaDB as in memory.
#[test]
fn random_lives_on_mysql() {
    random_lives::<sqlx::MySql>();
}

/// R30, R31, R32, R33, R35, R36, R37: any sequence of steps has the same outcomes on PostgreSQL as in memory.
#[test]
fn random_lives_on_postgres() {
    random_lives::<sqlx::Postgres>();
}
