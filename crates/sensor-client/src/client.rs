//! A user's end of the connection.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowgauge_sys::local::Connection;
use flowgauge_sys::shared::PoolView;

use crate::flow::Flow;
use crate::protocol::{Answer, Refusal, Request, Results, Status, receive_answer, send};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a sensor. Its flows end with it. Threads that share it ask one after the other.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connection: Arc<Connection>,
    asking: Mutex<()>,
    /// Where the user's packets are. The connection ends when nobody has it any more: the sensor uses it again then.
    pool: Mutex<Option<Arc<PoolView>>>,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no sensor.
    #[error("{socket}: no sensor answers: {error}")]
    NotThere {
        /// The socket.
        socket: String,
        /// What the system says.
        error: io::Error,
    },
    /// It has gone, or does not answer.
    #[error("the sensor has gone: {0}")]
    Gone(#[from] io::Error),
    /// It refused.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// It answered something else.
    #[error("the sensor answered another question")]
    Confused,
}

impl ClientError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            ClientError::NotThere { .. } => {
                Some("start one with flowgauge sensor run, or name its socket with --socket")
            }
            ClientError::Refused(refusal) => refusal.hint.as_deref(),
            ClientError::Gone(_) => Some("its log says why; flows begin anew when it is back"),
            ClientError::Confused => Some("client and sensor should be of the same version"),
        }
    }
}

impl Client {
    /// Connects to the sensor at a socket.
    ///
    /// # Errors
    /// [`ClientError::NotThere`].
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        let absolute = std::path::absolute(socket);
        let path = absolute.as_deref().unwrap_or(socket);
        let connection = Connection::connect(&path.to_string_lossy());
        let connection = connection.map_err(|error| ClientError::NotThere {
            socket: socket.display().to_string(),
            error,
        })?;
        Ok(Client(Arc::new(Inner {
            connection: Arc::new(connection),
            asking: Mutex::new(()),
            pool: Mutex::default(),
        })))
    }

    /// Whether the sensor has ended the connection, or is not there any more.
    pub fn is_gone(&self) -> bool {
        self.0.connection.is_gone()
    }

    /// Where packets of the user's flows are: mapped once.
    pub(crate) fn pool(&self, file: OwnedFd) -> io::Result<Arc<PoolView>> {
        let mut pool = self.0.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let opened = Arc::new(PoolView::open(file, Arc::clone(&self.0.connection))?);
        Ok(Arc::clone(pool.insert(opened)))
    }

    fn ask(&self, request: &Request) -> Result<Answer, ClientError> {
        self.ask_with(request, &[]).map(|(answer, _)| answer)
    }

    fn ask_with(
        &self,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        let Inner {
            connection, asking, ..
        } = &*self.0;
        let request = serde_json::to_vec(request).map_err(io::Error::from)?;
        let _asking = asking.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = send(connection, &request, files);
        // Who was turned away is told why.
        let answer = receive_answer(connection, PATIENCE);
        if answer.is_err() {
            // What comes late would be taken for the next answer.
            connection.shut_down();
            sent?;
        }
        match answer? {
            (Answer::Refused(refusal), _) => Err(ClientError::Refused(refusal)),
            answered => Ok(answered),
        }
    }

    /// How the sensor is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&self) -> Result<Status, ClientError> {
        match self.ask(&Request::Status)? {
            Answer::Status(status) => Ok(status),
            _ => Err(ClientError::Confused),
        }
    }

    /// Whether a flow could be opened, as far as its text and the user's rights say. Opens nothing.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn check(&self, device: &str, stack: &str) -> Result<(), ClientError> {
        let (device, stack) = (device.to_owned(), stack.to_owned());
        self.done(&Request::Check { device, stack }).map(drop)
    }

    /// A flow: a stack on a device, whose components `output` and `result_to_file` may write to `files`, of which `fd:0` is the
    /// first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn open(
        &self,
        device: &str,
        stack: &str,
        files: &[BorrowedFd<'_>],
    ) -> Result<Flow, ClientError> {
        let (device, stack) = (device.to_owned(), stack.to_owned());
        match self.ask_with(&Request::Open { device, stack }, files)? {
            (Answer::Flow(opened), files) => Flow::new(self, opened, files),
            _ => Err(ClientError::Confused),
        }
    }

    /// A device of a capture file that this process has opened, to be [started](Client::start). It ends with the connection.
    /// Returns its name, which no other connection can use.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_device(&self, file: BorrowedFd<'_>) -> Result<String, ClientError> {
        match self.ask_with(&Request::CreateDevice, &[file])? {
            (Answer::Device(name), _) => Ok(name),
            _ => Err(ClientError::Confused),
        }
    }

    /// Ends such a device, and the flows on it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn delete_device(&self, device: &str) -> Result<(), ClientError> {
        let device = device.to_owned();
        self.done(&Request::DeleteDevice { device }).map(drop)
    }

    /// The results of a flow so far.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn results(&self, flow: u64) -> Result<Results, ClientError> {
        self.results_of(&Request::Results { flow, take: None })
    }

    /// The table of a flow's component, by its label, which it forgets: what comes later is in the next one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn take(&self, flow: u64, component: &str) -> Result<Results, ClientError> {
        let take = Some(component.to_owned());
        self.results_of(&Request::Results { flow, take })
    }

    /// Tells that the rows taken of a component are still read. A device of files waits with further ones for as long as this is
    /// told, or rows are taken, every few seconds.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn reads(&self, flow: u64, component: &str) -> Result<(), ClientError> {
        let component = component.to_owned();
        self.done(&Request::Reads { flow, component }).map(drop)
    }

    /// Ends a flow. Returns its last results.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn close(&self, flow: u64) -> Result<Results, ClientError> {
        self.results_of(&Request::Close { flow })
    }

    fn results_of(&self, request: &Request) -> Result<Results, ClientError> {
        match self.ask(request)? {
            Answer::Results(results) => Ok(results),
            _ => Err(ClientError::Confused),
        }
    }

    /// Has the files of a device read from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn start(&self, device: &str) -> Result<(), ClientError> {
        let device = device.to_owned();
        self.done(&Request::Start { device }).map(drop)
    }

    /// Has the sensor take its configuration anew. Returns what it says of it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn reload(&self) -> Result<Vec<String>, ClientError> {
        self.done(&Request::Reload)
    }

    /// Ends the sensor.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stop(&self) -> Result<(), ClientError> {
        self.done(&Request::Stop).map(drop)
    }

    fn done(&self, request: &Request) -> Result<Vec<String>, ClientError> {
        match self.ask(request)? {
            Answer::Done(said) => Ok(said),
            _ => Err(ClientError::Confused),
        }
    }
}
