//! The databases that tests run on.

use std::env;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::Command;

use test_support::{
    Admin, Binaries, MariadbBinaries, MariadbServer, MysqlAdmin, PostgresServer, ServerError,
    ServerSettings, run_prefix, sqlite_version,
};

use crate::{Outcome, command, packages};

/// Begins the names of all databases of a run.
const PREFIX: &str = "TEST_DATABASE_PREFIX";

/// The databases of one run of the tests.
pub(crate) struct Engines {
    postgres: Server<PostgresServer>,
    mysql: Server<MariadbServer>,
    prefix: String,
}

/// A server, and its URL.
struct Server<S> {
    /// `None` where it is the user's.
    ours: Option<S>,
    url: String,
}

/// What is said of an engine, and how it is had.
struct Engine {
    name: &'static str,
    /// Names a server of the user's.
    variable: &'static str,
    apt: &'static [&'static str],
    brew: &'static str,
}

const POSTGRES: Engine = Engine {
    name: "PostgreSQL",
    variable: "TEST_POSTGRES_URL",
    apt: &["postgresql"],
    brew: "postgresql@17",
};

const MYSQL: Engine = Engine {
    name: "MariaDB",
    variable: "TEST_MYSQL_URL",
    apt: &["mariadb-server-core", "mariadb-client-core"],
    brew: "mariadb",
};

impl Engines {
    /// Finds, installs and starts what is needed, and says what will be used.
    pub(crate) async fn start(postgres: Option<PathBuf>) -> Outcome<Self> {
        let postgres = POSTGRES.start(
            || postgres.clone().map_or_else(Binaries::find, Binaries::at),
            |binaries| {
                Ok(PostgresServer::start_with(
                    binaries,
                    &ServerSettings::default(),
                )?)
            },
            PostgresServer::url,
        )?;
        let mysql = MYSQL.start(
            MariadbBinaries::find,
            |binaries| Ok(MariadbServer::start_with(binaries, &[])?),
            MariadbServer::url,
        )?;
        let engines = Self {
            postgres,
            mysql,
            prefix: run_prefix(),
        };
        let version = engines.postgres_admin().await?.version().await?;
        POSTGRES.say(&version, engines.postgres.ours.is_some());
        let version = engines.mysql_admin().await?.version().await?;
        MYSQL.say(&version, engines.mysql.ours.is_some());
        println!("SQLite {}: built in", sqlite_version().await?);
        Ok(engines)
    }

    async fn postgres_admin(&self) -> Outcome<Admin> {
        let admin = Admin::connect(&self.postgres.url).await;
        admin.map_err(|error| POSTGRES.unreachable(&error).into())
    }

    async fn mysql_admin(&self) -> Outcome<MysqlAdmin> {
        let admin = MysqlAdmin::connect(&self.mysql.url).await;
        admin.map_err(|error| MYSQL.unreachable(&error).into())
    }

    /// What tells the tests of the engines.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            (POSTGRES.variable, self.postgres.url.clone()),
            (MYSQL.variable, self.mysql.url.clone()),
            (PREFIX, self.prefix.clone()),
        ]
    }

    /// Leaves nothing: neither servers of ours, nor databases on the user's.
    pub(crate) async fn stop(self) -> Outcome {
        // Tests drop their own databases, but killed ones cannot.
        if self.postgres.ours.is_none() {
            self.postgres_admin().await?.drop_all(&self.prefix).await?;
        }
        if self.mysql.ours.is_none() {
            self.mysql_admin().await?.drop_all(&self.prefix).await?;
        }
        if let Some(server) = self.postgres.ours {
            server.stop();
        }
        if let Some(server) = self.mysql.ours {
            server.stop();
        }
        Ok(())
    }
}

/// The server binaries of PostgreSQL.
pub(crate) fn postgres() -> Outcome<Binaries> {
    POSTGRES.find_or_install(Binaries::find)
}

/// The server binaries of MariaDB.
pub(crate) fn mariadb() -> Outcome<MariadbBinaries> {
    MYSQL.find_or_install(MariadbBinaries::find)
}

impl Engine {
    /// The user's server, or else one of ours.
    fn start<B, S>(
        &self,
        find: impl Fn() -> Result<B, ServerError>,
        start: impl FnOnce(&B) -> Outcome<S>,
        url: impl FnOnce(&S) -> String,
    ) -> Outcome<Server<S>> {
        if let Ok(url) = env::var(self.variable) {
            return Ok(Server { ours: None, url });
        }
        let server = start(&self.find_or_install(find)?)?;
        let url = url(&server);
        Ok(Server {
            ours: Some(server),
            url,
        })
    }

    fn find_or_install<B>(&self, find: impl Fn() -> Result<B, ServerError>) -> Outcome<B> {
        match find() {
            Err(error) if error.is_no_binaries() => {}
            found => return Ok(found?),
        }
        if command::succeeds(Command::new("apt-get").arg("--version")) {
            packages::apt(self.apt, &self.advice())?;
        } else if command::succeeds(Command::new("brew").arg("--version")) {
            println!("installing {} with Homebrew", self.name);
            command::run_quietly(Command::new("brew").args(["install", "--quiet", self.brew]))?;
        } else {
            return Err(self.advice().into());
        }
        find().map_err(|_| self.advice().into())
    }

    fn say(&self, version: &str, ours: bool) {
        let origin = if ours {
            "a server of its own".into()
        } else {
            format!("the server of {}", self.variable)
        };
        println!("{} {version}: {origin}", self.name);
    }

    fn unreachable(&self, error: &impl Display) -> String {
        format!(
            "{} cannot be reached ({error}): let {} name a server that runs",
            self.name, self.variable
        )
    }

    fn advice(&self) -> String {
        let Self {
            name,
            variable,
            apt,
            brew,
        } = self;
        format!(
            "no {name} server: install it (Debian, Ubuntu: apt-get install {}; macOS: brew install {brew}), or set {variable} to a server on which databases may be created",
            apt.join(" ")
        )
    }
}
