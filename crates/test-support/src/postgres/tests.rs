use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::time::{Instant, sleep};

use super::database::server_url;
use super::{
    Admin, Binaries, PostgresNode, PostgresServer, ServerSettings, idle_in_transaction,
    postgres_database,
};
use crate::{Direction, Proxy};

async fn setting(url: &str, name: &str) -> Result<String, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::query_scalar("SELECT current_setting($1)")
        .bind(name)
        .fetch_one(&mut connection)
        .await
}

/// Settings reach the server, and stopping leaves no folder.
#[tokio::test]
async fn a_server_leaves_nothing() -> Result<(), Box<dyn Error>> {
    let settings = ServerSettings::default()
        .durable()
        .set("application_name", "it's");
    let server = PostgresServer::start_with(&Binaries::find()?, &settings)?;
    assert_eq!(setting(&server.url(), "fsync").await?, "on");
    assert_eq!(setting(&server.url(), "application_name").await?, "it's");

    let folder = server.folder().to_owned();
    assert!(folder.exists());
    server.stop();
    assert!(!folder.exists());
    Ok(())
}

/// A server that is dropped is stopped too, a moment later.
#[tokio::test]
async fn a_dropped_server_goes_away() -> Result<(), Box<dyn Error>> {
    let server = PostgresServer::start()?;
    let folder = server.folder().to_owned();
    drop(server);
    assert!(soon(|| !folder.exists()).await);
    Ok(())
}

/// A process that is killed, while its server starts or later, leaves neither server nor folder.
#[tokio::test]
async fn a_killed_process_leaves_nothing() -> Result<(), Box<dyn Error>> {
    // The test runs itself, and kills that.
    const TO_BE_KILLED: &str = "TEST_SUPPORT_TO_BE_KILLED";
    if env::var_os(TO_BE_KILLED).is_some() {
        let _server = PostgresServer::start()?;
        return std::future::pending().await;
    }
    for file in ["install.log", "data/postmaster.pid"] {
        let mut child = Command::new(env::current_exe()?)
            .args([
                "--exact",
                "postgres::tests::a_killed_process_leaves_nothing",
            ])
            .env(TO_BE_KILLED, "1")
            .stdout(Stdio::null())
            .spawn()?;
        let id = child.id();
        let reached = soon(|| folder_of(id).is_some_and(|folder| folder.join(file).exists())).await;
        child.kill()?;
        child.wait()?;
        assert!(reached, "{file} was there");
        assert!(soon(|| folder_of(id).is_none()).await);
    }
    Ok(())
}

/// The folder of a process's server.
fn folder_of(process: u32) -> Option<PathBuf> {
    let prefix = format!("test-postgres-{process}-");
    [env::temp_dir(), PathBuf::from("/tmp")]
        .iter()
        .filter_map(|parent| parent.read_dir().ok())
        .flatten()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
}

/// A server that cannot start says why.
#[test]
fn a_wrong_setting_is_reported() -> Result<(), Box<dyn Error>> {
    let settings = ServerSettings::default().set("no_such_parameter", "1");
    let error = PostgresServer::start_with(&Binaries::find()?, &settings)
        .expect_err("there is no such parameter");
    assert!(error.to_string().starts_with("PostgreSQL did not start"));
    Ok(())
}

/// What one test makes, another cannot see.
#[tokio::test]
async fn databases_are_separate() -> Result<(), sqlx::Error> {
    let (one, other) = (postgres_database().await, postgres_database().await);
    let mut connection = PgConnection::connect(one.url()).await?;
    connection.execute("CREATE TABLE t (n int)").await?;
    let mut elsewhere = PgConnection::connect(other.url()).await?;
    let table: Option<String> = sqlx::query_scalar("SELECT to_regclass('t')::text")
        .fetch_one(&mut elsewhere)
        .await?;
    assert_eq!(table, None);
    Ok(())
}

/// A database is dropped with its handle, although somebody is still connected.
#[tokio::test]
async fn a_dropped_database_is_gone() -> Result<(), sqlx::Error> {
    let database = postgres_database().await;
    let name = database.name().to_owned();
    let _connected = PgConnection::connect(database.url()).await?;
    drop(database);

    let mut connection = PgConnection::connect(server_url().as_str()).await?;
    let left: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(name)
            .fetch_one(&mut connection)
            .await?;
    assert!(!left);
    Ok(())
}

