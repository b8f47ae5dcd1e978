//! `cratestack`: reserves a key before the handler runs, and keeps the response after the effect, in
//! a statement of its own: what fails in between is run again by a retry after the ttl.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use benches::place::Peer;
use benches::subject::authenticated;
use cratestack_axum::idempotency::IdempotencyLayer;
use cratestack_sqlx::SqlxIdempotencyStore;
use sqlx::PgPool;
use tower_idempotency::Owner;

const A_DAY: Duration = Duration::from_hours(24);

/// With its reservations in the handler's database.
pub(crate) async fn on_postgres(bare: Router, pool: PgPool) -> Peer {
    let store = SqlxIdempotencyStore::new(pool);
    store
        .ensure_schema()
        .await
        .expect("the table of reservations");
    let layer = IdempotencyLayer::new(Arc::new(store), A_DAY).with_principal_fingerprint(owner);
    let app = authenticated(bare.layer(layer));
    Peer {
        title: "cratestack on PostgreSQL",
        app: Box::new(move || app.clone()),
        has_sessions: false,
        refuses: true,
    }
}

fn owner(request: &Request) -> String {
    let owner = request.extensions().get::<Owner>();
    owner.expect("it is authenticated").as_str().to_owned()
}
