//! A user's end of the connection.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flowgauge_link::{Identity, Reactor};
use flowgauge_sys::local::Connection;
use flowgauge_sys::shared::PoolView;

use crate::flow::Flow;
use crate::protocol::{
    Answer, OpenedFlow, Refusal, Request, Results, Secret, Status, receive_answer, send,
};
use crate::remote::{Coming, Remote};
use crate::scope::Member;

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a sensor. Its flows end with it. Threads that share it ask one after the other; those of a sensor elsewhere
/// at the same time.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Arc<Transport>,
    /// How long an answer may take.
    patience: Duration,
}

#[derive(Debug)]
enum Transport {
    Local(Local),
    Remote(Remote),
}

#[derive(Debug)]
struct Local {
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
    /// That of another machine cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] flowgauge_link::Error),
    /// It cannot be reached: told to all flows that waited for the same attempt.
    #[error(transparent)]
    NotReached(Arc<ClientError>),
    /// It is one member of a scope.
    #[error("{0}: {1}")]
    Member(Member, Box<ClientError>),
    /// It has gone, or does not answer.
    #[error("the sensor does not answer: {0}")]
    Gone(#[from] io::Error),
    /// It refused.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// Its connection has ended.
    #[error("the connection to the sensor has ended")]
    Lost,
    /// This machine has no key to show.
    #[error("sensors of other machines want to know who asks")]
    Nobody,
    /// It answered something else.
    #[error("the sensor answered another question")]
    Confused,
}

impl ClientError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            ClientError::NotThere { error, .. }
                if error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                "the sensor that listened there has ended: flowgauge sensor run starts it again"
            }
            ClientError::NotThere { .. } => {
                "start one with flowgauge sensor run, or name its socket in FLOWGAUGE_SENSOR"
            }
            ClientError::Unreachable(error) => return error.hint(),
            ClientError::NotReached(error) => return error.hint(),
            ClientError::Member(_, error) => return error.hint(),
            ClientError::Refused(refusal) => return refusal.hint.clone(),
            ClientError::Gone(_) | ClientError::Lost => {
                "see its log; new flows work when it is back"
            }
            ClientError::Nobody => "flowgauge keys add makes a key; --keys names its folder",
            ClientError::Confused => "client and sensor should be of the same version",
        };
        Some(hint.to_owned())
    }
}

impl ClientError {
    /// Whether it may be otherwise later.
    pub fn is_passing(&self) -> bool {
        match self {
            ClientError::Refused(refusal) => refusal.is_passing,
            ClientError::Unreachable(flowgauge_link::Error::Refused { reason, .. }) => {
                *reason == flowgauge_link::Refusal::Full
            }
            ClientError::NotReached(error) => error.is_passing(),
            ClientError::Member(_, error) => error.is_passing(),
            _ => true,
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
        Ok(Client::of(Transport::Local(Local {
            connection: Arc::new(connection),
            asking: Mutex::new(()),
            pool: Mutex::default(),
        })))
    }

    /// Connects to the agent of a sensor of another machine, within `patience`, and makes sure that `peer` (else the host of the
    /// address) is there.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn connect_to(
        identity: &Identity,
        address: &str,
        peer: Option<&str>,
        patience: Duration,
    ) -> Result<Client, ClientError> {
        Client::connect_on(&Reactor::new()?, identity, address, peer, patience)
    }

