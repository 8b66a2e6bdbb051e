//! Requests in shared memory: askers and agents that are killed, leave, or do not come.

mod support;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use husk_link::{Answered, Memory, Robust, SLOT_BYTES_MAX, SLOTS, Slots, Taken, Unanswered};
use support::{Dice, bytes_of, kill};

fn memory() -> Memory {
    Memory::create(c"requests", Slots::BYTES).expect("memory")
}

fn robust() -> &'static Robust {
    Box::leak(Box::default())
}

/// The next request, which somebody is about to ask.
fn next_taken(slots: &Slots<'_>, worker: &'static Robust, room: &mut [u8]) -> (Taken, usize) {
    loop {
        if let Some(taken) = slots.take(worker, room) {
            return taken;
        }
    }
}

/// Answers each request by its own bytes, the other way round, until `is_over`; every eighth after
/// a moment.
fn answer(slots: &Slots<'_>, mut is_over: impl FnMut() -> bool) {
    let mut room = vec![0; SLOT_BYTES_MAX];
    let robust = robust();
    assert!(robust.begin());
    let mut count = 0_u32;
    while !is_over() {
        while let Some((taken, length)) = slots.take(robust, &mut room) {
            slots.share();
            count += 1;
            if count.is_multiple_of(8) {
                thread::sleep(Duration::from_micros(200));
            }
            room[..length].reverse();
            slots.answer(taken, Some(&room[..length]));
        }
        if slots.begin_look() {
            for _ in 0..count % 100 {
                if slots.has_request() {
                    break;
                }
            }
            slots.end_look();
        }
        if !slots.has_request() {
            slots.sleep();
        }
    }
}

/// Asks with `length` bytes of `seed`: whether the answer was theirs; `None`: it was not asked.
fn ask(slots: &Slots<'_>, seed: u64, length: usize) -> Result<Option<()>, Unanswered> {
    let mut bytes = bytes_of(seed, length);
    let mut room = vec![0; SLOT_BYTES_MAX];
    let (head, body) = bytes.split_at(length / 3);
    let Some(came) = slots.call(std::process::id(), [head, body], &mut room, 60)? else {
        return Ok(None);
    };
    bytes.reverse();
    assert!(room[..came] == bytes, "an answer to something else");
    Ok(Some(()))
}

/// In a child: the agent, with two threads, until it is killed.
fn agent_for_ever(slots: Slots<'static>) -> ! {
    let first = robust();
    slots.open(first);
    for _ in 0..2 {
        thread::spawn(move || answer(&slots, || false));
    }
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child does nothing but what it is given, and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a child");
    if pid == 0 {
        child();
        // SAFETY: ends without any destructor of the parent's.
        unsafe { libc::_exit(0) };
    }
    pid
}

