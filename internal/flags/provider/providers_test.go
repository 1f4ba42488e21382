package provider

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/flags/provider/pgtest"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestJSONFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.json")
	put := func(t *testing.T, set string) { write(t, path, set) }
	put(t, setOf(1))
	p := NewProvider(File{path})
	accept(t, contract{provider: p, put: put, pair: pairOf(p),
		spoil: fault{do: func(t *testing.T) {
			write(t, path, invalidSet)
		}}, cut: fault{do: func(t *testing.T) { remove(t, path) }}})
}

// TestFileFromThePast: a file is read again whatever its time says, as after a clock that was set back, or a restored
// backup.
func TestFileFromThePast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.json")
	write(t, path, setOf(1))
	p := NewProvider(File{path})
	if err := p.Init(of.EvaluationContext{}); err != nil {
		t.Fatal(err)
	}
	defer p.Shutdown()
	for generation, at := range map[int]time.Time{2: time.Unix(1, 0), 3: time.Now().AddDate(40, 0, 0)} {
		write(t, path, setOf(generation))
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the file is read", func() bool {
			return p.Evaluate(t.Context(), "first", nil, nil).Value == float64(generation)
		})
	}
}

func TestYAMLFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.yaml")
	put := func(t *testing.T, set string) {
		inYAML, err := yaml.JSONToYAML([]byte(set))
		if err != nil {
			t.Fatal(err)
		}
		// Whoever writes is not at once done, and half a YAML file is valid: it must not be read.
		half := len(inYAML) / 2
		for inYAML[half] != '\n' {
			half++
		}
		write(t, path, string(inYAML[:half]))
		write(t, path, string(inYAML))
	}
	put(t, setOf(1))
	p := NewProvider(File{path})
	accept(t, contract{provider: p, put: put, pair: pairOf(p),
		spoil: fault{do: func(t *testing.T) {
			write(t, path, "flags:\n\t- a")
		}}, cut: fault{do: func(t *testing.T) { remove(t, path) }}})
}

func TestDirectory(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "b.json")
	put := func(t *testing.T, set string) {
		_ = os.Remove(filepath.Join(folder, "twice.yaml"))
		// As kubelet and editors do it: another file, renamed.
		write(t, filepath.Join(folder, ".b.new"), set)
		if err := os.Rename(filepath.Join(folder, ".b.new"), path); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(folder, "a.yaml"), "flags: {other: {state: ENABLED, variants: {on: true}}}")
	put(t, setOf(1))
	p := NewProvider(Directory{folder})
	accept(t, contract{provider: p, put: put, pair: pairOf(p),
		spoil: fault{do: func(t *testing.T) {
			write(t, filepath.Join(folder, "twice.yaml"), "flags: {other: {state: ENABLED, variants: {on: true}}}")
		}},
		cut: fault{do: func(t *testing.T) { write(t, path, "") }}})
}

func TestSQLite(t *testing.T) {
	d, err := OpenDatabase(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "flags.db"), New)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	acceptDatabase(t, d, loseSchema(d))
}

func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	d, err := OpenPostgres(server.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("schema lost", func(t *testing.T) { acceptDatabase(t, d, loseSchema(d)) })
	t.Run("server lost", func(t *testing.T) { acceptDatabase(t, d, fault{server.Stop, server.Restart}) })
}

// loseSchema takes the table away, as somebody's restore or clean-up does.
func loseSchema(d *Database) fault {
	rename := func(from, to string) func(*testing.T) {
		return func(t *testing.T) { execute(t, d, "ALTER TABLE "+from+" RENAME TO "+to) }
	}
	return fault{rename("theseus_flag_item", "gone"), rename("gone", "theseus_flag_item")}
}

