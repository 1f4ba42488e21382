package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
)

// OpenSource opens the source that a text names: sqlite:FILE, postgres://..., k8s:NAMESPACE/NAME, else a file or a
// folder. It only connects to a cluster if it needs one. It creates or migrates a database's schema, but it does not
// create a file, so a misspelt name is an error. The caller closes the source.
func OpenSource(ctx context.Context, text string, cluster func() (dynamic.Interface, error)) (Source,
	func() error, error) {
	done := func() error { return nil }
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "sqlite", "postgres", "postgresql":
		d, err := OpenDatabase(ctx, text, Existing)
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	case "k8s":
		namespace, name, err := parseObject(rest)
		if err != nil {
			return nil, nil, err
		}
		client, err := cluster()
		return Object{client, namespace, name}, done, err
	}
	if text == "" || strings.HasPrefix(rest, "//") {
		return nil, nil, fmt.Errorf("%q is not a source of flag sets", text)
	}
	info, err := os.Stat(text)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return Directory{text}, done, nil
	}
	return File{text}, done, nil
}

// Presence says whether the file of a database must exist.
type Presence bool

// Existing: the file must exist. New: the file is created if it does not exist.
const (
	Existing Presence = false
	New      Presence = true
)

// OpenDatabase opens sqlite:FILE or postgres://..., and creates or migrates its schema.
func OpenDatabase(ctx context.Context, text string, presence Presence) (*Database, error) {
	var d *Database
	var err error
	if file, ok := strings.CutPrefix(text, "sqlite:"); !ok {
		d, err = OpenPostgres(text)
	} else if file == "" {
		err = errors.New("sqlite: has no file name")
	} else if _, err = os.Stat(file); err == nil || presence == New {
		d, err = OpenSQLite(file)
	}
	if err != nil {
		return nil, err
	}
	if err := d.Migrate(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// OpenRemote makes a provider for a server, given as http://... or https://....
func OpenRemote(text, token string) (*Remote, error) {
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return NewRemote(text, header, time.Second)
}
