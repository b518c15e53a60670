use flowgauge_stream::engine::ApplicationId;
use flowgauge_sys::local::Connection;

use super::super::codec::Wire as _;
use super::super::protocol::tests::join;
use super::super::protocol::{Join, Request};
use super::*;

/// A service without packets, and clients of it that have joined.
fn with_clients(count: usize, name: &str) -> (Service, Vec<Connection>) {
    let listener = Arc::new(Listener::bind(name).unwrap());
    let config = ServiceConfig {
        pool_bytes: 1 << 30,
        ..ServiceConfig::new(Arc::new(|_, _| Ok(())))
    };
    let mut service = Service::new(listener, config, &[]).unwrap();
    let join = Join {
        filters: Default::default(),
        ..join()
    };
    let far = Instant::now() + Duration::from_secs(3600);
    let mut message = vec![0; MESSAGE_BYTES];
    let clients = (0..count).map(|_| {
        let client = Connection::connect(name).unwrap();
        service.attend(far);
        client.receive(&mut message).unwrap();
        let asked = Request::Join(Box::new(join.clone()));
        client.send(&asked.encoded()).unwrap();
        service.attend(far);
        let len = client.receive(&mut message).unwrap();
        let reply = Reply::decoded(&message[..len]);
        assert!(matches!(reply, Some(Reply::Joined { .. })), "{reply:?}");
        client
    });
    let clients = clients.collect();
    (service, clients)
}

fn name(test: &str) -> String {
    format!("flowgauge/test/{}/{test}", std::process::id())
}

/// Of the members, in the order they came.
fn applications(service: &Service) -> Vec<Option<ApplicationId>> {
    let list = service.members.list.iter();
    list.map(|member| member.application).collect()
}

/// What clients want takes a while each; packets come in between, and everyone has a turn.
#[test]
fn a_look_that_takes_too_long_goes_on_later() {
    let (mut service, clients) = with_clients(3, &name("turns"));
    let mut left = 0;
    for round in 1..=3 {
        if round == 1 {
            clients
                .iter()
                .for_each(|client| client.send(&Request::Leave.encoded()).unwrap());
        }
        // Who always says something keeps nobody from being heard.
        clients[0].send(&Request::Status.encoded()).unwrap();
        service.attend(Instant::now());
        let now = applications(&service);
        let have_left = now.iter().filter(|one| one.is_none()).count();
        assert!(have_left <= left + 1, "{now:?}");
        left = have_left;
    }
    assert_eq!(left, 3);
    // Those who have gone are noticed one by one, too.
    drop(clients);
    for count in [2, 1, 0] {
        // (The first had more to say.)
        while service.members.list.len() > count {
            let before = service.members.list.len();
            service.attend(Instant::now());
            assert!(service.members.list.len() >= before - 1);
        }
    }
}

#[test]
fn packets_have_eight_times_what_a_look_took() {
    for took in [10, 100, 1000, 5000].map(Duration::from_millis) {
        assert_eq!(pause_after(took), 8 * took);
    }
    assert_eq!(pause_after(Duration::ZERO), ATTENTION);
}