func acceptDatabase(t *testing.T, d *Database, cut fault) {
	put := func(t *testing.T, set string) {
		// A server that is just up may still turn a connection away.
		eventually(t, "the set is written", func() bool {
			return d.db.PingContext(t.Context()) == nil && d.Apply(t.Context(), changesTo(t, d, set)...) == nil
		})
	}
	put(t, setOf(1))
	p := NewProvider(d)
	accept(t, contract{provider: p, put: put, pair: pairOf(p), cut: cut,
		// Written past Apply, which would refuse it.
		spoil: fault{do: func(t *testing.T) {
			execute(t, d,
				`UPDATE theseus_flag_item SET value = '{"state": "ON", "variants": {"a": 1}}' WHERE name = 'first'`)
			execute(t, d, `UPDATE theseus_flag_revision SET n = n + 1`)
		}}})
}

func execute(t *testing.T, d *Database, statement string) {
	t.Helper()
	if _, err := d.db.ExecContext(context.Background(), statement); err != nil {
		t.Fatal(err)
	}
}

// TestObject runs against client-go's fake.
func TestObject(t *testing.T) {
	acceptObject(t, fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{FeatureFlags: "FeatureFlagList"}))
}

func acceptObject(t *testing.T, client dynamic.Interface) {
	flags := client.Resource(FeatureFlags).Namespace("net")
	put := func(t *testing.T, set string) {
		var spec map[string]any
		if err := json.Unmarshal([]byte(set), &spec); err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "core.openfeature.dev/v1beta1",
			"kind": "FeatureFlag", "metadata": map[string]any{"namespace": "net", "name": "cni"},
			"spec": map[string]any{"flagSpec": spec}}}
		there, err := flags.Get(t.Context(), "cni", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = flags.Create(t.Context(), object, metav1.CreateOptions{})
		} else if err == nil {
			object.SetResourceVersion(there.GetResourceVersion())
			_, err = flags.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(t, setOf(1))
	p := NewProvider(Object{client, "net", "cni"})
	accept(t, contract{provider: p, put: put, pair: pairOf(p),
		spoil: fault{do: func(t *testing.T) { put(t, invalidSet) }},
		cut: fault{do: func(t *testing.T) {
			if err := flags.Delete(t.Context(), "cni", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}}})
}

// listener serves a handler at an address that stays the same while it is closed and open again.
type listener struct {
	address string
	handler http.Handler
	server  *http.Server
}

func (l *listener) open(t *testing.T) {
	t.Helper()
	on, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.address = on.Addr().String()
	l.server = &http.Server{Handler: l.handler, ReadHeaderTimeout: time.Second}
	go func() { _ = l.server.Serve(on) }() // ends with close
}

func (l *listener) close(t *testing.T) {
	t.Helper()
	if err := l.server.Close(); err != nil {
		t.Error(err)
	}
}

// TestRemote runs the suite through OFREP: our client, our server, a file behind it.
func TestRemote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.json")
	put := func(t *testing.T, set string) { write(t, path, set) }
	put(t, setOf(1))
	behind := NewProvider(File{path})
	if err := behind.Init(of.EvaluationContext{}); err != nil {
		t.Fatal(err)
	}
	defer behind.Shutdown()
	l := &listener{address: "127.0.0.1:0", handler: Handler(behind)}
	l.open(t)
	defer l.close(t)
	remote, err := NewRemote("http://"+l.address, nil, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	accept(t, contract{provider: remote, put: put,
		pair: func(t *testing.T) (first, last any) {
			answer, err := remote.post(t.Context(), evaluatePath, "", ofrepRequest{Context: map[string]any{}})
			if err != nil {
				return nil, nil
			}
			var all ofrepBulk
			if err := json.Unmarshal(answer.body, &all); err != nil {
				return err, nil
			}
			values := map[string]string{}
			for _, one := range all.Flags {
				values[one.Key] = string(one.Value)
			}
			return values["first"], values["last"]
		},
		spoil: fault{do: func(t *testing.T) { write(t, path, invalidSet) }},
		cut:   fault{do: l.close, undo: l.open}})
}
