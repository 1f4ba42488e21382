package apply

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// TestAPIServer: with a real API server, a plan that is handed over with a key has an approval that people who have the
// list of signers can check.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "theseus apply --in-cluster --sign with a real API server")
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	client := kubetest.Users(t, clustertest.ControlPlane(t, program, clustertest.Options{NoPolicies: true}))("token")
	if err := run.Prepare(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	p := clitest.Plan(t, client)
	key, people := clitest.Key(t, "")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out,
		Err: clitest.Ending(&out, "has approved it, with a signature", stop)},
		Signals: &interrupt.Signals{Err: &out}, Output: "json"}
	signature, err := planfile.SignHash(a, p, key)
	if err != nil {
		t.Fatal(err)
	}
	code := exit.Code(&out, handOver(ctx, a, client, p, nil, signature))
	all, err := journal.Approvals(t.Context(), client.Dynamic, p.Name, p.Hash)
	if code != exit.Interrupted || err != nil || len(all) != 1 {
		t.Fatalf("exit %d, %+v, %v:\n%s", code, all, err, out.String())
	}
	who, err := signed.Check([]byte(p.Hash), map[string][]byte{"signature": []byte(all[0].Spec.Signature)}, people,
		all[0].CreationTimestamp.Time)
	if err != nil || !slices.Equal(who, []string{"alice@example.com"}) {
		t.Errorf("signed by %q, %v", who, err)
	}
}
