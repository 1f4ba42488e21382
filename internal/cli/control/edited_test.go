package control

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// plant puts an edited plan in the place of a Migration's, with the digest of its text, and returns that digest. The
// hash stays that of the plan that was applied.
func plant(t *testing.T, client *kube.Client, edited *plan.Plan) string {
	t.Helper()
	text, err := plan.WriteJSON(edited)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	migration, err := journal.Get(t.Context(), client.Dynamic, edited.Name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"data": packed.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	pages := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural("PlanPage")}
	if _, err := client.Dynamic.Resource(pages).Namespace(v1alpha1.Namespace).Patch(t.Context(),
		migration.Spec.PlanPages[0], types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(packed.Bytes())
	digest := hex.EncodeToString(sum[:])
	patchMigration(t, client, edited.Name, map[string]any{"spec": map[string]any{"planDigest": digest,
		"planPages": migration.Spec.PlanPages[:1]}})
	return digest
}

// TestEditedPlan: whatever acts on a plan of the cluster computes its hash, whatever this machine has proven before.
// status does so unless this version has proven the very text.
func TestEditedPlan(t *testing.T) {
	const refused, title = "the plan of migration held is not what was applied", "Do something else"
	p := clitest.Plan(t, nil)
	edited := *p
	edited.Steps = append(edited.Steps[:0:0], p.Steps...)
	edited.Steps[0].Title = title
	for name, do := range map[string]func(context.Context, *app.App, *kube.Client) error{
		"status": func(ctx context.Context, a *app.App, client *kube.Client) error {
			return status(ctx, a, client, p.Name)
		},
		"resume": func(ctx context.Context, a *app.App, client *kube.Client) error {
			return takeOver(ctx, a, client, p.Name, v1alpha1.DesireRun, mirror.Access{}, &approval.Flags{},
				new(execute.Outward), new(execute.Writes), false)
		},
		"rollback": func(ctx context.Context, a *app.App, client *kube.Client) error {
			return takeOver(ctx, a, client, p.Name, v1alpha1.DesireRollback, mirror.Access{}, &approval.Flags{},
				new(execute.Outward), new(execute.Writes), false)
		},
		"resume in the cluster": func(ctx context.Context, a *app.App, client *kube.Client) error {
			return resumeInCluster(ctx, a, client, p.Name, &approval.Flags{}, "")
		},
		"approve": func(ctx context.Context, a *app.App, client *kube.Client) error {
			_, _, _, err := asking.Load(ctx, a, client, p.Name)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("THESEUS_STATE_DIR", t.TempDir())
			told(t, p)
			client := controlled(t, p, clitest.Records(t, p)...)
			var out bytes.Buffer
			a := quietApp(&out, "")
			a.Version = "v1"
			if err := status(t.Context(), a, client, p.Name); err != nil { // proves it
				t.Fatal(err)
			}
			migration, err := journal.Get(t.Context(), client.Dynamic, p.Name)
			if err != nil || approval.Proven(p.Name, "v1") != migration.Spec.PlanDigest {
				t.Fatalf("%v; proven is %q, not %q", err, approval.Proven(p.Name, "v1"), migration.Spec.PlanDigest)
			}
			digest := plant(t, client, &edited)
			for _, version := range []string{"", "v0", "v1"} { // that has proven the edited text, as a file here says
				if version != "" {
					approval.KeepProven(p.Name, digest, version)
				}
				out.Reset()
				code := exit.Code(&out, do(t.Context(), a, client))
				if name == "status" && version == "v1" {
					if code != 0 || !strings.Contains(out.String(), p.Hash) {
						t.Errorf("proven by %q: exit %d:\n%s", version, code, out.String())
					}
				} else if code != exit.NeedsPerson || !strings.Contains(out.String(), refused) ||
					strings.Contains(out.String(), title) {
					t.Errorf("proven by %q: exit %d, want %d with %q:\n%s", version, code, exit.NeedsPerson, refused,
						out.String())
				}
			}
		})
	}
}
