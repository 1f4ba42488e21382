package propose

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// TestCheckAndPlan: the findings and the plan of a change follow from the snapshot, the manifest and the change alone.
func TestCheckAndPlan(t *testing.T) {
	asked := 0
	in := Input{Snapshot: cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		Manifest: cnitest.Fixture(t, "calico-manifest.yaml"),
		Change: v1alpha1.ChangeSpec{To: "calico", PodCIDR: "10.96.0.0/16", Strategy: "recreate",
			AgentImage: "registry.example.com/agent:1"},
		Served: func() *check.Served { asked++; return &check.Served{Missing: true} }}
	in.Options = Options(in.Change, noon)
	checked, err := Check(in)
	if err != nil || checked.Refused != nil || asked != 1 || checked.Pass.Target == nil ||
		len(checked.Result.Findings) == 0 {
		t.Fatalf("%v, %v, the registry was asked %d times, %+v", err, checked.Refused, asked, checked.Result)
	}
	change := in.Change
	change.AgentImage = "registry.example.com/agent@sha256:" + strings.Repeat("0", 64) // found out since
	first, err := Plan(checked, change, plan.Options{Version: "v0", Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Plan(checked, change, plan.Options{Version: "v0", Now: noon})
	if err != nil || first.Hash != again.Hash || first.Change.AgentImage != change.AgentImage ||
		len(first.Findings) != len(checked.Result.Findings) {
		t.Errorf("%v: %s and %s", err, first.Hash, again.Hash)
	}
	if rights := Rights(checked.Pass, in.Options); len(rights.Findings)+len(rights.NotChecked) == 0 {
		t.Error("permissions are not checked")
	}
}

// TestRefused: what is wrong with a change itself is told from what is impossible on this cluster, and the registry is
// asked for neither.
func TestRefused(t *testing.T) {
	in := Input{Snapshot: cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		Change: v1alpha1.ChangeSpec{To: "calico"}, Served: func() *check.Served {
			t.Error("the registry was asked")
			return nil
		}}
	in.Options = Options(v1alpha1.ChangeSpec{Accept: map[string]string{"no/check": "because"}}, noon)
	_, err := Check(in)
	if _, invalid := errors.AsType[Invalid](err); !invalid || HintOf(err) == "" {
		t.Errorf("a check that does not exist is accepted: %v", err)
	}
	in.Options, in.Change.To = Options(in.Change, noon), "carrier-pigeon"
	_, err = Check(in)
	if _, refused := errors.AsType[*cni.Refusal](err); !refused || HintOf(err) == "" {
		t.Errorf("an unknown network: %v", err)
	}
}

// TestNoSecrets: a manifest with a secret is refused, with what to do.
func TestNoSecrets(t *testing.T) {
	object := func(kind string, fields map[string]any) []unstructured.Unstructured {
		all := map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": "a", "namespace": "n"}}
		for key, value := range fields {
			all[key] = value
		}
		return []unstructured.Unstructured{{Object: all}}
	}
	for name, test := range map[string]struct {
		objects []unstructured.Unstructured
		says    string
	}{
		"secret": {object("Secret", nil), "the manifest has the Secret n/a"},
		"password": {object("ConfigMap", map[string]any{"data": map[string]any{"password": "hunter2hunter2"}}),
			"has a password or token in"},
		"config map": {object("ConfigMap", map[string]any{"data": map[string]any{"mtu": "1450"}}), ""},
	} {
		err := NoSecrets(test.objects)
		if (err == nil) != (test.says == "") ||
			err != nil && (!strings.Contains(err.Error(), test.says) || HintOf(err) == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
