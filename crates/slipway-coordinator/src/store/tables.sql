-- A campaign's queue. `campaign` has one row, with counts that each change keeps, so that they cost nothing to read.
CREATE TABLE campaign (
    state   TEXT    NOT NULL DEFAULT 'running',
    points  INTEGER NOT NULL,             -- of the design
    next    INTEGER NOT NULL DEFAULT 0,   -- the first point that no worker has had; of those from here, only points with a priority have a row
    open    INTEGER,                      -- points from here are kept back; NULL: none
    lead    INTEGER NOT NULL DEFAULT 0,   -- points before this one run first: others wait for their results
    early   INTEGER NOT NULL DEFAULT 0,   -- rows from `next` on: points with a priority
    fence   INTEGER NOT NULL DEFAULT 0,   -- of the last lease
    waiting INTEGER NOT NULL DEFAULT 0,   -- rows below, by state
    running INTEGER NOT NULL DEFAULT 0,
    done    INTEGER NOT NULL DEFAULT 0,
    failed  INTEGER NOT NULL DEFAULT 0,
    used    REAL    NOT NULL DEFAULT 0,   -- seconds of attempts that gave a result
    lost    REAL    NOT NULL DEFAULT 0    -- seconds of attempts that failed
) STRICT;

-- Points that some worker has had, or that have a priority.
CREATE TABLE point (
    point    INTEGER PRIMARY KEY,
    state    TEXT    NOT NULL,
    attempts INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    worker   INTEGER NOT NULL,
    due      REAL    NOT NULL DEFAULT 0,  -- a point that waits is not given out before
    since    REAL    NOT NULL DEFAULT 0,  -- the last lease, in seconds of its run
    failure  TEXT,
    message  TEXT,
    manifest TEXT,                        -- files of the last attempt, if it failed
    priority INTEGER NOT NULL DEFAULT 0   -- points with a greater one are given out first
) STRICT;

CREATE INDEX waiting ON point (priority, due, point) WHERE state = 'waiting';
CREATE INDEX due ON point (due) WHERE state = 'waiting';
CREATE INDEX running ON point (worker) WHERE state = 'running';
CREATE INDEX failed ON point (point) WHERE state = 'failed';
CREATE INDEX latest ON point (fence) WHERE failure IS NOT NULL;

CREATE TABLE result (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    point       INTEGER NOT NULL UNIQUE,
    worker      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    seconds     REAL    NOT NULL,
    cpu_seconds REAL    NOT NULL,
    peak_bytes  INTEGER NOT NULL,
    at          REAL    NOT NULL,         -- seconds since 1970
    record      TEXT    NOT NULL
) STRICT;

-- Runs of the campaign: a coordinator from its start to its end. All in seconds.
CREATE TABLE stint (
    stint   INTEGER PRIMARY KEY,
    began   REAL    NOT NULL,             -- since 1970
    elapsed REAL    NOT NULL DEFAULT 0,
    alive   REAL    NOT NULL DEFAULT 0,   -- of workers together
    most    INTEGER NOT NULL DEFAULT 0    -- workers at once
) STRICT;

-- Contradictions between the tables. `campaign verify` reads it; each count is 0 where all is well.
CREATE VIEW faults (fault, count) AS
SELECT 'points that wait, against the count', abs((SELECT count(*) FROM point WHERE state = 'waiting') - waiting) FROM campaign
UNION ALL
SELECT 'points that run, against the count', abs((SELECT count(*) FROM point WHERE state = 'running') - running) FROM campaign
UNION ALL
SELECT 'points that are done, against the count', abs((SELECT count(*) FROM point WHERE state = 'done') - done) FROM campaign
UNION ALL
SELECT 'points that failed, against the count', abs((SELECT count(*) FROM point WHERE state = 'failed') - failed) FROM campaign
UNION ALL
SELECT 'points that were given out, against rows', abs((SELECT count(*) FROM point) - next - early) FROM campaign
UNION ALL
SELECT 'points with a priority, against the count', abs((SELECT count(*) FROM point WHERE point >= next) - early) FROM campaign
UNION ALL
SELECT 'points that are done without a result', (SELECT count(*) FROM point WHERE state = 'done' AND point NOT IN (SELECT point FROM result))
UNION ALL
SELECT 'results of points that are not done', (SELECT count(*) FROM result WHERE point NOT IN (SELECT point FROM point WHERE state = 'done'));
