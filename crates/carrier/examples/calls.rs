//! Times faster than Linux's tmpfs of one system call through the client, before interception:
//! `cargo run --release -p husk-carrier --example calls [PART OF A NAME]`.
//!
//! The same calls on the same path of three names, batches of both systems in turn, best batch.

#[path = "../tests/support/mod.rs"]
mod support;

use husk_abi::{Errno, nr};
use husk_carrier::{Direct, Layout};
use husk_client::{Buffers, Call, Client, Host, Mapping, Memory, Verdict};
use husk_proto::Inode;
use husk_proto::fs::{Run, Span};
use husk_proto::image::Cover;

const BATCHES: usize = 31;
const OPS: usize = 10_000;
const PAGE: usize = 4096;

type Served = Client<Direct, Plain, Plain>;

/// Host and memory without a gate; copies as the runtime makes them, addresses trusted.
#[derive(Clone, Copy)]
struct Plain;

fn host(number: usize, args: [usize; 6]) -> i64 {
    // SAFETY: this program passes addresses of live buffers.
    unsafe { husk_host::syscall(number, args) as i64 }
}

#[inline(always)]
fn copy(source: usize, target: usize, count: usize) -> Result<(), Errno> {
    // SAFETY: both sides are live buffers of this program or spans of the mapped cache.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") count => _, inout("rdi") target => _,
            inout("rsi") source => _, options(nostack, preserves_flags));
    }
    Ok(())
}

impl Host for Plain {
    type Still = ();

    fn keep_still(&self) {}

    fn call(&self, number: usize, args: [usize; 6]) -> i64 {
        host(number, args)
    }
    fn now_ns(&self) -> i64 {
        support::clock()
    }
    fn map_cache(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENODEV)
    }
    fn map_runs(&self, _: &Mapping, _: &[Run]) -> Result<usize, Errno> {
        Err(Errno::ENODEV)
    }
    fn note_mapping(&self, _: &Mapping, _: Inode) {}
    fn stack_room(&self, _: usize) -> usize {
        unreachable!("no call here sleeps")
    }
}

impl Memory for Plain {
    fn read(&self, source: usize, target: &mut [u8]) -> Result<(), Errno> {
        copy(source, target.as_mut_ptr() as usize, target.len())
    }
    fn write(&self, target: usize, source: &[u8]) -> Result<(), Errno> {
        copy(source.as_ptr() as usize, target, source.len())
    }
    fn read_string(&self, source: usize, target: &mut [u8]) -> Result<usize, Errno> {
        const STEP: usize = 64;
        let mut done = 0;
        while done < target.len() {
            let at = source + done;
            let count = STEP.min(PAGE - at % PAGE).min(target.len() - done);
            self.read(at, &mut target[done..done + count])?;
            if let Some(end) = target[done..done + count].iter().position(|&b| b == 0) {
                return Ok(done + end);
            }
            done += count;
        }
        Err(Errno::ENAMETOOLONG)
    }
    fn copy_out(&self, span: Span, target: usize) -> Result<(), Errno> {
        copy(span.address, target, span.length)
    }
    fn copy_in(&self, source: usize, span: Span) -> Result<(), Errno> {
        copy(source, span.address, span.length)
    }
}

/// Whom to ask.
enum System {
    Linux,
    Husk(Box<Served>),
}

impl System {
    #[inline(never)]
    fn call(&mut self, number: usize, args: &[usize]) -> i64 {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        match self {
            System::Linux => host(number, all),
            System::Husk(client) => match client.call(Call { number, args: all }) {
                Verdict::Return(value) => value,
                other => panic!("{} gives {other:?}", nr::name(number)),
            },
        }
    }
}

/// A directory of three names, a file there, a descriptor of it and a buffer.
struct Scene {
    system: System,
    path: Vec<u8>,
    fresh: Vec<u8>,
    other: Vec<u8>,
    fd: usize,
    buffer: Vec<u8>,
}

const READ_WRITE_CREATE: usize = 0o102;

impl Scene {
    fn new(mut system: System, mount: &str) -> Scene {
        let path = |name: &str| format!("{mount}{name}\0").into_bytes();
        for name in ["/one", "/one/two"] {
            let path = path(name);
            system.call(nr::mkdir, &[path.as_ptr() as usize, 0o755]);
        }
        let file = path("/one/two/three");
        let fd = system.call(nr::open, &[file.as_ptr() as usize, READ_WRITE_CREATE, 0o644]);
        assert!(fd >= 0, "{mount}: {fd}");
        let (fresh, other) = (path("/one/two/fresh"), path("/one/two/other"));
        let (fd, buffer) = (fd as usize, vec![7; 16 * PAGE]);
        let mut scene = Scene { system, path: file, fresh, other, fd, buffer };
        for page in 0..16 {
            scene.ask(nr::pwrite64, &[fd, scene.bytes(), PAGE, page * PAGE]);
        }
        scene
    }

