//! `axum-idempotent`: keeps responses in a session store, after the effect and apart from it. It
//! claims nothing: of two arrivals at once both run. By the key in the header alone, its quickest way.

use std::sync::Arc;

use ::axum_idempotent::{IdempotentLayer, IdempotentOptions};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use benches::place::Peer;
use benches::subject::authenticated;
use ruts::store::moka::MokaStore;
use ruts::store::postgres::PostgresStoreBuilder;
use ruts::store::{SessionStore, Ttl};
use ruts::{CookieOptions, Session, SessionLayer};
use sqlx::PgPool;
use tower_cookies::CookieManagerLayer;

const AN_HOUR: i64 = 3600;

/// With its responses in memory.
pub(crate) fn in_memory(bare: Router) -> Peer {
    Peer {
        title: "axum-idempotent in memory",
        app: Box::new(move || around(bare.clone(), MokaStore::builder().build())),
        has_sessions: true,
        refuses: false,
    }
}

/// With its responses in the handler's database.
pub(crate) async fn on_postgres(bare: Router, pool: PgPool) -> Peer {
    let store = PostgresStoreBuilder::new(pool).create_table(true);
    let store = store.build().await.expect("the table of sessions");
    Peer {
        title: "axum-idempotent on PostgreSQL",
        app: Box::new(move || around(bare.clone(), store.clone())),
        has_sessions: true,
        refuses: false,
    }
}

fn around<S: SessionStore + Clone>(bare: Router, store: S) -> Router {
    let options = IdempotentOptions::new(AN_HOUR).use_idempotency_key_header(None, true);
    let cookies = CookieOptions::build()
        .name("session")
        .max_age(AN_HOUR.unsigned_abs())
        .path("/");
    let login = post(async |session: Session<S>| {
        let ttl = Ttl::new(AN_HOUR).expect("an hour");
        match session.set("account", &"account-7f3a", ttl, None).await {
            Ok(_) => StatusCode::NO_CONTENT,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    });
    let app = bare
        .layer(IdempotentLayer::<S>::new(options))
        .route("/login", login)
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(cookies))
        .layer(CookieManagerLayer::new());
    authenticated(app)
}
