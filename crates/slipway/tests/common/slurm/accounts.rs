//! Slurm's accounting: its daemon, and the database behind it, on the first machine. They are up in some seconds.

use super::super::await_that;
use super::super::machines::must;
use super::Slurm;

/// The socket where clients of the database look by themselves.
const SOCKET: &str = "/run/mysqld/mysqld.sock";

impl Slurm {
    /// As [`new`](Self::new), with accounting.
    pub fn with_accounts(count: usize) -> Self {
        Self::start(count, true)
    }

    /// Starts the database and its daemon.
    pub(super) fn keep_accounts(&mut self) {
        let data = format!("--datadir={}", self.path().join("db").display());
        let own = ["--no-defaults", "--user=root", &data];
        let install = ["--auth-root-authentication-method=socket", "--skip-test-db"];
        must(&mut self.program(0, "mariadb-install-db", [&own[..], &install].concat()));
        must(&mut self.program(0, "mkdir", ["/run/mysqld"]));
        let socket = format!("--socket={SOCKET}");
        self.daemon(0, "mariadbd", &[&own[..], &[&socket, "--skip-networking"]].concat());
        await_that("the database answers", || {
            let ping = self.program(0, "mariadb-admin", ["--no-defaults", &socket, "ping"]).output();
            ping.expect("mariadb-admin can be started").status.success()
        });
        let text = format!(
            "AuthType=auth/munge\nDbdHost={}\nSlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=localhost\n\
             StorageUser=root\nStorageLoc=slurm\nPidFile=/run/slurmdbd.pid\nLogFile={}\n",
            self.name(0),
            self.path().join("spool/slurmdbd.log").display(),
        );
        let file = self.file("slurmdbd.conf", &text).display().to_string();
        must(&mut self.program(0, "install", ["-m", "600", &file, "/etc/slurm"]));
        self.daemon(0, "slurmdbd", &["-D"]);
        await_that("the accounting daemon answers", || {
            let asked = self.program(0, "sacctmgr", ["--noheader", "show", "cluster"]).output();
            asked.expect("sacctmgr can be started").status.success()
        });
        self.run("sacctmgr", ["--immediate", "add", "cluster", "test"]);
    }

    /// Processor time of a job that has ended, as `sacct` has it, seconds.
    #[track_caller]
    pub fn processor_time(&self, job: &str) -> f64 {
        let mut seconds = 0.0;
        await_that("the accounts are complete", || {
            let words = ["--noheader", "--parsable2", "--jobs", job, "--format=State,TotalCPU"];
            let text = self.run("sacct", words);
            let mut rows = text.lines().filter_map(|line| line.split_once('|')).peekable();
            // The first row is the job's. Steps follow.
            seconds = rows.peek().map_or(0.0, |(_, time)| read(time));
            rows.peek().is_some() && rows.all(|(state, _)| state == "COMPLETED")
        });
        seconds
    }
}

/// `[[D-]HH:]MM:SS.mmm`, of jobs that last less than an hour.
fn read(time: &str) -> f64 {
    time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().expect("a number"))
}
