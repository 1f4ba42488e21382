package dnstest

import (
	"database/sql"
	"testing"

	_ "modernc.org/sqlite" // the driver
)

// makeDatabase makes an SQLite file with a schema.
func makeDatabase(t testing.TB, file, schema string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err == nil {
		_, err = db.Exec(schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
