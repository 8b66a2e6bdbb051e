//! A system to run a script on: Linux itself, or a client over a carrier.

use super::plain::{Plain, host};
use husk_abi::nr;
use husk_client::{Call, Client, Seen, Verdict};
use husk_proto::Services;

/// Rounds of waiting before a script is stuck.
const WAITS_MAX: usize = 50;

/// Something that answers system calls.
pub trait System {
    /// One call; negative errno on failure.
    fn call(&mut self, number: usize, args: [usize; 6]) -> i64;
}

/// Linux.
pub struct Linux;

impl System for Linux {
    fn call(&mut self, number: usize, args: [usize; 6]) -> i64 {
        host(number, args)
    }
}

/// Husk, without gate and runtime.
pub struct Husk<S: Services> {
    pub client: Client<S, Plain, Plain>,
}

impl<S: Services> Husk<S> {
    /// What a look says, which must be what the client says when asked.
    fn glance(&mut self, number: usize, args: &[usize; 6]) -> Seen {
        if !husk_client::GLANCED.contains(&number) {
            return Seen::Nothing;
        }
        let [fd, second, third, fourth, fifth, _] = *args;
        self.client.glance(number, fd as u32, [second, third, fourth, fifth], || true)
    }
}

impl<S: Services> System for Husk<S> {
    fn call(&mut self, number: usize, args: [usize; 6]) -> i64 {
        for _ in 0..WAITS_MAX {
            if !husk_client::wants(number) {
                return host(number, args);
            }
            let seen = self.glance(number, &args);
            let verdict = self.client.call(Call { number, args });
            match seen {
                Seen::Value(value) => assert_eq!(verdict, Verdict::Return(value)),
                Seen::Pass => assert_eq!(verdict, Verdict::Pass),
                Seen::Nothing => {}
            }
            match verdict {
                Verdict::Return(value) => return value,
                Verdict::Pass => return host(number, args),
                Verdict::PassThen(after) => {
                    let result = host(number, args);
                    return self.client.after(after, result);
                }
                Verdict::PassRest { after, done } => {
                    let mut rest = args;
                    if number == nr::sendfile {
                        rest[3] -= done;
                    } else {
                        rest[1] += done;
                        rest[2] -= done;
                    }
                    let result = host(number, rest);
                    return self.client.after(after, result);
                }
                Verdict::Instead { call, .. } => {
                    let result = host(call.number, call.args);
                    return self.client.after(call, result);
                }
                Verdict::Wait { address, value, timeout_ns } => {
                    let time = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
                    let args = [address, 0, value as usize, time.as_ptr() as usize, 0, 0];
                    host(nr::futex, args);
                }
                Verdict::Ready { fd, events } => {
                    let entry = [fd as u64 | u64::from(events) << 32];
                    host(nr::poll, [entry.as_ptr() as usize, 1, usize::MAX, 0, 0, 0]);
                }
            }
        }
        panic!("call {} waits for ever", nr::name(number));
    }
}
