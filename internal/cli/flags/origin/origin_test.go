package origin

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/provider"
	"github.com/theseus-cni/theseus/internal/flags/provider/pgtest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// half gives half of all nodes a new value, and everybody to all of them.
const (
	half      = `{"state":"ENABLED","metadata":{"knob":"nftablesMode"},"variants":{"old":"Disabled","new":"Enabled"},"defaultVariant":"old","targeting":{"fractional":[["new",50],["old",50]]}}`
	everybody = `{"state":"ENABLED","metadata":{"knob":"nftablesMode"},"variants":{"old":"Disabled","new":"Enabled"},"defaultVariant":"new"}`
)

// origin is a source of flags that a test breaks and mends.
type origin struct {
	source        string
	write         func(flag string)
	shatter, mend func()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fileOrigin is a file that is replaced as a whole, as editors and ConfigMaps do.
func fileOrigin(t *testing.T) *origin {
	name, last := filepath.Join(t.TempDir(), "net.json"), ""
	replace := func(text string) {
		must(t, os.WriteFile(name+".new", []byte(text), 0o600))
		must(t, os.Rename(name+".new", name))
	}
	o := &origin{source: name, shatter: func() { replace(`{"flags": {"net": `) }, mend: func() { replace(last) }}
	o.write = func(flag string) {
		last = `{"flags":{"net":` + flag + `}}`
		replace(last)
	}
	return o
}

func goneOrigin(t *testing.T) *origin {
	o := fileOrigin(t)
	o.shatter = func() { must(t, os.Remove(o.source)) }
	return o
}

func folderOrigin(t *testing.T) *origin {
	o := fileOrigin(t)
	folder := filepath.Dir(o.source)
	o.source = folder
	other := filepath.Join(folder, "twice.json") // a flag that is there twice makes the folder no set
	o.shatter = func() { must(t, os.WriteFile(other, []byte(`{"flags":{"net":`+half+`}}`), 0o600)) }
	o.mend = func() { must(t, os.Remove(other)) }
	return o
}

func sqlOrigin(t *testing.T, source, driver, address string) *origin {
	database, err := provider.OpenDatabase(t.Context(), source, provider.New)
	must(t, err)
	t.Cleanup(func() { must(t, database.Close()) })
	raw, err := sql.Open(driver, address)
	must(t, err)
	t.Cleanup(func() { must(t, raw.Close()) })
	version := int64(0)
	run := func(statement string) func() {
		return func() {
			_, err := raw.Exec(statement)
			must(t, err)
		}
	}
	return &origin{source: source, write: func(flag string) {
		must(t, database.Apply(t.Context(),
			provider.Edit{Kind: provider.FlagItem, Name: "net", Value: flag, Version: version, Who: "test"}))
		version++
	}, shatter: run("ALTER TABLE theseus_flag_revision RENAME TO gone"),
		mend: run("ALTER TABLE gone RENAME TO theseus_flag_revision")}
}

func sqliteOrigin(t *testing.T) *origin {
	name := filepath.Join(t.TempDir(), "net.db")
	return sqlOrigin(t, "sqlite:"+name, "sqlite", "file:"+name+"?_pragma=busy_timeout(10000)")
}

// postgresOrigin is a server that crashes.
func postgresOrigin(t *testing.T) *origin {
	server := pgtest.Start(t)
	o := sqlOrigin(t, server.Address(), "pgx", server.Address())
	o.shatter, o.mend = func() { server.Stop(t) }, func() { server.Restart(t) }
	return o
}

// serverOrigin is a server of flags that goes, and comes back at the same address.
func serverOrigin(t *testing.T) *origin {
	o := fileOrigin(t)
	write, file := o.write, o.source
	var server *http.Server
	o.mend = func() {
		on, err := net.Listen("tcp", strings.TrimPrefix(o.source, "http://"))
		must(t, err)
		served := provider.NewProvider(provider.File{Path: file})
		must(t, served.Init(of.EvaluationContext{}))
		t.Cleanup(served.Shutdown)
		server = &http.Server{Handler: provider.Handler(served)}
		go server.Serve(on) //nolint:errcheck // it ends by Close
		o.source = "http://" + on.Addr().String()
	}
	o.shatter = func() { must(t, server.Close()) }
	t.Cleanup(func() { _ = server.Close() })
	o.write = func(flag string) {
		write(flag)
		if server == nil {
			o.source = "http://127.0.0.1:0"
			o.mend()
		}
	}
	return o
}

// said collects what a person is told.
type said struct {
	lock sync.Mutex
	text strings.Builder
}

func (s *said) say(text string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	fmt.Fprintln(&s.text, text)
}

func (s *said) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.String()
}

func (s *said) until(t *testing.T, words string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.String(),
		words); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q was never said, but:\n%s", words, s)
		}
	}
}

