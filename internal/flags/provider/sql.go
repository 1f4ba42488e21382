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

// pollDatabase is how often SQLite is polled, which has no notifications.
const pollDatabase = 500 * time.Millisecond

// callTimeout is the timeout of one database query.
const callTimeout = 10 * time.Second

// silence is how long a PostgreSQL connection may be idle before it is checked.
const silence = 3 * time.Second

// channel is the channel of PostgreSQL's notifications.
const channel = "theseus_flags"

// Database stores a flag set in SQLite or PostgreSQL, with the history of its edits. It is safe for concurrent use, by
// any number of processes.
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

// Kinds are all kinds of items.
func Kinds() []string { return []string{FlagItem, EvaluatorItem, MetadataItem} }

// Edit is one edit of an item.
type Edit struct {
	Kind string // FlagItem, EvaluatorItem or MetadataItem
	Name string
	// Value is JSON; empty removes the item.
	Value string
	// Version is the version of the item that was edited, 0 for a new item.
	Version int64
	Who     string
	Note    string
}

// Entry is the record of one edit.
type Entry struct {
	Kind, Name string
	Version    int64
	Value      string // empty: removed
	Who        string
	At         time.Time
	Note       string
}

// Conflict says that the item was edited concurrently.
type Conflict struct {
	Kind, Name string
	// Version is the current version, written by Who at At; 0 if the item does not exist.
	Version int64
	Who     string
	At      time.Time
	// Given is the version that the rejected edit was based on.
	Given int64
}

func (c *Conflict) Error() string {
	if c.Version == 0 {
		return fmt.Sprintf("the edit of the %s %q is based on version %d, but it does not exist",
			c.Kind, c.Name, c.Given)
	}
	return fmt.Sprintf("the edit of the %s %q is based on version %d, but it is at version %d since %s, by %s",
		c.Kind, c.Name, c.Given, c.Version, c.At.Format(time.RFC3339), c.Who)
}

// Hint returns what to do.
func (c *Conflict) Hint() string {
	return fmt.Sprintf("theseus flags history shows the current version; edit that one, with --version %d", c.Version)
}

// OpenSQLite opens a database file, and creates it if it does not exist.
func OpenSQLite(path string) (*Database, error) {
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	db, err := sql.Open("sqlite", "file:"+escaped+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	return &Database{db: db, name: "sqlite:" + path}, nil
}

// OpenPostgres opens a database by its address, postgres://... or key=value pairs. It does not connect yet.
func OpenPostgres(address string) (*Database, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", address)
	if err != nil {
		return nil, err
	}
	return &Database{db: db, postgres: address,
		name: fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database)}, nil
}

// Close closes the connections.
func (d *Database) Close() error { return d.db.Close() }

// String implements Source; it contains no password.
func (d *Database) String() string { return d.name }

// migrations upgrade the schema from one version to the next; a released one never changes.
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

