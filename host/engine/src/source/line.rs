//! A TCP connection that may be left alone for a while.
//!
//! A runtime that watches a socket is woken by every packet, whether or not anybody wants to read: its poll is edge
//! triggered, and a server that sends each change by itself makes an edge of each. So a reader that has decided to wait
//! takes the socket out of the runtime's watch. What arrives stays in the kernel's buffer, and wakes nobody; the next
//! use of the connection puts it back under watch, which reports at once what has become ready meanwhile.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(in crate::source) enum Line {
    Watched(TcpStream),
    Alone(std::net::TcpStream),
    /// The runtime would not take it, or not give it back: it is closed.
    Lost,
}

impl Line {
    /// Until it is used again, nothing that happens to it wakes anybody.
    ///
    /// # Errors
    /// The connection is lost then.
    pub(in crate::source) fn leave_alone(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Lost) {
            Self::Watched(stream) => *self = Self::Alone(stream.into_std()?),
            other => *self = other,
        }
        Ok(())
    }

    fn watched(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if matches!(self, Self::Alone(_))
            && let Self::Alone(stream) = std::mem::replace(self, Self::Lost)
        {
            *self = Self::Watched(TcpStream::from_std(stream)?);
        }
        match self {
            Self::Watched(stream) => Ok(Pin::new(stream)),
            Self::Alone(_) | Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().watched()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().watched()?.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().watched()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().watched()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_arrives_while_it_is_left_alone_is_read_afterwards() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut line = Line::Watched(TcpStream::connect(listener.local_addr()?).await?);
        let (mut peer, _) = listener.accept().await?;
        let mut received = [0; 5];

        line.leave_alone()?;
        line.leave_alone()?;
        peer.write_all(b"early").await?;
        line.read_exact(&mut received).await?;
        assert_eq!(&received, b"early");

        line.leave_alone()?;
        line.write_all(b"reply").await?;
        peer.read_exact(&mut received).await?;
        assert_eq!(&received, b"reply");

        line.leave_alone()?;
        drop(peer);
        assert_eq!(line.read(&mut received).await?, 0);
        Ok(())
    }
}
