//! `cargo xtask cluster`

use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use crate::metadata::Workspace;
use crate::packages::{self, Program};
use crate::{Outcome, command, engines, torture};

/// An engine of more than one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// PostgreSQL with a standby that is promoted when the primary is killed.
    Standby,
    /// PostgreSQL under Patroni with etcd, whose leader is killed.
    Patroni,
    /// Three MariaDB servers that are one cluster, of which nodes are killed and cut off.
    Galera,
    /// PostgreSQL behind PgBouncer in transaction mode.
    Pgbouncer,
}

#[derive(Args)]
pub(crate) struct Options {
    kind: Kind,
    /// How long load and faults last.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What they are drawn from; printed, to run the same again.
    #[arg(long)]
    seed: Option<u64>,
    /// The standby is behind, and what it does not have is lost.
    #[arg(long)]
    asynchronous: bool,
}

/// Starts the engine, tortures it, and leaves nothing.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    if options.asynchronous && options.kind != Kind::Standby {
        return Err("--asynchronous is for the standby".into());
    }
    let database = match options.kind {
        Kind::Standby if options.asynchronous => "asynchronous-standby",
        Kind::Standby => "standby",
        Kind::Patroni => "patroni",
        Kind::Galera => "galera",
        Kind::Pgbouncer => "pgbouncer",
    };
    engines::postgres()?;
    packages::ensure(programs(options.kind))?;
    let mut arguments = vec![
        format!("--database={database}"),
        format!("--seconds={}", options.seconds),
    ];
    arguments.extend(options.seed.map(|seed| format!("--seed={seed}")));
    Runtime::new()?.block_on(async {
        let first: &[&str] = match options.kind {
            Kind::Pgbouncer => &["pooler"],
            Kind::Galera => &["fleet", "--database=galera"],
            Kind::Standby | Kind::Patroni => &[],
        };
        if !first.is_empty() {
            let first: Vec<String> = first.iter().map(ToString::to_string).collect();
            torture::torture(workspace, &first, &[]).await?;
        }
        if options.kind == Kind::Galera {
            let mut tests = command::cargo(workspace);
            tests.args([
                "test",
                "--quiet",
                "--package",
                "end-to-end",
                "--test",
                "galera",
            ]);
            // Each of them starts three servers.
            tests.args(["--", "--ignored", "--test-threads=1"]);
            command::run(&mut tests)?;
        }
        torture::torture(workspace, &arguments, &[]).await
    })
}

/// What is needed besides PostgreSQL.
fn programs(kind: Kind) -> &'static [Program] {
    match kind {
        Kind::Standby => &[],
        Kind::Patroni => &[
            Program {
                name: "patroni",
                package: "patroni",
            },
            Program {
                name: "etcd",
                package: "etcd-server",
            },
        ],
        Kind::Galera => &[
            Program {
                name: "wsrep_sst_rsync",
                package: "mariadb-server",
            },
            Program {
                name: "/usr/lib/galera/libgalera_smm.so",
                package: "galera-4",
            },
            Program {
                name: "rsync",
                package: "rsync",
            },
            Program {
                name: "lsof",
                package: "lsof",
            },
        ],
        Kind::Pgbouncer => &[Program {
            name: "pgbouncer",
            package: "pgbouncer",
        }],
    }
}
