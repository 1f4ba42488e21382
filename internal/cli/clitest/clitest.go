// Package clitest has what tests of several commands need: a plan with the records of a run, SSH keys, and an end for a
// command that goes on until it is stopped.
package clitest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// Plan is a plan that the controller runs: it has no commands and no mirror. It is of the cluster of the client, or of
// that of a fixture if the client is nil.
func Plan(t testing.TB, client *kube.Client) *plan.Plan {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
	if client != nil {
		var err error
		if snapshot.UID, err = client.ClusterUID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p, err := plan.Make(snapshot, v1alpha1.ChangeSpec{Dataplane: "nftables", AgentImage: "theseus.dev/agent:dev"},
		drivers.All(), nil,
		plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: "held"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Records are records as a run of a plan writes them, after the first one, which it adds.
func Records(t testing.TB, p *plan.Plan, records ...engine.Record) []engine.Record {
	t.Helper()
	start := fmt.Sprintf(`{"plan":%q,"theseus":"test","steps":%d}`, p.Hash, len(p.Steps))
	all := slices.Concat([]engine.Record{{Event: engine.Started, Data: []byte(start)}}, records)
	head := p.Hash
	for i := range all {
		all[i].Seq, all[i].At = i+1, time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
		var err error
		if head, err = engine.Link(head, all[i]); err != nil {
			t.Fatal(err)
		}
		all[i].Chain = head
	}
	return all
}

// Key makes the SSH key of alice@example.com, and returns its file and a list of signers with her alone. The key is
// encrypted if there is a passphrase.
func Key(t testing.TB, passphrase string) (file string, people []signed.Signer) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	for name, text := range map[string][]byte{file: pem.EncodeToMemory(block),
		file + ".list": append([]byte("alice@example.com "), ssh.MarshalAuthorizedKey(public)...)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if people, err = signed.ReadSigners(file + ".list"); err != nil {
		t.Fatal(err)
	}
	return file, people
}

// Ending is a writer to out that calls stop when a write contains the text.
func Ending(out io.Writer, text string, stop func()) io.Writer {
	return &ending{out, []byte(text), stop}
}

type ending struct {
	io.Writer
	text []byte
	stop func()
}

func (e *ending) Write(written []byte) (int, error) {
	if bytes.Contains(written, e.text) {
		e.stop()
	}
	return e.Writer.Write(written)
}
