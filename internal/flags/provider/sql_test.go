package provider

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider/pgtest"
)

// databases runs a test on SQLite and on PostgreSQL.
func databases(t *testing.T, test func(t *testing.T, open func() *Database)) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "flags.db")
		test(t, opener(t, func() (*Database, error) { return OpenSQLite(path) }))
	})
	t.Run("postgres", func(t *testing.T) {
		server := pgtest.Start(t)
		test(t, opener(t, func() (*Database, error) { return OpenPostgres(server.Address()) }))
	})
}

func opener(t *testing.T, open func() (*Database, error)) func() *Database {
	return func() *Database {
		d, err := open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
}

const (
	onOff = `{"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off"}`
	onOn  = `{"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "on"}`
)

func TestEdits(t *testing.T) {
	databases(t, func(t *testing.T, open func() *Database) {
		ctx := t.Context()
		jo, mel := open(), open()
		if err := jo.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		edit := func(d *Database, value string, version int64, who string) error {
			return d.Apply(ctx, Edit{Kind: FlagItem, Name: "bpf", Value: value, Version: version,
				Who: who, Note: "as agreed"})
		}
		if err := edit(jo, onOff, 0, "jo"); err != nil {
			t.Fatal(err)
		}
		// Both saw version 1; jo is faster, and mel is told.
		if err := edit(jo, onOn, 1, "jo"); err != nil {
			t.Fatal(err)
		}
		err := edit(mel, onOff, 1, "mel")
		var conflict *Conflict
		if !errors.As(err, &conflict) || conflict.Version != 2 || conflict.Who != "jo" || conflict.At.IsZero() {
			t.Fatalf("mel is told: %v", err)
		}
		if err := edit(mel, onOff, 0, "mel"); !errors.As(err, &conflict) {
			t.Errorf("a flag that is there is new: %v", err)
		}
		// What would not be valid is refused, and leaves nothing.
		var invalid *flagset.Error
		if err := edit(mel, `{"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "of"}`,
			2, "mel"); !errors.As(err, &invalid) || !strings.Contains(err.Error(), `there is no variant "of"`) {
			t.Errorf("an invalid flag: %v", err)
		}
		if err := edit(mel, `{`, 2, "mel"); err == nil {
			t.Error("no JSON is taken")
		}
		if err := edit(mel, onOff, 2, ""); err == nil {
			t.Error("an edit by nobody is taken")
		}
		// Removed, and back: the versions go on.
		for _, err := range []error{edit(mel, "", 2, "mel"), edit(jo, onOff, 0, "jo")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		history, err := jo.History(ctx, FlagItem, "bpf")
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range history {
			told = append(told, itoa(e.Version)+" "+e.Who+" "+e.Note+" "+e.Value)
			if e.At.IsZero() {
				t.Error("an edit without a time")
			}
		}
		want := []string{"4 jo as agreed " + onOff, "3 mel as agreed ", "2 jo as agreed " + onOn,
			"1 jo as agreed " + onOff}
		if strings.Join(told, "\n") != strings.Join(want, "\n") {
			t.Errorf("the history is\n%s", strings.Join(told, "\n"))
		}
		set, err := mel.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if r := set.Evaluate("bpf", flagset.Context{}, 0); r.Value != false {
			t.Errorf("%+v", r)
		}
	})
}

// TestClock: edits count in the order in which they were made, whatever the clocks of those who made them said.
func TestClock(t *testing.T) {
	databases(t, func(t *testing.T, open func() *Database) {
		d := open()
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		edit := func(value string, version int64) {
			t.Helper()
			if err := d.Apply(t.Context(),
				Edit{Kind: FlagItem, Name: "bpf", Value: value, Version: version, Who: "jo"}); err != nil {
				t.Fatal(err)
			}
		}
		edit(onOff, 0)
		for _, table := range []string{"item", "history"} { // the first clock was forty years ahead
			execute(t, d, `UPDATE theseus_flag_`+table+` SET at = '2066-01-01T00:00:00Z'`)
		}
		edit(onOn, 1)
		history, err := d.History(t.Context(), FlagItem, "bpf")
		if err != nil {
			t.Fatal(err)
		}
		if len(history) != 2 || history[0].Version != 2 || history[0].Value != onOn ||
			!history[0].At.Before(history[1].At) {
			t.Errorf("the history is %+v", history)
		}
		set, err := d.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r := set.Evaluate("bpf", flagset.Context{}, 0); r.Value != true {
			t.Errorf("the older edit counts: %+v", r)
		}
	})
}

func itoa(n int64) string { return string(rune('0' + n)) }

// TestRace: of many who edit one version at once, one wins.
func TestRace(t *testing.T) {
	databases(t, func(t *testing.T, open func() *Database) {
		first := open()
		if err := first.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		const people = 8
		results := make([]error, people)
		var group sync.WaitGroup
		for i := range people {
			d := open()
			group.Go(func() {
				results[i] = d.Apply(t.Context(),
					Edit{Kind: FlagItem, Name: "bpf", Value: onOff, Who: itoa(int64(i))})
			})
		}
		group.Wait()
		won := 0
		for _, err := range results {
			var conflict *Conflict
			if err == nil {
				won++
			} else if !errors.As(err, &conflict) {
				t.Error(err)
			}
		}
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
}

func TestMigrations(t *testing.T) {
	databases(t, func(t *testing.T, open func() *Database) {
		var group sync.WaitGroup
		for range 4 {
			d := open()
			group.Go(func() {
				if err := d.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		d := open()
		if set, err := d.Load(t.Context()); err != nil || len(set.Keys()) != 0 {
			t.Fatal(set, err)
		}
		execute(t, d, `INSERT INTO theseus_flag_schema (version, at) VALUES (99, '')`)
		if err := d.Migrate(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "version 99, but this theseus supports at most 2: use a newer one") {
			t.Error(err)
		}
	})
}

// TestUpgrade: a database of the first version is brought up to date with what is in it.
func TestUpgrade(t *testing.T) {
	databases(t, func(t *testing.T, open func() *Database) {
		d := open()
		execute(t, d, `CREATE TABLE theseus_flag_schema (version BIGINT PRIMARY KEY, at TEXT NOT NULL)`)
		for _, statement := range append(migrations[0],
			`INSERT INTO theseus_flag_schema (version, at) VALUES (1, '')`) {
			execute(t, d, statement)
		}
		if err := d.Apply(t.Context(), Edit{Kind: FlagItem, Name: "bpf", Value: onOff, Who: "jo"}); err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if set, err := d.Load(t.Context()); err != nil || len(set.Keys()) != 1 {
			t.Fatal(set, err)
		}
	})
}
