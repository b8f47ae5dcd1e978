//! A service that keeps notes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use redb::{Error, ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};
use tower_idempotency::{IdempotencyLayer, Owner, ResourceRef, TxError};

use crate::database::{RedbStore, failed};
use crate::tx::RedbTx;

const NOTES: TableDefinition<'_, u64, &str> = TableDefinition::new("note");

/// The routes: `POST /notes` and `GET /notes`.
///
/// THIS IS A DEMO: everybody is the same owner, so that clients who happen to choose the same key
/// get each other's results. A real service has an authentication layer in this place, which puts
/// in the [`Owner`] that is calling.
pub fn router(idempotency: &IdempotencyLayer<RedbStore>) -> Router {
    let adding = idempotency.clone().operation("add note");
    Router::new()
        .route("/notes", post(add).layer(adding).get(list))
        .layer(Extension(Owner::shared()))
        .with_state(idempotency.store().clone())
}

#[derive(Deserialize)]
struct Draft {
    text: String,
}

#[derive(Serialize)]
struct Note {
    id: u64,
    text: String,
}

async fn add(tx: RedbTx, Json(draft): Json<Draft>) -> Result<(StatusCode, Json<Note>), TxError> {
    let writer = tx.acquire().await?;
    let id = insert(&writer, &draft.text).map_err(failed)?;
    // So that deleting the note could bury this record.
    tx.made(ResourceRef::new(id));
    let text = draft.text;
    Ok((StatusCode::CREATED, Json(Note { id, text })))
}

fn insert(transaction: &WriteTransaction, text: &str) -> Result<u64, Error> {
    let mut notes = transaction.open_table(NOTES)?;
    let last = notes.last()?.map_or(0, |(id, _)| id.value());
    notes.insert(last + 1, text)?;
    Ok(last + 1)
}

async fn list(State(store): State<RedbStore>) -> Result<Json<Vec<Note>>, TxError> {
    Ok(Json(store.read(read).await?))
}

fn read(transaction: &ReadTransaction) -> Result<Vec<Note>, Error> {
    let notes = match transaction.open_table(NOTES) {
        Ok(notes) => notes,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in notes.iter()? {
        let (id, text) = entry?;
        let (id, text) = (id.value(), text.value().to_owned());
        found.push(Note { id, text });
    }
    Ok(found)
}
