//! The databases that tests run on.

use std::env;
use std::process::Command;

use test_support::{Admin, Binaries, PostgresServer, ServerSettings, run_prefix, sqlite_version};

use crate::{Outcome, command, packages};

/// Names a server of the user's.
const URL: &str = "TEST_POSTGRES_URL";
/// Begins the names of all databases of a run.
const PREFIX: &str = "TEST_POSTGRES_PREFIX";

/// The databases of one run of the tests.
pub(crate) struct Engines {
    postgres: Postgres,
    prefix: String,
}

enum Postgres {
    Ours(PostgresServer),
    Users(String),
}

impl Engines {
    /// Finds, installs and starts what is needed, and says what will be used.
    pub(crate) async fn start() -> Outcome<Self> {
        let (postgres, origin) = match env::var(URL) {
            Ok(url) => (Postgres::Users(url), format!("the server of {URL}")),
            Err(_) => {
                let binaries = find_or_install()?;
                let origin = format!("a server of its own, from {}", binaries.folder().display());
                let server = PostgresServer::start_with(&binaries, &ServerSettings::default())?;
                (Postgres::Ours(server), origin)
            }
        };
        let engines = Self {
            postgres,
            prefix: run_prefix(),
        };
        let version = engines.admin().await?.version().await?;
        println!("PostgreSQL {version}: {origin}");
        println!("SQLite {}: built in", sqlite_version().await?);
        Ok(engines)
    }

    fn url(&self) -> String {
        match &self.postgres {
            Postgres::Ours(server) => server.url(),
            Postgres::Users(url) => url.clone(),
        }
    }

    async fn admin(&self) -> Outcome<Admin> {
        Admin::connect(&self.url()).await.map_err(|error| {
            format!("PostgreSQL cannot be reached ({error}): let {URL} name a server that runs")
                .into()
        })
    }

    /// What tells the tests of the engines.
    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        [(URL, self.url()), (PREFIX, self.prefix.clone())]
    }

    /// Leaves nothing: neither a server of ours, nor databases on the user's.
    pub(crate) async fn stop(self) -> Outcome {
        // Tests drop their own databases, but killed ones cannot.
        if let Postgres::Users(_) = self.postgres {
            self.admin().await?.drop_all(&self.prefix).await?;
        }
        match self.postgres {
            Postgres::Ours(server) => server.stop(),
            Postgres::Users(_) => {}
        }
        Ok(())
    }
}

/// The server binaries of PostgreSQL.
pub(crate) fn find_or_install() -> Outcome<Binaries> {
    match Binaries::find() {
        Err(error) if error.is_no_binaries() => {}
        found => return Ok(found?),
    }
    if command::succeeds(Command::new("apt-get").arg("--version")) {
        packages::apt(&["postgresql"], &advice())?;
    } else if command::succeeds(Command::new("brew").arg("--version")) {
        println!("installing PostgreSQL with Homebrew");
        command::run_quietly(Command::new("brew").args(["install", "--quiet", "postgresql@17"]))?;
    } else {
        return Err(advice().into());
    }
    Binaries::find().map_err(|_| advice().into())
}

fn advice() -> String {
    format!(
        "no PostgreSQL server: install it (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17), or set {URL} to a server on which databases may be created"
    )
}
