//! Sessions of events.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use corprof_diagnostics::ipc::Command;
use corprof_diagnostics::{Error, FullBuffer, Level, Provider, SessionConfig};
use corprof_nettrace::Reader;

use super::{PATIENCE, Questions, Result, Server, TIMEOUT, ok, refusal, text};

#[test]
fn a_session_without_loss_is_one_that_drops_events_where_the_runtime_has_no_other() -> Result {
    let config = SessionConfig::new([Provider::new("P", 5, Level::Verbose)]);
    let [wait, if_possible] =
        [FullBuffer::Wait, FullBuffer::WaitIfPossible].map(|rule| config.clone().with_full_buffer(rule));

    let newest = Server::answering(ok(&9_u64.to_le_bytes()))?;
    let client = newest.client(PATIENCE);
    assert!(!client.start_session(&wait)?.drops_events());
    assert!(!client.start_session(&if_possible)?.drops_events());
    assert!(client.start_session(&config)?.drops_events());
    let collect = [
        &0_u32.to_le_bytes()[..],
        &64_u32.to_le_bytes(),
        &1_u32.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &[1],
        &1_u32.to_le_bytes(),
        &5_u64.to_le_bytes(),
        &5_u32.to_le_bytes(),
        &text("P"),
        &[0; 4],
        &[0],
        &0_u32.to_le_bytes(),
        &1_u32.to_le_bytes(),
    ];
    let asked: Questions =
        newest.asked().into_iter().filter(|(command, _)| *command != Command::PROCESS_INFO).collect();
    assert_eq!(asked[0], (Command::COLLECT_TRACING_6, collect.concat()));
    assert_eq!(asked[2].0, Command::COLLECT_TRACING_2);

    let older = Server::new(|mut stream, command, _| {
        let is_new = command == Command::COLLECT_TRACING_6;
        let _ = stream.write_all(&if is_new { refusal(0x8013_1385) } else { ok(&9_u64.to_le_bytes()) });
    })?;
    let client = older.client(PATIENCE);
    let error = client.start_session(&wait).map(drop);
    assert!(matches!(error, Err(Error::Unsupported { needs: ".NET 11", .. })), "{error:?}");
    assert!(client.start_session(&if_possible)?.drops_events());
    Ok(())
}

#[test]
fn a_session_that_is_silent_times_out_and_can_be_read_on() -> Result {
    let server = Server::new(|mut stream, command, _| {
        if command == Command::COLLECT_TRACING_2 {
            let _ = stream.write_all(&[ok(&1_u64.to_le_bytes()), b"Nettr".to_vec()].concat());
            thread::sleep(TIMEOUT * 6);
            let _ = stream.write_all(b"ash");
        }
    })?;
    let config = SessionConfig::new([Provider::new("P", 1, Level::Error)]);
    let mut session = server.client(PATIENCE).start_session(&config)?;
    session.set_read_timeout(Some(TIMEOUT));
    let mut reader = Reader::new(session);
    let Err(error) = reader.next_event() else { return Err("there is an event".into()) };
    assert!(error.is_timeout(), "{error:?}");
    reader.get_mut().set_read_timeout(Some(PATIENCE));
    let Err(error) = reader.next_event() else { return Err("there is an event".into()) };
    assert!(error.to_string().contains("no .nettrace"), "{error}");
    Ok(())
}

#[test]
fn a_session_has_begun_when_its_start_returns_and_what_came_meanwhile_is_read() -> Result {
    // More than a socket holds, so that the server waits for a reader before it looks at the next request.
    const SENT: usize = 2 << 20;
    let is_on = Arc::new(AtomicUsize::new(0));
    let on = Arc::clone(&is_on);
    let server = Server::new(move |mut stream, command, _| {
        if command == Command::COLLECT_TRACING_2 {
            let _ = stream.write_all(&ok(&1_u64.to_le_bytes()));
            let _ = stream.write_all(&vec![7; SENT]);
            thread::sleep(TIMEOUT / 8);
            on.store(1, Ordering::SeqCst);
        } else {
            let _ = stream.write_all(&refusal(0x8013_1385));
        }
    })?;
    let config = SessionConfig::new([Provider::new("P", 1, Level::Error)]);
    let mut session = server.client(PATIENCE).start_session(&config)?;
    assert_eq!(is_on.load(Ordering::SeqCst), 1);
    let mut bytes = vec![0; SENT];
    session.read_exact(&mut bytes)?;
    assert!(bytes.iter().all(|byte| *byte == 7));
    assert_eq!(session.read(&mut bytes)?, 0);
    Ok(())
}

#[test]
fn a_session_that_will_not_stop_is_told() -> Result {
    for (answer, expected) in [(refusal(0x8000_4005), "E_FAIL"), (Vec::new(), "closed the connection")] {
        let server = Server::new(move |mut stream, command, _| {
            let answer = if command == Command::STOP_TRACING { answer.clone() } else { ok(&1_u64.to_le_bytes()) };
            let _ = stream.write_all(&answer);
        })?;
        let mut session =
            server.client(PATIENCE).start_session(&SessionConfig::new([Provider::new("P", 1, Level::Error)]))?;
        session.stop()?;
        let mut bytes = Vec::new();
        let Err(error) = session.read_to_end(&mut bytes) else { return Err("it is said to have stopped".into()) };
        assert!(error.to_string().contains(expected), "{error}");
    }
    Ok(())
}