    fn bytes(&self) -> usize {
        self.buffer.as_ptr() as usize
    }

    #[inline(always)]
    fn ask(&mut self, number: usize, args: &[usize]) -> usize {
        let result = self.system.call(number, args);
        assert!(result >= 0, "{} fails: {result}", nr::name(number));
        result as usize
    }
}

type Body = fn(&mut Scene, usize);

const OPERATIONS: &[(&str, Body)] = &[
    ("stat", |s, _| {
        s.ask(nr::stat, &[s.path.as_ptr() as usize, s.bytes()]);
    }),
    ("newfstatat", |s, _| {
        s.ask(nr::newfstatat, &[-100isize as usize, s.path.as_ptr() as usize, s.bytes(), 0]);
    }),
    ("statx", |s, _| {
        let path = s.path.as_ptr() as usize;
        s.ask(nr::statx, &[-100isize as usize, path, 0, 0xfff, s.bytes()]);
    }),
    ("access", |s, _| {
        s.ask(nr::access, &[s.path.as_ptr() as usize, 4]);
    }),
    ("fstat", |s, _| {
        s.ask(nr::fstat, &[s.fd, s.bytes()]);
    }),
    ("open+close", |s, _| {
        let path = s.path.as_ptr() as usize;
        let fd = s.ask(nr::openat, &[-100isize as usize, path, 0, 0]);
        s.ask(nr::close, &[fd]);
    }),
    ("create+close+unlink", |s, _| {
        let path = s.fresh.as_ptr() as usize;
        let fd = s.ask(nr::open, &[path, READ_WRITE_CREATE, 0o644]);
        s.ask(nr::close, &[fd]);
        s.ask(nr::unlink, &[path]);
    }),
    ("rename", |s, n| {
        let (one, two) = (s.path.as_ptr() as usize, s.other.as_ptr() as usize);
        let (source, target) = if n % 2 == 0 { (one, two) } else { (two, one) };
        s.ask(nr::rename, &[source, target]);
    }),
    ("lseek", |s, n| {
        s.ask(nr::lseek, &[s.fd, n, 0]);
    }),
    ("read 1 byte", |s, n| {
        if n % PAGE == 0 {
            s.ask(nr::lseek, &[s.fd, 0, 0]);
        }
        s.ask(nr::read, &[s.fd, s.bytes(), 1]);
    }),
    ("pread 1 byte", |s, n| {
        s.ask(nr::pread64, &[s.fd, s.bytes(), 1, n % (16 * PAGE)]);
    }),
    ("pread 4 KiB", |s, n| {
        s.ask(nr::pread64, &[s.fd, s.bytes(), PAGE, n % 16 * PAGE]);
    }),
    ("pread 64 KiB", |s, _| {
        s.ask(nr::pread64, &[s.fd, s.bytes(), 16 * PAGE, 0]);
    }),
    ("pwrite 4 KiB", |s, n| {
        s.ask(nr::pwrite64, &[s.fd, s.bytes(), PAGE, n % 16 * PAGE]);
    }),
];

fn main() {
    let layout = Layout { kernels: 2, memory_bytes: 256 << 20 };
    let (mut boss, _) = support::image(layout, Cover::Memory);
    let mut me = support::program(&mut boss, coarse);
    me.set_alone(true);
    let buffers = Box::leak(Box::new(Buffers::new()));
    let husk = System::Husk(Box::new(Client::new(me, Plain, Plain, buffers)));
    // As long as the other one's `/tmp/mount`.
    let scratch = format!("/dev/shm/h{}", std::process::id() % 10);
    std::fs::create_dir_all(&scratch).expect("a directory");
    let mut scenes = [Scene::new(System::Linux, &scratch), Scene::new(husk, "/tmp/mount")];
    let only = std::env::args().nth(1).unwrap_or_default();
    for (name, body) in OPERATIONS.iter().filter(|(name, _)| name.contains(&only)) {
        let mut best = [f64::MAX; 2];
        for _ in 0..BATCHES {
            for (scene, best) in scenes.iter_mut().zip(&mut best) {
                let start = cpu_ns();
                (0..OPS).for_each(|n| body(scene, n));
                *best = best.min((cpu_ns() - start) as f64 / OPS as f64);
            }
        }
        let [linux, husk] = best;
        println!("{name:20} Linux {linux:8.1} ns  Husk {husk:8.1} ns  {:5.2}x", linux / husk);
    }
    std::fs::remove_dir_all(&scratch).expect("the directory");
}

fn coarse() -> i64 {
    clock(libc::CLOCK_REALTIME_COARSE)
}

fn cpu_ns() -> i64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct lives over the call.
    unsafe { libc::clock_gettime(which, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