    /// The same, where connections share the threads that receive.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub(crate) fn connect_on(
        reactor: &Reactor,
        identity: &Identity,
        address: &str,
        peer: Option<&str>,
        patience: Duration,
    ) -> Result<Client, ClientError> {
        let remote = Remote::connect(reactor, identity, address, peer, patience)?;
        Ok(Client::of(Transport::Remote(remote)))
    }

    fn of(transport: Transport) -> Client {
        Client {
            transport: Arc::new(transport),
            patience: PATIENCE,
        }
    }

    /// The same connection, where an answer may take so long.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Client {
        Client {
            transport: Arc::clone(&self.transport),
            patience,
        }
    }

    /// Whether the sensor has ended the connection, or is not there any more.
    pub fn is_gone(&self) -> bool {
        match &*self.transport {
            Transport::Local(local) => local.connection.is_gone(),
            Transport::Remote(remote) => remote.is_gone(),
        }
    }

    /// What an answer to [`Request::Open`] becomes.
    fn flow(&self, opened: OpenedFlow, files: Vec<OwnedFd>) -> Result<Flow, ClientError> {
        match &*self.transport {
            Transport::Local(local) => Flow::local(self, opened, files, |file| local.pool(file)),
            Transport::Remote(remote) => {
                let number = opened.number;
                Ok(Flow::remote(self, opened, remote.flow(number)))
            }
        }
    }

    /// Asks for anything, as it is. [`Answer::Refused`] is an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&self, request: &Request) -> Result<Answer, ClientError> {
        self.ask_with(request, &[]).map(|(answer, _)| answer)
    }

    fn ask_with(
        &self,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        let asked = serde_json::to_vec(request).map_err(io::Error::from)?;
        let answered = match &*self.transport {
            Transport::Local(local) => local.ask(&asked, files, self.patience)?,
            Transport::Remote(_) if !files.is_empty() => {
                let refusal = Refusal::with_hint(
                    "local files cannot be passed to a remote sensor",
                    "have packets or results come here, and write them here",
                );
                return Err(ClientError::Refused(refusal));
            }
            Transport::Remote(remote) => {
                let answer = remote.begin(&asked)?.within(self.patience)?;
                (answer_of(&answer)?, Vec::new())
            }
        };
        match answered {
            (Answer::Refused(refusal), _) => Err(ClientError::Refused(refusal)),
            answered => Ok(answered),
        }
    }

    /// Asks for something whose answer is waited for later: a sensor elsewhere works on it meanwhile.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) fn begin(&self, request: &Request) -> Result<Pending, ClientError> {
        Ok(match &*self.transport {
            Transport::Local(_) => Pending::There(Some(self.ask(request))),
            Transport::Remote(remote) => {
                let asked = serde_json::to_vec(request).map_err(io::Error::from)?;
                Pending::Coming(remote.begin(&asked)?)
            }
        })
    }

    /// Asks for a user of another machine from now on, who showed this key (of [`Request::SpeakFor`]). It takes the right to do
    /// so.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn speak_for(&self, name: &str, key: Option<&str>) -> Result<(), ClientError> {
        let (name, key) = (name.to_owned(), key.map(str::to_owned));
        self.done(&Request::SpeakFor { name, key }).map(drop)
    }

    /// Asks with what a credential allows from now on. There must be no flows yet.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn bring(&self, credential: &Secret) -> Result<(), ClientError> {
        let credential = credential.clone();
        self.done(&Request::Bring { credential }).map(drop)
    }

    /// What of the user's policy allows a flow or refuses it, a line for each statement. Opens nothing.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn explain(&self, device: &str, stack: &str) -> Result<Vec<String>, ClientError> {
        let (device, stack) = (device.to_owned(), stack.to_owned());
        self.done(&Request::Explain { device, stack })
    }

    /// How the sensor is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&self) -> Result<Status, ClientError> {
        self.status_with(false)
    }

    /// How the sensor is, and if `shared` which components are computed once for which flows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status_with(&self, shared: bool) -> Result<Status, ClientError> {
        match self.ask(&Request::Status { shared })? {
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
            (Answer::Flow(opened), files) => self.flow(opened, files),
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
        self.forget(flow);
        self.results_of(&Request::Close { flow })
    }

    /// Nothing more of a flow is wanted.
    pub(crate) fn forget(&self, flow: u64) {
        if let Transport::Remote(remote) = &*self.transport {
            remote.forget(flow);
        }
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

/// An answer that is waited for later.
#[derive(Debug)]
pub(crate) enum Pending {
    There(Option<Result<Answer, ClientError>>),
    Coming(Coming),
}

impl Pending {
    /// The answer, results, if it comes until then.
    pub(crate) fn results(&mut self, until: Instant) -> Result<Option<Results>, ClientError> {
        self.wait(until);
        let Pending::There(answer) = self else {
            return Ok(None);
        };
        match answer.take().ok_or(ClientError::Confused)?? {
            Answer::Results(results) => Ok(Some(results)),
            Answer::Refused(refusal) => Err(ClientError::Refused(refusal)),
            _ => Err(ClientError::Confused),
        }
    }

    /// Whether it has still to come.
    pub(crate) fn is_due(&mut self) -> bool {
        self.wait(Instant::now());
        matches!(self, Pending::Coming(_))
    }

    fn wait(&mut self, until: Instant) {
        if let Pending::Coming(coming) = self
            && let Some(came) = coming.wait(until).transpose()
        {
            *self = Pending::There(Some(came.and_then(|answer| answer_of(&answer))));
        }
    }
}

fn answer_of(bytes: &[u8]) -> Result<Answer, ClientError> {
    serde_json::from_slice(bytes).map_err(|_| ClientError::Confused)
}

impl Local {
    /// Where packets of the user's flows are: mapped once.
    fn pool(&self, file: OwnedFd) -> io::Result<Arc<PoolView>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let opened = Arc::new(PoolView::open(file, Arc::clone(&self.connection))?);
        Ok(Arc::clone(pool.insert(opened)))
    }

    fn ask(
        &self,
        request: &[u8],
        files: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        let connection = &self.connection;
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = send(connection, request, files);
        // Who was turned away is told why.
        let answer = receive_answer(connection, patience);
        if answer.is_err() {
            // What comes late would be taken for the next answer.
            connection.shut_down();
            sent?;
        }
        Ok(answer?)
    }
}
