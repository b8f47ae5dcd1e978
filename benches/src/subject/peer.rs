//! `axum-idempotent`, which keeps responses in a session store and promises nothing of the effect.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::store::moka::MokaStore;
use ruts::store::{SessionStore, Ttl};
use ruts::{CookieOptions, Session, SessionLayer};
use tower_cookies::CookieManagerLayer;

const AN_HOUR: i64 = 3600;

/// The peer's application around a bare one, its responses in memory. It has sessions: log in first.
pub(crate) fn around(bare: Router) -> Router {
    layered(bare, MokaStore::builder().build())
}

fn layered<S: SessionStore + Clone>(bare: Router, store: S) -> Router {
    let options = IdempotentOptions::new(AN_HOUR).use_idempotency_key_header(None, true);
    let cookies = CookieOptions::build()
        .name("session")
        .max_age(3600)
        .path("/");
    let login = post(async |session: Session<S>| {
        let ttl = Ttl::new(AN_HOUR).expect("an hour");
        match session.set("account", &"account-7f3a", ttl, None).await {
            Ok(_) => StatusCode::NO_CONTENT,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    });
    bare.layer(IdempotentLayer::<S>::new(options))
        .route("/login", login)
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(cookies))
        .layer(CookieManagerLayer::new())
}
