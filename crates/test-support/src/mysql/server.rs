//! A server of our own, which ends with the process that started it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::{ENGINE, MariadbBinaries};
use crate::ServerError;
use crate::shell::{Recipe, Shell};

/// A MariaDB server in a temporary folder, on a unix socket there and on a port of `127.0.0.1`.
/// Any user of this machine may connect while it runs.
///
/// It ends, and its folder with it, by [`stop`](MariadbServer::stop), by drop or because this
/// process is no more.
#[derive(Debug)]
pub struct MariadbServer(Shell);

impl MariadbServer {
    /// Starts a server that loses no data when it is killed, but does when the machine is. Blocks
    /// for about five seconds.
    ///
    /// # Errors
    ///
    /// See [`start_with`](Self::start_with).
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(&MariadbBinaries::find()?, &[])
    }

    /// Starts a server with settings of its own. Blocks for about five seconds.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, there is no user for the server to run as, or it does not start.
    pub fn start_with(
        binaries: &MariadbBinaries,
        settings: &[(&str, &str)],
    ) -> Result<Self, ServerError> {
        Shell::start(&Recipe {
            engine: &ENGINE,
            script: include_str!("server.sh"),
            arguments: &[
                binaries.install().as_os_str(),
                binaries.server().as_os_str(),
            ],
            settings: &|folder, address| file(folder, address, settings),
        })
        .map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its URL, over TCP, as a superuser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://root@{}/mysql", self.0.address)
    }

    /// The folder of its data and its logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Stops it, and returns when it and its folder are gone.
    pub fn stop(self) {
        self.0.stop();
    }
}

fn file(folder: &Path, address: SocketAddr, settings: &[(&str, &str)]) -> String {
    let folder = folder.display();
    let (ip, port) = (address.ip(), address.port());
    let mut file = format!(
        "[mariadbd]\n\
         datadir = {folder}/data\n\
         socket = {folder}/socket\n\
         pid_file = {folder}/pid\n\
         bind_address = {ip}\n\
         port = {port}\n\
         skip_name_resolve\n\
         max_connections = 300\n\
         innodb_flush_log_at_trx_commit = 2\n\
         innodb_buffer_pool_size = 64M\n\
         innodb_log_file_size = 64M\n"
    );
    // The last line of a setting counts.
    for (name, value) in settings {
        writeln!(file, "{name} = {value}").expect("a string takes any text");
    }
    file
}
