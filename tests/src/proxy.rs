//! A bad network between the engine and its server: cuts connections inside a packet, or stalls them without a word.

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to the connections that there are; later ones are not concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Close at once, whatever is under way.
    Cut,
    /// Keep open, and hand nothing on any more.
    Stall,
}

/// Forwards to a port on the loopback interface, as long as it lives.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    orders: watch::Sender<Order>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (orders, _) = watch::channel(Order::Cut);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, orders.clone()));
        Ok(Self { port, orders, _tasks: tasks })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection that is open now.
    pub fn cut(&self) {
        self.orders.send_replace(Order::Cut);
    }

    /// Stalls every connection that is open now, for ever. Neither end is told.
    pub fn stall(&self) {
        self.orders.send_replace(Order::Stall);
    }
}

async fn accept(listener: TcpListener, target: u16, orders: watch::Sender<Order>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        // A new receiver takes what was ordered before as seen.
        connections.spawn(forward(client, target, orders.subscribe()));
    }
}

async fn forward(mut client: TcpStream, target: u16, mut orders: watch::Receiver<Order>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    tokio::select! {
        // However it ended, both sides are closed now.
        _ = copy_bidirectional(&mut client, &mut server) => {}
        changed = orders.changed() => {
            if changed.is_ok() && *orders.borrow() == Order::Stall {
                std::future::pending::<()>().await;
            }
        }
    }
}
