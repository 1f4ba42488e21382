package provider

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// pollDatabase is how often SQLite is asked, which has no notifications.
const pollDatabase = 500 * time.Millisecond

// callTimeout bounds one question to a database.
const callTimeout = 10 * time.Second

// silence is how long PostgreSQL may say nothing before it is asked.
const silence = 3 * time.Second

// channel is that of PostgreSQL's notifications.
const channel = "theseus_flags"

// Database holds a flag set in SQLite or PostgreSQL, with who changed what when. It is safe for concurrent
// use, by any number of processes.
type Database struct {
	db       *sql.DB
	name     string
	postgres string // its address; empty for SQLite
}

// Kinds of items: flags, shared rules ($evaluators) and properties of the set.
const (
	FlagItem      = "flag"
	EvaluatorItem = "evaluator"
	MetadataItem  = "metadata"
)

// Kinds are all of them.
func Kinds() []string { return []string{FlagItem, EvaluatorItem, MetadataItem} }

// Change is one edit.
type Change struct {
	Kind string // FlagItem, EvaluatorItem or MetadataItem
	Name string
	// Value is JSON; empty removes the item.
	Value string
	// Version is that of the item that was edited, 0 for one that was not there.
	Version int64
	Who     string
	Note    string
}

// Entry is what one edit left behind.
type Entry struct {
	Kind, Name string
	Version    int64
	Value      string // empty: removed
	Who        string
	At         time.Time
	Note       string
}

// Conflict says that somebody was faster.
type Conflict struct {
	Kind, Name string
	// Version is what there is now, by Who since At; 0 when the item is not there.
	Version int64
	Who     string
	At      time.Time
	// Given is the version that was edited.
	Given int64
}

func (c *Conflict) Error() string {
	if c.Version == 0 {
		return fmt.Sprintf("the %s %q was edited at version %d, and is not there", c.Kind, c.Name, c.Given)
	}
	return fmt.Sprintf("the %s %q was edited at version %d, and is at version %d since %s, by %s",
		c.Kind, c.Name, c.Given, c.Version, c.At.Format(time.RFC3339), c.Who)
}

// Hint says what to try.
func (c *Conflict) Hint() string {
	return fmt.Sprintf("theseus flags history shows it as it is now; edit that, with --version %d", c.Version)
}

// OpenSQLite opens a database file; it is made when it is not there.
func OpenSQLite(path string) (*Database, error) {
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	db, err := sql.Open("sqlite", "file:"+escaped+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	return &Database{db: db, name: "sqlite:" + path}, nil
}

// OpenPostgres opens a database by its address, postgres://... or words. Nothing is asked yet.
func OpenPostgres(address string) (*Database, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", address)
	if err != nil {
		return nil, err
	}
	return &Database{db: db, postgres: address, name: fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database)}, nil
}

// Close closes the connections.
func (d *Database) Close() error { return d.db.Close() }

// String implements Source; it holds no password.
func (d *Database) String() string { return d.name }

// migrations bring the schema from one version to the next; they are never changed once released.
var migrations = [][]string{
	{
		`CREATE TABLE theseus_flag_item (kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, version BIGINT NOT NULL,
			who TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (kind, name))`,
		`CREATE TABLE theseus_flag_history (revision BIGINT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL,
			value TEXT NOT NULL, who TEXT NOT NULL, at TEXT NOT NULL, note TEXT NOT NULL)`,
		`CREATE TABLE theseus_flag_revision (id BIGINT PRIMARY KEY CHECK (id = 1), n BIGINT NOT NULL)`,
		`INSERT INTO theseus_flag_revision (id, n) VALUES (1, 0)`,
	},
	{`CREATE INDEX theseus_flag_history_item ON theseus_flag_history (kind, name, revision)`},
}

