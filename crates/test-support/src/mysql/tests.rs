use std::error::Error;

use sqlx::{Connection as _, Executor as _, MySqlConnection};

use super::database::server_url;
use super::{MariadbBinaries, MariadbServer, MysqlAdmin, mysql_database};

/// Settings reach the server, and stopping leaves no folder.
#[tokio::test]
async fn a_server_leaves_nothing() -> Result<(), Box<dyn Error>> {
    let settings = [("max_connections", "17")];
    let server = MariadbServer::start_with(&MariadbBinaries::find()?, &settings)?;
    let mut connection = MySqlConnection::connect(&server.url()).await?;
    let connections: i64 = sqlx::query_scalar("SELECT CAST(@@max_connections AS SIGNED)")
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(connections, 17);

    let folder = server.folder().to_owned();
    assert!(folder.exists());
    server.stop();
    assert!(!folder.exists());
    Ok(())
}

/// A server that cannot start says why.
#[test]
fn a_wrong_setting_is_reported() -> Result<(), Box<dyn Error>> {
    let settings = [("no_such_setting", "1")];
    let error = MariadbServer::start_with(&MariadbBinaries::find()?, &settings)
        .expect_err("there is no such setting");
    assert!(error.to_string().starts_with("MariaDB did not start"));
    Ok(())
}

/// A database is dropped with its handle, although somebody is inside of a transaction there.
#[tokio::test]
async fn a_dropped_database_is_gone() -> Result<(), sqlx::Error> {
    let database = mysql_database().await;
    let name = database.name().to_owned();
    let mut connected = MySqlConnection::connect(database.url()).await?;
    connected.execute("CREATE TABLE t (n int)").await?;
    connected.execute("START TRANSACTION").await?;
    connected.execute("INSERT INTO t VALUES (1)").await?;
    drop(database);

    let mut admin = MysqlAdmin::connect(server_url().as_str()).await?;
    assert_eq!(admin.drop_all(&name).await?, 0);
    Ok(())
}

/// The databases of a run can be dropped by their prefix, and only they.
#[tokio::test]
async fn a_runs_databases_are_found_by_prefix() -> Result<(), sqlx::Error> {
    let kept = mysql_database().await;
    let mut admin = MysqlAdmin::connect(server_url().as_str()).await?;
    let prefix = crate::run_prefix();
    admin.create(&format!("{prefix}a")).await?;
    admin.create(&format!("{prefix}b")).await?;
    assert_eq!(admin.drop_all(&prefix).await?, 2);
    assert_eq!(admin.drop_all(&prefix).await?, 0);
    MySqlConnection::connect(kept.url()).await?.close().await
}

/// An open transaction that does nothing is counted, in its own database alone.
#[tokio::test]
async fn an_idle_transaction_is_counted() -> Result<(), sqlx::Error> {
    let (database, other) = (mysql_database().await, mysql_database().await);
    let mut connection = MySqlConnection::connect(database.url()).await?;
    connection.execute("CREATE TABLE t (n int)").await?;
    database.assert_none_idle_in_transaction().await;
    connection.execute("START TRANSACTION").await?;
    connection.execute("INSERT INTO t VALUES (1)").await?;
    let mut admin = MysqlAdmin::connect(server_url().as_str()).await?;
    assert_eq!(admin.idle_in_transaction(database.name()).await?, 1);
    assert_eq!(admin.idle_in_transaction(other.name()).await?, 0);
    connection.execute("ROLLBACK").await?;
    database.assert_none_idle_in_transaction().await;
    Ok(())
}
