//! Pages of the arena that the first operations of a fresh process touch, and what they cost:
//! `cargo run --release -p husk-carrier --example pages`.

#[path = "../tests/support/mod.rs"]
mod support;

use husk_carrier::{Direct, Layout, STATE_ADDRESS};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::{Descriptors, Fs, Shortcuts as _};

const PAGE: usize = 4096;

fn main() {
    let layout = Layout { kernels: 2, memory_bytes: 4 << 30 };
    let (mut boss, root) = support::image(layout, Cover::Memory);
    let mut me = support::program(&mut boss, support::clock);
    let who = support::root_user();
    let dir = me.create(&who, root, b"dir", Node::Directory(0o755)).expect("mkdir");
    let file = me.create(&who, dir, b"file", Node::File(0o644)).expect("create");
    let files = me.files();
    let process = me.current();
    let fresh = move || {
        let pid = std::process::id();
        Direct::attach(support::clock, process, pid, pid).expect("attached")
    };
    report(layout, "nothing", &|| {});
    report(layout, "attach", &|| {
        std::hint::black_box(fresh());
    });
    report(layout, "stat of dir/file", &|| {
        let mut me = fresh();
        let dir = me.lookup(root, b"dir").expect("dir").inode;
        let file = me.lookup(dir, b"file").expect("file").inode;
        me.attributes(file).expect("stat");
    });
    report(layout, "open+close of dir/file", &|| {
        let mut me = fresh();
        let fd = me.open(&who, files, file, 0, 0, 64).expect("open");
        me.close(files, fd).expect("close");
        me.detach();
    });
    report(layout, "create+close+unlink", &|| {
        let mut me = fresh();
        let fd = me.create_open(&who, files, dir, b"fresh", 0o644, 2, 64).expect("create");
        me.close(files, fd).expect("close");
        me.unlink(&who, dir, b"fresh").expect("unlink");
        me.detach();
    });
}

/// Runs `body` in children; which pages of the arena it made them map, and their minor faults.
fn report(layout: Layout, name: &str, body: &dyn Fn()) {
    for _ in 0..2 {
        let (mut line, mut faults) = (String::new(), 0);
        in_child(
            &mut |out| {
                let before = minor_faults();
                body();
                let faults = minor_faults() - before;
                *out = format!("{faults} {}", touched(layout));
            },
            &mut line,
        );
        if let Some((count, pages)) = line.split_once(' ') {
            faults = count.parse().unwrap_or(0);
            line = pages.to_string();
        }
        println!("{name:24} {faults:4} faults, arena pages (of 4 KiB): {line}");
    }
}

fn in_child(body: &mut dyn FnMut(&mut String), line: &mut String) {
    let mut ends = [0; 2];
    // SAFETY: plain calls; the child leaves by `_exit`.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let pid = libc::fork();
        if pid == 0 {
            let mut text = String::new();
            body(&mut text);
            libc::write(ends[1], text.as_ptr().cast(), text.len());
            libc::_exit(0);
        }
        libc::close(ends[1]);
        let mut bytes = [0u8; 4096];
        let got = libc::read(ends[0], bytes.as_mut_ptr().cast(), bytes.len());
        libc::close(ends[0]);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
        *line = String::from_utf8_lossy(&bytes[..got.max(0) as usize]).into_owned();
    }
}

fn minor_faults() -> i64 {
    // SAFETY: the struct lives over the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt
    }
}

/// Pages of the arena in this process's tables that were accessed, by number.
fn touched(layout: Layout) -> String {
    let file = std::fs::File::open("/proc/self/pagemap").expect("pagemap");
    let count = layout.state_bytes() as usize / PAGE;
    let mut words = vec![0u8; count * 8];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut words, (STATE_ADDRESS / PAGE * 8) as u64)
        .expect("read");
    let there = |n: &usize| words[n * 8 + 7] & 0x80 != 0;
    let pages: Vec<String> = (0..count).filter(there).map(|n| n.to_string()).collect();
    format!("{} [{}]", pages.len(), pages.join(" "))
}