// TestOrigins: every kind of source says what all nodes get, by one state of it; while a run is under way it is told
// that the source breaks, that it is well again, and that its flag was changed.
func TestOrigins(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *origin{"file": fileOrigin,
		"file that goes": goneOrigin, "folder": folderOrigin,
		"SQLite": sqliteOrigin, "PostgreSQL": postgresOrigin, "server": serverOrigin} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := make(t)
			o.write(half)
			a := &app.App{}
			frozen, decided, err := Decide(t.Context(), a, fleet(t), o.source, "net")
			must(t, err)
			got := map[string]int{}
			for _, value := range decided.Values {
				got[value]++
			}
			if got["Enabled"] < 5 || got["Disabled"] < 5 || got["Enabled"]+got["Disabled"] != 40 ||
				decided.Knob != "nftablesMode" || len(frozen.Values["net"]["Enabled"]) != got["Enabled"] {
				t.Errorf("%v of %s, kept %v", got, decided.Knob, frozen)
			}

			var told said
			stop := Follow(t.Context(), a, &decided.Origin, told.say)
			defer stop()
			o.shatter()
			told.until(t, "flags of "+decided.Source+": STALE: ")
			told.until(t, "the run continues with the values in the plan")
			o.mend()
			told.until(t, "READY again")
			o.write(everybody)
			told.until(t,
				"net was changed; the run continues with the values in the plan: the new values need a new plan")
			if n := strings.Count(told.String(), "STALE"); n != 1 {
				t.Errorf("STALE was said %d times:\n%s", n, told.String())
			}
		})
	}
}

// fleet is a cluster of forty nodes on Calico.
func fleet(t *testing.T) *cluster.Snapshot {
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
	first := snapshot.Nodes[0]
	snapshot.Nodes = nil
	for i := range 40 {
		node := *first.DeepCopy()
		node.Name = fmt.Sprintf("n-%d", i)
		snapshot.Nodes = append(snapshot.Nodes, node)
	}
	return snapshot
}

// TestOriginGoneBefore: a source that is not there when a run begins, or is another than when the plan was made, is
// told; a database is not made by looking for it.
func TestOriginGoneBefore(t *testing.T) {
	folder := t.TempDir()
	for _, source := range []string{filepath.Join(folder, "f.yaml"), "sqlite:" + filepath.Join(folder, "f.db"),
		"http://127.0.0.1:1"} {
		var told said
		stop := Follow(t.Context(), new(app.App), &plan.Origin{Source: source, Flag: "net"}, told.say)
		told.until(t, "STALE: ")
		stop()
	}
	if files, _ := os.ReadDir(folder); len(files) > 0 {
		t.Errorf("%s was made", files[0].Name())
	}
	o := fileOrigin(t)
	o.write(half)
	var told said
	stop := Follow(t.Context(), new(app.App), &plan.Origin{Source: o.source, Flag: "net", Digest: "another"}, told.say)
	defer stop()
	told.until(t, "they have changed since the plan was made")
}

// TestTornServer: a server whose flags change all the time gives no plan, and neither does one that is STALE itself.
func TestTornServer(t *testing.T) {
	n, lock := 0, sync.Mutex{}
	on, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		n++
		fmt.Fprintf(w, `{"key": "net", "reason": "STATIC", "variant": "v", "value": "%d"}`, n)
	})}
	go server.Serve(on) //nolint:errcheck // it ends by Close
	defer server.Close()
	if _, _, err := Decide(t.Context(), new(app.App), fleet(t), "http://"+on.Addr().String(), "net"); err == nil ||
		!strings.Contains(err.Error(), "different answers each time") {
		t.Errorf("torn: %v", err)
	}

	o := serverOrigin(t)
	file := o.source
	o.write(half)
	must(t, os.Remove(file))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		_, _, err := Decide(context.Background(), new(app.App), fleet(t), o.source, "net")
		if err != nil && strings.Contains(err.Error(), "its own source is STALE") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a STALE server: %v", err)
		}
	}
}

// TestLasting: what a plan keeps of a source holds no password.
func TestLasting(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://jo:secret@db/flags?sslmode=require&password=secret": "postgres://jo@db/flags?sslmode=require",
		"https://jo:secret@flags.example":                               "https://jo@flags.example",
		"k8s:net/line":                                                  "k8s:net/line",
		"sqlite:/x/f.db":                                                "sqlite:/x/f.db",
		"/x/f.yaml":                                                     "/x/f.yaml",
		"postgres://%zz:secret":                                         "postgres:",
	} {
		if got := lasting(text); got != want {
			t.Errorf("%s is kept as %s, want %s", text, got, want)
		}
	}
	if got := lasting("f.yaml"); !filepath.IsAbs(got) {
		t.Errorf("%s is not found from elsewhere", got)
	}
}