/// The databases of a run can be dropped by their prefix, and only they.
#[tokio::test]
async fn a_runs_databases_are_found_by_prefix() -> Result<(), sqlx::Error> {
    let kept = postgres_database().await;
    let mut admin = Admin::connect(server_url().as_str()).await?;
    let prefix = crate::run_prefix();
    admin.create(&format!("{prefix}a")).await?;
    admin.create(&format!("{prefix}b")).await?;
    assert_eq!(admin.drop_all(&prefix).await?, 2);
    assert_eq!(admin.drop_all(&prefix).await?, 0);
    PgConnection::connect(kept.url()).await?.close().await
}

/// Where the server has a socket on this machine, the same database is reached over it.
#[tokio::test]
async fn the_socket_reaches_the_same_database() -> Result<(), sqlx::Error> {
    let database = postgres_database().await;
    let own = env::var_os("TEST_POSTGRES_URL").is_none();
    let url = database.socket_url();
    assert!(url.is_some() || !own);
    for url in url.iter().map(String::as_str).chain([database.url()]) {
        let mut connection = PgConnection::connect(url).await?;
        let name: String = sqlx::query_scalar("SELECT current_database()::text")
            .fetch_one(&mut connection)
            .await?;
        assert_eq!(name, database.name());
    }
    Ok(())
}

/// An open transaction that does nothing is counted, in its own database alone.
#[tokio::test]
async fn an_idle_transaction_is_counted() -> Result<(), sqlx::Error> {
    let (database, other) = (postgres_database().await, postgres_database().await);
    let mut connection = PgConnection::connect(database.url()).await?;
    database.assert_none_idle_in_transaction().await;
    connection.execute("BEGIN").await?;
    assert_eq!(idle_in_transaction(database.url()).await, 1);
    assert_eq!(idle_in_transaction(other.url()).await, 0);
    connection.execute("ROLLBACK").await?;
    database.assert_none_idle_in_transaction().await;
    Ok(())
}

/// A simple query is one round trip; a cut in the answer loses it, though the server has run it.
#[tokio::test]
async fn round_trips_are_counted_and_answers_lost() -> Result<(), sqlx::Error> {
    let database = postgres_database().await;
    let proxy = Proxy::start(database.address()).await;
    let mut connection = PgConnection::connect(&database.url_via(proxy.address())).await?;
    let before = proxy.round_trips();
    connection.execute("CREATE TABLE t (n int)").await?;
    assert_eq!(proxy.round_trips() - before, 1);

    proxy.cut_after(Direction::ToClient, 3);
    let lost = connection.execute("INSERT INTO t VALUES (1)").await;
    assert!(matches!(lost, Err(sqlx::Error::Io(_))));

    let mut direct = PgConnection::connect(database.url()).await?;
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM t")
        .fetch_one(&mut direct)
        .await?;
    assert_eq!(rows, 1);
    Ok(())
}

/// A standby has what its primary had when that was killed, may be promoted, and the old primary may
/// follow it then.
#[tokio::test]
async fn a_standby_takes_over() -> Result<(), Box<dyn Error>> {
    let binaries = Binaries::find()?;
    let settings = ServerSettings::default().set("synchronous_standby_names", "standby");
    let mut primary = PostgresNode::primary(&binaries, &settings).await?;
    let standby = PostgresNode::standby(&binaries, &settings, primary.address()).await?;
    let mut connection = PgConnection::connect(&primary.url()).await?;
    connection
        .execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
        .await?;
    primary.crash().await?;
    assert!(connection.ping().await.is_err());

    let mut connection = PgConnection::connect(&standby.url()).await?;
    connection.execute("SELECT pg_promote()").await?;
    primary.follow(standby.address()).await?;
    connection
        .execute("INSERT INTO t SELECT count(*) FROM t")
        .await?;
    let mut follower = PgConnection::connect(&primary.url()).await?;
    // Synchronous: received, and replayed in a moment.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let count = sqlx::query_scalar("SELECT count(*) FROM t");
        let rows: i64 = count.fetch_one(&mut follower).await?;
        if rows == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{rows} rows");
        sleep(Duration::from_millis(10)).await;
    }
    let (folder, other) = (primary.folder().to_owned(), standby.folder().to_owned());
    primary.stop().await;
    standby.stop().await;
    assert!(!folder.exists() && !other.exists());
    Ok(())
}

/// Waits for what no event tells.
async fn soon(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
    }
    condition()
}