/// Two threads answer while `play` runs.
fn with_agent(slots: Slots<'_>, play: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        slots.open(robust());
        for _ in 0..2 {
            scope.spawn(|| answer(&slots, || is_over.load(Ordering::Relaxed)));
        }
        play();
        // Those that sleep see it when they wake.
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn each_asker_gets_the_answer_to_its_own_request() {
    let memory = memory();
    let slots = memory.slots();
    let answered = Mutex::new(0);
    with_agent(slots, || {
        thread::scope(|scope| {
            for asker in 0..8 {
                let (slots, answered) = (&slots, &answered);
                scope.spawn(move || {
                    let mut dice = Dice(asker + 1);
                    for n in 0..2_000 {
                        let most = [20, 300, SLOT_BYTES_MAX as u64][n % 3];
                        let length = dice.below(most) as usize + 1;
                        assert_eq!(ask(slots, asker << 32 | n as u64, length), Ok(Some(())));
                    }
                    *answered.lock().expect("a count") += 2_000;
                });
            }
        });
    });
    assert_eq!(*answered.lock().expect("a count"), 16_000);
}

#[test]
fn what_is_too_long_or_has_no_agent_or_no_slot_goes_another_way() {
    let memory = memory();
    let slots = memory.slots();
    assert_eq!(ask(&slots, 1, 10), Ok(None), "no agent yet");
    slots.open(robust());
    assert_eq!(ask(&slots, 1, SLOT_BYTES_MAX + 1), Ok(None), "too long");
    let process = std::process::id();
    thread::scope(|scope| {
        for _ in 0..SLOTS {
            let late = || slots.call(process, [b"head", b"body"], &mut [0; 64], 2);
            scope.spawn(move || assert_eq!(late(), Err(Unanswered::Late), "nobody takes it"));
        }
        thread::sleep(Duration::from_millis(500));
        assert_eq!(ask(&slots, 1, 10), Ok(None), "all are taken");
    });
    // Those that nobody has taken are free again.
    let mut room = vec![0; SLOT_BYTES_MAX];
    assert!(slots.take(robust(), &mut room).is_none());
}

#[test]
fn who_gives_up_while_its_request_is_worked_on_leaves_the_slot_to_the_agent() {
    let memory = memory();
    let slots = memory.slots();
    slots.open(robust());
    let worker = robust();
    let mut room = vec![0; SLOT_BYTES_MAX];
    for _ in 0..2 {
        let taken = thread::scope(|scope| {
            let asks = scope.spawn(|| slots.call(7, [b"head", b"body"], &mut [0; 64], 1));
            let (taken, length) = next_taken(&slots, worker, &mut room);
            assert_eq!(&room[..length], b"headbody");
            assert_eq!(asks.join().expect("it ends"), Err(Unanswered::Late));
            taken
        });
        assert!(!slots.answer(taken, Some(b"late")), "nobody waits");
    }
}

#[test]
fn an_agent_killed_at_any_moment_has_lost_what_it_had_taken_and_nothing_hangs() {
    let mut dice = Dice(3);
    let (mut done, mut lost, mut elsewhere) = (0, 0, 0);
    for round in 0..60 {
        let memory: &'static Memory = Box::leak(Box::new(memory()));
        let slots = memory.slots();
        let agent = fork(|| agent_for_ever(slots));
        while !slots.is_alive() {
            thread::sleep(Duration::from_micros(100));
        }
        thread::scope(|scope| {
            let askers: Vec<_> = (0..3)
                .map(|asker| {
                    scope.spawn(move || {
                        for n in 0.. {
                            match ask(&slots, asker << 32 | n, 100) {
                                Ok(Some(())) => {}
                                other => return (n, other),
                            }
                        }
                        unreachable!("the agent is killed");
                    })
                })
                .collect();
            thread::sleep(Duration::from_micros(dice.below(3_000)));
            kill(agent);
            for asker in askers {
                let (count, last) = asker.join().expect("it ends");
                done += count;
                match last {
                    Err(Unanswered::Lost) => lost += 1,
                    Ok(None) => elsewhere += 1,
                    other => panic!("round {round}: {other:?}"),
                }
            }
        });
        assert!(!slots.is_alive());
    }
    assert!(done > 0 && lost > 0 && elsewhere > 0, "{done} {lost} {elsewhere}");
}

#[test]
fn slots_of_askers_that_were_killed_are_taken_back_and_told_of_once() {
    let memory: &'static Memory = Box::leak(Box::new(memory()));
    let slots = memory.slots();
    let mut dice = Dice(5);
    with_agent(slots, || {
        let mut freed: HashSet<Answered> = HashSet::new();
        for n in 0..300 {
            let asker = fork(|| {
                loop {
                    let _ = slots.call(std::process::id(), [b"head", b"body"], &mut [0; 64], 60);
                }
            });
            thread::sleep(Duration::from_micros(500 + dice.below(1_500)));
            kill(asker);
            if n % 10 == 9 {
                slots.take_back(0, |unread| assert!(freed.insert(unread), "told of twice"));
            }
        }
        // The agent has answered the last by then.
        assert_eq!(ask(&slots, 1, 10), Ok(Some(())));
        slots.take_back(0, |unread| assert!(freed.insert(unread), "told of twice"));
        assert!(!freed.is_empty(), "nobody was killed before it had read");
    });
}

#[test]
fn each_slot_has_its_turn() {
    let memory = memory();
    let slots = memory.slots();
    slots.open(robust());
    let (worker, mut room) = (robust(), vec![0; SLOT_BYTES_MAX]);
    assert!(worker.begin());
    thread::scope(|scope| {
        // Where a request lies goes by the process's number.
        let asks = |process| slots.call(process, [b"n", b""], &mut [0; 64], 60);
        let high = scope.spawn(move || asks(63));
        for taken_before in 0.. {
            assert!(taken_before < 3, "it waits as long as there is one before it");
            let low = scope.spawn(move || asks(0));
            thread::sleep(Duration::from_millis(20));
            let (taken, _) = slots.take(worker, &mut room).expect("two wait");
            let at = taken.answered().at;
            slots.answer(taken, Some(b"here"));
            if at == 63 {
                let (taken, _) = slots.take(worker, &mut room).expect("the other one");
                slots.answer(taken, Some(b"here"));
            }
            low.join().expect("it ends").expect("an answer");
            if at == 63 {
                break;
            }
        }
        high.join().expect("it ends").expect("an answer");
    });
}

#[test]
fn an_answer_that_somebody_may_still_read_is_not_taken_back() {
    let memory = memory();
    let slots = memory.slots();
    slots.open(robust());
    let worker = robust();
    let mut room = vec![0; SLOT_BYTES_MAX];
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let process = std::process::id();
            slots.call(process, [b"head", b"body"], &mut [0; 64], 60)
        });
        let (taken, _) = next_taken(&slots, worker, &mut room);
        assert!(slots.answer(taken, Some(b"here")));
        slots.take_back(0, |_| panic!("its asker lives"));
        assert_eq!(asks.join().expect("it ends"), Ok(Some(4)));
    });
}