// Migrate makes the schema, or brings an older one up to date. It may be called again, and by several at once.
func (d *Database) Migrate(ctx context.Context) error {
	return d.transact(ctx, func(tx *sql.Tx) error {
		if d.postgres != "" {
			// CREATE TABLE IF NOT EXISTS of two at once may fail: one waits for the other.
			if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(7468657365)`); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS theseus_flag_schema (version BIGINT PRIMARY KEY, at TEXT NOT NULL)`); err != nil {
			return err
		}
		var version int
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM theseus_flag_schema`).Scan(&version); err != nil {
			return err
		}
		if version > len(migrations) {
			return fmt.Errorf("its schema has version %d, this theseus knows up to %d: use a newer one", version, len(migrations))
		}
		for ; version < len(migrations); version++ {
			for _, statement := range migrations[version] {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, d.bind(`INSERT INTO theseus_flag_schema (version, at) VALUES (?, ?)`), version+1, now()); err != nil {
				return err
			}
		}
		return nil
	})
}

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// bind writes ? as PostgreSQL wants it; no statement has a ? elsewhere.
func (d *Database) bind(statement string) string {
	if d.postgres == "" {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (d *Database) transact(ctx context.Context, do func(*sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return wrap(d, err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // the reason is err
		return err
	}
	return wrap(d, tx.Commit())
}

// Apply makes edits, all or none. An edit of a version that is no more is a *Conflict, and a set that would
// not be valid is a *flag.Error.
func (d *Database) Apply(ctx context.Context, changes ...Change) error {
	return d.transact(ctx, func(tx *sql.Tx) error {
		// The row of the revision is the lock: writers wait for each other.
		revision := int64(0)
		for _, change := range changes {
			if _, err := tx.ExecContext(ctx, `UPDATE theseus_flag_revision SET n = n + 1 WHERE id = 1`); err != nil {
				return wrap(d, err)
			}
			if err := tx.QueryRowContext(ctx, `SELECT n FROM theseus_flag_revision WHERE id = 1`).Scan(&revision); err != nil {
				return wrap(d, err)
			}
			if err := d.edit(ctx, tx, change, revision); err != nil {
				return wrap(d, err)
			}
		}
		if _, err := d.read(ctx, tx); err != nil {
			return err
		}
		if d.postgres == "" {
			return nil
		}
		_, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, strconv.FormatInt(revision, 10))
		return wrap(d, err)
	})
}

func (d *Database) edit(ctx context.Context, tx *sql.Tx, c Change, revision int64) error {
	if c.Who == "" {
		return errors.New("an edit needs a name: who makes it")
	}
	if !json.Valid([]byte(c.Value)) && c.Value != "" {
		return fmt.Errorf("the value of the %s %q is no JSON", c.Kind, c.Name)
	}
	conflict := &Conflict{Kind: c.Kind, Name: c.Name, Given: c.Version}
	var at string
	err := tx.QueryRowContext(ctx, d.bind(`SELECT version, who, at FROM theseus_flag_item WHERE kind = ? AND name = ?`), c.Kind, c.Name).
		Scan(&conflict.Version, &conflict.Who, &at)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if conflict.Version != c.Version {
		conflict.At, _ = time.Parse(time.RFC3339Nano, at)
		return conflict
	}
	if c.Value == "" && c.Version == 0 {
		return fmt.Errorf("there is no %s %q to remove", c.Kind, c.Name)
	}
	// A flag that was removed and is back goes on counting.
	var version int64
	if err := tx.QueryRowContext(ctx, d.bind(`SELECT COALESCE(MAX(version), 0) + 1 FROM theseus_flag_history WHERE kind = ? AND name = ?`), c.Kind, c.Name).
		Scan(&version); err != nil {
		return err
	}
	when := now()
	if _, err := tx.ExecContext(ctx, d.bind(`INSERT INTO theseus_flag_history (revision, kind, name, version, value, who, at, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`),
		revision, c.Kind, c.Name, version, c.Value, c.Who, when, c.Note); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.bind(`DELETE FROM theseus_flag_item WHERE kind = ? AND name = ?`), c.Kind, c.Name); err != nil || c.Value == "" {
		return err
	}
	_, err = tx.ExecContext(ctx, d.bind(`INSERT INTO theseus_flag_item (kind, name, value, version, who, at) VALUES (?, ?, ?, ?, ?, ?)`),
		c.Kind, c.Name, c.Value, version, c.Who, when)
	return err
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Items are what is there now, as their last edits left it, sorted.
func (d *Database) Items(ctx context.Context) ([]Entry, error) {
	items, err := d.entries(ctx, d.db, `SELECT kind, name, version, value, who, at, '' FROM theseus_flag_item ORDER BY kind, name`)
	return items, wrap(d, err)
}

// History are the edits of an item, the newest first; of all items when the name is empty.
func (d *Database) History(ctx context.Context, kind, name string) ([]Entry, error) {
	entries, err := d.entries(ctx, d.db, `SELECT kind, name, version, value, who, at, note FROM theseus_flag_history
		WHERE ? = '' OR (kind = ? AND name = ?) ORDER BY revision DESC`, name, kind, name)
	return entries, wrap(d, err)
}

func (d *Database) entries(ctx context.Context, from querier, query string, args ...any) ([]Entry, error) {
	rows, err := from.QueryContext(ctx, d.bind(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []Entry
	for rows.Next() {
		var e Entry
		var at string
		if err := rows.Scan(&e.Kind, &e.Name, &e.Version, &e.Value, &e.Who, &at, &e.Note); err != nil {
			return nil, err
		}
		if e.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, rows.Err()
}

// Load implements Source. It is one statement, and so one moment.
func (d *Database) Load(ctx context.Context) (*flagset.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return d.read(ctx, d.db)
}

func (d *Database) read(ctx context.Context, from querier) (*flagset.Set, error) {
	items, err := d.entries(ctx, from, `SELECT kind, name, version, value, who, at, '' FROM theseus_flag_item ORDER BY kind, name`)
	if err != nil {
		return nil, wrap(d, err)
	}
	parts := map[string]map[string]json.RawMessage{"flags": {}}
	sections := map[string]string{FlagItem: "flags", EvaluatorItem: "$evaluators", MetadataItem: "metadata"}
	for _, item := range items {
		section, ok := sections[item.Kind]
		if !ok {
			return nil, wrap(d, fmt.Errorf("there is no kind %q of item", item.Kind))
		}
		if parts[section] == nil {
			parts[section] = map[string]json.RawMessage{}
		}
		parts[section][item.Name] = json.RawMessage(item.Value)
	}
	data, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		return nil, wrap(d, err)
	}
	return flagset.Parse(d.name, data, flagset.JSON, flagset.Strict)
}

// Watch implements Source: by notifications of PostgreSQL, by asking SQLite.
func (d *Database) Watch(ctx context.Context, changed func()) error {
	if d.postgres != "" {
		return wrap(d, d.listen(ctx, changed))
	}
	var last [2]int64
	for first := true; ; first = false {
		var seen [2]int64 // the items are counted so that their loss is noticed
		if err := d.db.QueryRowContext(ctx, `SELECT n, (SELECT COUNT(*) FROM theseus_flag_item) FROM theseus_flag_revision`).Scan(&seen[0], &seen[1]); err != nil {
			return wrap(d, err)
		}
		if seen != last || first {
			last = seen
			changed()
		}
		if err := outage.Sleep(ctx, pollDatabase); err != nil {
			return err
		}
	}
}

// listen holds a connection of its own. When it is silent, it is asked whether it still is one.
func (d *Database) listen(ctx context.Context, changed func()) error {
	connection, err := pgx.Connect(ctx, d.postgres)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = connection.Close(closing) // it is gone either way
	}()
	if _, err := connection.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	changed() // what happened between the last read and LISTEN
	for {
		waiting, cancel := context.WithTimeout(ctx, silence)
		_, err := connection.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			changed()
		case ctx.Err() != nil:
			return ctx.Err()
		case connection.IsClosed() || !pgconn.Timeout(err):
			return err
		default:
			// A lost schema, or a peer that is gone without a word, tells nobody.
			if err := connection.Ping(ctx); err != nil {
				return err
			}
			changed()
		}
	}
}
