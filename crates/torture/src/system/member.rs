//! One server of the fleet: a process that is killed, and comes back.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use test_support::Proxy;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::log::Log;
use crate::Outcome;
use crate::server::KILL_AT;
use crate::server::points::Trigger;

/// A server from the outside.
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    /// Between it and its database.
    pub(crate) proxy: Option<Proxy>,
    orders: mpsc::Sender<Order>,
    keeper: JoinHandle<Outcome>,
}

/// How a server is started.
pub(crate) struct Settings {
    pub(crate) number: usize,
    pub(crate) url: String,
    pub(crate) unprepared: bool,
    pub(crate) renew: bool,
    pub(crate) wait_ms: u64,
    /// Whether it is to kill itself, where and when.
    pub(crate) triggers: Triggers,
    pub(crate) log: Arc<Log>,
}

/// Draws the trigger of each process.
pub(crate) type Triggers = Box<dyn FnMut() -> Option<Trigger> + Send + Sync>;

/// A process, and the pipe that it lives by.
struct Process {
    child: Child,
    // Waiting for the child would close it.
    _alive: Option<ChildStdin>,
}

enum Order {
    Kill,
    Stall(Duration),
    /// From now on it lives.
    Calm(oneshot::Sender<()>),
}

impl Member {
    pub(crate) async fn start(mut settings: Settings, proxy: Option<Proxy>) -> Outcome<Self> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let trigger = (settings.triggers)();
        let (process, address) = settings.spawn(anywhere, trigger).await?;
        let (orders, received) = mpsc::channel(8);
        let keeper = tokio::spawn(keep(settings, process, trigger, address, received));
        Ok(Self {
            address,
            proxy,
            orders,
            keeper,
        })
    }

    /// Kills it; it comes back.
    pub(crate) async fn kill(&self) {
        // A keeper that is gone tells why when it is stopped.
        let _ = self.orders.send(Order::Kill).await;
    }

    /// Stops it for a while in whatever it is doing.
    pub(crate) async fn stall(&self, time: Duration) {
        let _ = self.orders.send(Order::Stall(time)).await;
    }

    /// Ends its self-destruction, and returns when it runs.
    pub(crate) async fn calm(&self) {
        let (done, is_done) = oneshot::channel();
        let _ = self.orders.send(Order::Calm(done)).await;
        let _ = is_done.await;
    }

    /// Kills it for good.
    pub(crate) async fn stop(self) -> Outcome {
        drop(self.orders);
        self.keeper.await?
    }
}

/// Owns the process. Ends when there will be no more orders.
async fn keep(
    mut settings: Settings,
    mut process: Process,
    mut trigger: Option<Trigger>,
    address: SocketAddr,
    mut orders: mpsc::Receiver<Order>,
) -> Outcome {
    let mut calmed = None;
    loop {
        tokio::select! {
            status = process.child.wait() => settings.was_killed(status?, trigger)?,
            order = orders.recv() => match order {
                None => return Ok(process.child.kill().await?),
                Some(Order::Kill) => process.child.kill().await?,
                Some(Order::Stall(time)) => {
                    stall(&process.child, time).await?;
                    continue;
                }
                Some(Order::Calm(done)) => {
                    settings.triggers = Box::new(|| None);
                    if trigger.is_none() {
                        // Nobody may wait for it any more.
                        let _ = done.send(());
                        continue;
                    }
                    process.child.kill().await?;
                    calmed = Some(done);
                }
            },
        }
        trigger = (settings.triggers)();
        (process, _) = settings.spawn(address, trigger).await?;
        if let Some(done) = calmed.take() {
            let _ = done.send(());
        }
    }
}

/// Stops a process for a while. A shell lets it go on, also where this process is gone by then.
async fn stall(process: &Child, time: Duration) -> Outcome {
    let Some(id) = process.id() else {
        return Ok(());
    };
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "kill -STOP $0; read -r _; kill -CONT $0"])
        .arg(id.to_string())
        .process_group(0)
        .stdin(Stdio::piped())
        .spawn()?;
    sleep(time).await;
    // Waiting closes the pipe that the shell reads.
    shell.wait().await?;
    Ok(())
}

impl Settings {
    async fn spawn(
        &self,
        listen: SocketAddr,
        trigger: Option<Trigger>,
    ) -> Outcome<(Process, SocketAddr)> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["serve", "--url", &self.url])
            .args(["--listen", &listen.to_string()])
            .args(["--wait-ms", &self.wait_ms.to_string()])
            .args(self.unprepared.then_some("--unprepared"))
            .args(self.renew.then_some("--renew"))
            .env_remove(KILL_AT)
            .env("RUST_LOG", "info,sqlx=error")
            // Closes when this process ends, however that comes about.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(trigger) = trigger {
            command.env(KILL_AT, trigger.to_string());
        }
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err("no pipes".into());
        };
        let (log, number) = (Arc::clone(&self.log), self.number);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.push(number, line);
            }
        });
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await?;
        let address = line.as_deref().and_then(|line| line.rsplit(' ').next());
        match address.map(str::parse) {
            Some(Ok(address)) => {
                let alive = child.stdin.take();
                let process = Process {
                    child,
                    _alive: alive,
                };
                Ok((process, address))
            }
            Some(Err(_)) | None => {
                let why = self.log.last_of(self.number).unwrap_or_default();
                Err(format!("server {} did not start: {why}", self.number).into())
            }
        }
    }

    /// A process ends only where it was told to.
    fn was_killed(&self, status: ExitStatus, trigger: Option<Trigger>) -> Outcome {
        use std::os::unix::process::ExitStatusExt as _;

        if trigger.is_some() && status.signal() == Some(Signal::KILL.as_raw()) {
            return Ok(());
        }
        let last = self.log.last_of(self.number).unwrap_or_default();
        Err(format!("server {} ended: {status}: {last}", self.number).into())
    }
}
