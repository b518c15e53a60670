//! A broker of Kafka, on loopback.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use tempfile::TempDir;

use crate::loopback::own_address;
use crate::wait::wait_until;

/// The user it knows, and the password.
pub(crate) const USER: &str = "sensor";
pub(crate) const PASSWORD: &str = "not for everybody";

pub(crate) struct Broker {
    pub(crate) folder: TempDir,
    /// Without TLS, for anybody.
    pub(crate) plain: SocketAddr,
    /// With TLS, for users.
    pub(crate) secure: SocketAddr,
    process: Mutex<Option<Child>>,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where `xtask/setup.sh test` puts it.
fn jars() -> PathBuf {
    let cache = std::env::var_os("FLOWGAUGE_CACHE").map(PathBuf::from);
    let home = || Path::new(&std::env::var_os("HOME").unwrap()).join(".cache/flowgauge");
    cache.unwrap_or_else(home).join("kafka-4.3.1")
}

/// Why there can be none.
pub(crate) fn missing() -> Option<String> {
    let jars = jars();
    let is_there = jars.is_dir() && Command::new("java").arg("-version").output().is_ok();
    (!is_there).then(|| format!("no java, or no {}: xtask/setup.sh test", jars.display()))
}

impl Broker {
    /// One for all tests that want any; it goes with the last of them.
    pub(crate) fn shared() -> Arc<Broker> {
        static SHARED: Mutex<Weak<Broker>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        shared.upgrade().unwrap_or_else(|| {
            let broker = Arc::new(Broker::new());
            *shared = Arc::downgrade(&broker);
            broker
        })
    }

    pub(crate) fn new() -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let [plain, secure, controller] = [own_address(), own_address(), own_address()];
        let broker = Broker {
            folder,
            plain,
            secure,
            process: Mutex::default(),
        };
        let keys = broker.keys();
        let host = plain.ip().to_string();
        for words in [&["authority"][..], &["add", "broker", "--host", &host]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
            command.arg("keys").args(words).env("FLOWGAUGE_KEYS", &keys);
            assert!(command.output().unwrap().status.success());
        }
        let read = |name: &str| fs::read_to_string(keys.join(name)).unwrap();
        let pem = read("broker.key") + &read("broker.crt");
        fs::write(broker.path("broker.pem"), pem).unwrap();
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners=PLAIN://{plain},SECURE://{secure},CONTROLLER://{controller}\n\
             advertised.listeners=PLAIN://{plain},SECURE://{secure}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,SECURE:SASL_SSL\n\
             inter.broker.listener.name=PLAIN\n\
             sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             listener.name.secure.plain.sasl.jaas.config=\
             org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             group.initial.rebalance.delay.ms=0\n\
             offsets.topic.num.partitions=1\n\
             offsets.topic.replication.factor=1\n",
            broker.path("broker.pem").display(),
            broker.path("data").display(),
        );
        fs::write(broker.path("properties"), properties).unwrap();
        fs::write(broker.path("password"), PASSWORD).unwrap();
        let mut format = broker.java(&["kafka.tools.StorageTool", "format", "-t"]);
        format.args(["AAAAAAAAAAAAAAAAAAAAAQ", "-c"]);
        format.arg(broker.path("properties")).arg("--add-scram");
        format.arg(format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]"));
        let formatted = format.output().unwrap();
        let said = String::from_utf8_lossy(&formatted.stderr).into_owned();
        assert!(formatted.status.success(), "{said}");
        broker.start();
        broker
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.path("keys")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Java; it ends with the thread that starts it, if nobody ended it before.
    fn java(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
        ]);
        command.args(["-XX:TieredStopAtLevel=1", "-cp"]);
        command.arg(jars().join("*")).args(words);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let mut command = self.java(&["kafka.Kafka"]);
        command.arg(self.path("properties"));
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let (sender, started) = mpsc::channel();
        thread::spawn(move || {
            sender.send(command.spawn().unwrap()).unwrap();
            // As long as this program.
            loop {
                thread::park();
            }
        });
        *self.process.lock().unwrap() = Some(started.recv().unwrap());
        let log = || fs::read_to_string(self.path("log")).unwrap();
        wait_until(&format!("the broker; {}", log()), || {
            TcpStream::connect(self.plain).is_ok() && TcpStream::connect(self.secure).is_ok()
        });
    }

    /// It has no time to say anything.
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn create(&self, topic: &str, partitions: i32) {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.plain.to_string());
        let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
        let topics = [NewTopic::new(topic, partitions, TopicReplication::Fixed(1))];
        let options = AdminOptions::new();
        let mut created = pin!(admin.create_topics(&topics, &options));
        let mut context = Context::from_waker(Waker::noop());
        wait_until("a topic", || match created.as_mut().poll(&mut context) {
            Poll::Pending => false,
            Poll::Ready(created) => {
                created.unwrap().remove(0).unwrap();
                true
            }
        });
    }
}
