//! CPU ns per operation of the direct carrier, one thread, before interception:
//! `cargo run --release -p husk-carrier --example ops [START OF A NAME]`.

#[path = "../tests/support/mod.rs"]
mod support;

use husk_carrier::Layout;
use husk_proto::descriptor::{Description, Offsets as _, Slot};
use husk_proto::fs::{Node, Place, RENAME_NOREPLACE};
use husk_proto::image::Cover;
use husk_proto::{Descriptors, Fs, Shortcuts as _};

const BATCHES: usize = 41;
const OPS: usize = 20_000;

/// Best and median ns per run of `body` over batches.
fn measure(name: &str, mut body: impl FnMut(usize)) {
    if std::env::args().nth(1).is_some_and(|part| !name.starts_with(&part)) {
        return;
    }
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        let start = cpu_ns();
        for n in 0..OPS {
            body(n);
        }
        times.push((cpu_ns() - start) as f64 / OPS as f64);
    }
    times.sort_by(f64::total_cmp);
    println!("{name:28} {:8.1} best {:8.1} median ns", times[0], times[BATCHES / 2]);
}

fn main() {
    let layout = Layout { kernels: 2, memory_bytes: 256 << 20 };
    let (mut boss, root) = support::image(layout, Cover::Memory);
    let mut me = support::program(&mut boss, coarse);
    me.set_alone(true);
    let who = support::root_user();
    let files = me.files();
    let dir = me.create(&who, root, b"dir", Node::Directory(0o755)).expect("mkdir");
    let names: Vec<String> = (0..64).map(|n| format!("file-{n:04}")).collect();
    for name in &names {
        me.create(&who, dir, name.as_bytes(), Node::File(0o644)).expect("create");
    }
    let name = |n: usize| names[n % 64].as_bytes();
    measure("control: 64 multiplications", |n| {
        let product = (0..64).fold(n as u64 | 1, |x, _| std::hint::black_box(x).wrapping_mul(x));
        std::hint::black_box(product);
    });
    let word = std::sync::atomic::AtomicU64::new(0);
    measure("control: compare and swap", |_| {
        let order = std::sync::atomic::Ordering::SeqCst;
        let _ = std::hint::black_box(word.compare_exchange(0, 0, order, order));
    });
    measure("control: native fstat", |_| {
        // SAFETY: a plain call into a local.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(0, &mut stat);
        }
    });
    let mut pages = vec![7u8; 65 * 4096];
    let pages = pages.as_mut_ptr() as usize;
    measure("control: 4 KiB to 64 places", |n| {
        copy(pages + 64 * 4096, pages + n % 64 * 4096, 4096).expect("copied");
        let order = std::sync::atomic::Ordering::SeqCst;
        let _ = std::hint::black_box(word.compare_exchange(0, 0, order, order));
    });
    measure("open+close", |n| {
        let step = me.lookup(dir, name(n)).expect("there");
        let fd = me.open(&who, files, step.inode, 0, 0, 1024).expect("open");
        me.close(files, fd).expect("close");
    });
    measure("lookup x2 + attributes", |n| {
        let dir = me.lookup(root, b"dir").expect("dir").inode;
        let file = me.lookup(dir, name(n)).expect("there").inode;
        std::hint::black_box(me.attributes(file).expect("stat"));
    });
    measure("create_open+close+unlink", |_| {
        let fd = me.create_open(&who, files, dir, b"fresh", 0o644, 2, 1024).expect("create");
        me.close(files, fd).expect("close");
        me.unlink(&who, dir, b"fresh").expect("unlink");
    });
    measure("rename in directory", |n| {
        let (one, two) =
            if n % 2 == 0 { (b"file-0000", b"other-nam") } else { (b"other-nam", b"file-0000") };
        me.rename(&who, dir, one, dir, two, RENAME_NOREPLACE).expect("rename");
    });
    measure("mkdir+rmdir", |_| {
        me.create(&who, dir, b"sub", Node::Directory(0o755)).expect("mkdir");
        me.rmdir(&who, dir, b"sub").expect("rmdir");
    });
    let file = me.lookup(dir, name(1)).expect("there").inode;
    let fd = me.open(&who, files, file, 2, 0, 1024).expect("open");
    let Slot::Husk(description) = me.slot(files, fd) else { panic!("not ours") };
    let mut page = vec![7u8; 4096];
    let into = page.as_mut_ptr() as usize;
    measure("pwrite 4 KiB", |n| {
        let place = Place::At((n % 64 * 4096) as u64);
        me.write(file, place, 4096, &mut |span| copy(into, span.address, span.length))
            .expect("write");
    });
    measure("pread 4 KiB", |n| {
        let at = (n % 64 * 4096) as u64;
        me.read(file, at, 4096, &mut |span| copy(span.address, into, span.length)).expect("read");
    });
    measure("read 1 byte", |n| read_one(&mut me, description, into, n));
    measure("create+1 KiB+unlink", |_| {
        let fd = me.create_open(&who, files, dir, b"fresh", 0o644, 2, 1024).expect("create");
        let Slot::Husk(open) = me.slot(files, fd) else { panic!("not ours") };
        let inode = me.description(open).expect("open").inode;
        me.write(inode, Place::At(0), 1024, &mut |span| copy(into, span.address, span.length))
            .expect("write");
        me.close(files, fd).expect("close");
        me.unlink(&who, dir, b"fresh").expect("unlink");
    });
}

fn read_one(me: &mut husk_carrier::Direct, description: Description, into: usize, n: usize) {
    if n.is_multiple_of(4096) {
        me.set_offset(description, 0).expect("seek");
    }
    me.advance(description, |me, offset| {
        let inode = me.description(description)?.inode;
        let count = me.read(inode, offset, 1, &mut |span| copy(span.address, into, span.length))?;
        Ok((offset + count as u64, count))
    })
    .expect("read");
}

fn copy(source: usize, target: usize, length: usize) -> husk_proto::Result<()> {
    // SAFETY: a span of the cache and a buffer of this program, both that long.
    unsafe { std::ptr::copy_nonoverlapping(source as *const u8, target as *mut u8, length) };
    Ok(())
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