// Migrate creates the schema, or upgrades an older one. It is idempotent and safe for concurrent use.
func (d *Database) Migrate(ctx context.Context) error {
	return d.transact(ctx, func(tx *sql.Tx) error {
		if d.postgres != "" {
			// Two concurrent CREATE TABLE IF NOT EXISTS may fail, so one waits for the other.
			if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(7468657365)`); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx,
			`CREATE TABLE IF NOT EXISTS theseus_flag_schema (version BIGINT PRIMARY KEY, at TEXT NOT NULL)`); err != nil {
			return err
		}
		var version int
		if err := tx.QueryRowContext(ctx,
			`SELECT COALESCE(MAX(version), 0) FROM theseus_flag_schema`).Scan(&version); err != nil {
			return err
		}
		if version > len(migrations) {
			return fmt.Errorf("its schema has version %d, but this theseus supports at most %d: use a newer one",
				version, len(migrations))
		}
		for ; version < len(migrations); version++ {
			for _, statement := range migrations[version] {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, d.bind(`INSERT INTO theseus_flag_schema (version, at) VALUES (?, ?)`),
				version+1, now()); err != nil {
				return err
			}
		}
		return nil
	})
}

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// bind replaces ? by PostgreSQL's placeholders; no statement contains another ?.
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

// Apply makes all edits or none. An edit that is based on an old version returns a *Conflict, and edits that would make
// the set invalid return a *flagset.Error.
func (d *Database) Apply(ctx context.Context, changes ...Edit) error {
	return d.transact(ctx, func(tx *sql.Tx) error {
		// The row of the revision is the lock that serialises writers.
		revision := int64(0)
		for _, change := range changes {
			if _, err := tx.ExecContext(ctx, `UPDATE theseus_flag_revision SET n = n + 1 WHERE id = 1`); err != nil {
				return wrap(d, err)
			}
			if err := tx.QueryRowContext(ctx,
				`SELECT n FROM theseus_flag_revision WHERE id = 1`).Scan(&revision); err != nil {
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

func (d *Database) edit(ctx context.Context, tx *sql.Tx, c Edit, revision int64) error {
	if c.Who == "" {
		return errors.New("an edit needs the name of its author")
	}
	if !json.Valid([]byte(c.Value)) && c.Value != "" {
		return fmt.Errorf("the value of the %s %q is not valid JSON", c.Kind, c.Name)
	}
	conflict := &Conflict{Kind: c.Kind, Name: c.Name, Given: c.Version}
	var at string
	err := tx.QueryRowContext(ctx, d.bind(`SELECT version, who, at FROM theseus_flag_item WHERE kind = ? AND name = ?`),
		c.Kind, c.Name).
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
	// A flag that is added again after a removal continues its version numbers.
	var version int64
	if err := tx.QueryRowContext(ctx, d.bind(
		`SELECT COALESCE(MAX(version), 0) + 1 FROM theseus_flag_history WHERE kind = ? AND name = ?`), c.Kind, c.Name).
		Scan(&version); err != nil {
		return err
	}
	when := now()
	if _, err := tx.ExecContext(ctx, d.bind(
		`INSERT INTO theseus_flag_history (revision, kind, name, version, value, who, at, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`),
		revision, c.Kind, c.Name, version, c.Value, c.Who, when, c.Note); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.bind(`DELETE FROM theseus_flag_item WHERE kind = ? AND name = ?`), c.Kind,
		c.Name); err != nil || c.Value == "" {
		return err
	}
	_, err = tx.ExecContext(ctx,
		d.bind(`INSERT INTO theseus_flag_item (kind, name, value, version, who, at) VALUES (?, ?, ?, ?, ?, ?)`), c.Kind,
		c.Name, c.Value, version, c.Who, when)
	return err
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Items returns the current items, as of their last edits, sorted.
func (d *Database) Items(ctx context.Context) ([]Entry, error) {
	items, err := d.entries(ctx, d.db,
		`SELECT kind, name, version, value, who, at, '' FROM theseus_flag_item ORDER BY kind, name`)
	return items, wrap(d, err)
}

// History returns the edits of an item, the newest first; of all items if the name is empty.
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

// Load implements Source. It is a single statement, so the result is consistent.
func (d *Database) Load(ctx context.Context) (*flagset.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return d.read(ctx, d.db)
}

func (d *Database) read(ctx context.Context, from querier) (*flagset.Set, error) {
	items, err := d.entries(ctx, from,
		`SELECT kind, name, version, value, who, at, '' FROM theseus_flag_item ORDER BY kind, name`)
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

// Watch implements Source: PostgreSQL sends notifications, SQLite is polled.
func (d *Database) Watch(ctx context.Context, changed func()) error {
	if d.postgres != "" {
		return wrap(d, d.listen(ctx, changed))
	}
	var last [2]int64
	for first := true; ; first = false {
		var seen [2]int64 // includes the number of items, so that lost items are noticed
		if err := d.db.QueryRowContext(ctx,
			`SELECT n, (SELECT COUNT(*) FROM theseus_flag_item) FROM theseus_flag_revision`).Scan(&seen[0],
			&seen[1]); err != nil {
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

// listen uses a separate connection. When the connection is idle, it checks that it still works.
func (d *Database) listen(ctx context.Context, changed func()) error {
	connection, err := pgx.Connect(ctx, d.postgres)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = connection.Close(closing) // it is closed either way
	}()
	if _, err := connection.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	changed() // covers changes between the last read and LISTEN
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
			// A dropped schema, or a peer that vanished without closing the connection, sends no notification.
			if err := connection.Ping(ctx); err != nil {
				return err
			}
			changed()
		}
	}
}
