//! Keys and configuration of the hosts' sshd, and an `ssh` for home that uses them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::address;
use crate::bench::processes::exec::find;

/// The one key of all hosts, and that of the user.
const KEYS: [&str; 2] = ["hostkey", "userkey"];

/// Makes all of it below `disk` for so many hosts; the directory of home's `ssh`.
pub fn write(disk: &Path, hosts: usize) -> anyhow::Result<PathBuf> {
    let (ssh, keygen) = (find("ssh")?, find("ssh-keygen")?);
    for key in KEYS {
        let mut make = Command::new(&keygen);
        let made = make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(disk.join(key)).status();
        anyhow::ensure!(made?.success(), "ssh-keygen has failed");
    }
    fs::copy(disk.join("userkey.pub"), disk.join("authorized"))?;
    let host_key = fs::read_to_string(disk.join("hostkey.pub"))?;
    fs::write(disk.join("known"), format!("husk-bench {host_key}"))?;
    let place = disk.display();
    let mut config = String::new();
    for index in 1..=hosts {
        config += &format!("Host h{index}\nHostName {}\n", address(index));
        let own = disk.join(format!("h{index}"));
        fs::create_dir_all(&own)?;
        let home = own.join("home").display().to_string();
        let text = format!(
            "HostKey {place}/hostkey\nAuthorizedKeysFile {place}/authorized\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPidFile none\nPort 22\nMaxStartups 100\n\
             ListenAddress {}\n\
             SetEnv HOME={home} XDG_CACHE_HOME={home}/.cache PATH=/usr/bin:/bin\n",
            address(index)
        );
        fs::write(own.join("sshd"), text)?;
    }
    config += &format!(
        "Host *\nUser root\nIdentityFile {place}/userkey\nIdentitiesOnly yes\n\
         UserKnownHostsFile {place}/known\nGlobalKnownHostsFile /dev/null\n\
         HostKeyAlias husk-bench\nStrictHostKeyChecking yes\nLogLevel ERROR\n"
    );
    fs::write(disk.join("ssh"), config)?;
    let bin = disk.join("bin");
    fs::create_dir_all(&bin)?;
    let own = bin.join("ssh");
    fs::write(&own, format!("#!/bin/sh\nexec {} -F {place}/ssh \"$@\"\n", ssh.display()))?;
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755))?;
    Ok(bin)
}
