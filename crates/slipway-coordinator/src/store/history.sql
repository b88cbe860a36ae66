
-- Batches of points that a search chose.
CREATE TABLE batch (
    batch  INTEGER PRIMARY KEY,
    first  INTEGER NOT NULL,   -- its first point
    count  INTEGER NOT NULL,   -- of points
    scores TEXT,               -- as the search learnt them
    failed INTEGER NOT NULL DEFAULT 0,
    least  REAL,
    volume REAL,
    told   INTEGER NOT NULL DEFAULT 0  -- whether the optimiser has learnt it
) STRICT;

-- Points that a search chose.
CREATE TABLE chosen (
    point       INTEGER PRIMARY KEY,
    coordinates TEXT NOT NULL,
    variables   TEXT NOT NULL  -- values
) STRICT;
